"""Splits text into the words of an index, as the tokenizer `unicode61` of SQLite does without diacritics. Pure.

A store whose own parser splits text otherwise gets these words, so that a query finds the same in every store. Letters
and digits are words; case and the diacritics of Latin letters do not count; a character of a script that is written
without spaces is a word of its own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from makai.sessions.index.search_text import is_unspaced

MAX_LEXEME: Final = 100
"""Characters of a word that are looked up; the rest is compared in the text."""
_MAX_SHORT: Final = 4
_MAX_FOLDED: Final = 20_000
_DIACRITICS: Final = frozenset(
    "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u0309\u030a\u030b\u030c\u030f\u0311\u031b"
    "\u0323\u0324\u0325\u0326\u0327\u0328\u032d\u032e\u0330\u0331"
)
"""Those that leave the word that they stand in together. Other marks end it."""


class _Words(dict[int, str]):
    """What stands for a character in the list of words, kept for those that were met."""

    def __missing__(self, code: int) -> str:
        if len(self) >= _MAX_FOLDED:
            self.clear()
        return self.setdefault(code, _folded(chr(code)))


def _folded(letter: str) -> str:
    if letter in _DIACRITICS:
        return ""
    if unicodedata.category(letter)[0] not in "LN" and unicodedata.category(letter) != "Co":
        return " "
    parts = unicodedata.normalize("NFD", letter)
    base = parts[0] if parts[0].isascii() else letter
    lower = base.casefold()
    lower = lower if len(lower) == 1 else base.lower()
    return f" {lower} " if is_unspaced(letter) else lower


_WORDS: Final = _Words()


def split_words(text: str) -> list[str]:
    """The words of a text, in their order."""
    return text.translate(_WORDS).split()


def lexemes(words: Sequence[str]) -> set[str]:
    """What is looked up for words that follow each other: each of them, and every two neighbours that are short. Short
    words, and the characters of scripts without spaces, are in so many texts that a phrase of them is found by their
    pairs only."""
    short = [word if len(word) <= _MAX_SHORT else "" for word in words]
    found = {f"{one}_{other}" for one, other in pairwise(short) if one and other}
    return found.union(word[:MAX_LEXEME] for word in words)


def as_sequence(words: Iterable[str]) -> str:
    """Words as a text in which a sequence of them is a part that begins and ends with a space."""
    return f" {' '.join(words)} "
