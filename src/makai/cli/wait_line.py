"""The wait before a request is sent again, as `makai run` shows it: on a terminal one line that counts down, in a pipe
one line for the whole wait."""

from __future__ import annotations

import asyncio
import shutil
import sys
from typing import Final

from makai.cli.console import clip, note
from makai.core.session_events import LONG_WAIT_MS, Notice
from makai.core.visible_text import one_line

_CLEAR: Final = "\r\x1b[K"
_STOPS: Final = "  (Ctrl-C stops)"


class WaitLine:
    """Use it inside the event loop; it owns one timer, which `clear` ends."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._said = ""
        """The `notice_id` of the wait that a pipe was told about."""

    def show(self, notice: Notice) -> None:
        assert notice.wait_ms is not None
        self.clear()
        if sys.stderr.isatty():
            loop = asyncio.get_running_loop()
            self._draw(notice, loop, loop.time() + notice.wait_ms / 1000)
        elif notice.notice_id != self._said and notice.wait_ms >= LONG_WAIT_MS:
            self._said = notice.notice_id
            note(f"makai: {one_line(notice.waiting_text())}")

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            note(_CLEAR, end="")

    def _draw(self, notice: Notice, loop: asyncio.AbstractEventLoop, until: float) -> None:
        left_s = max(0.0, until - loop.time())
        width = shutil.get_terminal_size().columns - len(_STOPS) - 1
        note(f"{_CLEAR}{clip(one_line(notice.waiting_text(left_s)), width)}{_STOPS}", end="", dim=True)
        self._timer = loop.call_later(1.0, self._draw, notice, loop, until)
