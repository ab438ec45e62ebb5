"""Reads lines from standard input without blocking the event loop; a terminal can be read without echo.

A caller may stop waiting for a line: a login may end in the browser while its question is still on the screen. Reading
therefore happens in a daemon thread that is never joined, past Python's own buffer: a thread that holds that buffer's
lock would abort the interpreter when it exits. The thread waits until there is input and takes none after its caller
stopped waiting: what is typed then belongs to the next reader of the terminal, such as the chat.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from makai.core.errors import InvalidRequest

MAX_LINE: Final = 64 * 1024
ESCAPE: Final = "\x1b"
SEQUENCE_S: Final = 0.05
"""What follows Esc this soon belongs to the same key, such as an arrow."""


class LineReader:
    """For one reader at a time. Nothing is read before `next` is called."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._unused = b""
        self._ended = False
        self._wait: _InputWait | None = None
        self._news = asyncio.Event()

    async def next(
        self, *, hidden: bool = False, escape: bool = False, prompt: Callable[[], None] | None = None
    ) -> str | None:
        """The next line without its line break, or None at the end. `hidden` turns off the echo of a terminal. With
        `escape`, the Esc key of a terminal ends the wait at once and is returned as `ESCAPE`. `prompt` is called when
        the terminal is ready for the answer."""
        with _terminal_settings(self._descriptor, hidden=hidden, escape=escape):
            if prompt is not None:
                prompt()
            try:
                return await self._line(escape=escape)
            finally:
                if self._wait is not None:
                    self._wait.end()

    async def _line(self, *, escape: bool) -> str | None:
        while b"\n" not in self._unused and not self._ended:
            if len(self._unused) > MAX_LINE:
                raise InvalidRequest(f"A line on standard input is longer than {MAX_LINE} bytes.")
            self._news.clear()
            self._wait = _InputWait(self._descriptor, self._take)
            await self._news.wait()
            if escape and self.is_terminal and self._unused.endswith(b"\x1b") and await self._is_escape_key():
                return ESCAPE
        line, end, self._unused = self._unused.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r") if line or end else None

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._descriptor)

    def discard(self) -> None:
        """Forget what was typed into a terminal so far."""
        import termios

        self._unused = b""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def _is_escape_key(self) -> bool:
        """Whether the Esc that was just read is the key itself, and not the beginning of another one (an arrow)."""
        await asyncio.sleep(SEQUENCE_S)
        rest = _pending(self._descriptor)
        self._unused = self._unused + rest if rest else b""
        return not rest

    def _take(self, data: bytes) -> None:
        self._ended = not data
        self._unused += data
        self._news.set()


class _InputWait:
    """Waits in a thread of its own for one piece of input, and delivers it in the event loop: empty at the end. After
    `end` it leaves what is typed to others."""

    def __init__(self, descriptor: int, deliver: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self._woken, self._waker = os.pipe()
        threading.Thread(target=self._read, name="makai-typed-lines", daemon=True).start()

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            os.close(self._waker)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._woken, 0)  # that its other end was closed is always reported
        poll.poll()
        os.close(self._woken)
        if self._is_over:
            return
        try:
            data = os.read(self._descriptor, MAX_LINE)
        except OSError:  # closed, or the terminal is gone
            data = b""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._done, data)

    def _done(self, data: bytes) -> None:
        self.end()
        self._deliver(data)


@contextmanager
def _terminal_settings(descriptor: int, *, hidden: bool, escape: bool) -> Iterator[None]:
    """Change how a terminal is read; a pipe is read as it is."""
    if not (hidden or escape) or not os.isatty(descriptor):
        yield
        return
    import termios

    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    if hidden:
        changed[3] &= ~termios.ECHO
    if escape:
        changed[6][termios.VEOL] = ESCAPE.encode()  # the key ends a line, so that it is read without Enter
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _pending(descriptor: int) -> bytes:
    """Take what was typed without a line break, without waiting."""
    import termios

    before = termios.tcgetattr(descriptor)
    raw = termios.tcgetattr(descriptor)
    raw[3] &= ~termios.ICANON
    raw[6][termios.VMIN], raw[6][termios.VTIME] = 0, 0
    termios.tcsetattr(descriptor, termios.TCSANOW, raw)
    try:
        return os.read(descriptor, MAX_LINE)
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
