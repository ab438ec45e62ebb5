"""Months of work in a log: thousands of sessions with the words, calls and outputs of a programmer's day."""

from __future__ import annotations

import asyncio
import random
from itertools import accumulate
from pathlib import Path
from typing import Final

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.usage import Usage
from makai.sessions.log.base import Pending
from makai.sessions.log.sqlite import SqliteLog

_COMMON: Final = (
    "the to a of and in is it that for on with as this be are not we can test file code error function class return "
    "run add fix should when from type line use call name value list data new all more one"
)
COMMON: Final = _COMMON.split()
_SYLLABLES: Final = ("ka", "ro", "mi", "ten", "sol", "ver", "dan", "pur", "lex", "ing", "ath", "ort", "qua", "zen")
_AT_ONCE: Final = 200


def vocabulary(chance: random.Random, size: int = 20_000) -> list[str]:
    """Words, the most common first."""
    words = dict.fromkeys(COMMON)
    while len(words) < size:
        words["".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4)))] = None
    return list(words)


class Author:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.words = vocabulary(self._chance)
        self._weights = list(accumulate(1 / (place + 3) for place in range(len(self.words))))

    def text(self, length: int) -> str:
        return " ".join(self._chance.choices(self.words, cum_weights=self._weights, k=length))

    def session(self, number: int, ts: int, exchanges: int = 10) -> list[Pending]:
        """Twenty messages, and a call of a tool in every second answer."""
        created = ev.SessionCreated(model_ref=f"acme/{number % 5}", title=self.text(5), cwd=f"/projects/{number % 40}")
        pending = [Pending(ts, None, created)]
        for turn in range(1, exchanges + 1):
            facts: list[ev.SessionEvent] = [
                ev.RunStarted(run_number=turn, model_ref=f"acme/{number % 5}"),
                ev.UserInput(input_id=f"{turn}", content=self.text(20)),
                *(self._call(turn) if turn % 2 else ()),
                ev.AssistantText(content_index=0, text=self.text(70)),
                ev.RunFinished(stop_reason="end_turn", usage=Usage(input=900, output=90, cost_usd=0.01)),
            ]
            pending += [Pending(ts + turn, f"{number}-{turn}", fact) for fact in facts]
        return pending

    def _call(self, turn: int) -> list[ev.SessionEvent]:
        path = "/".join(self._chance.choices(self.words, k=3))
        call = ev.ToolCalled(call_id=f"c{turn}", name="shell", arguments_json=f'{{"command": "cat {path}.py"}}')
        output = ev.ToolFinished(call_id=f"c{turn}", content=(Text(text=self.text(150)),))
        return [call, output]


def search_queries(author: Author) -> list[str]:
    """Fifty: common words, rare ones, beginnings of words, several words and phrases."""
    words = author.words
    common, rare = COMMON[:15], words[2_000:19_000:1_400]
    pairs = [f"{one} {other}" for one, other in zip(common[:8], words[300:700:50], strict=True)]
    phrases = [f'"{one} {other}"' for one, other in zip(COMMON[:5], COMMON[5:10], strict=True)]
    beginnings = [word[:length] for word, length in zip(words[100:1_000:100], (2, 3, 4) * 3, strict=True)]
    return [*common, *rare, *pairs, *phrases, *beginnings]


async def write_sessions(home: Path, count: int, newest_ms: int) -> Author:
    """Sessions that are an hour apart, the last one the newest."""
    author = Author(7)
    log = await SqliteLog.open(home)
    try:
        for first in range(0, count, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, count))
            times = [newest_ms - (count - number) * 3_600_000 for number in numbers]
            some = [(f"s-{number}", author.session(number, ts)) for number, ts in zip(numbers, times, strict=True)]
            await asyncio.gather(*(log.append(session_id, pending, 0) for session_id, pending in some))
    finally:
        await log.close()
    return author
