"""Makes text safe to carry: NUL and lone surrogates, which vendors, tools, files and file names bring along, cannot be
stored by every database or written as UTF-8. Here, and only here, they become U+FFFD; nothing else about a string is
changed. All text from outside passes through one of these functions before it becomes part of an event."""

from __future__ import annotations

import re
from types import NoneType
from typing import Any, Final, TypeVar

import msgspec

REPLACEMENT: Final = "\ufffd"
REPLACED: Final = f"[{REPLACEMENT} stands for what is not text, such as NUL]"
"""What a result says once, after a text in which something was replaced."""
MAX_TEXT_LENGTH: Final = 2_500_000
"""Characters of a text that fits into an event however it is escaped."""
MAX_TEXT_BYTES: Final = 15_000_000
"""Bytes of a text in JSON that fits into an event, with what stands beside it there."""

_NOT_CARRIED: Final = re.compile("[\x00\ud800-\udfff]")

_WITHOUT_TEXT: Final = frozenset({bool, int, float, NoneType})
_Value = TypeVar("_Value")


def is_clean(text: str) -> bool:
    return ("\x00" not in text) if text.isascii() else _NOT_CARRIED.search(text) is None


def sanitize_text(text: str) -> str:
    """The text with U+FFFD for every NUL and every lone surrogate; two surrogates that are a pair become their
    character."""
    if is_clean(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\x00", REPLACEMENT)


def fits_event(text: str) -> bool:
    """Whether an event can hold the text."""
    return len(text) <= MAX_TEXT_LENGTH or len(msgspec.json.encode(sanitize_text(text))) <= MAX_TEXT_BYTES


def cut_text(text: str) -> str:
    """The text if an event can hold it; otherwise its beginning, and how much is missing."""
    if fits_event(text):
        return text
    missing = len(text) - MAX_TEXT_LENGTH
    return f"{text[:MAX_TEXT_LENGTH]}\n[cut here: {missing:,} of {len(text):,} characters are not kept]"


def sanitize_json(text: str) -> str:
    """JSON text, or a piece of it, that still says the same: NUL and surrogates are escaped as JSON escapes them. For
    the arguments of tools, which are never changed."""
    return text if is_clean(text) else _NOT_CARRIED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def sanitize(value: _Value) -> _Value:
    """The value with every text in it sanitized: in Structs, dicts, lists and tuples. What needs no change is returned
    as it is."""
    if type(value) in _WITHOUT_TEXT:
        return value
    cleaned: Any = value
    if isinstance(value, str):
        cleaned = sanitize_text(value)
    elif isinstance(value, msgspec.Struct):
        changes = {}
        for name in value.__struct_fields__:
            field = getattr(value, name)
            if (clean := sanitize(field)) is not field:
                changes[name] = clean
        cleaned = msgspec.structs.replace(value, **changes) if changes else value
    elif isinstance(value, dict):
        cleaned = {sanitize(key): sanitize(each) for key, each in value.items()}
    elif isinstance(value, list | tuple):
        items = [sanitize(each) for each in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            cleaned = tuple(items) if isinstance(value, tuple) else items
    return cleaned  # type: ignore[no-any-return]
