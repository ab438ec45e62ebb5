"""What a person types as a query, and the snippets that show what was found. Pure.

Words are separated by spaces, a "quoted phrase" is found as it stands, and of the last word the beginning is enough.
Case and diacritics do not count. Scripts that are written without spaces are indexed character by character, and a word
of them is a phrase of its characters. (A trigram index was measured instead: seven times the size, four times the time
to build, and words of two characters, as most Chinese ones are, cannot be found in it.)
"""

from __future__ import annotations

import re
import unicodedata
from itertools import islice
from typing import Final

import msgspec

from makai.core.sanitize import sanitize_text
from makai.core.visible_text import one_line

MAX_QUERY_LENGTH: Final = 500
MAX_TERMS: Final = 12
SNIPPET_LENGTH: Final = 240
"""In UTF-16 code units."""
_WINDOW: Final = 200
_BEFORE: Final = 60
"""Characters of a snippet before the first word that was found."""
_MAX_OCCURRENCES: Final = 200

_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese and Korean."""
_UNSPACED_ONE: Final = re.compile(f"[{_UNSPACED}]")
_TOKEN: Final = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_TERM: Final = re.compile(r'"([^"]*)(?:"|$)|([^\s"]+)')
_QUOTES: Final = str.maketrans(dict.fromkeys("“”„‟«»", '"'))
_MARKS: Final = "[\u0300-\u036f]*"


class SearchTerm(msgspec.Struct, frozen=True):
    text: str
    is_prefix: bool = False


class SearchQuery(msgspec.Struct, frozen=True):
    """Terms that all have to be there; without any, nothing is found."""

    terms: tuple[SearchTerm, ...] = ()


def parsed(typed: str) -> SearchQuery:
    """The query that a person means. Everything can be typed: what has no letter or digit is left out."""
    text = unicodedata.normalize("NFC", sanitize_text(typed[:MAX_QUERY_LENGTH])).translate(_QUOTES)
    terms: list[SearchTerm] = []
    for found in islice(_TERM.finditer(text), MAX_TERMS):
        phrase, word = found.groups()
        term = phrase if word is None else word
        tokens = _TOKEN.findall(term)
        is_last = found.end() == len(text.rstrip())
        # One letter alone is the beginning of too many words.
        is_prefix = word is not None and is_last and bool(tokens) and len(tokens[-1]) > 1
        if tokens:
            terms.append(SearchTerm(term, is_prefix))
    return SearchQuery(tuple(terms))


def segmented(text: str) -> str:
    """The text as it is indexed: characters of scripts without spaces stand alone."""
    return text if text.isascii() else _UNSPACED_ONE.sub(r" \g<0> ", text)


def is_unspaced(letter: str) -> bool:
    """Whether this character is of a script that is written without spaces."""
    return _UNSPACED_ONE.fullmatch(letter) is not None


class _Folded(dict[int, int]):
    """A character without its case and diacritics, kept for those that were met. The length of a text stays."""

    def __missing__(self, code: int) -> int:
        letter = unicodedata.normalize("NFD", chr(code))
        if any(not unicodedata.combining(mark) for mark in letter[1:]):
            letter = chr(code)  # such as a Korean syllable, which is more than a letter with marks
        lower = letter[0].casefold()
        if len(self) >= _MAX_FOLDED:
            self.clear()
        return self.setdefault(code, ord(lower) if len(lower) == 1 else code)


_MAX_FOLDED: Final = 20_000
_FOLDED: Final = _Folded()


def folded(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_FOLDED)


class Highlighter:
    """Shows where the terms of a query are in texts."""

    def __init__(self, query: SearchQuery) -> None:
        self._pattern = re.compile("|".join(f"({_expression(term)})" for term in query.terms) or r"(?!)")

    def snippet(self, text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The part of a text with the most terms on one line, and where they are in it."""
        start = self._best_start(folded(text))
        begin = start - min(start, _BEFORE)
        end = min(begin + _WINDOW, len(text))
        # Whole words at both ends, where there are words.
        if begin and (space := text.find(" ", begin, start)) >= 0:
            begin = space + 1
        if end < len(text) and (space := text.rfind(" ", start + _BEFORE, end)) >= 0:
            end = space
        shown = one_line(text[begin:end])
        shown = _cut(f"{'…' if begin else ''}{shown}", is_cut=end < len(text))
        return shown, tuple(_utf16_span(shown, *found.span()) for found in self._pattern.finditer(folded(shown)))

    def _best_start(self, text: str) -> int:
        places = [(found.start(), found.lastindex) for found in islice(self._pattern.finditer(text), _MAX_OCCURRENCES)]
        best, start = 0, 0
        for index, (place, _) in enumerate(places):
            near = {term for other, term in islice(places, index, index + 20) if other < place + _WINDOW - _BEFORE}
            if len(near) > best:
                best, start = len(near), place
        return start


def _expression(term: SearchTerm) -> str:
    """A pattern that finds a term in folded text, as the tokenizer of the index finds it."""
    tokens = _TOKEN.findall(folded(term.text))
    parts = [_MARKS.join(map(re.escape, token)) for token in tokens]
    # Without groups of its own: the number of a group is that of its term.
    begin = "" if _UNSPACED_ONE.match(tokens[0]) else r"(?<![^\W_])"
    end = "" if term.is_prefix or _UNSPACED_ONE.match(tokens[-1]) else rf"{_MARKS}(?![^\W_])"
    return begin + r"[\W_]*".join(parts) + end


def _cut(text: str, *, is_cut: bool) -> str:
    while _utf16_length(text) > SNIPPET_LENGTH - 1:
        text, is_cut = text[:-1], True
    return f"{text}…" if is_cut else text


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _utf16_span(text: str, start: int, end: int) -> tuple[int, int]:
    first = _utf16_length(text[:start])
    return first, first + _utf16_length(text[start:end])
