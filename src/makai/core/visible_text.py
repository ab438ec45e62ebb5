r"""Makes text of models, tools and servers safe to show.

Characters that move a cursor, change a title, write to the clipboard, turn the reading direction or hide themselves are
written out, such as `\x1b` or `\u202e`. Pure.

`shown` is for reading: letters of every script and emoji stay whole, tabs become spaces. `exact` is for approvals:
everything that is not plainly visible is written out, because a user who approves a command must see all of it. So all
text that others wrote and that a person decides by, names and addresses included, is shown by `exact` or `exact_line`.
"""

from __future__ import annotations

import re
from typing import Final

_TURNS_DIRECTION: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_OTHER_LINE_ENDS: Final = "\u2028\u2029"
_TAGS: Final = "\U000e0000-\U000e007f"
_ZERO_WIDTH: Final = "\u180e\u200b\u2060-\u2064\u206a-\u206f\ufeff"
"""Without the joiners, which emoji and several scripts are written with."""
_SELECTORS: Final = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}"
"""One of them chooses the form of a letter; a row of them hides a message."""
_UNSAFE: Final = re.compile(
    f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS_DIRECTION}{_OTHER_LINE_ENDS}{_ZERO_WIDTH}\ufff9-\ufffb{_TAGS}"
    f"\ud800-\udfff]|{_SELECTORS}"
)
_LOOKS_EMPTY: Final = frozenset(
    chr(code)
    for codes in (
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0xFFFC, 0x16FE4, 0x1D159),
        range(0x180B, 0x1810),
        range(0xFE00, 0xFE10),
        range(0xE0100, 0xE01F0),
    )
    for code in codes
)
"""Letters and marks that Unicode calls printable and that show nothing."""
_TAB: Final = "    "


def shown(text: str) -> str:
    """Text for reading. Line breaks stay, carriage returns before them go."""
    return _UNSAFE.sub(lambda match: "".join(map(_code, match[0])), text.replace("\r\n", "\n").replace("\t", _TAB))


class _WrittenOut(dict[int, str]):
    """What `exact` writes for a code point, kept for those that were met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_plain = character == "\n" or (character.isprintable() and character not in _LOOKS_EMPTY)
        if len(self) >= _MAX_KEPT:
            self.clear()
        return self.setdefault(code, character if is_plain else _code(character))


_MAX_KEPT: Final = 20_000
_MARK_LENGTH: Final = 45
_WRITTEN_OUT: Final = _WrittenOut()


def exact(text: str) -> str:
    """Text for an approval. Only line breaks and what is plainly visible stay; a tab is `\\t`."""
    if text.isprintable() and (text.isascii() or _LOOKS_EMPTY.isdisjoint(text)):
        return text
    return text.translate(_WRITTEN_OUT)


def exact_line(text: str, max_length: int | None = None) -> str:
    """The same on one line, with line breaks as `\\n`. Beyond `max_length` a mark says how much of the middle is left
    out; the end is always shown."""
    line = exact(text).replace("\n", "\\n")
    if max_length is None or len(line) <= max_length:
        return line
    tail = max(1, (max_length - _MARK_LENGTH) // 3)
    head = 2 * tail
    return f"{line[:head]} [… {len(line) - head - tail:,} characters not shown …] {line[-tail:]}"


def one_line(text: str, max_length: int | None = None) -> str:
    """Text for a title or a table: as `shown`, line breaks as spaces, cut with a mark beyond `max_length`."""
    line = " ".join(shown(text).split())
    return line if max_length is None or len(line) <= max_length else f"{line[: max_length - 1]}…"


def _code(character: str) -> str:
    named = {"\t": "\\t", "\r": "\\r"}.get(character)
    if named is not None:
        return named
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
