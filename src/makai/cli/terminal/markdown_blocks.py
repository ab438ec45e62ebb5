"""Finds where a Markdown text that is still being written can be cut. Pure.

Only the last top-level block of CommonMark is open, so the blocks before it are finished. (The target of a link may
follow later; the link is then printed as it was written.)
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})[^\n]*\n")


def finished_length(text: str) -> int:
    """How many characters from the start belong to finished blocks."""
    if "\n" not in text:
        return 0
    starts = _starts(text)
    return starts[-1] if len(starts) > 1 else 0


def blocks_of(text: str) -> list[str]:
    """The top-level blocks, without the empty lines between them."""
    starts = _starts(text)
    if not starts:
        return []
    return [text[start:end].strip("\n") for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def newest_lines(text: str, limit: int) -> str:
    """The end of a long block while it grows; a code block keeps its opening fence."""
    lines = text.split("\n")
    if len(lines) <= limit:
        return text
    tail = "\n".join(lines[-limit:])
    fence = _FENCE.match(text)
    return fence[0] + tail if fence else tail


@cache
def _parser() -> MarkdownIt:
    # Slow to import, and not needed before the first message.
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table")


def _starts(text: str) -> list[int]:
    lines = [token.map[0] for token in _parser().parse(text) if token.level == 0 and token.map is not None]
    if not lines:
        return []
    offsets = [0]
    for line in text.split("\n"):
        offsets.append(offsets[-1] + len(line) + 1)
    return [offsets[line] for line in lines]
