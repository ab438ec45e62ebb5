"""The value of JSON text that is still arriving, for showing tool arguments while a model writes them.

In: a prefix of a JSON document, cut anywhere. Out: the best value it can have so far; never an exception. This module
must not know tools or models. It is a preview: whether the finished text is valid is decided by `strict_json`.

One pass tracks the open brackets and the last position where the text can be cut and closed; the text up to there plus
the missing closers is decoded strictly. An open string is closed where it stands (without half an escape), a key
without a value is dropped, a half-written literal is dropped, a number is cut to its longest valid beginning.
"""

from __future__ import annotations

import re
from typing import Any, Final

from makai.core.errors import ParseError
from makai.wire import strict_json

_CLOSER: Final = {"{": "}", "[": "]"}

# The inside of a string, as far as it is complete. A surrogate pair is one unit: half of it would not be a character.
_HEX: Final = "[0-9a-fA-F]"
_HIGH: Final = f"u[dD][89abAB]{_HEX}{{2}}"
_ESCAPE: Final = rf"\\(?:[^u]|u(?![dD][89abAB]){_HEX}{{4}}|{_HIGH}\\u[dD][c-fC-F]{_HEX}{{2}})"
_TOKEN: Final = re.compile(
    rf'(?P<string>"(?:[^"\\]++|{_ESCAPE})*+)(?P<closed>"?)|(?P<mark>[{{}}\[\]:,])|(?P<scalar>[^\s"{{}}\[\]:,]++)',
    re.DOTALL,
)
_HALF_ESCAPE: Final = re.compile(rf"(?:\\(?:u{_HEX}{{0,3}}|{_HIGH}(?:\\(?:u{_HEX}{{0,3}})?)?)?)?")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_LITERALS: Final = frozenset({"true", "false", "null"})


def parse_partial(text: str) -> Any:
    """The value of `text` so far; `None` when there is none yet or when the text is not JSON."""
    try:
        return strict_json.decode(_completed(text))
    except ParseError:
        return None


def _completed(text: str) -> str:
    """`text` cut at its last safe position, with everything that is open there closed."""
    closers: list[str] = []
    safe = 0
    key_next = False
    for token in _TOKEN.finditer(text):
        mark = token["mark"]
        if mark is None:
            if token["string"] and not token["closed"]:
                if not key_next and _HALF_ESCAPE.fullmatch(text, token.end()):
                    safe = token.end()
                    closers.append('"')
                break
            if not key_next:
                safe = _end_of_scalar(token) or safe
        elif mark in _CLOSER:
            closers.append(_CLOSER[mark])
            safe = token.end()
            key_next = mark == "{"
        elif mark in "}]":
            if not closers:
                break
            closers.pop()
            safe = token.end()
            key_next = False
        else:
            key_next = mark == "," and closers[-1:] == ["}"]
    return text[:safe] + "".join(reversed(closers))


def _end_of_scalar(token: re.Match[str]) -> int:
    """Where the usable part of a closed string, a number or a literal ends; 0 if it has none."""
    scalar = token["scalar"]
    more_may_follow = token.end() == len(token.string)
    if scalar is None or scalar in _LITERALS or not more_may_follow:
        return token.end()
    number = _NUMBER.match(scalar)
    return token.start() + number.end() if number else 0
