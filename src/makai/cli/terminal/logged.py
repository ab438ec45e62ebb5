"""Log messages of our own code, while a terminal is drawn on.

In: `logging` records of any thread. Out: pieces in the transcript: a line in the middle of the region would spoil it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from makai.cli.terminal.text import Lines, lines_of
from makai.cli.terminal.visible import shown


class _Handler(logging.Handler):
    def __init__(self, show: Callable[[Lines], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        text = shown(self.format(record))
        lines = Lines(lines=tuple(lines_of(text, "dim")))
        self._loop.call_soon_threadsafe(self._show, lines)


@contextmanager
def shown_in(show: Callable[[Lines], None]) -> Iterator[None]:
    """Show warnings and errors there, instead of on stderr."""
    handler = _Handler(show)
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
