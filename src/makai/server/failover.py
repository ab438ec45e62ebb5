"""What outlives the owner of the sessions: followers, executors, and requests that may be asked again.

In: sessions that change hands. Out: the same follower or executor with each owner in turn. It must not know how they
change hands.

What goes on as if nothing had happened: followers, from their cursors, without gap or duplicate; executors, which are
made anew (a tool that was running is cancelled: the next owner counts it as interrupted); every request that was
certainly not carried out.

A request that was under way when its owner died may or may not have been carried out. It is repeated when that can do
no harm:

- whatever only reads, and `trust`;
- `create` under an id that was made up here: the second one is refused if the first one counted, and then it is ours;
- `Send` with a `client_msg_id`, which counts once however often it is sent (DESIGN §6);
- `Approve`, `Deny`, and `Abort` that names its run: a call is decided once, a run is aborted once, so the repetition is
  refused if the first one counted, or if someone else was faster. The refusal says that it may have been our own.

All others raise `TransportError`: a second `Send` would be said twice, an `Abort` without a run could hit the next run,
and a setting could undo what someone else has set in between.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, assert_never

from makai.core.errors import ChannelClosed, TransportError
from makai.server.remote_sessions import RemoteSessions
from makai.sessions.commands import (
    Abort,
    Approve,
    Close,
    Compact,
    Deny,
    Send,
    SetMode,
    SetModel,
    SetTerms,
    SetTitle,
)
from makai.sessions.log.base import Record
from makai.sessions.service import Execute, Follower, Sessions, ToolRegistration, UserCommand


class OwnerProxy(Protocol):
    """Where the sessions are."""

    def usable(self) -> Sessions | None:
        """The sessions as they can be reached now; None while they change hands."""

    def waiter(self) -> asyncio.Future[Sessions]:
        """Settled when the sessions have an owner again, or cannot have one."""

    async def arrival(self, waiter: asyncio.Future[Sessions]) -> Sessions:
        """What a waiter is settled with, but not for ever."""

    def forget_follower(self, follower: FailoverFollower) -> None:
        """It was closed."""

    def forget_executor(self, executor: FailoverExecutor) -> None:
        """It was left."""


def may_be_repeated(command: UserCommand) -> bool:
    """Whether a command that may have been carried out can be asked again without harm."""
    match command:
        case Send(client_msg_id=client_msg_id):
            return client_msg_id is not None
        case Approve() | Deny():
            return True
        case Abort(run_id=run_id):
            return run_id is not None
        case SetMode() | SetModel() | SetTitle() | SetTerms() | Compact() | Close():
            return False
        case _:
            assert_never(command)


def is_usable(sessions: Sessions) -> bool:
    """Whether their owner is there and takes requests."""
    return not (isinstance(sessions, RemoteSessions) and (sessions.lost.is_set() or sessions.moving))


def closed_here() -> ChannelClosed:
    """For whoever asks after this process has closed its sessions."""
    return ChannelClosed("These sessions were closed by this process.")


class FailoverFollower:
    """A `service.Follower` whose log may change hands."""

    def __init__(self, owner: OwnerProxy, session_id: str, after: int, deltas: bool) -> None:
        self._owner = owner
        self._session_id = session_id
        self._cursor = max(after, 0)
        self._deltas = deltas
        self._sessions: Sessions | None = None
        self._follower: Follower | None = None
        self._waiter: asyncio.Future[Sessions] | None = None
        self._closed = False

    @property
    def cursor(self) -> int:
        """The last event that was given out."""
        return self._cursor

    async def next(self) -> list[Record]:
        """The next records; none only after `close`."""
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
                self._cursor = records[-1].event_id
                return records
        return []

    def close(self) -> None:
        """Stop; whoever waits is woken."""
        self._closed = True
        self._owner.forget_follower(self)
        self._end()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(closed_here())

    async def _begin(self) -> Follower:
        sessions = self._owner.usable()
        if sessions is None:
            self._waiter = self._owner.waiter()
            sessions = await self._owner.arrival(self._waiter)
        self._sessions = sessions
        self._follower = sessions.follow(self._session_id, self._cursor, deltas=self._deltas)
        return self._follower

    def _end(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None
            self._sessions = None


class FailoverExecutor:
    """A `service.ToolRegistration` whose log may change hands."""

    def __init__(self, owner: OwnerProxy, session_id: str, execute: Execute) -> None:
        self.session_id = session_id
        self._owner = owner
        self._execute = execute
        self._executor: ToolRegistration | None = None
        self._unregistered = False

    async def begin(self, sessions: Sessions) -> None:
        """Stand by with this owner."""
        executor = await sessions.register_executor(self.session_id, self._execute)
        if self._unregistered:
            executor.unregister()
        else:
            self._executor = executor

    def unregister(self) -> None:
        """Stop. May be repeated."""
        self._unregistered = True
        self._owner.forget_executor(self)
        if self._executor is not None:
            self._executor.unregister()
