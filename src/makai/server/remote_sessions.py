"""Sessions that another process owns, over its socket, for as long as the link lasts; `session_router` survives that.
When the link breaks, unanswered requests fail in one of two ways. `ChannelClosed`: the owner did not carry it out.
`TransportError`: it may have. Reading and writing never wait for a caller. A follower holds at most one batch that was
not asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, assert_never

from makai.aio.tasks import BackgroundTasks
from makai.auth.private_files import load_or_create_token
from makai.core.errors import ChannelClosed, MakaiError, ParseError, TransportError
from makai.core.secret import Secret
from makai.harness.base import Execute, ExecuteServed, ToolServerOffer
from makai.protocols.attach import frames
from makai.protocols.attach import messages as wire
from makai.protocols.attach.messages import exception_of, problem_of
from makai.server.owner_socket import FILE_NAME, GREETING_S, MAX_REQUESTS
from makai.sessions.log.base import Record
from makai.sessions.requests import AnswerT, Request
from makai.transports.channel import Channel
from makai.transports.connection import ConnectionShell, Outbox
from makai.transports.unix import connect_unix

PING_EVERY_S: Final = 10.0
SILENCE_S: Final = 25.0
_END_S: Final = 5.0


class RemoteSessions:
    """`service.Sessions`. Make one by `connect`, inside the event loop that uses it."""

    def __init__(
        self, channel: Channel, owner_pid: int, ping_every_s: float | None = None, silence_s: float | None = None
    ) -> None:
        self.owner_pid = owner_pid
        self._ping_every_s = PING_EVERY_S if ping_every_s is None else ping_every_s
        self._silence_s = SILENCE_S if silence_s is None else silence_s
        self.lost = asyncio.Event()
        """Set when the link has ended."""
        self.moving = False
        """The owner is closing: it takes no more requests and will end the link."""
        self._why_lost = ""
        self._number = 0
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._waiting: dict[int, asyncio.Future[wire.AttachAnswer | wire.Records]] = {}
        self._followers: dict[int, RemoteFollower] = {}
        self._executors: dict[int, _RemoteExecutor] = {}
        self._heard_at = asyncio.get_running_loop().time()
        self._tasks = BackgroundTasks()
        self._outbox = Outbox()
        self._shell = ConnectionShell(channel, self._outbox, self._receive, self._on_lost, name="makai-link")
        self._tasks.start(self._watch(), "makai-link-watch")

    @classmethod
    async def connect(cls, home: Path) -> RemoteSessions:
        """Attach to the owner of a folder's sessions. Raises `TransportError` when none can be reached now, and what
        the owner says when it refuses: `NotSupported` for another version of makai."""
        key = await asyncio.to_thread(load_or_create_token, home)
        channel, peer = connect_unix(home / FILE_NAME, max_frame_bytes=frames.MAX_FRAME_BYTES)
        return await cls.over(channel, key, f"Process {peer.pid}, which owns the sessions,")

    @classmethod
    async def over(
        cls,
        channel: Channel,
        key: Secret,
        owner: str,
        *,
        ping_every_s: float | None = None,
        silence_s: float | None = None,
    ) -> RemoteSessions:
        """Attach over a channel, which is closed when that fails. `owner` names the other side in errors."""
        try:
            async with asyncio.timeout(GREETING_S):
                await channel.send([frames.encoded(wire.hello(os.getpid(), key))])
                frame = await channel.receive()
            if not isinstance(frame, bytes):
                raise TransportError(f"{owner} hung up.")
            said = frames.from_owner(frame)
            if isinstance(said, wire.Refused):
                raise exception_of(said.problem)
            if not isinstance(said, wire.AttachWelcome):
                raise TransportError(f"{owner} does not answer as the owner of sessions does.")
        except BaseException as error:
            await channel.close()
            if isinstance(error, TimeoutError):
                raise TransportError(f"{owner} does not answer.") from None
            raise
        return cls(channel, said.pid, ping_every_s, silence_s)

    async def dispatch(self, request: Request[AnswerT]) -> AnswerT:
        number = self._next()
        return frames.answer_of(request, await self._answer_to(number, frames.encoded_request(number, request)))

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> RemoteFollower:
        return RemoteFollower(self, session_id, after, deltas)

    async def register_executor(self, session_id: str, execute: Execute) -> _RemoteExecutor:
        number = self._next()
        message = wire.RegisterExecutor(number=number, session_id=session_id)
        return await self._register(number, message, lambda request, report: execute(request))

    async def register_tool_server(self, offer: ToolServerOffer, execute: ExecuteServed) -> _RemoteExecutor:
        number = self._next()
        return await self._register(number, wire.RegisterToolServer(number=number, offer=offer), execute)

    async def _register(self, number: int, message: wire.Message, execute: ExecuteServed) -> _RemoteExecutor:
        executor = _RemoteExecutor(self, number, execute)
        self._executors[number] = executor  # before the answer: the first call may come right behind it
        try:
            await self._answer_to(number, frames.encoded(message))
        except BaseException:
            executor.unregister()
            raise
        return executor

    async def close(self) -> None:
        self._shell.lose(ChannelClosed("it was closed"))
        await self._tasks.close(_END_S)
        await self._shell.close(flush_s=0)

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _answer_to(self, number: int, frame: bytes) -> wire.AttachAnswer | wire.Records:
        async with self._slots:
            self.check()
            waiter: asyncio.Future[wire.AttachAnswer | wire.Records] = asyncio.get_running_loop().create_future()
            self._waiting[number] = waiter
            self.post(frame)
            try:
                return await waiter
            finally:
                del self._waiting[number]

    @property
    def silent_s(self) -> float:
        """For how long the owner said nothing."""
        return asyncio.get_running_loop().time() - self._heard_at

    def check(self) -> None:
        """Raise `ChannelClosed` when the owner no longer takes requests."""
        if self.lost.is_set() or self.moving:
            raise ChannelClosed(self._gone())

    def post(self, frame: bytes) -> None:
        """Send without waiting. What goes unanswered is small, and one per follower, executor or call at most."""
        if not self.lost.is_set():
            self._outbox.put(frame)
            self._shell.wake()

    def _gone(self) -> str:
        return (
            f"The link to process {self.owner_pid}, which owned the sessions, is gone: {self._why_lost or 'it ends'}."
        )

    def begin_following(self, follower: RemoteFollower) -> int:
        """Start the delivery of batches; returns the follower's number on the link."""
        self.check()
        number = self._next()
        session_id, after, deltas = follower.session_id, follower.cursor, follower.deltas
        self.post(frames.encoded(wire.Follow(number=number, session_id=session_id, after=after, deltas=deltas)))
        self._followers[number] = follower
        return number

    def end_following(self, number: int) -> None:
        if self._followers.pop(number, None) is not None:
            self.post(frames.encoded(wire.Unfollow(number=number)))

    def end_executor(self, number: int) -> None:
        if self._executors.pop(number, None) is not None:
            self.post(frames.encoded(wire.UnregisterExecutor(number=number)))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.start(work, "makai-link-tool")

    def _on_lost(self, error: MakaiError | None) -> None:
        self._why_lost = error.message if error is not None else "the process has ended or closed it"
        self.lost.set()
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(TransportError(self._gone()))
        for follower in list(self._followers.values()):
            follower.fail(ChannelClosed(self._gone()))
        self._followers.clear()
        for executor in list(self._executors.values()):
            executor.unregister()

    async def _watch(self) -> None:
        """Give up on an owner that is silent: a stopped process still holds its lock and its socket."""
        while self.silent_s < self._silence_s:
            self.post(frames.encoded(wire.AttachPing()))
            await asyncio.sleep(self._ping_every_s)
        self._shell.lose(TransportError(f"it said nothing for {self._silence_s:g} s"))

    def _receive(self, frame: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        match said := frames.from_owner(frame):
            case wire.AttachAnswer(number=number):
                self._settle(number, said)
            case wire.Records(number=number):
                if follower := self._followers.get(number):
                    follower.deliver(frames.records_of(said))
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
            case wire.AttachPong():
                pass
            case wire.Refused(problem=problem):
                raise exception_of(problem)
            case wire.AttachWelcome():
                raise ParseError("it sent welcome twice")
            case _:
                assert_never(said)

    def _settle(self, number: int, said: wire.AttachAnswer | wire.Records | MakaiError) -> None:
        waiter = self._waiting.get(number)
        if waiter is None or waiter.done():  # the caller was cancelled
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
        self.cursor = max(after, 0)
        self._number: int | None = None
        self._batch: list[Record] = []
        self._failure: MakaiError | None = None
        self._news = asyncio.Event()
        self._closed = False

    async def next(self) -> list[Record]:
        """After a failure, the next call follows again from the cursor."""
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
        self.cursor = records[-1].event_id
        if self._failure is None and self._number is not None:
            self._link.post(frames.encoded(wire.Pull(number=self._number)))
        return records

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._number is not None:
                self._link.end_following(self._number)
            self._news.set()

    def deliver(self, records: list[Record]) -> None:
        self._batch += records
        self._news.set()

    def fail(self, error: MakaiError) -> None:
        """Raise `error` from `next`, after the batch that came before it."""
        self._failure = error
        self._news.set()


class _RemoteExecutor:
    """A `service.ToolRegistration` over a link."""

    def __init__(self, link: RemoteSessions, number: int, execute: ExecuteServed) -> None:
        self._execute = execute
        self._link = link
        self._number = number
        self._running: dict[int, asyncio.Task[None]] = {}

    async def _answer(self, wanted: wire.Execute) -> None:
        def report(text: str) -> None:
            self._link.post(frames.encoded(wire.ExecuteProgress(call=wanted.call, text=text)))

        try:
            answer = await self._execute(wanted.request, report)
            frame = frames.encoded(wire.Executed(call=wanted.call, answer=answer))
        except Exception as error:  # any failure of a client's tool fails the call, not the link
            frame = frames.encoded(wire.ExecuteFailed(call=wanted.call, problem=problem_of(error)))
        self._link.post(frame)

    def begin(self, wanted: wire.Execute) -> None:
        self._running[wanted.call] = task = self._link.start(self._answer(wanted))
        task.add_done_callback(lambda done: self._running.pop(wanted.call, None))

    def cancel(self, call: int) -> None:
        if task := self._running.get(call):
            task.cancel()

    def unregister(self) -> None:
        for task in list(self._running.values()):
            task.cancel()
        self._link.end_executor(self._number)
