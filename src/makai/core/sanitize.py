"""Makes text safe to carry: NUL and lone surrogates, which vendors, tools, files and file names bring along, cannot be
stored by every database or written as UTF-8. Here, and only here, they become U+FFFD; nothing else about a string is
changed. All text from outside passes through one of these functions before it becomes part of an event."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

REPLACEMENT: Final = "\ufffd"
REPLACED: Final = f"[{REPLACEMENT} stands for what is not text, such as NUL]"
"""What a result says once, after a text in which something was replaced."""
MAX_TEXT_LENGTH: Final = 2_500_000
"""Characters of a text that fits into an event however it is escaped."""

_NOT_CARRIED: Final = re.compile("[\x00\ud800-\udfff]")

_Value = TypeVar("_Value")


def is_clean(text: str) -> bool:
    return ("\x00" not in text) if text.isascii() else _NOT_CARRIED.search(text) is None


def sanitize_text(text: str) -> str:
    """The text with U+FFFD for every NUL and every lone surrogate; two surrogates that are a pair become their
    character."""
    if is_clean(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\x00", REPLACEMENT)


def cut_text(text: str) -> str:
    """The text if an event can hold it; otherwise its beginning, and how much is missing."""
    if len(text) <= MAX_TEXT_LENGTH:
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
    result: Any = value
    match value:
        case str():
            result = sanitize_text(value)
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            cleaned = {name: sanitize(field) for name, field in fields.items()}
            changes = {name: field for name, field in cleaned.items() if field is not fields[name]}
            result = msgspec.structs.replace(value, **changes) if changes else value
        case dict():
            result = {sanitize(key): sanitize(each) for key, each in value.items()}
        case list() | tuple():
            items = [sanitize(each) for each in value]
            if any(new is not old for new, old in zip(items, value, strict=True)):
                result = tuple(items) if isinstance(value, tuple) else items
    return result  # type: ignore[no-any-return]
