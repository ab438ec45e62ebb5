"""Finds what a user means by a few letters: all texts that have these letters in this order, the likeliest first. Pure.

The time is linear in the length of the texts, whatever the letters are.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from typing import TypeAlias

MAX_QUERY = 200
_Rank: TypeAlias = tuple[int, int, str]


def best_matches(query: str, texts: Sequence[str], limit: int) -> list[str]:
    """The best `limit` of the texts. Upper and lower case are the same; spaces in the query count for nothing.

    A text that contains the query in one piece in its last component (`src/chat_ui.py` has `chat_ui.py`) is above one
    that contains it elsewhere, which is above one that only has its letters. Shorter texts are above longer ones.
    """
    letters = "".join(query[:MAX_QUERY].casefold().split())
    if not letters:
        return heapq.nsmallest(limit, texts, key=lambda text: (text.rstrip("/").count("/"), text))
    pattern = letters_in_order(letters)
    found = [text for text in texts if pattern.match(text.casefold())]
    return heapq.nsmallest(limit, found, key=lambda text: _rank(letters, pattern, text))


def letters_in_order(letters: str) -> re.Pattern[str]:
    """Matches texts that have the letters in this order. Each step skips what is not the next letter, so nothing is
    tried twice."""
    steps = (f"[^{re.escape(letter)}]*{re.escape(letter)}" for letter in letters)
    return re.compile("".join(steps), re.DOTALL)


def _rank(letters: str, pattern: re.Pattern[str], text: str) -> _Rank:
    whole = text.casefold().rstrip("/")
    name = whole.rpartition("/")[2]
    if letters in (name, whole):
        kind = 0
    elif name.startswith(letters) or whole.startswith(letters):
        kind = 1
    elif letters in name:
        kind = 2
    elif letters in whole:
        kind = 3
    else:
        kind = 4 if pattern.match(name) else 5
    return kind, len(text), text
