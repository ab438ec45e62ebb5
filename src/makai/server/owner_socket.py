"""The socket of the process that owns a MAKAI_HOME: other processes of the user work with its sessions through it.

In: `service.Sessions`, and whoever attaches. Out: the messages of `protocols.attach`. What sessions do is not known
here, nor what those who attach want them for.

Nothing is buffered for anybody: a follower is asked for its next events when the former ones were taken, and no page of
the log is read for a process that has not yet taken the one before. One that stands still slows nobody else; one that
says nothing for `SILENCE_S` is taken for dead, so that its tools do not keep a run waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, assert_never

import msgspec

from makai.aio.tasks import BackgroundTasks
from makai.auth.server_token import load_or_create_token
from makai.core.errors import ChannelClosed, MakaiError, Overloaded, ParseError
from makai.core.secret import Secret
from makai.protocols.attach import greeting
from makai.protocols.attach.errors import exception_of, problem_of
from makai.protocols.attach.frames import MAX_FRAME_BYTES, encoded, encoded_records, from_attached
from makai.protocols.attach.messages import (
    Answer,
    AnyRequest,
    Attend,
    CancelExecute,
    Command,
    Create,
    Delete,
    Execute,
    Executed,
    ExecuteFailed,
    Failure,
    Follow,
    FromAttached,
    Hello,
    IsTrusted,
    Leave,
    Message,
    Moved,
    PendingApprovals,
    Ping,
    Pong,
    Pull,
    Read,
    Refused,
    State,
    Summaries,
    Summary,
    Trust,
    Unfollow,
)
from makai.sessions.service import Sessions, ToolAnswer, ToolRegistration, ToolRequest
from makai.sessions.state import packed
from makai.transports.channel import Channel, Oversized
from makai.transports.unix import Peer, UnixListener

log = logging.getLogger(__name__)

FILE_NAME: Final = "makai.sock"
MOST_REQUESTS: Final = 128
"""Of one process, under way at the same time."""
MOST_FOLLOWERS: Final = 1024
GREETING_S: Final = 5.0
SILENCE_S: Final = 45.0
DRAIN_S: Final = 2.0
_END_S: Final = 5.0


class OwnerSocket:
    """Listens in a MAKAI_HOME from `async with` on. Only the owner of that folder's sessions may make one."""

    def __init__(self, sessions: Sessions, home: Path) -> None:
        self._sessions = sessions
        self._home = home
        self._requests = BackgroundTasks()
        self._links: set[_Link] = set()
        self._listener: UnixListener | None = None
        self._key = Secret("")

    async def open(self) -> OwnerSocket:
        """Listen, in place of the owner before."""
        self._key = await asyncio.to_thread(load_or_create_token, self._home)
        self._listener = UnixListener.open(self._home / FILE_NAME, self._serve, max_frame_bytes=MAX_FRAME_BYTES)
        return self

    async def drain(self) -> None:
        """Answer what was asked, take nothing more, and let no one else in.

        To be called while the sessions are still owned. The links stay until `close`, which should come after the
        sessions were closed: whoever sees its link break can own them at once. May be repeated.
        """
        if self._listener is not None:
            self._listener.stop_accepting()
        links = [asyncio.ensure_future(link.drain()) for link in self._links]
        if links:
            _, late = await asyncio.wait(links, timeout=DRAIN_S)
            for link in late:
                link.cancel()

    async def close(self) -> None:
        """Hang up on everyone. May be repeated."""
        await self.drain()
        if self._listener is not None:
            await self._listener.close()
        await self._requests.close(_END_S)

    async def __aenter__(self) -> OwnerSocket:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _serve(self, channel: Channel, peer: Peer) -> None:
        link = _Link(self._sessions, channel, self._requests)
        self._links.add(link)
        try:
            await link.serve(self._key)
        finally:
            self._links.discard(link)
            await link.end()


class _Link:
    """One process that is attached."""

    def __init__(self, sessions: Sessions, channel: Channel, requests: BackgroundTasks) -> None:
        self._sessions = sessions
        self._channel = channel
        self._requests = requests  # not this link's: a command goes on when the one who asked is gone
        self._tasks = BackgroundTasks()
        self._answering: set[asyncio.Task[None]] = set()
        self._pages = asyncio.Lock()  # whose turn it is to read a page of the log and send it
        self._pulls: dict[int, asyncio.Event] = {}
        self._following: dict[int, asyncio.Task[None]] = {}
        self._executors: dict[int, ToolRegistration] = {}
        self._calls: dict[int, asyncio.Future[ToolAnswer]] = {}
        self._last_call = 0
        self._heard_at = asyncio.get_running_loop().time()
        self._leaving = False
        self._ended = False

    # ------------------------------------------------------------ the link

    async def serve(self, key: Secret) -> None:
        """Until the other process is gone, or says what nobody understands."""
        try:
            async with asyncio.timeout(GREETING_S):
                if not await self._greet(key):
                    return
        except TimeoutError:
            return
        self._tasks.start(self._watch(), "makai-attached-watch")
        while (frame := await self._channel.receive()) is not None:
            self._heard_at = asyncio.get_running_loop().time()
            try:
                await self._take(_message(frame))
            except ParseError as error:
                await self._say(Refused(problem=problem_of(error)))
                return

    async def _greet(self, key: Secret) -> bool:
        frame = await self._channel.receive()
        if frame is None:
            return False
        try:
            said = _message(frame)
            if not isinstance(said, Hello):
                raise ParseError("the first message is not hello")
        except ParseError as error:
            await self._say(Refused(problem=problem_of(error)))
            return False
        if objection := greeting.objection(said, key, os.getpid()):
            await self._say(Refused(problem=problem_of(objection)))
            return False
        await self._say(greeting.welcome(os.getpid()))
        return True

    async def _watch(self) -> None:
        """Hang up on a process that stands still; it comes back where it was when it goes on."""
        while True:
            left = self._heard_at + SILENCE_S - asyncio.get_running_loop().time()
            if left <= 0:
                log.warning("an attached process said nothing for %g s", SILENCE_S)
                await self._channel.close()
                return
            await asyncio.sleep(left)

    async def drain(self) -> None:
        """Stop following, finish what is being answered, refuse what comes after it."""
        self._leaving = True
        for task in self._following.values():
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    async def end(self) -> None:
        """The other process is gone."""
        self._ended = True
        for executor in self._executors.values():
            executor.unregister()
        self._executors.clear()
        await self._tasks.close(_END_S)

    async def _say(self, message: Message) -> None:
        await self._channel.send([encoded(message)])

    async def _say_if_there(self, message: Message) -> None:
        with contextlib.suppress(ChannelClosed):
            await self._say(message)

    async def _take(self, message: FromAttached) -> None:
        match message:
            case Hello():
                raise ParseError("hello was said before")
            case Ping():
                await self._say(Pong())
            case Follow():
                await self._begin_following(message)
            case Pull(number=number):
                if pull := self._pulls.get(number):
                    pull.set()
            case Unfollow(number=number):
                if task := self._following.get(number):
                    task.cancel()
            case Executed(call=call, answer=answer):
                if waiting := self._unanswered(call):
                    waiting.set_result(answer)
            case ExecuteFailed(call=call, problem=problem):
                if waiting := self._unanswered(call):
                    waiting.set_exception(exception_of(problem))
            case Leave(number=number):
                if executor := self._executors.pop(number, None):
                    executor.unregister()
            case _:
                await self._begin_answering(message)

    # ------------------------------------------------------------ requests

    async def _begin_answering(self, request: AnyRequest) -> None:
        if self._leaving:
            await self._say(Moved(number=request.number))
        elif len(self._answering) >= MOST_REQUESTS:
            await self._refuse(request.number, f"{MOST_REQUESTS} requests of this process are under way.")
        else:
            task = self._requests.start(self._answer(request), "makai-attached-request")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _refuse(self, number: int, why: str) -> None:
        await self._say(Failure(number=number, problem=problem_of(Overloaded(why, hint="Wait for some of them."))))

    async def _answer(self, request: AnyRequest) -> None:
        with contextlib.suppress(ChannelClosed):
            if isinstance(request, Read):
                async with self._pages:
                    await self._channel.send([await self._frame(request)])
            else:
                await self._channel.send([await self._frame(request)])

    async def _frame(self, request: AnyRequest) -> bytes:
        """The answer to a request, whatever becomes of it."""
        try:
            if isinstance(request, Read):
                records = await self._sessions.read(
                    request.session_id, request.after, request.limit, deltas=request.deltas
                )
                return encoded_records(request.number, records)
            result = msgspec.json.encode(await self._result(request))
            return encoded(Answer(number=request.number, result=msgspec.Raw(result)))
        except MakaiError as error:
            return encoded(Failure(number=request.number, problem=problem_of(error)))
        except Exception as error:
            log.exception("a request of an attached process failed unexpectedly")
            return encoded(Failure(number=request.number, problem=problem_of(error)))

    async def _result(
        self,
        request: Create
        | Command
        | State
        | Summaries
        | Summary
        | PendingApprovals
        | Delete
        | Attend
        | IsTrusted
        | Trust,
    ) -> Any:
        sessions = self._sessions
        match request:
            case Create(wanted=wanted):
                return await sessions.create(wanted)
            case Command(session_id=session_id, command=command):
                return await sessions.ask(session_id, command)
            case State(session_id=session_id):
                return packed(await sessions.state(session_id))
            case Summaries(wanted=filter):
                return await sessions.summaries(filter)
            case Summary(session_id=session_id):
                return await sessions.summary(session_id)
            case PendingApprovals():
                return await sessions.pending_approvals()
            case Delete(session_id=session_id):
                return await sessions.delete(session_id)
            case Attend():
                return await self._register(request)
            case IsTrusted(folder=folder):
                return await sessions.is_trusted(folder)
            case Trust(folder=folder, trusted=trusted):
                return await sessions.trust(folder, trusted)
            case _:
                assert_never(request)

    # ------------------------------------------------------------ following

    async def _begin_following(self, wanted: Follow) -> None:
        if self._leaving:
            return  # whoever follows goes on with the next owner, from its cursor
        if wanted.number in self._following:
            raise ParseError(f"a follower of number {wanted.number} is there already")
        if len(self._following) >= MOST_FOLLOWERS:
            await self._refuse(wanted.number, f"This process follows {MOST_FOLLOWERS} sessions already.")
            return
        self._pulls[wanted.number] = pull = asyncio.Event()
        task = self._tasks.start(self._follow(wanted, pull), "makai-attached-follower")
        self._following[wanted.number] = task
        task.add_done_callback(partial(self._followed, wanted.number))

    def _followed(self, number: int, task: asyncio.Task[None]) -> None:
        del self._following[number], self._pulls[number]

    async def _follow(self, wanted: Follow, pull: asyncio.Event) -> None:
        follower = self._sessions.follow(wanted.session_id, wanted.after, deltas=wanted.deltas)
        try:
            while records := await follower.next():
                async with self._pages:
                    await self._channel.send([encoded_records(wanted.number, records)])
                await pull.wait()
                pull.clear()
                async with self._pages:
                    pass  # this process has taken what it was sent: now it may have more
        except ChannelClosed:
            pass
        except MakaiError as error:
            await self._say_if_there(Failure(number=wanted.number, problem=problem_of(error)))
        except Exception as error:
            log.exception("a follower of an attached process failed unexpectedly")
            await self._say_if_there(Failure(number=wanted.number, problem=problem_of(error)))
        finally:
            follower.close()

    # ------------------------------------------------------------ tools of the attached process

    async def _register(self, wanted: Attend) -> None:
        if wanted.number in self._executors:
            raise ParseError(f"an executor of number {wanted.number} is there already")
        executor = await self._sessions.register_executor(wanted.session_id, partial(self._execute, wanted.number))
        if self._ended:
            executor.unregister()
        else:
            self._executors[wanted.number] = executor

    async def _execute(self, executor: int, request: ToolRequest) -> ToolAnswer:
        self._last_call += 1
        call = self._last_call
        answer: asyncio.Future[ToolAnswer] = asyncio.get_running_loop().create_future()
        self._calls[call] = answer
        try:
            # Over a link that is gone nothing is answered: its end takes the executor back, and with it this call.
            await self._say_if_there(Execute(call=call, executor=executor, request=request))
            return await answer
        except asyncio.CancelledError:
            if not self._ended:
                self._tasks.start(self._say_if_there(CancelExecute(call=call)), "makai-attached-cancel")
            raise
        finally:
            del self._calls[call]

    def _unanswered(self, call: int) -> asyncio.Future[ToolAnswer] | None:
        waiting = self._calls.get(call)
        return waiting if waiting is not None and not waiting.done() else None


def _message(frame: bytes | Oversized) -> FromAttached:
    if isinstance(frame, Oversized):
        raise ParseError(f"a message exceeds {frame.limit} bytes")
    return from_attached(frame)
