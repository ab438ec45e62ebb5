"""Strict JSON: the one door through which JSON text enters makai.

Bytes or text become a plain value, or a typed one by the caller's decoder. Nothing but `ParseError` is raised.

RFC 8259 leaves several things to the parser. The decisions here hold on every protocol and transport, because
whatever is accepted must fit into every store and travel over every transport:

- duplicate keys     the last one wins
- 1e400              refused: a number beyond a double would become infinity
- huge integers      exact up to 4,300 digits, refused beyond (the range of msgspec)
- 2^53+1             exact: an integer never becomes a float
- -0                 the integer 0; `-0.0` stays a negative zero
- NaN, Infinity      refused
- byte order mark    refused
- invalid UTF-8      refused everywhere, also in members that a typed decoder skips
- lone surrogates    refused, escaped or raw
- NUL in strings     `\\u0000` is refused: PostgreSQL text cannot hold it
- nesting            refused beyond `max_depth`, before anything is built
- size               refused beyond `max_bytes`, before anything is scanned

A member that a typed decoder skips is checked for syntax, not for the range of its numbers: it is never kept.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from makai.core.errors import ParseError
from makai.wire.json_repair import without_lone_surrogates

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 64

T = TypeVar("T")

_ANY_VALUE: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()

_BACKSLASH: Final = 0x5C

# An escaped NUL: an odd number of backslashes before "u0000". With an even number they escape each other.
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")

# One string (closed, or open up to the end of the input), or one run of anything that is not a bracket. The possessive
# quantifiers and the optional closing quote keep the scan linear on hostile input. `_TOKEN` adds the punctuation.
_NOT_A_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[^"\[\]{}]++', re.DOTALL)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]++|[\]}]++|[:,]|[^"\[\]{}:,]++', re.DOTALL)
_OPENING: Final = (b"[", b"{")
_CLOSING: Final = (b"]", b"}")
_BLANKS: Final = b" \t\r\n"
_MAX_TOKENS: Final = 262_144
"""How far `readable_members` looks."""


def decode(data: bytes | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """The plain value of one JSON document."""
    return decode_with(_ANY_VALUE, data, max_bytes=max_bytes, max_depth=max_depth)


def decode_with(
    decoder: msgspec.json.Decoder[T], data: bytes | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH
) -> T:
    """The value of one JSON document as the type of `decoder`; build the decoder once, it is costly."""
    document = data if isinstance(data, bytes) else _utf8(data)
    check(document, max_bytes=max_bytes, max_depth=max_depth)
    try:
        return decoder.decode(document)
    except msgspec.ValidationError as error:
        raise ParseError(str(error)) from None
    except msgspec.DecodeError as error:
        raise ParseError(f"not valid JSON: {reason_of(error, document)}") from None
    except RecursionError:
        # Only when the caller raised `max_depth` beyond what the interpreter's stack has left.
        raise ParseError("JSON is nested too deeply") from None


def reason_of(error: Exception, document: bytes | str) -> str:
    """Why decoding failed, for the writer of the document: msgspec calls many lone surrogates a truncated input."""
    with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        given = document if isinstance(document, bytes) else document.encode()
        if (mended := without_lone_surrogates(given)) != given:
            _ANY_VALUE.decode(mended)
            return "a string has a lone surrogate (one of \\ud800 to \\udfff without its other half)"
    return str(error)


def check(document: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> None:
    """Raise what `decode` raises for a document that is JSON, without building its value: for what is to be sent."""
    if len(document) > max_bytes:
        raise ParseError(f"JSON document of {len(document)} bytes exceeds the limit of {max_bytes} bytes")
    if not document.isascii():
        _check_utf8(document)
    if _BACKSLASH in document and b"\\u0000" in document and _ESCAPED_NUL.search(document):
        raise ParseError("JSON strings must not contain \\u0000")
    # More brackets than levels are needed before the nesting can be too deep: nearly every document ends here.
    if document.count(b"[") + document.count(b"{") > max_depth:
        _check_depth(document, max_depth)


def readable_members(document: bytes) -> dict[str, Any]:
    """The members of the outermost object that are no objects or arrays, as far as they can be read: what is known of
    a message that `decode` refuses, so that its sender can be answered. Never raises."""
    members: dict[str, Any] = {}
    depth = 0
    member: list[bytes] = []
    for found in islice(_TOKEN.finditer(document), _MAX_TOKENS):
        token = found[0].strip(_BLANKS)
        if not token:
            continue
        if depth == 0 and token[:1] != b"{":
            break
        if token[:1] in _OPENING:
            depth += len(token)
            continue
        closes = token[:1] in _CLOSING
        if closes and depth > 1:
            member.append(token)  # its value is nested
        if closes:
            depth -= len(token)
        if depth < 1 or (depth == 1 and token == b","):
            with suppress(msgspec.DecodeError, ValueError):
                key, colon, value = member
                if colon == b":":
                    members[_ANY_VALUE.decode(key)] = _ANY_VALUE.decode(value)
            member = []
            if depth < 1:
                break
        elif depth == 1 and not closes:
            member.append(token)
    return members


def encode(value: Any) -> bytes:
    """One line of JSON. NaN and infinities become `null`; text with a lone surrogate is a `ParseError`."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        raise ParseError("text with a lone surrogate cannot be written as JSON") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ParseError("JSON text contains a lone surrogate") from None


def _check_utf8(document: bytes) -> None:
    try:
        document.decode()
    except UnicodeDecodeError:
        raise ParseError("JSON text is not valid UTF-8") from None


def _check_depth(document: bytes, max_depth: int) -> None:
    depth = 0
    for bracket in _NOT_A_BRACKET.sub(b"", document):
        if bracket in b"[{":
            depth += 1
            if depth > max_depth:
                raise ParseError(f"JSON is nested more than {max_depth} levels deep")
        else:
            depth -= 1
