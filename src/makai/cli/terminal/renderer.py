"""Renders pieces for a terminal: text with SGR sequences and no other control sequence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from makai.cli.terminal import markdown_text
from makai.cli.terminal.styled_text import Line, Markdown, Piece, Style
from makai.cli.terminal.wrapping import Row, columns_of, cut, wrapped

_SGR: Final[dict[Style, str]] = {
    "": "",
    "dim": "2",
    "bold": "1",
    "user": "1;36",
    "good": "32",
    "bad": "31",
    "warn": "33",
    "added": "32",
    "removed": "31",
    "key": "36",
}
_LIGHT: Final = {"33": "35", "36": "34", "1;36": "1;34"}
"""Yellow and cyan cannot be read on a light background."""
_ASCII: Final = str.maketrans(
    {
        **{"✓": "+", "✗": "x", "…": "...", "·": "-", "●": "*", "○": "o", "•": "*", "─": "-", "▌": "|"},
        **dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*"),
    }
)
_HANGING: Final = re.compile(r" *(?:[✓✗?>·●○•]|\d+ [+-]?)? *")
"""The beginning of a line that its continuation stands to the right of: spaces and a mark."""


class Renderer:
    def __init__(self, *, colour: bool, unicode: bool = True, light: bool = False) -> None:
        """`light`: colours for a light background."""
        self._colour = colour
        self._colours = _LIGHT if light else {}
        self._unicode = unicode

    def pieces(self, pieces: Iterable[Piece], width: int) -> str:
        """Text to print, broken at words."""
        return "".join(self._piece(piece, width) for piece in pieces)

    def fitted(self, lines: Sequence[Line], width: int) -> list[str]:
        """Lines for an area that is redrawn: each is cut to the width."""
        return [self._painted(cut(_row(line), width)) for line in lines]

    def wrapped(self, lines: Sequence[Line], width: int) -> list[str]:
        """Lines broken at words; what continues a line is indented like its beginning."""
        return [self._painted(row) for line in lines for row in wrapped(_row(line), width, _hang(_row(line)))]

    def markdown(self, text: str, width: int) -> str:
        """Block by block, with one empty line between two of them."""
        return "\n".join(map(self._painted, markdown_text.drawn(text, width)))

    def _piece(self, piece: Piece, width: int) -> str:
        if isinstance(piece, Markdown):
            text = self.markdown(piece.text, width)
            return f"\n{text}\n" if text else ""
        return ("\n" if piece.gap else "") + "".join(line + "\n" for line in self.wrapped(piece.lines, width))

    def _painted(self, row: Row) -> str:
        text = "".join(
            f"\x1b[{self._colours.get(codes, codes)}m{text}\x1b[0m" if codes and text and self._colour else text
            for text, codes in row
        )
        return text if self._unicode else text.translate(_ASCII)


def _row(line: Line) -> Row:
    return [(span.text, _SGR[span.style]) for span in line]


def _hang(row: Row) -> int:
    found = _HANGING.match("".join(text for text, _ in row))
    return columns_of([(found[0], "")]) if found else 0
