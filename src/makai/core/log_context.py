"""Which session and run a task works for, so that structured logs can say it. A task passes it on to those that it
starts."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

_CURRENT: Final[ContextVar[tuple[str, str]]] = ContextVar("makai_log_context", default=("", ""))


def log_as(session_id: str, run_id: str = "") -> None:
    """Say it for the rest of the current task."""
    _CURRENT.set((session_id, run_id))


def logged_ids() -> tuple[str, str]:
    """The session and the run of the current task; empty where there is none."""
    return _CURRENT.get()
