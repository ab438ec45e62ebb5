"""Markdown answers of models, each with the text that a reader must be able to see.

An answer is built from pieces that know their own visible text, so no parser is needed to say what must be shown: what
CommonMark consumes as marks is not in it, everything else is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from hypothesis import strategies as st


class Answer(NamedTuple):
    source: str
    visible: str
    """In the order of reading."""
    has_table: bool = False
    """Cells may stand beside each other, so only the number of each character is known."""


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789äßøλжש世界한e\u0301\u20ac😀"
words = st.text(_LETTERS, min_size=1, max_size=12).map(lambda word: "w" + word)
_phrases = st.lists(words, min_size=1, max_size=8).map(" ".join)
_TAGS = (
    *("<div>", "<String>", "</T>", "<br/>", '<a href="x">', "<!-- remark -->", "<?php echo ?>", "<K, V>", "<-"),
    *("a < b", "<T extends U>", "&mut x", "[^1]", "[ref][1]", "[x]", "a_b_c", "2 * 3", "x~~y~~", "|", "a && b"),
    *("$x$", "C:\\dir", "**", "![", "](", "~", "x.__init__()", "__all__", "#tag"),
)
_ENTITIES = {"&lt;": "<", "&amp;": "&", "&copy;": "©", "&#65;": "A", "&#x42;": "B", "&notanentity;": "&notanentity;"}
_ESCAPES = {"\\*": "*", "\\_": "_", "\\[": "[", "\\<b>": "<b>", "\\\\": "\\", "\\`": "`", "\\#": "#", "\\|": "|"}


def _same(text: str) -> Answer:
    return Answer(text, text)


def _marked(before: str, after: str) -> st.SearchStrategy[Answer]:
    return _phrases.map(lambda text: Answer(before + text + after, text))


@st.composite
def _links(draw: st.DrawFn) -> Answer:
    """Of pages and of pictures, with and without a title."""
    text, title, address = draw(_phrases), draw(st.just("") | _phrases), f"https://h.example/{draw(words)}"
    mark = draw(st.sampled_from(("", "!")))
    return Answer(mark + f"[{text}]({address}" + (f' "{title}")' if title else ")"), text + address + title)


inlines: st.SearchStrategy[Answer] = st.one_of(
    _phrases.map(_same),
    st.sampled_from(_TAGS).map(_same),
    *(_marked(*marks) for marks in (("**", "**"), ("*", "*"), ("`", "`"), ("***", "***"))),
    _phrases.map(lambda text: Answer(f"`` ` {text} &lt; \\* <b> ``", f"`{text}&lt;\\*<b>")),
    st.sampled_from(sorted({**_ENTITIES, **_ESCAPES}.items())).map(lambda pair: Answer(*pair)),
    words.map(lambda word: Answer(f"<https://a.example/{word}>", f"https://a.example/{word}")),
    _links(),
)
lines = st.lists(inlines, min_size=1, max_size=5).map(
    lambda parts: Answer("w " + " ".join(each.source for each in parts), "w" + "".join(each.visible for each in parts))
)


def _lines(ends: st.SearchStrategy[str]) -> st.SearchStrategy[Answer]:
    return st.lists(st.tuples(lines, ends), min_size=1, max_size=3).map(
        lambda pairs: Answer("".join(each.source + end for each, end in pairs).rstrip("\\ \n"), _visible(pairs))
    )


def _visible(pairs: list[tuple[Answer, str]]) -> str:
    return "".join(each.visible for each, _ in pairs).rstrip("\\")


def _code(mark: str) -> st.SearchStrategy[Answer]:
    infos = st.sampled_from(("", "python", "rust", "text title=x", "diff", "nolanguage"))
    bodies = st.lists(
        st.sampled_from(("def f(<T>): **x**", "    # c &amp; \\*", "", "- [a](b)", "世界 = 'x' * 3")), max_size=5
    )
    return st.builds(
        lambda info, body: Answer("\n".join([mark + info, *body, mark]), info + "".join(body)), infos, bodies
    )  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> Answer:
    """Rows with fewer and with more cells than the header."""
    columns = draw(st.integers(min_value=1, max_value=4))
    cells = inlines.filter(lambda cell: "|" not in cell.source)
    head = draw(st.lists(cells, min_size=columns, max_size=columns))
    rows = draw(st.lists(st.lists(cells, min_size=1, max_size=columns + 2), max_size=4))
    drawn = [f"| {' | '.join(cell.source for cell in row)} |" for row in (head, *rows)]
    delimiters = "|" + "---|" * columns
    visible = "".join(cell.visible for row in (head, *rows) for cell in row)
    return Answer("\n".join([drawn[0], delimiters, *drawn[1:]]), visible, has_table=True)


def _contained(prefix: str, rest: str, inner: Answer) -> Answer:
    first, *others = inner.source.split("\n")
    source = "\n".join([prefix + first, *(rest + each if each else rest.rstrip() for each in others)])
    return Answer(source, inner.visible, inner.has_table)


def _joined(parts: list[Answer], gap: str = "\n\n") -> Answer:
    return Answer(
        gap.join(part.source for part in parts),
        "".join(part.visible for part in parts),
        any(part.has_table for part in parts),
    )


def _numbers(start: int) -> Iterator[str]:
    return (f"{number}. " for number in count(start))


def _containers(inner: st.SearchStrategy[Answer]) -> st.SearchStrategy[Answer]:
    several = st.lists(inner, min_size=1, max_size=3)
    gaps = st.sampled_from(("\n", "\n\n"))
    bullets = st.builds(
        lambda parts, mark, gap: _joined([_contained(f"{mark} ", "  ", part) for part in parts], gap),
        several,
        st.sampled_from("-*+"),
        gaps,
    )
    numbered = st.builds(
        lambda parts, start, gap: _joined(
            [_contained(mark, " " * len(mark), part) for mark, part in zip(_numbers(start), parts, strict=False)], gap
        ),
        several,
        st.sampled_from((1, 2, 9, 99)),
        gaps,
    )
    return bullets | numbered | several.map(lambda parts: _contained("> ", "> ", _joined(parts)))


_leaves: st.SearchStrategy[Answer] = st.one_of(
    _lines(st.sampled_from(("\n", "  \n", "\\\n"))),
    lines.map(lambda each: Answer(f"## {each.source}", each.visible)),
    lines.map(lambda each: Answer(f"{each.source}\n===", each.visible)),
    _code("```"),
    _code("~~~~"),
    _phrases.map(lambda text: Answer(f"w\n\n    {text} **x** <b>", f"w{text}**x**<b>")),
    _phrases.map(lambda text: _same(f"<div>\n{text} **raw**\n</div>")),
    _phrases.map(lambda text: _same(f"<!-- {text}\n**two** lines -->")),
    words.map(lambda word: _same(f"[{word}]: https://d.example/{word}\n[^1]: note {word}")),
    tables(),
    st.just(Answer("___", "")),  # of dashes it would be one line across the list: "- ---" is no item
)
blocks = st.recursive(_leaves, _containers, max_leaves=6)
answers = st.lists(blocks | st.just(Answer("---", "")), min_size=1, max_size=5).map(_joined)
