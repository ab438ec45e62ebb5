"""HTML as text a model can read.

In: an HTML document. Out: its words with headings, list items, links and code kept recognisable. Pure; nothing in the
document is executed, loaded or trusted.
"""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object"})
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "table", "tr", "ul", "ol", "form"}
    | {"blockquote", "figure", "figcaption", "dl", "dt", "dd", "pre", "hr", "br"}
)
_HEADINGS = {f"h{level}": f"\n\n{'#' * level} " for level in range(1, 7)}
_LONGEST_LINK = 500
_FED_AT_ONCE = 64 * 1024
_LONGEST_S = 5.0


def html_to_text(document: str) -> str:
    """The readable part of a page, as far as it can be read in a few seconds: a page can be built to be slow."""
    reader = _Reader()
    deadline = time.monotonic() + _LONGEST_S
    for start in range(0, len(document), _FED_AT_ONCE):
        reader.feed(document[start : start + _FED_AT_ONCE])
        if time.monotonic() > deadline:
            return reader.text()
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._silent = 0
        self._preformatted = 0
        self._links: list[str] = []
        self._in_title = False
        self._title = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag in _SILENT:
            self._silent += 1
        elif tag in _HEADINGS:
            self._pieces.append(_HEADINGS[tag])
        elif tag == "li":
            self._pieces.append("\n- ")
        elif tag in _BLOCKS:
            self._preformatted += tag == "pre"
            self._pieces.append("\n")
        elif tag == "a":
            target = dict(attrs).get("href") or ""
            self._links.append(target if target.startswith(("http://", "https://", "/")) else "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._preformatted = max(0, self._preformatted - (tag == "pre"))
            self._pieces.append("\n")
        elif tag == "a" and self._links and (target := self._links.pop()) and len(target) <= _LONGEST_LINK:
            self._pieces.append(f" <{target}>")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title += data
        elif not self._silent:
            self._pieces.append(data if self._preformatted else re.sub(r"\s+", " ", data))

    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self._pieces).split("\n")]
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(line if line.strip() else "" for line in lines)).strip()
        title = " ".join(self._title.split())
        return f"{title}\n\n{body}" if title else body
