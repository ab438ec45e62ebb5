"""Draws Markdown for a terminal: rows of styled text that contain every visible character of the source. Pure.

Characters that CommonMark consumes as marks are drawn as a style, a bullet or a line. Everything else is drawn: HTML as
it was written, targets and titles of links and images, the language of code, and cells beyond the header of a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from makai.cli.terminal.markdown_blocks import top_level_blocks
from makai.cli.terminal.wrapping import Row, Run, columns_of, wrapped
from makai.core.visible_text import shown

if TYPE_CHECKING:
    from markdown_it.token import Token

MAX_PROSE_COLUMNS: Final = 100
MIN_COLUMNS: Final = 8
"""What an indented block is given at least; `drawn` breaks rows that become too wide by it."""
MAX_HIGHLIGHTED_CHARS: Final = 50_000
_BOLD, _DIM, _ITALIC, _CODE = "1", "2", "3", "36"
_INLINE_STYLES: Final = {"strong": _BOLD, "em": _ITALIC, "link": _CODE}
_DEFINITION: Final = re.compile(r"\[[^\]]+\]:")
_CODE_STYLES: Final = (
    *(("Comment", _DIM), ("Keyword", "34"), ("Operator.Word", "34"), ("Name.Builtin", _CODE), ("Name.Function", "32")),
    *(("Name.Class", "32"), ("Name.Decorator", "35"), ("Literal.String", "33"), ("Literal.Number", "35")),
    *(("Generic.Deleted", "31"), ("Generic.Inserted", "32"), ("Generic.Heading", _BOLD)),
)
"""Kinds of words in code, which are readable on dark and on light backgrounds."""


def drawn(text: str, width: int) -> list[Row]:
    """Block by block, with one empty row between two of them; no row is wider than `width`."""
    rows: list[Row] = []
    for source, tokens in top_level_blocks(text):
        if rows:
            rows.append([])
        block = _blocks(tokens, width) if tokens else _as_written(source, width)
        rows += [row for wide in block for row in wrapped(_stripped(wide), width)]
    return rows


def load() -> None:
    """Import what draws Markdown before it is needed, which takes a moment."""
    drawn("```python\npass\n```", 80)


def _block(token: Token, inner: Sequence[Token], width: int) -> list[Row]:
    prose = min(width, MAX_PROSE_COLUMNS)
    match token.type:
        case "heading_open":
            marks = ("#" * int(token.tag[1:]) + " ", _BOLD)
            return _prose([marks, *_inline(inner[0], _BOLD)], prose)
        case "paragraph_open":
            return _prose(_inline(inner[0]), prose)
        case "blockquote_open":
            return _prefixed(_blocks(inner, width - 2), [("▌ ", _DIM)], [("▌ ", _DIM)])
        case "bullet_list_open" | "ordered_list_open":
            return _list(token, inner, width)
        case "table_open":
            return _table(inner, width)
        case "fence" | "code_block":
            return _code(token, width)
        case "hr":
            return [[("─" * min(prose, 40), _DIM)]]
        case _:  # html_block
            return _as_written(token.content.rstrip("\n"), width)


def _children(tokens: Sequence[Token]) -> Iterator[tuple[Token, Sequence[Token]]]:
    """The tokens of one level, each with those inside it."""
    at = 0
    while at < len(tokens):
        first, end = tokens[at], at
        if first.nesting == 1:
            end = next(i for i in range(at + 1, len(tokens)) if tokens[i].level == first.level)
        yield first, tokens[at + 1 : end]
        at = end + 1


def _blocks(tokens: Sequence[Token], width: int) -> list[Row]:
    """The blocks of a container, with an empty row between them, except after the words of a tight list item."""
    rows: list[Row] = []
    is_tight = False
    for token, inner in _children(tokens):
        if rows and not is_tight:
            rows.append([])
        rows += _block(token, inner, max(MIN_COLUMNS, width))
        is_tight = token.hidden
    return rows or [[]]


def _list(token: Token, inner: Sequence[Token], width: int) -> list[Row]:
    items = list(_children(inner))
    numbers = [item.info for item, _ in items]
    if token.type == "bullet_list_open":
        marks = [" • "] * len(items)
    else:
        if len(items) > 1 and len(set(numbers)) == 1:  # "1." before every item
            numbers = [str(int(numbers[0]) + place) for place in range(len(items))]
        widest = max(map(len, numbers))
        marks = [f" {number.rjust(widest)}{item.markup} " for number, (item, _) in zip(numbers, items, strict=True)]
    is_loose = any(
        each.type == "paragraph_open" and not each.hidden for _, body in items for each, _ in _children(body)
    )
    rows: list[Row] = []
    for mark, (_, body) in zip(marks, items, strict=True):
        if rows and is_loose:
            rows.append([])
        rows += _prefixed(_blocks(body, width - len(mark)), [(mark, "33")], [(" " * len(mark), "")])
    return rows


def _prefixed(rows: Iterable[Row], first: Row, rest: Row) -> list[Row]:
    return [[*(rest if place else first), *row] for place, row in enumerate(rows)]


def _prose(runs: Iterable[Run], width: int) -> list[Row]:
    return [row for each in _lines(runs) for row in wrapped(each, width)]


def _lines(runs: Iterable[Run]) -> list[Row]:
    """Cut at line breaks."""
    lines: list[Row] = [[]]
    for text, codes in runs:
        first, *others = text.split("\n")
        lines[-1].append((first, codes))
        lines += [[(other, codes)] for other in others]
    return lines


def _inline(token: Token, *styles: str) -> list[Run]:
    runs: list[Run] = []
    active = list(styles)
    targets: list[Token] = []
    children = _with_dunder_names(token.children or [])
    for place, child in enumerate(children):
        kind = child.type.partition("_")[0]
        match child.type:
            case "link_open" | "em_open" | "strong_open":
                active.append(_INLINE_STYLES[kind])
                if kind == "link":
                    targets.append(child)
            case "link_close" | "em_close" | "strong_close":
                active.pop()
                if kind == "link" and (opened := targets.pop()).info != "auto":
                    runs += _target(opened.attrs, "href")
            case "softbreak":
                # Definitions of links and footnotes stand on lines of their own.
                follows = children[place + 1].content if place + 1 < len(children) else ""
                runs.append(("\n" if _DEFINITION.match(follows) else " ", ""))
            case "hardbreak":
                runs.append(("\n", ""))
            case "image":
                runs += [("[image: ", _DIM), *_inline(child, *active), ("]", _DIM), *_target(child.attrs, "src")]
            case "code_inline":
                runs.append((shown(child.content), _codes(*active, _CODE)))
            case _:  # text, html_inline
                runs.append((shown(child.content), _codes(*active)))
    return runs


def _with_dunder_names(tokens: list[Token]) -> list[Token]:
    """A name such as `__init__` is strong text to CommonMark; it is shown as it was written."""
    for opened, name, closed in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_strong = (opened.type, closed.type, opened.markup) == ("strong_open", "strong_close", "__")
        if is_strong and name.type == "text" and name.content.isidentifier():
            name.content = f"__{name.content}__"
    return tokens


def _target(attributes: dict[str, Any], name: str) -> list[Run]:
    address, title = str(attributes.get(name, "")), str(attributes.get("title", ""))
    words = " ".join(filter(None, (address, f'"{title}"' if title else "")))
    return [(f" ({shown(' '.join(words.split()))})", _DIM)] if words else []


def _codes(*codes: str) -> str:
    return ";".join(dict.fromkeys(codes))


def _as_written(text: str, width: int) -> list[Row]:
    return [row for each in text.split("\n") for row in wrapped([(shown(each), "")], width)]


def _code(token: Token, width: int) -> list[Row]:
    info = shown(token.info.strip())
    code = _highlighted(shown(token.content.removesuffix("\n")), info)
    lines = [*([[(info, _DIM)]] if info else []), *_lines(code)]
    return [[(" ", ""), *row] for each in lines for row in wrapped(each, width - 1)]


def _highlighted(code: str, info: str) -> list[Run]:
    words = info.split()
    if not words or len(code) > MAX_HIGHLIGHTED_CHARS:
        return [(code, "")]
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(words[0].lower().strip("{}."), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return [(code, "")]
    runs = [(text, _code_style(str(kind))) for kind, text in lexer.get_tokens(code)]
    return runs if "".join(text for text, _ in runs) == code else [(code, "")]


def _code_style(kind: str) -> str:
    name = kind.removeprefix("Token.")
    return next((codes for prefix, codes in _CODE_STYLES if name.startswith(prefix)), "")


def _table(tokens: Sequence[Token], width: int) -> list[Row]:
    sections = [inner for _, inner in _children(tokens)]
    table = [[_inline(cell[0]) for _, cell in _children(row)] for part in sections for _, row in _children(part)]
    columns = max(map(len, table))
    head, *body = [[*row, *([] for _ in range(columns - len(row)))] for row in table]
    head = [[(text, _codes(*filter(None, (_BOLD, codes)))) for text, codes in cell] for cell in head]
    widths = _column_widths([head, *body], width - 2 * columns)
    if widths is None:
        return _records(head, body, width)
    rule: Row = [(" " + " ".join("─" * (each + 1) for each in widths), _DIM)]
    return [*_table_row(head, widths), rule, *(drawn_row for row in body for drawn_row in _table_row(row, widths))]


def _column_widths(rows: Sequence[Sequence[list[Run]]], room: int) -> list[int] | None:
    """The widest columns give way first; None when the columns would be too narrow to read."""
    widths = [max(1, *(columns_of(row[place]) for row in rows)) for place in range(len(rows[0]))]
    if sum(min(each, MIN_COLUMNS) for each in widths) > room:
        return None
    limit = max(widths)
    while sum(min(each, limit) for each in widths) > room:
        limit -= 1
    return [min(each, limit) for each in widths]


def _table_row(cells: Sequence[list[Run]], widths: Sequence[int]) -> list[Row]:
    parts = [_prose(cell, width) for cell, width in zip(cells, widths, strict=True)]
    rows: list[Row] = []
    for place in range(max(map(len, parts))):
        row: Row = []
        for part, width in zip(parts, widths, strict=True):
            content = part[place] if place < len(part) else []
            row += [(" ", ""), *content, (" " * (width - columns_of(content) + 1), "")]
        rows.append(row)
    return rows


def _records(head: Sequence[list[Run]], body: Sequence[Sequence[list[Run]]], width: int) -> list[Row]:
    """A table that is too wide: each row as lines of "column: value"."""
    if not body:
        return [row for cell in head for row in _prose(cell, width)]
    rows: list[Row] = []
    for place, record in enumerate(body):
        rows += [[]] if place else []
        for name, value in zip(head, record, strict=True):
            rows += _prose([*name, (": ", _DIM), *value], width)
    return rows


def _stripped(row: Row) -> Row:
    """Without spaces at its end."""
    while row and not row[-1][0].rstrip(" "):
        row = row[:-1]
    return [*row[:-1], (row[-1][0].rstrip(" "), row[-1][1])] if row else []
