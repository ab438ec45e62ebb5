"""Readers of live sessions.

In: a cursor. Out: the records above it, in order, for as long as somebody asks for more. A follower holds a cursor and
no events: the log is its buffer, so one that is slow costs nothing, slows nobody and misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from makai.core.errors import SessionRefused
from makai.sessions.live import LiveSession
from makai.sessions.log.base import EventLog, Record


class LiveFollower:
    """A `service.Follower` in the process that owns the log."""

    def __init__(self, log: EventLog, find: Callable[[], Awaitable[LiveSession]], after: int, deltas: bool) -> None:
        self._log = log
        self._find = find
        self._cursor = max(after, 0)
        self._deltas = deltas
        self._session: LiveSession | None = None
        self._news = asyncio.Event()
        self._closed = False

    @property
    def cursor(self) -> int:
        """The last event that was given out, or left out because nobody wants deltas."""
        return self._cursor

    async def next(self) -> list[Record]:
        """The next records; none only after `close`, of this follower or of the log."""
        if self._session is None and not self._closed:
            self._session = await self._find()
            if not self._closed:  # meanwhile
                self._session.followers.add(self._news.set)
        while not self._closed:
            assert self._session is not None
            self._news.clear()
            if self._session.is_closing:
                return []  # the next owner goes on from the cursor
            if self._session.deleted:
                raise SessionRefused("UNKNOWN_SESSION", "The session was deleted.")
            last = self._session.state.last_event_id
            if self._cursor >= last:
                await self._news.wait()
                continue
            records = await self._log.read_raw(self._session.session_id, self._cursor, deltas=self._deltas)
            if records:
                self._cursor = records[-1].event_id
                return records
            self._cursor = max(self._cursor, last)
        return []

    def close(self) -> None:
        """Stop; whoever waits is woken."""
        self._closed = True
        if self._session is not None:
            self._session.followers.discard(self._news.set)
        self._news.set()
