"""Parses Markdown for a terminal, and finds where a text that is still being written can be cut. Pure.

The parser is that of CommonMark with tables, except that it consumes no text: a link definition is a paragraph like any
other, addresses are kept as they were written, cells beyond the header of a table are cells, and an asterisk inside a
word opens no emphasis: `2*3*4` is a product.

Only the last top-level block of CommonMark is open, so the blocks before it are finished.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final
from unicodedata import east_asian_width

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

MAX_NESTING: Final = 40
"""Quotes and lists nested deeper are not parsed; `top_level_blocks` marks them."""
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})[^\n]*\n")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


def finished_length(text: str) -> int:
    """How many characters from the start belong to finished blocks."""
    if "\n" not in text:
        return 0
    tokens = _parsed(text)
    starts = [] if tokens is None else _starts(text, tokens)
    return starts[-1] if len(starts) > 1 else 0


def top_level_blocks(text: str) -> list[tuple[str, list[Token]]]:
    """The top-level blocks: as they were written, without the empty lines between them, and parsed. A block without
    tokens cannot be parsed."""
    tokens = _parsed(text)
    if tokens is None:
        return [(text.strip("\n"), [])]
    starts = _starts(text, tokens)
    groups: list[list[Token]] = []
    for token in tokens:
        if token.level == 0 and token.nesting >= 0:
            groups.append([])
        groups[-1].append(token)
    ends = [*starts, len(text)][1:]
    return [
        (text[start:end].strip("\n"), [] if any(token.level >= MAX_NESTING - 1 for token in group) else group)
        for start, end, group in zip(starts, ends, groups, strict=True)
    ]


def newest_lines(text: str, limit: int) -> str:
    """The end of a long block while it grows; a code block keeps its opening fence."""
    lines = text.split("\n")
    if len(lines) <= limit:
        return text
    tail = "\n".join(lines[-limit:])
    fence = _FENCE.match(text)
    return fence[0] + tail if fence else tail


def _parsed(text: str) -> list[Token] | None:
    """None for a text that the parser fails on: it reads beyond the end of "> - <!-- a\\n>", for example."""
    try:
        return _parser().parse(text)
    except Exception:
        return None


@cache
def _parser() -> MarkdownIt:
    # Slow to import, and not needed before the first message.
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import table
    from markdown_it.rules_inline.emphasis import tokenize

    class Lossless(MarkdownIt):
        def normalizeLink(self, url: str) -> str:
            return url

        def normalizeLinkText(self, link: str) -> str:
            return link

    def whole_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        before = len(state.tokens)
        found = table(state, start, end, silent)
        if found and not silent:
            state.tokens[before:] = _with_all_cells(state, state.tokens[before:])
        return found

    def emphasis(state: StateInline, silent: bool) -> bool:
        start, before = state.pos, len(state.delimiters)
        found = tokenize(state, silent)
        if found and _are_in_one_word(state.src[max(0, start - 1) : start] + state.src[state.pos : state.pos + 1]):
            for delimiter in state.delimiters[before:]:
                delimiter.open = False
        return found

    parser = Lossless("commonmark", {"maxNesting": MAX_NESTING}).enable("table").disable("reference")
    parser.block.ruler.at("table", whole_table, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.at("emphasis", emphasis)
    return parser


def _are_in_one_word(beside: str) -> bool:
    """Whether marks between these characters stand inside a word. Languages with wide characters put no spaces around
    words, so marks between these may begin one."""
    return len(beside) == 2 and all(each.isalnum() and east_asian_width(each) not in "WF" for each in beside)


def _with_all_cells(state: StateBlock, tokens: list[Token]) -> list[Token]:
    """A row may have more cells than the header; the parser drops those."""
    from markdown_it.rules_block.table import escapedSplit, getLine
    from markdown_it.token import Token

    columns = sum(token.type == "th_open" for token in tokens)
    whole: list[Token] = []
    row = 0
    for token in tokens:
        if token.type == "tr_open" and token.map is not None:
            row = token.map[0]
        elif token.type == "tr_close":
            cells = escapedSplit(getLine(state, row).strip())
            cells = cells[1:] if cells[0] == "" else cells
            cells = cells[:-1] if cells and cells[-1] == "" else cells
            for content in cells[columns:]:
                inline = Token("inline", "", 0, content=content.strip(), children=[], level=token.level + 2)
                whole += [Token("td_open", "td", 1, level=token.level + 1), inline]
                whole.append(Token("td_close", "td", -1, level=token.level + 1))
        whole.append(token)
    return whole


def _starts(text: str, tokens: list[Token]) -> list[int]:
    lines = [token.map[0] for token in tokens if token.level == 0 and token.map is not None]
    offsets = [0, *(match.end() for match in _LINE_END.finditer(text))]
    return [offsets[line] for line in lines]
