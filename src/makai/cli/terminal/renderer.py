"""Renders pieces for a terminal: text with SGR sequences and no other control sequence.

Rich renders Markdown, and is loaded when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from makai.cli.terminal.markdown_blocks import blocks_of
from makai.cli.terminal.styled_text import Line, Markdown, Piece, Style

if TYPE_CHECKING:
    from rich.console import Console

_SGR: Final[dict[Style, str]] = {
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
_ASCII: Final = str.maketrans(
    {"✓": "+", "✗": "x", "…": "...", "·": "-", "●": "*", "○": "o", **dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*")}
)
_THEME: Final = {
    **{f"markdown.h{level}": "bold" for level in range(1, 7)},
    "markdown.code": "cyan",
    "markdown.block_quote": "dim",
    "markdown.link": "cyan",
    "markdown.link_url": "dim",
}
"""Styles that are readable on dark and on light backgrounds."""
MAX_PROSE_COLUMNS: Final = 100


class Renderer:
    def __init__(self, *, colour: bool, unicode: bool = True) -> None:
        self._colour = colour
        self._unicode = unicode

    def pieces(self, pieces: Iterable[Piece], width: int) -> str:
        """Text to print. The terminal wraps long lines, so that they can be copied whole."""
        return "".join(self._piece(piece, width) for piece in pieces)

    def fitted(self, lines: Sequence[Line], width: int) -> list[str]:
        """Lines for an area that is redrawn: each is cut to the width."""
        return [self._line(_cut(line, width)) for line in lines]

    def markdown(self, text: str, width: int) -> str:
        """Block by block, with one empty line between two of them."""
        drawn = "\n\n".join(self._block(block, width) for block in blocks_of(text))
        return drawn if self._unicode else drawn.translate(_ASCII)

    def _piece(self, piece: Piece, width: int) -> str:
        if isinstance(piece, Markdown):
            text = self.markdown(piece.text, width)
            return f"\n{text}\n" if text else ""
        return ("\n" if piece.gap else "") + "".join(self._line(line) + "\n" for line in piece.lines)

    def _line(self, line: Line) -> str:
        text = "".join(
            f"\x1b[{_SGR[span.style]}m{span.text}\x1b[0m" if span.style and span.text and self._colour else span.text
            for span in line
        )
        return text if self._unicode else text.translate(_ASCII)

    def _block(self, text: str, width: int) -> str:
        console = _console(self._colour, max(20, min(width, MAX_PROSE_COLUMNS)))
        with console.capture() as capture:
            console.print(_markdown_class()(text, code_theme="ansi_dark", hyperlinks=False))
        return "\n".join(line.rstrip() for line in capture.get().split("\n")).strip("\n")


def load_rich() -> None:
    """Import what renders Markdown before it is needed, which takes a moment."""
    _markdown_class()


def _cut(line: Line, width: int) -> Line:
    from prompt_toolkit.utils import get_cwidth

    left = width
    kept = []
    for span in line:
        if (needed := get_cwidth(span.text)) <= left:
            kept.append(span)
            left -= needed
            continue
        kept.append(type(span)(_cut_text(span.text, left), span.style))
        break
    return tuple(kept)


def _cut_text(text: str, width: int) -> str:
    from prompt_toolkit.utils import get_cwidth

    used = 0
    for index, character in enumerate(text):
        used += get_cwidth(character)
        if used > width - 1:
            return text[:index] + "…" if width > 0 else ""
    return text


@lru_cache(maxsize=4)
def _console(colour: bool, width: int) -> Console:
    from rich.console import Console
    from rich.theme import Theme

    return Console(
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        legacy_windows=False,
        theme=Theme(_THEME),
        _environ={},
    )


@cache
def _markdown_class() -> Any:
    from rich import markdown
    from rich.text import Text

    class LeftHeading(markdown.Heading):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            marks = Text("#" * int(self.tag[1:]) + " ", style=self.style_name)
            yield marks.append_text(self.text)

    class PlainMarkdown(markdown.Markdown):
        elements = {**markdown.Markdown.elements, "heading_open": LeftHeading}

    return PlainMarkdown
