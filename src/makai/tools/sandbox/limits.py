"""How many processes a confined command may start.

The kernel does not count the processes of root against RLIMIT_NPROC, not even in a user namespace, so for root a "pids"
control group counts.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from makai.aio.supervisor import IN_CONTROL_GROUP

_REMOVE_WITHIN_S: Final = 3.0
_LOOK_AGAIN_S: Final = 0.002


def limit_processes(most: int) -> None:
    """For this process and all it starts. A lower limit that holds already stays."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


def user_limit(max_processes: int) -> int:
    """The value for RLIMIT_NPROC. It counts all tasks of the user, so those of today come on top."""
    # "0.20 0.18 0.12 1/80 11206": running and existing tasks of the whole system (proc_loadavg(5))
    tasks = Path("/proc/loadavg").read_text().split()[3].partition("/")[2]
    return int(tasks) + max_processes


def in_group(max_processes: int, argv: Sequence[str]) -> list[str]:
    """The argument vector for the launcher that counts the processes of `argv`, where a control group has to."""
    group = process_group_of(max_processes)
    return [IN_CONTROL_GROUP, group, *argv] if group else list(argv)


def counts_processes() -> bool:
    return os.geteuid() != 0 or process_group_of(1024) is not None


def not_counted() -> tuple[str, ...]:
    return () if counts_processes() else ("the number of processes (root, without a control group)",)


@functools.cache
def process_group_of(max_processes: int) -> str | None:
    """A control group of this process that holds at most so many tasks; None when there is none or none is needed."""
    parent = _pids_hierarchy() if os.geteuid() == 0 else None
    if parent is None:
        return None
    for old in parent.glob("makai-*-*"):  # of processes that were killed
        if not os.path.exists(f"/proc/{old.name.split('-')[1]}"):
            _remove(old)
    group = parent / f"makai-{os.getpid()}-{max_processes}"
    try:
        group.mkdir(exist_ok=True)
        (group / "pids.max").write_text(str(max_processes))
    except OSError:
        return None
    atexit.register(_remove_own, group)
    return str(group)


def _pids_hierarchy() -> Path | None:
    """Where this process may make a group beneath its own, so that all limits it lives under still hold."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    if "pids" in own:
        return Path("/sys/fs/cgroup/pids", own["pids"].lstrip("/"))
    # cgroup v2 hands controllers only to groups without processes of their own; the top is excepted (cgroup-v2.rst,
    # "No Internal Process Constraint"), and who is anywhere else would have to leave its own limits.
    top = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError):
        if own.get("") == "/" and "pids" in (top / "cgroup.subtree_control").read_text().split():
            return top
    return None


def _remove_own(group: Path) -> None:
    from makai.tools.launching import launcher

    launcher().close()  # it may be in the group
    remove_when_empty(group)


def remove_when_empty(group: Path, *, wait: Callable[[float], None] = time.sleep) -> None:
    """Remove the group once its last process has ended, or give up after three seconds.

    A supervisor says that its child has ended before it ends itself, and the kernel has no event for an empty group.
    """
    deadline = time.monotonic() + _REMOVE_WITHIN_S
    while not _remove(group) and time.monotonic() < deadline:
        wait(_LOOK_AGAIN_S)


def _remove(group: Path) -> bool:
    """False while a process is in the group."""
    try:
        group.rmdir()
    except OSError as error:
        return error.errno != errno.EBUSY
    return True
