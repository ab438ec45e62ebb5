"""Sessions that another process owns, over its socket.

In: the MAKAI_HOME of both. Out: `service.Sessions` for as long as the link lives; `attach` makes one of it that
outlives its owner. It must not know how one becomes the owner.

When the link breaks, what was asked and not answered fails in one of two ways. `ChannelClosed`: it was certainly not
carried out. `TransportError`: nobody here knows.

One task reads and one writes; neither waits for a caller. A follower holds at most one batch that was not asked for.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from pathlib import Path
from typing import Any, Final, TypeVar, assert_never

import msgspec

from makai.aio.tasks import BackgroundTasks
from makai.auth.server_token import load_or_create_token
from makai.core.errors import ChannelClosed, MakaiError, ParseError, TransportError
from makai.protocols.attach import greeting
from makai.protocols.attach import messages as wire
from makai.protocols.attach.errors import exception_of, problem_of
from makai.protocols.attach.frames import MAX_FRAME_BYTES, encoded, from_owner, records_of
from makai.server.owner_socket import FILE_NAME, GREETING_S, MOST_REQUESTS
from makai.sessions.log.base import (
    BATCH_EVENTS,
    NEWEST,
    PendingApproval,
    Record,
    SessionFilter,
    SessionSummary,
)
from makai.sessions.service import Execute, NewSession, Receipt, UserCommand
from makai.sessions.state import SessionState, unpacked
from makai.transports.channel import Channel, Oversized
from makai.transports.unix import connect_unix

T = TypeVar("T")

PING_EVERY_S: Final = 10.0
SILENCE_S: Final = 25.0
_END_S: Final = 5.0

_NOTHING: Final = msgspec.json.Decoder(None)
_TEXT: Final = msgspec.json.Decoder(str)
_BYTES: Final = msgspec.json.Decoder(bytes)
_TRUTH: Final = msgspec.json.Decoder(bool)
_RECEIPT: Final = msgspec.json.Decoder(Receipt)
_SUMMARY: Final[msgspec.json.Decoder[SessionSummary | None]] = msgspec.json.Decoder(SessionSummary | None)
_SUMMARIES: Final = msgspec.json.Decoder(list[SessionSummary])
_APPROVALS: Final = msgspec.json.Decoder(list[PendingApproval])


class RemoteSessions:
    """`service.Sessions`. Make one by `connect`, inside the event loop that uses it."""

    def __init__(self, channel: Channel, owner_pid: int) -> None:
        self.owner_pid = owner_pid
        self.lost = asyncio.Event()
        """The link is over, for good."""
        self.moving = False
        """The owner is about to give the sessions up: it carries nothing out any more, and soon hangs up."""
        self._channel = channel
        self._why_lost = ""
        self._number = 0
        self._slots = asyncio.Semaphore(MOST_REQUESTS)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._followers: dict[int, RemoteFollower] = {}
        self._executors: dict[int, _RemoteExecutor] = {}
        self._unsent: deque[bytes] = deque()
        self._something_to_send = asyncio.Event()
        self._heard_at = asyncio.get_running_loop().time()
        self._tasks = BackgroundTasks()
        self._tasks.start(self._read(), "makai-link-reader")
        self._tasks.start(self._write(), "makai-link-writer")
        self._tasks.start(self._watch(), "makai-link-watch")

    @classmethod
    async def connect(cls, home: Path) -> RemoteSessions:
        """Attach to the owner of a folder's sessions.

        Raises `TransportError` when none can be reached now, and what the owner says when it refuses:
        `NotSupported` for another version of makai.
        """
        key = await asyncio.to_thread(load_or_create_token, home)
        channel, peer = connect_unix(home / FILE_NAME, max_frame_bytes=MAX_FRAME_BYTES)
        try:
            async with asyncio.timeout(GREETING_S):
                await channel.send([encoded(greeting.hello(os.getpid(), key))])
                frame = await channel.receive()
            if not isinstance(frame, bytes):
                raise TransportError(f"Process {peer.pid}, which owns the sessions, hung up.")
            said = from_owner(frame)
            if isinstance(said, wire.Refused):
                raise exception_of(said.problem)
            if not isinstance(said, wire.Welcome):
                raise TransportError(f"Process {peer.pid} does not answer as the owner of sessions does.")
        except TimeoutError:
            await channel.close()
            raise TransportError(f"Process {peer.pid}, which owns the sessions, does not answer.") from None
        except BaseException:
            await channel.close()
            raise
        return cls(channel, said.pid)

    # ------------------------------------------------------------ what clients ask

    async def create(self, wanted: NewSession) -> str:
        """Begin a session."""
        return await self._ask(wire.Create(number=self._next(), wanted=wanted), _TEXT)

    async def ask(self, session_id: str, command: UserCommand) -> Receipt:
        """Have a command carried out."""
        return await self._ask(wire.Command(number=self._next(), session_id=session_id, command=command), _RECEIPT)

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> RemoteFollower:
        """Read from a cursor on."""
        return RemoteFollower(self, session_id, after, deltas)

    async def read(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[Record]:
        """A page of the log."""
        number = self._next()
        said = await self._answer_to(
            wire.Read(number=number, session_id=session_id, after=after, limit=limit, deltas=deltas)
        )
        assert isinstance(said, wire.Records)
        return records_of(said)

    async def state(self, session_id: str) -> SessionState:
        """What the engine knows."""
        return unpacked(await self._ask(wire.State(number=self._next(), session_id=session_id), _BYTES))

    async def summaries(self, wanted: SessionFilter = NEWEST) -> list[SessionSummary]:
        """Sessions, the newest first."""
        return await self._ask(wire.Summaries(number=self._next(), wanted=wanted), _SUMMARIES)

    async def summary(self, session_id: str) -> SessionSummary | None:
        """One session as lists show it."""
        return await self._ask(wire.Summary(number=self._next(), session_id=session_id), _SUMMARY)

    async def pending_approvals(self) -> list[PendingApproval]:
        """Questions without an answer."""
        return await self._ask(wire.PendingApprovals(number=self._next()), _APPROVALS)

    async def delete(self, session_id: str) -> bool:
        """Forget a session."""
        return await self._ask(wire.Delete(number=self._next(), session_id=session_id), _TRUTH)

    async def register_executor(self, session_id: str, execute: Execute) -> _RemoteExecutor:
        """Stand by for the session's own tools."""
        number = self._next()
        executor = _RemoteExecutor(self, number, execute)
        self._executors[number] = executor  # before the answer: the first call may come right behind it
        try:
            await self._ask(wire.Attend(number=number, session_id=session_id), _NOTHING)
        except BaseException:
            executor.unregister()
            raise
        return executor

    async def is_trusted(self, folder: str) -> bool:
        """Whether project files of a folder count."""
        return await self._ask(wire.IsTrusted(number=self._next(), folder=folder), _TRUTH)

    async def trust(self, folder: str, trusted: bool) -> None:
        """A person's word about a folder."""
        await self._ask(wire.Trust(number=self._next(), folder=folder, trusted=trusted), _NOTHING)

    async def close(self) -> None:
        """Hang up. May be repeated."""
        self._lose("it was closed")
        await self._tasks.close(_END_S)
        await self._channel.close()

    # ------------------------------------------------------------ requests

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _ask(self, request: wire.AnyRequest, result: msgspec.json.Decoder[T]) -> T:
        said = await self._answer_to(request)
        assert isinstance(said, wire.Answer)
        return result.decode(said.result)

    async def _answer_to(self, request: wire.AnyRequest) -> wire.Answer | wire.Records:
        frame = encoded(request)
        async with self._slots:
            self.check()
            self._waiting[request.number] = waiter = asyncio.get_running_loop().create_future()
            self.post(frame)
            try:
                said: wire.Answer | wire.Records = await waiter
                return said
            finally:
                del self._waiting[request.number]

    def check(self) -> None:
        """Raise `ChannelClosed` when the owner would not hear what we say."""
        if self.lost.is_set() or self.moving:
            raise ChannelClosed(self._gone())

    def post(self, frame: bytes) -> None:
        """Send without waiting. What goes unanswered is small, and one per follower, executor or call at most."""
        if not self.lost.is_set():
            self._unsent.append(frame)
            self._something_to_send.set()

    def _gone(self) -> str:
        return (
            f"The link to process {self.owner_pid}, which owned the sessions, is gone: {self._why_lost or 'it ends'}."
        )

    # ------------------------------------------------------------ followers and executors

    def begin_following(self, follower: RemoteFollower) -> int:
        """Have batches delivered to this follower; its number on the link."""
        self.check()
        number = self._next()
        self.post(
            encoded(
                wire.Follow(
                    number=number, session_id=follower.session_id, after=follower.cursor, deltas=follower.deltas
                )
            )
        )
        self._followers[number] = follower
        return number

    def end_following(self, number: int) -> None:
        """No more batches, please."""
        if self._followers.pop(number, None) is not None:
            self.post(encoded(wire.Unfollow(number=number)))

    def end_executor(self, number: int) -> None:
        """No more calls, please."""
        if self._executors.pop(number, None) is not None:
            self.post(encoded(wire.Leave(number=number)))

    def start_executing(self, executor: _RemoteExecutor, wanted: wire.Execute) -> asyncio.Task[None]:
        """Carry out one call in a task of its own."""
        return self._tasks.start(self._execute(executor, wanted), "makai-link-tool")

    async def _execute(self, executor: _RemoteExecutor, wanted: wire.Execute) -> None:
        said: wire.Message
        try:
            said = wire.Executed(call=wanted.call, answer=await executor.execute(wanted.request))
            frame = encoded(said)
        except Exception as error:  # whatever a client's tool raises: the run is told, the link goes on
            frame = encoded(wire.ExecuteFailed(call=wanted.call, problem=problem_of(error)))
        self.post(frame)

    # ------------------------------------------------------------ the link

    def _lose(self, why: str) -> None:
        """Nothing will be answered any more. Only the first reason counts."""
        if self.lost.is_set():
            return
        self._why_lost = why
        self.lost.set()
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(TransportError(self._gone()))
        for follower in list(self._followers.values()):
            follower.fail(ChannelClosed(self._gone()))
        self._followers.clear()
        for executor in list(self._executors.values()):
            executor.unregister()

    async def _read(self) -> None:
        why = "the process has ended or closed it"
        try:
            while isinstance(frame := await self._channel.receive(), bytes):
                self._heard_at = asyncio.get_running_loop().time()
                self._take(from_owner(frame))
            if isinstance(frame, Oversized):
                why = f"a message exceeds {frame.limit} bytes"
        except MakaiError as error:
            why = error.message
        finally:
            self._lose(why)

    async def _write(self) -> None:
        try:
            while True:
                await self._something_to_send.wait()
                self._something_to_send.clear()
                frames = list(self._unsent)
                self._unsent.clear()
                await self._channel.send(frames)
        except TransportError as error:
            self._lose(error.message)

    async def _watch(self) -> None:
        """An owner that stands still holds its lock all the same; those who wait should learn it."""
        while asyncio.get_running_loop().time() - self._heard_at < SILENCE_S:
            self.post(encoded(wire.Ping()))
            await asyncio.sleep(PING_EVERY_S)
        self._lose(f"it said nothing for {SILENCE_S:g} s")

    def _take(self, said: wire.FromOwner) -> None:
        match said:
            case wire.Answer(number=number):
                self._settle(number, said)
            case wire.Records(number=number):
                if follower := self._followers.get(number):
                    follower.deliver(records_of(said))
                else:
                    self._settle(number, said)
            case wire.Failure(number=number, problem=problem):
                if follower := self._followers.pop(number, None):
                    follower.fail(exception_of(problem))
                else:
                    self._settle(number, exception_of(problem))
            case wire.Moved(number=number):
                self.moving = True
                self._settle(number, ChannelClosed(self._gone()))
            case wire.Execute(executor=number):
                if executor := self._executors.get(number):
                    executor.begin(said)
            case wire.CancelExecute(call=call):
                for executor in self._executors.values():
                    executor.cancel(call)
            case wire.Pong():
                pass
            case wire.Refused(problem=problem):
                raise exception_of(problem)
            case wire.Welcome():
                raise ParseError("it said welcome twice")
            case _:
                assert_never(said)

    def _settle(self, number: int, said: wire.Answer | wire.Records | MakaiError) -> None:
        waiter = self._waiting.get(number)
        if waiter is None or waiter.done():  # whoever asked was cancelled
            return
        if isinstance(said, MakaiError):
            waiter.set_exception(said)
        else:
            waiter.set_result(said)


class RemoteFollower:
    """A `service.Follower` over a link."""

    def __init__(self, link: RemoteSessions, session_id: str, after: int, deltas: bool) -> None:
        self.session_id = session_id
        self.deltas = deltas
        self._link = link
        self._cursor = max(after, 0)
        self._number: int | None = None
        self._batch: list[Record] = []
        self._failure: MakaiError | None = None
        self._news = asyncio.Event()
        self._closed = False

    @property
    def cursor(self) -> int:
        """The last event that was given out."""
        return self._cursor

    async def next(self) -> list[Record]:
        """The next records; none only after `close`. After a failure it begins anew from its cursor."""
        while not self._batch and not self._closed:
            if self._failure is not None:
                failure, self._failure, self._number = self._failure, None, None
                raise failure
            if self._number is None:
                self._number = self._link.begin_following(self)
            self._news.clear()
            await self._news.wait()
        if self._closed:
            return []
        records, self._batch = self._batch, []
        self._cursor = records[-1].event_id
        if self._failure is None and self._number is not None:
            self._link.post(encoded(wire.Pull(number=self._number)))
        return records

    def close(self) -> None:
        """Stop; whoever waits is woken."""
        if not self._closed:
            self._closed = True
            if self._number is not None:
                self._link.end_following(self._number)
            self._news.set()

    def deliver(self, records: list[Record]) -> None:
        """A batch came."""
        self._batch += records
        self._news.set()

    def fail(self, error: MakaiError) -> None:
        """No more will come; what came can still be taken."""
        self._failure = error
        self._news.set()


class _RemoteExecutor:
    """A `service.ToolRegistration` over a link."""

    def __init__(self, link: RemoteSessions, number: int, execute: Execute) -> None:
        self.execute = execute
        self._link = link
        self._number = number
        self._running: dict[int, asyncio.Task[None]] = {}

    def begin(self, wanted: wire.Execute) -> None:
        """The owner wants a tool to run."""
        task = self._link.start_executing(self, wanted)
        self._running[wanted.call] = task
        task.add_done_callback(lambda done: self._running.pop(wanted.call, None))

    def cancel(self, call: int) -> None:
        """Nobody wants its answer any more."""
        if task := self._running.get(call):
            task.cancel()

    def unregister(self) -> None:
        """Stop, also what is running. May be repeated."""
        for task in list(self._running.values()):
            task.cancel()
        self._link.end_executor(self._number)
