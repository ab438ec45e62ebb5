"""Which of the sessions that were found come first, and which of their matches are shown. Pure; the same in every
store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from makai.core.usage import MAX_COUNT, Usage
from makai.sessions.index.base import MAX_MATCHES, EntryKind, UsageRow

KINDS: Final[tuple[EntryKind, ...]] = ("title", "user", "assistant", "tool")
SLOT_MS: Final = 900_000
"""A quarter of an hour: days begin with one in every time zone, so what was used in it is stored as one sum."""
_WEIGHTS: Final = (4.0, 2.0, 1.5, 1.0)
"""Of a match, by its kind."""
_HALF_DAYS: Final = 30.0
"""The age at which a session counts half as much as a new one."""
_MS_PER_DAY: Final = 86_400_000


class FoundEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry that fits."""

    key: int
    """By which the store finds its text."""
    session_id: str
    event_id: int
    kind: int
    """An index into `KINDS`."""
    updated_ms: int


def ranked(places: Iterable[FoundEntry], now_ms: int) -> list[list[FoundEntry]]:
    """The entries that fit by session, the best session first."""
    by_session: dict[str, list[FoundEntry]] = {}
    for place in places:
        by_session.setdefault(place.session_id, []).append(place)
    return sorted(by_session.values(), key=lambda found: _rank(found, now_ms), reverse=True)


def _rank(places: Sequence[FoundEntry], now_ms: int) -> tuple[float, int, str]:
    """What kind of text fits best, how many do, and how long ago the session was used."""
    quality = max(_WEIGHTS[place.kind] for place in places) + 0.2 * min(len(places), 5)
    age_days = max(now_ms - places[0].updated_ms, 0) / _MS_PER_DAY
    return quality / (1 + age_days / _HALF_DAYS), places[0].updated_ms, places[0].session_id


def shown(places: Iterable[FoundEntry]) -> list[FoundEntry]:
    """The matches that a hit shows."""
    return sorted(places, key=lambda place: (place.kind, -place.event_id))[:MAX_MATCHES]


def counts(usage: Usage) -> tuple[int, int, int, int]:
    """Agents and vendors say what they like: no number is larger than what a database takes."""
    given = (usage.input, usage.output, usage.cache_read, usage.cache_write)
    (one, two, three, four) = (min(max(count, 0), MAX_COUNT) for count in given)
    return one, two, three, four


def usage_row(row: Sequence[Any]) -> UsageRow:
    """Of a day since 1970, model, agent, folder, runs, four counts and costs."""
    day, model_ref, harness, cwd, runs, given, output, cache_read, cache_write, cost_usd = row
    return UsageRow(
        day=time.strftime("%Y-%m-%d", time.gmtime(day * _MS_PER_DAY // 1000)),
        model_ref=model_ref,
        harness=harness,
        cwd=cwd or None,
        runs=int(runs),
        input=int(given),
        output=int(output),
        cache_read=int(cache_read),
        cache_write=int(cache_write),
        cost_usd=cost_usd,
    )
