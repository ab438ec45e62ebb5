"""Followers of live sessions, in the process that owns the log. The log is their buffer: they hold only a cursor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from makai.core.errors import SessionRefused
from makai.sessions.live import LiveSession
from makai.sessions.log.base import EventLog, Record


class LiveFollower:
    """A `service.Follower`."""

    def __init__(self, log: EventLog, find: Callable[[], Awaitable[LiveSession]], after: int, deltas: bool) -> None:
        self._log = log
        self._find = find
        self.cursor = max(after, 0)
        self._deltas = deltas
        self._session: LiveSession | None = None
        self._unwatch: Callable[[], None] | None = None
        self._news = asyncio.Event()
        self._closed = False

    async def next(self) -> list[Record]:
        """Returns an empty list after `close` of this follower or of the log."""
        while not self._closed:
            session = self._session
            if session is not None and session.is_closing:
                return []  # the next owner continues from the cursor
            if session is not None and session.deleted:
                raise SessionRefused("UNKNOWN_SESSION", "The session was deleted.")
            if session is None or session.stale or session.forgotten:
                found = await self._find()
                if not self._closed:
                    self._watch_changes_of(found)
                continue
            if self._unwatch is None:
                self._unwatch = self._log.watch(session.session_id, self._news.set)
            self._news.clear()
            # The log is ahead of the state until `on_change`; a client that sees the end of a run must find it ended.
            last = session.state.last_event_id
            if self.cursor >= last:
                await self._news.wait()
                continue
            records = await self._log.read_raw(session.session_id, self.cursor, deltas=self._deltas)
            if records and records[-1].event_id > last:
                records = [record for record in records if record.event_id <= last]
            if records:
                self.cursor = records[-1].event_id
                return records
            self.cursor = max(self.cursor, last)
        return []

    def _watch_changes_of(self, session: LiveSession | None) -> None:
        if self._session is not None:
            self._session.on_change.discard(self._news.set)
        self._session = session
        if session is not None:
            session.on_change.add(self._news.set)

    def close(self) -> None:
        self._closed = True
        self._watch_changes_of(None)
        if self._unwatch is not None:
            self._unwatch()
        self._news.set()
