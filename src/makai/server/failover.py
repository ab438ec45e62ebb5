"""Keeps followers and tool executors alive while session ownership moves to another process. Followers continue from
their cursors, without gap or duplicate. Executors are registered again with the next owner; a tool that was running is
cancelled, and the next owner counts it as interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from makai.core.errors import ChannelClosed, TransportError
from makai.server.remote_sessions import RemoteSessions
from makai.sessions.log.base import Record
from makai.sessions.service import Follower, Sessions, ToolRegistration

if TYPE_CHECKING:
    from makai.server.session_router import SessionRouter


def is_usable(sessions: Sessions) -> bool:
    """Whether the owner is there and takes requests."""
    return not (isinstance(sessions, RemoteSessions) and (sessions.lost.is_set() or sessions.moving))


def closed_error() -> ChannelClosed:
    return ChannelClosed("These sessions were closed by this process.")


class FailoverFollower:
    """A `service.Follower` that survives its owner."""

    def __init__(
        self,
        owner: SessionRouter,
        session_id: str,
        after: int,
        deltas: bool,
        on_close: Callable[..., None],
    ) -> None:
        self._owner = owner
        self._on_close = on_close
        self._session_id = session_id
        self.cursor = max(after, 0)
        self._deltas = deltas
        self._sessions: Sessions | None = None
        self._follower: Follower | None = None
        self._waiter: asyncio.Future[Sessions] | None = None
        self._closed = False

    async def next(self) -> list[Record]:
        while not self._closed:
            try:
                follower = self._follower or await self._begin()
                records = await follower.next()
            except TransportError:
                if self._closed:
                    break
                if self._sessions is None or is_usable(self._sessions):
                    raise
                self._end()
                continue
            if records:
                self.cursor = records[-1].event_id
                return records
        return []

    def close(self) -> None:
        self._closed = True
        self._on_close(self)
        self._end()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(closed_error())

    async def _begin(self) -> Follower:
        sessions = self._owner.usable()
        if sessions is None:
            self._waiter = self._owner.waiter()
            sessions = await self._owner.arrival(self._waiter)
        self._sessions = sessions
        self._follower = sessions.follow(self._session_id, self.cursor, deltas=self._deltas)
        return self._follower

    def _end(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None
            self._sessions = None


class FailoverExecutor:
    """A `service.ToolRegistration` that survives its owner."""

    def __init__(
        self,
        what: str,
        register: Callable[[Sessions], Awaitable[ToolRegistration]],
        on_close: Callable[[FailoverExecutor], None],
    ) -> None:
        """`what` names the tools in the log; `register` registers them with an owner."""
        self.what = what
        self._on_close = on_close
        self._register = register
        self._executor: ToolRegistration | None = None
        self._unregistered = False

    async def begin(self, sessions: Sessions) -> None:
        executor = await self._register(sessions)
        if self._unregistered:
            executor.unregister()
        else:
            self._executor = executor

    def unregister(self) -> None:
        self._unregistered = True
        self._on_close(self)
        if self._executor is not None:
            self._executor.unregister()
