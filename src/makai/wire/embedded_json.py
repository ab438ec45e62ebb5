"""Finds JSON values in the text of a model: alone, in code fences, or between words. Sans-IO.

A value is read by strict JSON only, so a number that is no number, half of a surrogate pair and a value that is cut off
are none. Time is bounded: what was read in vain counts, and the search ends when that is too much.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

MAX_TEXT: Final = 2 * 1024 * 1024
"""Characters in which values are looked for; more are ignored, unless they are one value as a whole."""
MAX_VALUES: Final = 1_000
MAX_WASTED: Final = 4 * MAX_TEXT
"""Characters that may be read without finding a value."""
_ATTEMPT: Final = 8
"""What an attempt costs beside the characters that it reads."""
_WINDOW: Final = 4_096
_OPENER: Final = re.compile(r"[\[{]")
_FENCE: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(.*?)^[ \t]*\1", re.MULTILINE | re.DOTALL)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_decoder: Final = json.JSONDecoder(parse_constant=_refuse)


def json_values(text: str) -> Iterator[Any]:
    """The values of a text: the text itself, then what its fences hold, then objects and arrays between words in their
    order. Values inside other values are not looked at. A value may come twice."""
    yield from _whole(text)
    text = text[:MAX_TEXT]
    for fence in _FENCE.finditer(text):
        yield from _whole(fence[2])
    yield from _between_words(text)


def _whole(text: str) -> Iterator[Any]:
    try:
        yield msgspec.json.decode(text.strip().encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return


def _between_words(text: str) -> Iterator[Any]:
    position, wasted, found = 0, 0, 0
    while wasted < MAX_WASTED and found < MAX_VALUES and (opener := _OPENER.search(text, position)) is not None:
        start = opener.start()
        if start > _WINDOW:  # an error counts the lines before it, so what was read is dropped
            text, start = text[start:], 0
        try:
            _, end = _decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            position, wasted = start + 1, wasted + error.pos - start + _ATTEMPT
            continue
        except (ValueError, RecursionError):
            position, wasted = start + 1, wasted + 1_000 * _ATTEMPT
            continue
        position, found = end, found + 1
        yield from _whole(text[start:end])
