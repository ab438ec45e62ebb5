"""The socket of the process that owns a MAKAI_HOME, through which other processes of the user work with its sessions;
`cluster_links` serves other nodes in the same way. Nothing is buffered for an attached process: a follower is asked for
its next events after the process took the batch before, and no page of the log is read before the last one was sent. A
stopped process delays no other; after `SILENCE_S` its link is closed, so that its tools do not keep a run waiting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, assert_never
from weakref import WeakValueDictionary

import msgspec

from makai.aio.tasks import BackgroundTasks
from makai.auth.private_files import load_or_create_token
from makai.core.errors import ChannelClosed, MakaiError, Overloaded, ParseError
from makai.core.lent_variables import LentVariables
from makai.core.secret import Secret
from makai.harness.base import Report, ToolAnswer, ToolRequest
from makai.protocols.attach import frames
from makai.protocols.attach import messages as wire
from makai.protocols.attach.messages import exception_of, problem_of
from makai.sessions.requests import ReadEvents, Request, RunCommand
from makai.sessions.service import Sessions, ToolRegistration
from makai.transports.channel import Channel, Oversized
from makai.transports.unix import Peer, UnixListener

log = logging.getLogger(__name__)

FILE_NAME: Final = "makai.sock"
MAX_REQUESTS: Final = 128
"""Requests of one process that may be under way at the same time."""
MAX_FOLLOWERS: Final = 1024
GREETING_S: Final = 5.0
SILENCE_S: Final = 45.0
DRAIN_S: Final = 2.0
_END_S: Final = 5.0


class LinkListener(Protocol):
    """Accepts the connections of other processes."""

    def stop_accepting(self) -> None:
        """Refuse new connections; existing ones stay. May be repeated."""

    async def close(self) -> None: ...


class LinkServer:
    """Serves sessions to other processes, over the connections that its listener accepts."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._requests = BackgroundTasks()
        self._links: set[_Link] = set()
        self._listener: LinkListener | None = None
        self._key = Secret("")

    async def drain(self) -> None:
        """Answer what was asked, take no more requests and accept no more processes. Call it while the sessions are
        still owned. The links stay open until `close`, which should come after the sessions were closed, so that a
        process that sees its link break can own them at once. May be repeated."""
        if self._listener is not None:
            self._listener.stop_accepting()
        links = [asyncio.ensure_future(link.drain()) for link in self._links]
        if links:
            _, late = await asyncio.wait(links, timeout=DRAIN_S)
            for link in late:
                link.cancel()

    async def close(self) -> None:
        await self.drain()
        if self._listener is not None:
            await self._listener.close()
        await self._requests.close(_END_S)

    async def _serve_channel(self, channel: Channel) -> None:
        link = _Link(self._sessions, channel, self._requests)
        self._links.add(link)
        try:
            await link.serve(self._key)
        finally:
            self._links.discard(link)
            await link.end()


class OwnerSocket(LinkServer):
    """Listens in a MAKAI_HOME from `async with` on. Only the owner of that folder's sessions may make one."""

    def __init__(self, sessions: Sessions, home: Path) -> None:
        super().__init__(sessions)
        self._home = home

    async def open(self) -> OwnerSocket:
        """Listen; replaces the socket of the owner before."""
        self._key = await asyncio.to_thread(load_or_create_token, self._home)
        self._listener = UnixListener.open(self._home / FILE_NAME, self._serve, max_frame_bytes=frames.MAX_FRAME_BYTES)
        return self

    async def __aenter__(self) -> OwnerSocket:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _serve(self, channel: Channel, peer: Peer) -> None:
        # A server that started later in this home may have put the token of its cluster in the file.
        self._key = await asyncio.to_thread(load_or_create_token, self._home)
        await self._serve_channel(channel)


class _Link:
    """The owner's end of the link to one attached process."""

    def __init__(self, sessions: Sessions, channel: Channel, requests: BackgroundTasks) -> None:
        self._sessions = sessions
        self._channel = channel
        self._requests = requests  # not this link's: a command continues when its link is gone
        self._tasks = BackgroundTasks()
        self._answering: set[asyncio.Task[None]] = set()
        self._pages = asyncio.Lock()  # held while a page of the log is read and sent
        self._pulls: dict[int, asyncio.Event] = {}
        self._following: dict[int, asyncio.Task[None]] = {}
        self._executors: dict[int, ToolRegistration] = {}
        self._calls: dict[int, asyncio.Future[ToolAnswer]] = {}
        self._reports: dict[int, Report] = {}
        self._lent: WeakValueDictionary[int, LentVariables] = WeakValueDictionary()
        """Variables of this process that runs still use, by the number of the request they came with."""
        self._last_call = 0
        self._heard_at = asyncio.get_running_loop().time()
        self._leaving = False
        self._ended = False

    async def serve(self, key: Secret) -> None:
        """Return when the other process is gone, or sent a message that cannot be read."""
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
                await self._say(wire.Refused(problem=problem_of(error)))
                return

    async def _greet(self, key: Secret) -> bool:
        frame = await self._channel.receive()
        if frame is None:
            return False
        try:
            said = _message(frame)
            if not isinstance(said, wire.AttachHello):
                raise ParseError("the first message is not hello")
        except ParseError as error:
            await self._say(wire.Refused(problem=problem_of(error)))
            return False
        if objection := wire.objection(said, key, os.getpid()):
            await self._say(wire.Refused(problem=problem_of(objection)))
            return False
        await self._say(wire.welcome(os.getpid()))
        return True

    async def _watch(self) -> None:
        """Close the link of a silent process; it attaches again when it continues."""
        while True:
            left = self._heard_at + SILENCE_S - asyncio.get_running_loop().time()
            if left <= 0:
                log.warning("an attached process said nothing for %g s", SILENCE_S)
                await self._channel.close()
                return
            await asyncio.sleep(left)

    async def drain(self) -> None:
        """Stop following, finish the answers under way, refuse later requests."""
        self._leaving = True
        for task in self._following.values():
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    async def end(self) -> None:
        self._ended = True
        for lent in list(self._lent.values()):
            lent.clear()
        for executor in self._executors.values():
            executor.unregister()
        self._executors.clear()
        await self._tasks.close(_END_S)

    async def _say(self, message: wire.Message) -> None:
        await self._channel.send([frames.encoded(message)])

    async def _say_if_there(self, message: wire.Message) -> None:
        with contextlib.suppress(ChannelClosed):
            await self._say(message)

    async def _take(self, message: wire.FromAttached) -> None:
        match message:
            case wire.AttachHello():
                raise ParseError("hello was sent twice")
            case wire.AttachPing():
                await self._say(wire.AttachPong())
            case wire.Follow():
                await self._begin_following(message)
            case wire.Pull(number=number):
                if pull := self._pulls.get(number):
                    pull.set()
            case wire.Unfollow(number=number):
                if task := self._following.get(number):
                    task.cancel()
            case wire.RequestMessage(number=number):
                await self._begin_answering(number, partial(self._dispatch, number, frames.request_of(message)))
            case _:
                await self._take_of_executor(message)

    async def _take_of_executor(self, message: wire.FromExecutor) -> None:
        match message:
            case wire.ExecuteProgress(call=call, text=text):
                if report := self._reports.get(call):
                    report(text)
            case wire.Executed(call=call, answer=answer):
                if waiting := self._unanswered(call):
                    waiting.set_result(answer)
            case wire.ExecuteFailed(call=call, problem=problem):
                if waiting := self._unanswered(call):
                    waiting.set_exception(exception_of(problem))
            case wire.UnregisterExecutor(number=number):
                if executor := self._executors.pop(number, None):
                    executor.unregister()
            case wire.RegisterExecutor(number=number, session_id=session_id):
                execute = partial(self._execute, number)
                register = partial(self._sessions.register_executor, session_id, execute)
                await self._begin_answering(number, partial(self._register, number, register))
            case wire.RegisterToolServer(number=number, offer=offer):
                serve = partial(self._sessions.register_tool_server, offer, partial(self._execute, number))
                await self._begin_answering(number, partial(self._register, number, serve))
            case _:
                assert_never(message)

    async def _begin_answering(self, number: int, answer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._leaving:
            await self._say(wire.Moved(number=number))
        elif len(self._answering) >= MAX_REQUESTS:
            await self._refuse(number, f"{MAX_REQUESTS} requests of this process are under way.")
        else:
            task = self._requests.start(answer(), "makai-attached-request")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _refuse(self, number: int, why: str) -> None:
        await self._say(wire.Failure(number=number, problem=problem_of(Overloaded(why, hint="Wait for some of them."))))

    async def _dispatch(self, number: int, request: Request[Any]) -> None:
        if isinstance(request, RunCommand) and request.environ:
            lent = self._lent[number] = LentVariables(request.environ, request.inherited)
            request = msgspec.structs.replace(request, environ=lent)
        turn = self._pages if isinstance(request, ReadEvents) else contextlib.nullcontext()
        async with self._reporting(number), turn:
            answer = await self._sessions.dispatch(request)
            await self._channel.send([frames.encoded_answer(number, request, answer)])

    @contextlib.asynccontextmanager
    async def _reporting(self, number: int) -> AsyncIterator[None]:
        """Send the exception that the body raises as the failure of `number`."""
        try:
            yield
        except MakaiError as error:
            problem = problem_of(error)
        except Exception as error:
            log.exception("a request of an attached process failed unexpectedly")
            problem = problem_of(error)
        else:
            return
        await self._say_if_there(wire.Failure(number=number, problem=problem))

    async def _begin_following(self, wanted: wire.Follow) -> None:
        if self._leaving:
            return  # the follower continues with the next owner, from its cursor
        if wanted.number in self._following:
            raise ParseError(f"a follower of number {wanted.number} is there already")
        if len(self._following) >= MAX_FOLLOWERS:
            await self._refuse(wanted.number, f"This process follows {MAX_FOLLOWERS} sessions already.")
            return
        self._pulls[wanted.number] = pull = asyncio.Event()
        task = self._tasks.start(self._follow(wanted, pull), "makai-attached-follower")
        self._following[wanted.number] = task
        task.add_done_callback(partial(self._followed, wanted.number))

    def _followed(self, number: int, task: asyncio.Task[None]) -> None:
        del self._following[number], self._pulls[number]

    async def _follow(self, wanted: wire.Follow, pull: asyncio.Event) -> None:
        follower = self._sessions.follow(wanted.session_id, wanted.after, deltas=wanted.deltas)
        try:
            async with self._reporting(wanted.number):
                while records := await follower.next():
                    async with self._pages:
                        await self._channel.send([frames.encoded_records(wanted.number, records)])
                    await pull.wait()
                    pull.clear()
                    async with self._pages:
                        pass  # the process has taken all pages it was sent, and may have more
        finally:
            follower.close()

    async def _register(self, number: int, register: Callable[[], Awaitable[ToolRegistration]]) -> None:
        async with self._reporting(number):
            if number in self._executors:
                raise ParseError(f"an executor of number {number} is there already")
            executor = await register()
            if self._ended:
                executor.unregister()
                return
            self._executors[number] = executor
            await self._say(wire.AttachAnswer(number=number, result=msgspec.Raw(b"null")))

    async def _execute(self, executor: int, request: ToolRequest, report: Report | None = None) -> ToolAnswer:
        self._last_call += 1
        call = self._last_call
        answer: asyncio.Future[ToolAnswer] = asyncio.get_running_loop().create_future()
        self._calls[call] = answer
        if report is not None:
            self._reports[call] = report
        try:
            # When the link is gone, its end unregisters the executor, which ends this call.
            await self._say_if_there(wire.Execute(call=call, executor=executor, request=request))
            return await answer
        except asyncio.CancelledError:
            if not self._ended:
                self._tasks.start(self._say_if_there(wire.CancelExecute(call=call)), "makai-attached-cancel")
            raise
        finally:
            del self._calls[call]
            self._reports.pop(call, None)

    def _unanswered(self, call: int) -> asyncio.Future[ToolAnswer] | None:
        waiting = self._calls.get(call)
        return waiting if waiting is not None and not waiting.done() else None


def _message(frame: bytes | Oversized) -> wire.FromAttached:
    if isinstance(frame, Oversized):
        raise ParseError(f"a message exceeds {frame.limit} bytes")
    return frames.from_attached(frame)
