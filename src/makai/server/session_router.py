"""Sessions of a MAKAI_HOME for a program that does not care which process owns them.

In: the folder, and how to own it. Out: `service.Sessions`, by owning the folder or by attaching to the process that
does, for as long as the program wants (DESIGN §6 "Who owns the log"). When the owner goes, this process takes over, or
attaches to the one that did.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

import msgspec

from makai.aio.tasks import BackgroundTasks
from makai.core.errors import ChannelClosed, HomeInUse, MakaiError, SessionRefused, TransportError
from makai.server.failover import FailoverExecutor, FailoverFollower, closed_here, is_usable, may_be_repeated
from makai.server.owner_socket import OwnerSocket
from makai.server.remote_sessions import RemoteSessions
from makai.sessions.log.base import (
    BATCH_EVENTS,
    NEWEST,
    PendingApproval,
    Record,
    SessionFilter,
    SessionSummary,
)
from makai.sessions.service import (
    Execute,
    Follower,
    NewSession,
    Receipt,
    Sessions,
    ToolRegistration,
    UserCommand,
)
from makai.sessions.state import SessionState

log = logging.getLogger(__name__)

T = TypeVar("T")
Own: TypeAlias = Callable[[], Awaitable[Sessions]]
"""Own the sessions of the folder in this process; raises `HomeInUse` while another one does."""

OWNER_S: Final = 10.0
"""How long anyone waits for the sessions to have an owner again."""
MOST_ATTEMPTS: Final = 5
"""Of one request, each with another owner."""
_PERHAPS: Final = "The owner of the sessions died while this was asked: it may be that the first attempt counted."
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5
_END_S: Final = 15.0


class SessionRouter:
    """`service.Sessions` that outlive their owner. Make one by `open`, inside the event loop that uses it."""

    def __init__(self, home: Path, own: Own, on_takeover: Callable[[], None] | None) -> None:
        self._home = home
        self._own = own
        self._on_takeover = on_takeover
        self._place: _Owning | RemoteSessions | None = None
        self._in_use_by: int | None = None
        self._waiting: set[asyncio.Future[Sessions]] = set()
        self._followers: set[FailoverFollower] = set()
        self._executors: set[FailoverExecutor] = set()
        self._tasks = BackgroundTasks()
        self._closing = asyncio.Event()
        self._ends: set[asyncio.Task[None]] = set()
        self._supervisor = self._tasks.start(self._supervise(), "makai-sessions-supervisor")

    @classmethod
    async def open(cls, home: Path, own: Own, *, on_takeover: Callable[[], None] | None = None) -> SessionRouter:
        """Own the sessions of a folder by `own`, else attach to their owner.

        `on_takeover` is called whenever this process becomes the owner after it was attached. Raises `TransportError`
        when the owner does not answer, `NotSupported` when it is another version of makai, and what `own` raises.
        """
        shared = cls(home, own, on_takeover)
        try:
            await shared.current()
        except BaseException:
            await shared.close()
            raise
        return shared

    @property
    def is_owner(self) -> bool:
        """Whether the sessions belong to this process."""
        return isinstance(self._place, _Owning)

    @property
    def owner_pid(self) -> int | None:
        """Whose they are; None while they change hands."""
        match self._place:
            case _Owning():
                return os.getpid()
            case RemoteSessions(owner_pid=pid):
                return pid
            case None:
                return None

    # ------------------------------------------------------------ what clients ask

    async def create(self, wanted: NewSession) -> str:
        """Begin a session."""
        if wanted.session_id is not None:
            return await self._through(lambda sessions: sessions.create(wanted), repeatable=False)
        session_id = str(uuid4())
        named = msgspec.structs.replace(wanted, session_id=session_id)
        attempts = 0

        async def create(sessions: Sessions) -> str:
            nonlocal attempts
            attempts += 1
            try:
                return await sessions.create(named)
            except SessionRefused as refusal:
                if attempts > 1 and refusal.code == "SESSION_EXISTS":
                    return session_id  # nobody else knows this id: the first attempt did it
                raise

        return await self._through(create, repeatable=True)

    async def ask(self, session_id: str, command: UserCommand) -> Receipt:
        """Have a command carried out."""
        return await self._through(
            lambda sessions: sessions.ask(session_id, command), repeatable=may_be_repeated(command)
        )

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> Follower:
        """Read from a cursor on, whoever owns the log."""
        follower = FailoverFollower(self, session_id, after, deltas)
        self._followers.add(follower)
        return follower

    async def read(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[Record]:
        """A page of the log."""
        return await self._through(
            lambda sessions: sessions.read(session_id, after, limit, deltas=deltas), repeatable=True
        )

    async def state(self, session_id: str) -> SessionState:
        """What the engine knows."""
        return await self._through(lambda sessions: sessions.state(session_id), repeatable=True)

    async def summaries(self, wanted: SessionFilter = NEWEST) -> list[SessionSummary]:
        """Sessions, the newest first."""
        return await self._through(lambda sessions: sessions.summaries(wanted), repeatable=True)

    async def summary(self, session_id: str) -> SessionSummary | None:
        """One session as lists show it."""
        return await self._through(lambda sessions: sessions.summary(session_id), repeatable=True)

    async def pending_approvals(self) -> list[PendingApproval]:
        """Questions without an answer."""
        return await self._through(lambda sessions: sessions.pending_approvals(), repeatable=True)

    async def delete(self, session_id: str) -> bool:
        """Forget a session."""
        return await self._through(lambda sessions: sessions.delete(session_id), repeatable=False)

    async def register_executor(self, session_id: str, execute: Execute) -> ToolRegistration:
        """Stand by for the session's own tools, whoever owns the log."""
        executor = FailoverExecutor(self, session_id, execute)
        await self._through(executor.begin, repeatable=True)
        self._executors.add(executor)
        return executor

    async def is_trusted(self, folder: str) -> bool:
        """Whether project files of a folder count."""
        return await self._through(lambda sessions: sessions.is_trusted(folder), repeatable=True)

    async def trust(self, folder: str, trusted: bool) -> None:
        """A person's word about a folder."""
        await self._through(lambda sessions: sessions.trust(folder, trusted), repeatable=True)

    async def close(self) -> None:
        """Let go of the link, or of the log: then one of those attached takes over. May be repeated."""
        if self._closing.is_set():
            return
        self._closing.set()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(closed_here())
        for follower in list(self._followers):
            follower.close()
        # It is not cancelled: half-way through owning the folder, the lock would stay behind.
        await asyncio.wait({self._supervisor}, timeout=_END_S)
        if self._ends:
            await asyncio.wait(self._ends, timeout=_END_S)
        await self._tasks.close(_END_S)

    # ------------------------------------------------------------ requests

    async def _through(self, ask: Callable[[Sessions], Awaitable[T]], *, repeatable: bool) -> T:
        """Ask whoever owns the sessions, and ask the next one when it is gone and that does no harm."""
        is_repeated = False
        for _ in range(MOST_ATTEMPTS):
            sessions = await self.current()
            try:
                return await ask(sessions)
            except ChannelClosed:
                if is_usable(sessions):
                    raise
            except TransportError as error:
                if is_usable(sessions):
                    raise
                if not repeatable:
                    raise TransportError(
                        f"{error.message} Whether it did what was asked is not known.",
                        hint="Look at the session before you ask again.",
                    ) from None
                is_repeated = True
            except SessionRefused as refusal:
                if is_repeated:
                    refusal.hint = f"{refusal.hint} {_PERHAPS}" if refusal.hint else _PERHAPS
                raise
        raise TransportError(f"The sessions in {self._home} changed hands {MOST_ATTEMPTS} times.", hint="Try again.")

    def usable(self) -> Sessions | None:
        """The sessions as they can be reached now; None while they change hands."""
        if self._place is None or self._closing.is_set():
            return None
        sessions = self._place.sessions if isinstance(self._place, _Owning) else self._place
        return sessions if is_usable(sessions) else None

    async def current(self) -> Sessions:
        """The same; waits for them while they change hands."""
        return self.usable() or await self.arrival(self.waiter())

    def waiter(self) -> asyncio.Future[Sessions]:
        """Settled when the sessions have an owner again, or cannot have one."""
        waiter: asyncio.Future[Sessions] = asyncio.get_running_loop().create_future()
        if self._closing.is_set():
            waiter.set_exception(closed_here())
        self._waiting.add(waiter)
        waiter.add_done_callback(self._waiting.discard)
        return waiter

    async def arrival(self, waiter: asyncio.Future[Sessions]) -> Sessions:
        """What a waiter is settled with, but not for ever."""
        try:
            async with asyncio.timeout(OWNER_S):
                return await waiter
        except TimeoutError:
            raise self._nobody() from None

    def _nobody(self) -> TransportError:
        pid = self._in_use_by
        if pid is None:
            return TransportError(
                f"Nobody could be reached who owns the sessions in {self._home}.",
                hint="Try again, or set MAKAI_HOME to another folder.",
            )
        return TransportError(
            f"Process {pid} owns the sessions in {self._home} and does not answer.",
            hint=f"Wait for it, end it (kill {pid}), or set MAKAI_HOME to another folder.",
        )

    # ------------------------------------------------------------ who owns them

    async def _supervise(self) -> None:
        """Have an owner, always: this process, or the one it is attached to."""
        is_first = True
        while (place := await self._seek()) is not None:
            try:
                sessions = place.sessions if isinstance(place, _Owning) else place
                await self._register_again(sessions)
                self._place = place
                for waiter in self._waiting:
                    if not waiter.done():
                        waiter.set_result(sessions)
                if isinstance(place, RemoteSessions):
                    await _unless(self._closing, place.lost.wait())
                else:
                    if not is_first:
                        self._say_that_we_took_over()
                    await self._closing.wait()
            finally:
                self._place = None
                # In a task of its own: a tool that does not end at once must not keep anyone from taking over.
                self._ends.add(self._tasks.start(place.close(), "makai-sessions-end"))
            is_first = False

    async def _seek(self) -> _Owning | RemoteSessions | None:
        """Own or attach, again and again; None when nobody wants it any more."""
        pause = _FIRST_PAUSE_S
        while not self._closing.is_set():
            try:
                return await self._own_or_attach()
            except TransportError as error:
                log.debug("no owner yet: %s", error)  # it has just begun or just ended: the next attempt shows
            except Exception as error:
                self._tell(error)
            await _unless(self._closing, asyncio.sleep(pause))
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        return None

    async def _own_or_attach(self) -> _Owning | RemoteSessions | None:
        try:
            sessions = await self._own()
        except HomeInUse as in_use:
            self._in_use_by = in_use.pid
            return await _unless(self._closing, RemoteSessions.connect(self._home))
        return await _Owning.begin(sessions, self._home)

    def _tell(self, problem: Exception) -> None:
        """Whoever waits should know at once what does not pass by itself."""
        if not isinstance(problem, MakaiError):
            log.error("the sessions cannot be opened", exc_info=problem)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(problem)

    async def _register_again(self, sessions: Sessions) -> None:
        """Before any follower can wake a run that wants their tools."""
        for executor in list(self._executors):
            try:
                await executor.begin(sessions)
            except TransportError:
                return  # the new owner is gone too
            except MakaiError as error:
                log.warning("the tools of session %s are no longer served: %s", executor.session_id, error)
                self._executors.discard(executor)

    def _say_that_we_took_over(self) -> None:
        if self._on_takeover is not None:
            try:
                self._on_takeover()
            except Exception:
                log.exception("what was to be done after the takeover failed")

    def forget_follower(self, follower: FailoverFollower) -> None:
        """It was closed."""
        self._followers.discard(follower)

    def forget_executor(self, executor: FailoverExecutor) -> None:
        """It was left."""
        self._executors.discard(executor)


class _Owning:
    """The sessions in this process, and the socket for the others."""

    def __init__(self, sessions: Sessions, socket: OwnerSocket) -> None:
        self.sessions = sessions
        self._socket = socket

    @classmethod
    async def begin(cls, sessions: Sessions, home: Path) -> _Owning:
        """Let the others in."""
        try:
            return cls(sessions, await OwnerSocket(sessions, home).open())
        except BaseException:
            await sessions.close()
            raise

    async def close(self) -> None:
        """First the lock, then the links: whoever sees its link break can take over at once."""
        try:
            await self._socket.drain()
            await self.sessions.close()
        finally:
            await self._socket.close()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work comes to; None when it was stopped before."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
