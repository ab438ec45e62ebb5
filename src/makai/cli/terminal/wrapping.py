"""Breaks styled text into rows of a terminal: at spaces, beside wide characters, and inside words that are wider than a
row. Pure.

No visible character is ever dropped: where a row ends, a space that has no room is left out. A combining character
stays with the character that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from prompt_toolkit.utils import get_cwidth

Run: TypeAlias = tuple[str, str]
"""A text and the SGR codes it is written with; no codes for plain text."""
Row: TypeAlias = list[Run]
_JOINER: Final = "\u200d"


class _Cell(NamedTuple):
    """A character with what combines with it."""

    text: str
    width: int
    codes: str


def columns_of(row: Iterable[Run]) -> int:
    return sum(get_cwidth(text) for text, _ in row)


def wrapped(runs: Sequence[Run], width: int, hang: int = 0, *, breaks_words: bool = True) -> list[Row]:
    """The rows of one line of text, each at most `width` columns wide (at least two); all but the first are indented by
    `hang`. A word that is wider than a row is broken, or is a row of its own that is too wide."""
    if columns_of(runs) <= width:
        return [list(runs)]
    hang = max(0, min(hang, width // 2))
    rows: list[list[_Cell]] = [[]]
    left = max(2, width)
    following = max(2, width - hang)
    for word in _words(_cells(runs)):
        needed = sum(cell.width for cell in word)
        is_space = word[0].text == " "
        if needed > left and rows[-1] and (not is_space or len(word) == 1):
            rows.append([])
            left = following
            if is_space:
                continue
        for cell in word:
            if breaks_words and cell.width > left:
                rows.append([])
                left = following
            rows[-1].append(cell)
            left -= cell.width
    indent: Row = [(" " * hang, "")] if hang else []
    return [[*(indent if place else []), *_row(cells)] for place, cells in enumerate(rows) if cells]


def cut(row: Row, width: int) -> Row:
    """The beginning of a row that is too wide, with a mark at its end."""
    if columns_of(row) <= width:
        return row
    kept: list[_Cell] = []
    left = width - 1
    for cell in _cells(row):
        if cell.width > left:
            break
        kept.append(cell)
        left -= cell.width
    return _row([*kept, _Cell("…", 1, kept[-1].codes if kept else "")]) if width > 0 else []


def _cells(runs: Iterable[Run]) -> list[_Cell]:
    cells: list[_Cell] = []
    for text, codes in runs:
        for character in text:
            width = get_cwidth(character)
            before = cells[-1] if cells else None
            if before is not None and before.text != " " and (width == 0 or before.text.endswith(_JOINER)):
                cells[-1] = _Cell(before.text + character, before.width + width, before.codes)
            else:
                cells.append(_Cell(character, width, codes))
    return cells


def _words(cells: Iterable[_Cell]) -> Iterator[list[_Cell]]:
    """Runs of spaces, wide characters alone, and everything else between them."""
    word: list[_Cell] = []
    for cell in cells:
        if word and (cell.width > 1 or word[-1].width > 1 or (cell.text == " ") != (word[-1].text == " ")):
            yield word
            word = []
        word.append(cell)
    if word:
        yield word


def _row(cells: Iterable[_Cell]) -> Row:
    grouped = groupby(cells, key=lambda cell: cell.codes)
    return [("".join(cell.text for cell in same), codes) for codes, same in grouped]
