"""Sessions of a MAKAI_HOME for a program that does not care which process owns them.

The program owns the folder, or attaches to the process that does. When the owner goes, this process takes over, or
attaches to the one that did; `failover` keeps followers and executors alive meanwhile.

A request that was under way when its owner died may or may not have been carried out. It is repeated with the next
owner when the request says that this does no harm (`Request.is_repeatable`); otherwise it fails.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from makai.aio.tasks import BackgroundTasks
from makai.core.errors import ChannelClosed, HomeInUse, MakaiError, SessionRefused, TransportError
from makai.harness.base import Execute, ExecuteServed, ToolServerOffer
from makai.server.failover import FailoverExecutor, FailoverFollower, closed_error, is_usable
from makai.server.owner_socket import OwnerSocket
from makai.server.remote_sessions import RemoteSessions
from makai.sessions.commands import Compact, RetryRun, Send
from makai.sessions.requests import AnswerT, GetState, Request, RunCommand
from makai.sessions.service import Sessions, ToolRegistration

log = logging.getLogger(__name__)

T = TypeVar("T")
Own: TypeAlias = Callable[[], Awaitable[Sessions]]
"""Owns the sessions of the folder in this process; raises `HomeInUse` while another process does."""

OWNER_S: Final = 10.0
"""How long a caller waits for the sessions to have an owner again."""
OPENING_S: Final = 60.0
"""How much longer it waits while this process opens the store, which can be a database on another machine."""
MAX_ATTEMPTS: Final = 5
"""Attempts of one request, each with another owner."""
_PERHAPS: Final = "The owner of the sessions died during the request: the first attempt may have been carried out."
_FIRST_PAUSE_S: Final = 0.01
_MAX_PAUSE_S: Final = 0.5
_END_S: Final = 15.0


class SessionRouter:
    """`service.Sessions` that survive their owner. Make one by `open`, inside the event loop that uses it."""

    def __init__(
        self,
        home: Path,
        own: Own,
        on_takeover: Callable[[], None] | None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._home = home
        self._environ = os.environ if environ is None else environ
        self._own = own
        self._on_takeover = on_takeover
        self._place: _Owning | RemoteSessions | None = None
        self._in_use_by: int | None = None
        self._is_opening = False
        """Whether this process is about to own the sessions."""
        self._waiting: set[asyncio.Future[Sessions]] = set()
        self._followers: set[FailoverFollower] = set()
        self._executors: set[FailoverExecutor] = set()
        self._tasks = BackgroundTasks()
        self._closing = asyncio.Event()
        self._ends: set[asyncio.Task[None]] = set()
        self._supervisor = self._tasks.start(self._supervise(), "makai-sessions-supervisor")

    @classmethod
    async def open(
        cls,
        home: Path,
        own: Own,
        *,
        on_takeover: Callable[[], None] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> SessionRouter:
        """Own the sessions of a folder by `own`, else attach to their owner. `on_takeover` is called whenever this
        process becomes the owner after it was attached. `environ` replaces the environment of this process, whose
        keys, addresses and proxies count for the runs that it starts wherever they are carried out. Raises
        `TransportError` when the owner does not answer, `NotSupported` when it is another version of makai, and what
        `own` raises."""
        router = cls(home, own, on_takeover, environ)
        try:
            await router.current()
        except BaseException:
            await router.close()
            raise
        return router

    @property
    def is_owner(self) -> bool:
        return isinstance(self._place, _Owning)

    @property
    def owner_pid(self) -> int | None:
        """The process that owns the sessions; None while there is none."""
        if isinstance(self._place, RemoteSessions):
            return self._place.owner_pid
        return None if self._place is None else os.getpid()

    async def dispatch(self, request: Request[AnswerT]) -> AnswerT:
        named = request.with_id()

        async def ask(sessions: Sessions) -> AnswerT:
            sent: Request[Any] = named
            if isinstance(sessions, RemoteSessions) and isinstance(sent, RunCommand):
                sent = await self._with_variables(sessions, sent)
            answer: AnswerT = await sessions.dispatch(sent)
            return answer

        return await self._through(ask, request.is_repeatable, named.answer_of_first_attempt)

    async def _with_variables(self, sessions: RemoteSessions, request: RunCommand) -> RunCommand:
        """The request with the variables of this process, when the command can start a run."""
        if not isinstance(request.command, Send | Compact | RetryRun):
            return request
        from makai.server.caller_variables import caller_variables, may_lend  # most processes own their sessions

        if not await asyncio.to_thread(may_lend, self._environ, self._home):
            return request
        try:
            state = await sessions.dispatch(GetState(request.session_id))
        except TransportError as error:
            raise ChannelClosed(error.message) from None  # the request itself was not sent
        found = await asyncio.to_thread(caller_variables, self._environ, self._home, state)
        inherited = tuple(found.keys() - request.environ.keys())
        return msgspec.structs.replace(request, environ=found | request.environ, inherited=inherited)

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> FailoverFollower:
        follower = FailoverFollower(self, session_id, after, deltas, self._followers.discard)
        self._followers.add(follower)
        return follower

    async def register_executor(self, session_id: str, execute: Execute) -> FailoverExecutor:
        what = f"session {session_id}"
        return await self._register(what, lambda sessions: sessions.register_executor(session_id, execute))

    async def register_tool_server(self, offer: ToolServerOffer, execute: ExecuteServed) -> FailoverExecutor:
        what = f"the tool server {offer.server_id}"
        return await self._register(what, lambda sessions: sessions.register_tool_server(offer, execute))

    async def _register(
        self, what: str, register: Callable[[Sessions], Awaitable[ToolRegistration]]
    ) -> FailoverExecutor:
        executor = FailoverExecutor(what, register, self._executors.discard)
        await self._through(executor.begin, repeatable=True)
        self._executors.add(executor)
        return executor

    async def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(closed_error())
        for follower in list(self._followers):
            follower.close()
        # Not cancelled: while it takes ownership, that would leave the lock behind.
        await asyncio.wait({self._supervisor}, timeout=_END_S)
        if self._ends:
            await asyncio.wait(self._ends, timeout=_END_S)
        await self._tasks.close(_END_S)

    async def _through(
        self,
        ask: Callable[[Sessions], Awaitable[T]],
        repeatable: bool,
        answer_of_first_attempt: Callable[[SessionRefused], T | None] = lambda refusal: None,
    ) -> T:
        """Ask the owner, and the next one when it died and the request was not carried out or may be repeated."""
        is_repeated = False
        for _ in range(MAX_ATTEMPTS):
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
                        f"{error.message} The request may or may not have been carried out.",
                        hint="Look at the session before you ask again.",
                    ) from None
                is_repeated = True
            except SessionRefused as refusal:
                if is_repeated:
                    if (answer := answer_of_first_attempt(refusal)) is not None:
                        return answer
                    refusal.hint = f"{refusal.hint} {_PERHAPS}" if refusal.hint else _PERHAPS
                raise
        raise TransportError(
            f"The sessions in {self._home} changed their owner {MAX_ATTEMPTS} times.", hint="Try again."
        )

    def usable(self) -> Sessions | None:
        """The sessions of the current owner; None while there is none."""
        if self._place is None or self._closing.is_set():
            return None
        sessions = self._place.sessions if isinstance(self._place, _Owning) else self._place
        return sessions if is_usable(sessions) else None

    async def current(self) -> Sessions:
        """The sessions of the current owner; waits while there is none."""
        return self.usable() or await self.arrival(self.waiter())

    def waiter(self) -> asyncio.Future[Sessions]:
        """A future for the sessions of the next owner, or the reason why there is none."""
        waiter: asyncio.Future[Sessions] = asyncio.get_running_loop().create_future()
        if self._closing.is_set():
            waiter.set_exception(closed_error())
        self._waiting.add(waiter)
        waiter.add_done_callback(self._waiting.discard)
        return waiter

    async def arrival(self, waiter: asyncio.Future[Sessions]) -> Sessions:
        """The sessions, once they have an owner; waits longer while this process is about to become it."""
        try:
            await asyncio.wait({waiter}, timeout=OWNER_S)
            if self._is_opening and not waiter.done():
                await asyncio.wait({waiter}, timeout=OPENING_S)
            if not waiter.done():
                raise self._no_owner()
            return waiter.result()
        finally:
            waiter.cancel()

    def _no_owner(self) -> TransportError:
        pid = self._in_use_by
        if pid is None:
            return TransportError(
                f"No owner of the sessions in {self._home} could be reached.",
                hint="Try again, or set MAKAI_HOME to another folder.",
            )
        return TransportError(
            f"Process {pid} owns the sessions in {self._home} and does not answer.",
            hint=f"Wait for it, end it (kill {pid}), or set MAKAI_HOME to another folder.",
        )

    async def _supervise(self) -> None:
        """Own the sessions or be attached to their owner, until `close`."""
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
                        self._report_takeover()
                    await self._closing.wait()
            finally:
                self._place = None
                # In a task of its own: a tool that ends slowly must not delay the takeover.
                self._ends.add(self._tasks.start(place.close(), "makai-sessions-end"))
            is_first = False

    async def _seek(self) -> _Owning | RemoteSessions | None:
        """Try to own or attach until one succeeds; None after `close`."""
        pause = _FIRST_PAUSE_S
        while not self._closing.is_set():
            try:
                return await self._own_or_attach()
            except TransportError as error:
                log.debug("no owner yet: %s", error)  # it is starting or ending: the next attempt shows
            except Exception as error:  # another attempt will not resolve it
                if not isinstance(error, MakaiError):
                    log.error("the sessions cannot be opened", exc_info=error)
                for waiter in self._waiting:
                    if not waiter.done():
                        waiter.set_exception(error)
            await _unless(self._closing, asyncio.sleep(pause))
            pause = min(pause * 1.5, _MAX_PAUSE_S)
        return None

    async def _own_or_attach(self) -> _Owning | RemoteSessions | None:
        self._is_opening = True
        try:
            sessions = await self._own()
        except HomeInUse as in_use:
            self._in_use_by = in_use.pid
            self._is_opening = False
            return await _unless(self._closing, RemoteSessions.connect(self._home))
        finally:
            self._is_opening = False
        return await _Owning.begin(sessions, self._home)

    async def _register_again(self, sessions: Sessions) -> None:
        """Comes before any follower can wake a run that needs the tools."""
        for executor in list(self._executors):
            try:
                await executor.begin(sessions)
            except TransportError:
                return  # the new owner is gone too
            except MakaiError as error:
                log.warning("the tools of %s are no longer served: %s", executor.what, error)
                self._executors.discard(executor)

    def _report_takeover(self) -> None:
        if self._on_takeover is not None:
            try:
                self._on_takeover()
            except Exception:
                log.exception("the callback after the takeover failed")


class _Owning:
    """The sessions in this process, and the socket for other processes."""

    def __init__(self, sessions: Sessions, socket: OwnerSocket) -> None:
        self.sessions = sessions
        self._socket = socket

    @classmethod
    async def begin(cls, sessions: Sessions, home: Path) -> _Owning:
        try:
            return cls(sessions, await OwnerSocket(sessions, home).open())
        except BaseException:
            await sessions.close()
            raise

    async def close(self) -> None:
        """Release the lock, then close the links, so that a process that sees its link break can take over."""
        try:
            await self._socket.drain()
            await self.sessions.close()
        finally:
            await self._socket.close()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None when `stop` was set first."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
