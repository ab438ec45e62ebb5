"""Draws screens of a terminal as one SVG picture, below each other, each with a caption. The same screens always give
the same bytes: text stays text, and every run of characters has its own place, so that no font moves it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

Cell: TypeAlias = tuple[str, tuple[str, ...]]
"""A character, and the SGR codes that style it."""
Frame: TypeAlias = tuple[str, Sequence[Sequence[Cell]]]
"""A caption, and the rows of a screen."""

COLUMN, ROW = 8.4, 18
"""The size of a character in pixels."""
MARGIN, CAPTION, GAP = 16, 26, 18
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}
_STYLE = (
    "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}"
    ".t{font:bold 14px system-ui,sans-serif}.b{font-weight:bold}.d{opacity:.6}"
    ".r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#e3b341}.c{fill:#76e3ea}"
)


def picture(frames: Sequence[Frame], columns: int) -> str:
    width = round(columns * COLUMN) + 2 * MARGIN
    drawn: list[str] = []
    top = GAP
    for caption, rows in frames:
        height = len(rows) * ROW + MARGIN
        drawn += [
            f'<rect x="0" y="{top}" width="{width}" height="{height + CAPTION}" rx="8" fill="#0d1117"/>',
            f'<path d="M0 {top + CAPTION}H{width}" stroke="#30363d"/>',
            f'<text class="t" x="{MARGIN}" y="{top + 18}">{html.escape(caption)}</text>',
            *(
                span
                for number, row in enumerate(rows)
                for span in _spans(row, top + CAPTION + ROW * (number + 1))
            ),
        ]  # fmt: skip
        top += height + CAPTION + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *drawn, "</svg>"]) + "\n"


def _spans(row: Sequence[Cell], y: int) -> Iterator[str]:
    column = 0
    for codes, cells in groupby(row, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in cells)
        at, column = column, column + len(text)
        words = text.strip()
        if not words:
            continue
        at += len(text) - len(text.lstrip())
        classes = " ".join(_CLASSES[code] for code in codes)
        named = f' class="{classes}"' if classes else ""
        place = f'x="{MARGIN + at * COLUMN:.1f}" y="{y}" textLength="{len(words) * COLUMN:.1f}"'
        yield f"<text{named} {place}>{html.escape(words, quote=False)}</text>"
