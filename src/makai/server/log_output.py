"""How the log of a server is printed: without anything that a client sent.

Exceptions are shown by their types and places, not by their texts, and of what libraries log only the words before the
first value are kept: both may repeat a header or a body, and with it a token. makai's own messages hold no such value.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_OWN: Final = "makai"
_WORDS: Final = re.compile(r"[A-Za-z ,.'-]{0,120}")


class PlacesFormatter(logging.Formatter):
    """Formats a record without the texts of exceptions and the values in messages of libraries."""

    def format(self, record: logging.LogRecord) -> str:
        if not _is_own(record):
            said = f"{record.name}: {said_by(record)}"
            record = logging.makeLogRecord({**record.__dict__, "msg": said, "args": None})
        record.exc_text = None  # another handler may have kept the whole text
        return super().format(record)

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return places_of(ei[1]) if ei[1] is not None else ""


def said_by(record: logging.LogRecord) -> str:
    """The message of makai; of a library, the words before its first value."""
    if _is_own(record):
        return record.getMessage()
    words = _WORDS.match(str(record.msg))
    return words[0].strip() if words else ""


def places_of(error: BaseException) -> str:
    """Types and places of an error and of what caused it, the cause first."""
    lines: list[str] = []
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        frames = traceback.extract_tb(found.__traceback__)
        lines[:0] = [
            *(f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames),
            type(found).__name__,
        ]
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return "\n".join(lines)


@contextmanager
def log_without_values(formatter: logging.Formatter, level: LogLevel = "warning") -> Iterator[None]:
    """Print what this process logs on stderr in that way, in place of Python's last resort. Below warnings, only what
    makai logs itself is printed."""
    handler = logging.StreamHandler()
    handler.addFilter(_is_wanted)
    handler.setFormatter(formatter)
    root, own = logging.getLogger(), logging.getLogger(_OWN)
    former = own.level
    root.addHandler(handler)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.setLevel(former)


def _is_wanted(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or _is_own(record)


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == _OWN
