r"""Text of models, tools and strangers, made safe to show.

In: any text. Out: text in which nothing can move a cursor, change a title, write to the clipboard, turn the reading
direction or hide itself: such characters are written out, as in `\x1b` or `\u202e`. Pure.

`shown` is for reading: emoji stay whole and tabs become spaces. `exact` is for deciding: there, everything that is not
plainly visible is written out, for a person who approves a command must see all of it.
"""

from __future__ import annotations

import re
from typing import Final

_TURNS_DIRECTION: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_OTHER_LINE_ENDS: Final = "\u2028\u2029"
_TAGS: Final = "\U000e0000-\U000e007f"
_HARMFUL: Final = re.compile(
    f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS_DIRECTION}{_OTHER_LINE_ENDS}\ufff9-\ufffb{_TAGS}\ud800-\udfff]"
)
_LOOKS_EMPTY: Final = frozenset(
    chr(code)
    for codes in (
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
        range(0x180B, 0x1810),
        range(0xFE00, 0xFE10),
        range(0xE0100, 0xE01F0),
    )
    for code in codes
)
"""Letters and marks that Unicode calls printable and that show nothing."""
_TAB: Final = "    "


def shown(text: str) -> str:
    """For reading. Line breaks stay, carriage returns before them go."""
    return _HARMFUL.sub(_written_out, text.replace("\r\n", "\n").replace("\t", _TAB))


def exact(text: str) -> str:
    """For deciding. Only line breaks and what is plainly visible stay; a tab is `\\t`."""
    if text.isprintable() and _LOOKS_EMPTY.isdisjoint(text):
        return text
    return "".join(
        character
        if character == "\n" or (character.isprintable() and character not in _LOOKS_EMPTY)
        else _code(character)
        for character in text
    )


def one_line(text: str) -> str:
    """For a title: the text as `shown`, its line breaks as spaces."""
    return " ".join(shown(text).split())


def _written_out(match: re.Match[str]) -> str:
    return _code(match[0])


def _code(character: str) -> str:
    named = {"\t": "\\t", "\r": "\\r"}.get(character)
    if named is not None:
        return named
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
