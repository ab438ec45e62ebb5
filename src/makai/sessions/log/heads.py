"""The ends of the logs that are in use: what an append continues, and what live followers read without the store.
Bounded in sessions and in bytes, per session and of all. Only the writer's thread changes it, by replacing immutable
values; any thread may read.

What an append continues is small and kept of many sessions: without it each append reads a row first, which makes an
event of a node with ten thousand busy sessions cost six times as much as one of a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from makai.sessions.log.base import Record
from makai.sessions.log.encoding import Stored
from makai.sessions.log.projection import SessionRow

MAX_SESSIONS: Final = 20_000
TAIL_BYTES: Final = 128 * 1024
MAX_TAILS_BYTES: Final = 256 * TAIL_BYTES
MIN_DELTA_RUN: Final = 64
"""Deltas in a row that are worth leaping over: about two pages."""


class Head(msgspec.Struct, frozen=True):
    """A session at its last event."""

    row: SessionRow
    tail: tuple[Record, ...] = ()
    """The newest events, as they went to the store."""
    tail_bytes: int = 0
    deltas_from: int = 0
    """Everything from this number on is a delta."""

    @property
    def last(self) -> int:
        return self.row.view.summary.events

    def run_ended_by(self, stored: Sequence[Stored]) -> tuple[int, int] | None:
        """The first and last number of the run of deltas that an append ends, if that is long."""
        end = next((event.record.event_id for event in stored if not event.is_delta), 0)
        return (self.deltas_from, end - 1) if end - self.deltas_from >= MIN_DELTA_RUN else None

    def extended(self, row: SessionRow, stored: Sequence[Stored]) -> Head:
        """After an append. A tail that got too long is cut to half, so that cutting is rare."""
        records = [event.record for event in stored]
        lasting = next((event.record.event_id for event in reversed(stored) if not event.is_delta), 0)
        deltas_from = max(self.deltas_from, lasting + 1)
        tail = (*self.tail, *records)
        size = self.tail_bytes + sum([len(record.line) for record in records])
        if size <= TAIL_BYTES:
            return Head(row, tail, size, deltas_from)
        start = len(tail)
        size = 0
        while size + len(tail[start - 1].line) <= TAIL_BYTES // 2:
            start -= 1
            size += len(tail[start].line)
        return Head(row, tail[start:], size, deltas_from)

    def after(self, event_id: int) -> tuple[Record, ...] | None:
        """Everything above a number, if all of it is still here."""
        if event_id >= self.last:
            return ()
        if not self.tail or event_id + 1 < self.tail[0].event_id:
            return None
        return self.tail[event_id + 1 - self.tail[0].event_id :]


class Heads:
    """The sessions used last. Those that were not used for longest lose their tails first, then their places."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}
        """The one that was not used for longest first."""
        self._with_tails: dict[str, int] = {}
        """Bytes of the tails that there are, in the same order."""
        self._tail_bytes = 0

    def __len__(self) -> int:
        return len(self._heads)

    def get(self, session_id: str) -> Head | None:
        return self._heads.get(session_id)

    def put(self, session_id: str, head: Head) -> None:
        self.drop(session_id)
        self._heads[session_id] = head
        if head.tail_bytes:
            self._with_tails[session_id] = head.tail_bytes
            self._tail_bytes += head.tail_bytes
        while self._tail_bytes > MAX_TAILS_BYTES:
            oldest = next(iter(self._with_tails))
            self._drop_tail(oldest)
            self._heads[oldest] = replace(self._heads[oldest], tail=(), tail_bytes=0)
        if len(self._heads) > MAX_SESSIONS:
            self.drop(next(iter(self._heads)))

    def drop(self, session_id: str) -> None:
        self._heads.pop(session_id, None)
        self._drop_tail(session_id)

    def clear(self) -> None:
        self._heads.clear()
        self._with_tails.clear()
        self._tail_bytes = 0

    def _drop_tail(self, session_id: str) -> None:
        self._tail_bytes -= self._with_tails.pop(session_id, 0)
