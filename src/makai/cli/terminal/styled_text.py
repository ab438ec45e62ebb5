"""What the terminal prints, before anyone knows how wide or colourful it is.

In: words and what they mean. Out: `Piece`s: lines of styled spans, or markdown. Pure; `paint` turns them into the
bytes of a terminal. Whoever makes a span makes its text harmless first (`visible`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

Style: TypeAlias = Literal["", "dim", "bold", "user", "good", "bad", "warn", "added", "removed", "key"]


class Span(msgspec.Struct, frozen=True):
    """Words in one style."""

    text: str
    style: Style = ""


Line: TypeAlias = tuple[Span, ...]


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that belong together. `gap` wants an empty line above; scripts look for what is an `error` on stderr."""

    lines: tuple[Line, ...]
    gap: bool = False
    error: bool = False


class Markdown(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a model says, cut between two blocks of its markdown, or anywhere for a reader that wants it so.

    Several in a row are one text: `begins` and `ends` say where it starts and stops.
    """

    text: str
    begins: bool = True
    ends: bool = True


Piece: TypeAlias = Lines | Markdown


def line(*parts: str | Span) -> Line:
    """A line of these parts; text without a style is a plain span."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def lines_of(text: str, style: Style = "", indent: str = "") -> list[Line]:
    """Every line of a text, indented."""
    return [(Span(indent + each, style),) for each in text.split("\n")]


def note(text: str, style: Style = "dim", *, gap: bool = False) -> Lines:
    """A remark of ours."""
    return Lines(lines=tuple(lines_of(text, style)), gap=gap)


def plain(pieces: Iterable[Piece]) -> str:
    """Pieces without any style: what is left where nothing can be drawn."""
    return "".join(_plain(piece) for piece in pieces)


def _plain(piece: Piece) -> str:
    if isinstance(piece, Markdown):
        return ("\n" if piece.begins else "") + piece.text + ("\n" if piece.ends and piece.text[-1:] != "\n" else "")
    text = "".join("".join(span.text for span in each) + "\n" for each in piece.lines)
    return "\n" + text if piece.gap else text
