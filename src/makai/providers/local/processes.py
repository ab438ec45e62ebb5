"""Starting and ending helper processes that must never outlive their purpose.

In: an argument list. Out: an asyncio process in its own process group, and a way to end that whole group.
It must not know what the processes do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

KILL_DEADLINE_S = 5.0
"""How long the kernel may take to bury a killed process before we stop waiting for it."""


async def end_group(process: asyncio.subprocess.Process, *, grace_s: float = 0.0) -> None:
    """End `process` and everything it started: ask, wait up to `grace_s`, then kill. Safe to call twice."""
    if process.returncode is None and grace_s > 0:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace_s)
    # The leader may be gone while its own children are not, so the group is always killed.
    _signal_group(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), KILL_DEADLINE_S)


def has_ended(process: asyncio.subprocess.Process) -> bool:
    """Whether the process is gone, by the kernel's word where it can be asked: the event loop may learn it later."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.returncode is not None
    try:
        # WNOWAIT leaves the exit status for the event loop to collect.
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _signal_group(leader_pid: int, number: signal.Signals) -> None:
    """Signal the group that `start_new_session=True` made; `leader_pid` is also its group id."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(leader_pid, number)
        else:
            os.killpg(leader_pid, number)
