"""Reads lines from standard input without blocking the event loop; a terminal can be read without echo.

A caller may stop waiting for a line: a login may end in the browser while its question is still on the screen. Reading
therefore happens in a daemon thread that is never joined, past Python's own buffer: a thread that holds that buffer's
lock would abort the interpreter when it exits.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Final

from makai.core.errors import InvalidRequest

MAX_LINE: Final = 64 * 1024


class LineReader:
    """For one reader at a time. Nothing is read before `next` is called."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._unused = b""
        self._ended = False
        self._reading = False
        self._news = asyncio.Event()

    async def next(self, *, hidden: bool = False) -> str | None:
        """The next line without its line break, or None at the end. `hidden` turns off the echo of a terminal."""
        with _without_echo(self._descriptor) if hidden else nullcontext():
            while b"\n" not in self._unused and not self._ended:
                if len(self._unused) > MAX_LINE:
                    raise InvalidRequest(f"A line on standard input is longer than {MAX_LINE} bytes.")
                self._news.clear()
                self._read_more()
                await self._news.wait()
        line, end, self._unused = self._unused.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r") if line or end else None

    def _read_more(self) -> None:
        if self._reading:
            return  # the thread of an earlier wait is still reading
        self._reading = True
        loop = asyncio.get_running_loop()

        def read() -> None:
            try:
                data = os.read(self._descriptor, MAX_LINE)
            except OSError:  # closed, or the terminal is gone
                data = b""
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._take, data)

        threading.Thread(target=read, name="makai-typed-lines", daemon=True).start()

    def _take(self, data: bytes) -> None:
        self._reading = False
        self._ended = not data
        self._unused += data
        self._news.set()


@contextmanager
def _without_echo(descriptor: int) -> Iterator[None]:
    if not os.isatty(descriptor):
        yield
        return
    import termios

    before = termios.tcgetattr(descriptor)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
