"""Followers that survive the owner of their session. They continue from their cursors, without gap or duplicate: with
the owner in this process, over the link to its node, or from the store while it cannot be reached or there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from makai.core.errors import (
    LogDamaged,
    MakaiError,
    OwnershipLost,
    SessionElsewhere,
    SessionRefused,
    StorageUnavailable,
    TransportError,
)
from makai.server.cluster_relay import RelayedSessions
from makai.server.remote_sessions import RemoteSessions
from makai.sessions.log.base import Record
from makai.sessions.service import Follower, Sessions

if TYPE_CHECKING:
    from makai.server.cluster_sessions import ClusterSessions

QUIET_S: Final = 1.0
"""A link over which nothing came for so long, although pings are sent, may be cut: the store is read instead."""
CHECK_S: Final = 0.5
POLL_S: Final = 1.0
"""How often the store is read while the owner cannot be reached."""
PATIENCE_S: Final = 60.0
"""How long a follower waits for a store that cannot be read."""


class ClusterFollower:
    """A `service.Follower`."""

    def __init__(
        self,
        cluster: ClusterSessions,
        session_id: str,
        after: int,
        deltas: bool,
        on_close: Callable[[ClusterFollower], None],
    ) -> None:
        self._cluster = cluster
        self._session_id = session_id
        self.cursor = max(after, 0)
        self._deltas = deltas
        self._on_close = on_close
        self._place: Sessions | None = None
        self._follower: Follower | None = None
        self._ended = asyncio.Event()

    async def next(self) -> list[Record]:
        while not self._ended.is_set():
            try:
                records = await self._from_owner()
            except SessionElsewhere as error:
                self._cluster.note_owner(self._session_id, error.node_id)
                records = await self._from_store_later()
            except (TransportError, OwnershipLost):
                self._cluster.forget_owner(self._session_id)
                records = await self._from_store_later()
            except LogDamaged:
                raise
            except StorageUnavailable:
                records = await self._from_store_later()
            if records:
                self.cursor = records[-1].event_id
                return records
        return []

    def close(self) -> None:
        self._ended.set()
        self._on_close(self)
        self._end()

    async def _from_owner(self) -> list[Record] | None:
        """The next events of the owner; None when the owner has to be looked for again."""
        if self._follower is None:
            place = await self._cluster.place_of(self._session_id)
            if isinstance(place, RelayedSessions):
                return await self._from_store_later()
            if self._ended.is_set():
                return None
            self._place = place
            self._follower = place.follow(self._session_id, self.cursor, deltas=self._deltas)
        follower, link = self._follower, self._place
        if not isinstance(link, RemoteSessions):
            return await self._next_of(follower)
        while self._follower is follower:
            try:
                async with asyncio.timeout(CHECK_S):
                    return await self._next_of(follower)
            except TimeoutError:
                if link.silent_s >= QUIET_S:
                    return await self._from_store()
        return None

    async def _next_of(self, follower: Follower) -> list[Record]:
        records = await follower.next()
        if not records:
            self._end()  # the owner lets go of the session
        return records

    async def _from_store_later(self) -> list[Record] | None:
        """Read the store after a pause, which is short when the session has just moved."""
        was_following = self._follower is not None
        self._end()
        records = await self._from_store()
        if not records and not was_following:
            try:
                async with asyncio.timeout(POLL_S):
                    await self._ended.wait()
            except TimeoutError:
                records = await self._from_store()
        return records

    async def _from_store(self) -> list[Record]:
        """What is stored above the cursor, also while its owner cannot be reached."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + PATIENCE_S
        while not self._ended.is_set():
            try:
                store = self._cluster.store
                records = await store.read_raw(self._session_id, self.cursor, deltas=self._deltas)
                if not records and await store.session(self._session_id) is None:
                    raise SessionRefused("UNKNOWN_SESSION", f"There is no session {self._session_id!r}.")
                if records:
                    self._end()  # what the owner sends later would be a duplicate
                return records
            except (SessionRefused, LogDamaged):
                raise
            except MakaiError:
                if loop.time() >= ends_at:
                    raise
                await asyncio.sleep(POLL_S)
        return []

    def _end(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = self._place = None
