"""Decides when the user of a chat is called back to the terminal, and how: by the bell or a desktop notification. Pure.

A terminal that reports its focus calls only while another window has it. Any other terminal calls for every question,
and at the end of a run that worked for ten seconds without a key being pressed.
"""

from __future__ import annotations

from typing import Final

from makai.core.config import NotifyKind
from makai.core.visible_text import one_line

LONG_S: Final = 10.0
FOCUS_REPORTS: Final = ("\x1b[I", "\x1b[O")
"""What a terminal sends when it gets and when it loses the focus."""
REPORT_FOCUS: Final = "\x1b[?1004h"
REPORT_NO_FOCUS: Final = "\x1b[?1004l"
MAX_CHARS: Final = 120


class Notifier:
    def __init__(self, kind: NotifyKind) -> None:
        self._kind = kind
        self._has_focus: bool | None = None
        """None until the terminal reports it."""
        self._runs_since: float | None = None
        self._touched_at = float("-inf")
        self._question: str | None = None

    def focus(self, has_focus: bool) -> None:
        self._has_focus = has_focus

    def touched(self, now: float) -> None:
        """The user pressed a key."""
        self._touched_at = now

    def update(self, *, is_running: bool, question: str | None, about: str, now: float) -> str:
        """Take what the session does now. Returns the bytes that call the user, if that is due."""
        since = self._runs_since
        is_new = question is not None and question != self._question
        self._question = question
        self._runs_since = (now if since is None else since) if is_running else None
        if is_new and not self._has_focus:
            return self._call(f"needs you: {about}")
        if since is not None and not is_running and now - since >= LONG_S and self._is_away(since, now):
            return self._call("is done.")
        return ""

    def _is_away(self, since: float, now: float) -> bool:
        if self._has_focus is not None:
            return not self._has_focus
        return now - max(since, self._touched_at) >= LONG_S

    def _call(self, text: str) -> str:
        match self._kind:
            case "none":
                return ""
            case "bell":
                return "\a"
            case "desktop":
                return f"\x1b]9;makai {one_line(text, MAX_CHARS)}\x1b\\"
