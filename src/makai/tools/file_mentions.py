"""Files that a message names with an `@`: how such a name is written and read, and which one is being typed. Pure.

A plain path follows the `@`; one with spaces, quotation marks or signs that cannot be seen is written between quotation
marks with escapes (`@"two words.txt"`, `@"line\\nbreak"`), so a hostile name cannot pretend to be anything else.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from makai.tools.file_errors import is_unseen

_MENTION: Final = re.compile(r'(?:(?<=\s)|(?<=[(\[])|^)@(?:"((?:[^"\\\n]|\\.)*)"|([^\s"]+))', re.MULTILINE)
_BEING_TYPED: Final = re.compile(r'(?:(?<=\s)|(?<=[(\[])|^)@("(?:[^"\\\n]|\\.)*|[^\s"]*)\Z', re.MULTILINE)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)", re.DOTALL)
_NAMED: Final = {"n": "\n", "t": "\t", "r": "\r"}
_AFTER: Final = ".,;:!?)]}'"
"""Signs at the end of a plain path that belong to the sentence, unless there is a file of that name."""


class Mention(msgspec.Struct, frozen=True):
    path: str
    without_end: str = ""
    """The path without the signs that may belong to the sentence, when it ends in such."""


def mention(path: str) -> str:
    """How a path is written in a message."""
    if path and not any(sign.isspace() or sign in '"\\' or is_unseen(sign) for sign in path):
        return f"@{path}"
    return f'@"{"".join(map(_escaped, path))}"'


def mentions(text: str) -> list[Mention]:
    """What the message names, each once, in order."""
    found: dict[str, Mention] = {}
    for match in _MENTION.finditer(text):
        quoted, plain = match[1], match[2]
        path = _unescaped(quoted) if quoted is not None else plain
        bare = "" if quoted is not None else plain.rstrip(_AFTER)
        if path and "\0" not in path:
            found.setdefault(path, Mention(path, bare if bare != path else ""))
    return list(found.values())


def path_being_typed(before_cursor: str) -> tuple[str, int] | None:
    """The path after the last `@` before the cursor, and how many characters it takes with the `@`."""
    match = _BEING_TYPED.search(before_cursor)
    if match is None:
        return None
    typed = match[1]
    return (_unescaped(typed[1:]) if typed.startswith('"') else typed), len(match[0])


def _escaped(sign: str) -> str:
    if sign in '"\\':
        return f"\\{sign}"
    if sign == " " or not (sign.isspace() or is_unseen(sign)):
        return sign
    code = ord(sign)
    if sign == "\n":
        return "\\n"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 1:
        return _NAMED.get(escape, escape)
    code = int(escape[1:], 16)
    return chr(code) if code < 0x110000 else match[0]
