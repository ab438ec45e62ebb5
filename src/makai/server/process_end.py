"""The end of a process that serves its standard input: who closes that input expects the process to be gone at once.

Nothing is lost by an early exit: the log is durable at every moment, and what a child leaves behind is ended by its
supervisor, also after this process is gone."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import Final, NoReturn

CHILDREN_S: Final = 0.2
"""How long MCP servers and agents may take to end by themselves; then they have the grace of their supervisor."""
PROCESS_S: Final = 0.7
"""An editor gives up on its agent after a second."""


def end_soon() -> None:
    """The input has ended: exit in `PROCESS_S` at the latest, whatever else waits. Call it on the event loop."""
    asyncio.get_running_loop().call_later(CHILDREN_S, _kill_children)
    deadline = threading.Timer(PROCESS_S, os._exit, (0,))  # the event loop may be busy, or over
    deadline.daemon = True
    deadline.start()


def _kill_children() -> None:
    from makai.aio.child_process import kill_children  # no editor waits for this import when it starts its agent

    kill_children()


def exit_process(code: int) -> NoReturn:
    """Exit without the end of the interpreter: to free its modules takes longer than to close the sessions."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
