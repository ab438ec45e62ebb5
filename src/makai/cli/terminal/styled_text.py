"""What the terminal prints, independent of its width and colours: lines of styled spans, or Markdown. Pure.

`renderer` turns these pieces into the bytes of a terminal. The code that makes a span makes its text harmless first
(`core.visible_text`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

Style: TypeAlias = Literal["", "dim", "bold", "user", "good", "bad", "warn", "added", "removed", "key"]


class Span(msgspec.Struct, frozen=True):
    text: str
    style: Style = ""


Line: TypeAlias = tuple[Span, ...]


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that belong together. `gap` puts an empty line above; an `error` goes to stderr in scripts."""

    lines: tuple[Line, ...]
    gap: bool = False
    error: bool = False


class Markdown(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer, cut between two Markdown blocks, or anywhere when it is printed as it arrives. Several in a
    row are one text: `begins` and `ends` say where it starts and stops."""

    text: str
    begins: bool = True
    ends: bool = True


Piece: TypeAlias = Lines | Markdown


def line(*parts: str | Span) -> Line:
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def lines_of(text: str, style: Style = "", indent: str = "") -> list[Line]:
    return [(Span(indent + each, style),) for each in text.split("\n")]


def note(text: str, style: Style = "dim", *, gap: bool = False) -> Lines:
    return Lines(lines=tuple(lines_of(text, style)), gap=gap)


def plain(pieces: Iterable[Piece]) -> str:
    return "".join(_plain(piece) for piece in pieces)


def _plain(piece: Piece) -> str:
    if isinstance(piece, Markdown):
        return ("\n" if piece.begins else "") + piece.text + ("\n" if piece.ends and piece.text[-1:] != "\n" else "")
    text = "".join("".join(span.text for span in each) + "\n" for each in piece.lines)
    return "\n" + text if piece.gap else text
