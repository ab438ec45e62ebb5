"""What a terminal shows after some output: rows of characters with their style, as text and, for pictures, as HTML. It
knows what `makai` writes to terminals: colours, cursor movements and erasing. Rows that scrolled away are kept."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

Cell: TypeAlias = tuple[str, tuple[str, ...]]
"""A character, and the SGR codes that style it."""
Row: TypeAlias = list[Cell]
Mask: TypeAlias = tuple[re.Pattern[str], str]
"""What differs from run to run, and what is shown instead."""

_TOKEN = re.compile(
    r"\x1b\[(?P<given>[?\d;]*)(?P<final>[A-Za-z])"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, notifications and the clipboard
    r"|\x1b[^\[\]]"
    r"|(?P<character>[^\x1b])"
)
_STYLES = {
    "1": "font-weight:bold", "2": "opacity:.6", "31": "color:#ff7b72", "32": "color:#7ee787", "33": "color:#e3b341",
    "36": "color:#76e3ea",
}  # fmt: skip


class TerminalScreen:
    def __init__(self) -> None:
        self.rows: list[Row] = [[]]
        self._row = 0
        self._column = 0
        self._codes: tuple[str, ...] = ()
        self._rest = ""
        """The beginning of a control sequence that has not arrived whole."""

    def feed(self, output: str) -> None:
        output = self._rest + output
        at = 0
        while (found := _TOKEN.match(output, at)) is not None:
            at = found.end()
            if (character := found["character"]) is not None:
                self._take(character)
            elif found["final"] is not None:
                self._control(found["final"], found["given"])
        self._rest = output[at:]

    def narrow(self, columns: int) -> None:
        """Break the rows that are wider than this, as most terminals do when they become narrower."""
        rows: list[Row] = []
        for number, row in enumerate(self.rows):
            pieces = [row[at : at + columns] for at in range(0, max(1, len(row)), columns)]
            if number == self._row:
                down = min(self._column // columns, len(pieces) - 1)
                cursor = len(rows) + down, self._column - down * columns
            rows += pieces
        self.rows, (self._row, self._column) = rows, cursor

    def _take(self, character: str) -> None:
        match character:
            case "\r":
                self._column = 0
            case "\n":
                self._move(1)
            case "\b":
                self._column = max(0, self._column - 1)
            case _ if character.isprintable():
                row = self.rows[self._row]
                row += [(" ", ())] * (self._column + 1 - len(row))
                row[self._column] = character, self._codes
                self._column += 1

    def _control(self, final: str, given: str) -> None:
        count = int(given) if given.isdecimal() else 1
        match final:
            case "A" | "B":
                self._move(-count if final == "A" else count)
            case "C":
                self._column += count
            case "D":
                self._column = max(0, self._column - count)
            case "J":
                self.rows[self._row :] = [self.rows[self._row][: self._column]]
            case "K":
                self.rows[self._row] = [] if given == "2" else self.rows[self._row][: self._column]
            case "m":
                for code in given.split(";"):
                    self._codes = (*self._codes, code) if code in _STYLES else ()

    def _move(self, rows: int) -> None:
        self._row = max(0, self._row + rows)
        self.rows += [[] for _ in range(self._row + 1 - len(self.rows))]


def row_text(row: Iterable[Cell]) -> str:
    return "".join(character for character, _ in row).rstrip()


def screen_text(rows: Iterable[Row]) -> str:
    return "\n".join(map(row_text, rows)).rstrip("\n")


def masked(row: Row, masks: Sequence[Mask]) -> Row:
    """The row with what varies replaced; the replacement has the style of what it replaces."""
    for pattern, instead in masks:
        text, made, at = "".join(character for character, _ in row), Row(), 0
        for found in pattern.finditer(text):
            style = row[found.start()][1]
            made += [*row[at : found.start()], *((character, style) for character in found.expand(instead))]
            at = found.end()
        row = [*made, *row[at:]]
    return row


def screen_html(output: str) -> str:
    """The lines of the screen; colours are those for a dark background."""
    screen = TerminalScreen()
    screen.feed(output)
    return "\n".join("".join(_spans(row)).rstrip() for row in screen.rows).rstrip()


def _spans(row: Row) -> Iterator[str]:
    for codes, cells in groupby(row, key=lambda cell: cell[1]):
        text = html.escape("".join(character for character, _ in cells))
        style = ";".join(_STYLES[code] for code in codes)
        yield f'<span style="{style}">{text}</span>' if style else text
