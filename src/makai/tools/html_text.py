"""HTML as text that a model can read, with headings, list items, links and code kept recognisable.

It looks at every character a fixed number of times: the standard library's parser takes quadratic time, or fails, on
pages built to that end. Nothing in the page is executed or loaded.
"""

from __future__ import annotations

import html
import re

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "textarea"})
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "table", "tr", "ul", "ol", "form"}
    | {"blockquote", "figure", "figcaption", "dl", "dt", "dd", "pre", "hr", "br"}
)
_HEADINGS = {f"h{level}": f"\n\n{'#' * level} " for level in range(1, 7)}
_TAG = re.compile(r"/?[a-zA-Z][a-zA-Z0-9-]{0,30}")
_HREF = re.compile(r"""\shref\s{0,9}=\s{0,9}(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_MAX_TAG_READ = 4_000
_MAX_LINK = 500


def html_to_text(document: str) -> str:
    reader = _Reader()
    position = 0
    while 0 <= position < len(document):
        opening = document.find("<", position)
        reader.words(document[position : opening if opening >= 0 else len(document)])
        if opening < 0:
            break
        position = _after_markup(document, opening, reader)
    return reader.text()


def _after_markup(document: str, opening: int, reader: _Reader) -> int:
    """Deal with what begins with `<`; where the text continues, or -1 when it never ends."""
    if document.startswith("<!--", opening):
        return _after(document, "-->", opening + 4)
    if document.startswith(("<!", "<?"), opening):
        return _after(document, ">", opening)
    if not (tag := _TAG.match(document, opening + 1)):
        reader.words("<")
        return opening + 1
    closing = document.find(">", tag.end())
    if closing < 0:
        return -1
    name = tag[0].lower()
    if name in _SILENT:
        end = re.compile(f"</{name}", re.IGNORECASE).search(document, closing)
        return _after(document, ">", end.start()) if end else -1
    reader.tag(name, document[tag.end() : min(closing, tag.end() + _MAX_TAG_READ)])
    return closing + 1


def _after(document: str, sign: str, start: int) -> int:
    found = document.find(sign, start)
    return found + len(sign) if found >= 0 else -1


class _Reader:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._preformatted = False
        self._link = ""
        self._title: list[str] | None = None
        self._in_title = False

    def words(self, raw: str) -> None:
        try:
            data = html.unescape(raw)
        except ValueError:
            data = raw  # a numeric reference of thousands of digits
        if self._in_title and self._title is not None:
            self._title.append(data)
        else:
            self._pieces.append(data if self._preformatted else re.sub(r"\s+", " ", data))

    def tag(self, name: str, attributes: str) -> None:
        plain = name.removeprefix("/")
        if plain == "title":
            self._in_title = name == "title" and self._title is None
            self._title = self._title or []
        elif name in _HEADINGS:
            self._pieces.append(_HEADINGS[name])
        elif name == "li":
            self._pieces.append("\n- ")
        elif plain in _BLOCKS or plain in _HEADINGS:
            self._preformatted = name == "pre" or (self._preformatted and plain != "pre")
            self._pieces.append("\n")
        elif name == "a":
            found = _HREF.search(attributes)
            self._link = html.unescape(next(filter(None, found.groups()), "")) if found else ""
        elif name == "/a":
            if self._link.startswith(("http://", "https://", "/")) and len(self._link) <= _MAX_LINK:
                self._pieces.append(f" <{self._link}>")
            self._link = ""

    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self._pieces).split("\n")]
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(line if line.strip() else "" for line in lines)).strip("\n")
        title = " ".join("".join(self._title or []).split())
        return f"{title}\n\n{body}".strip() if title else body.strip()
