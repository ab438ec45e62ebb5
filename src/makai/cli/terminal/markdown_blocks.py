"""Where a markdown text that is still being written can be cut.

In: what was written so far. Out: how much of it no later word can change. Pure.

CommonMark reads block by block: only the last block at the top level is open, so everything before it is finished. (A
link's target may follow later; then the link shows as it was written.)
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


def newest_lines(text: str, most: int) -> str:
    """The end of a long block while it grows; a code block keeps its opening fence."""
    lines = text.split("\n")
    if len(lines) <= most:
        return text
    tail = "\n".join(lines[-most:])
    fence = _FENCE.match(text)
    return fence[0] + tail if fence else tail


@cache
def _parser() -> MarkdownIt:
    # The parser is no small import, and needed only for the first message.
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table")


def _starts(text: str) -> list[int]:
    """Offsets of the top-level blocks."""
    lines = [token.map[0] for token in _parser().parse(text) if token.level == 0 and token.map is not None]
    if not lines:
        return []
    offsets = [0]
    for line in text.split("\n"):
        offsets.append(offsets[-1] + len(line) + 1)
    return [offsets[line] for line in lines]
