"""One session on this connection: its scope, the requests in it, and the one view that is attached to it. The server
counts a session's envelopes from `agent_start` to `agent_stopped`, and for a question outside that from the question to
its answer. So a scope is begun for one of the two, and nothing is sent in it after what ends it; the next one waits for
that end. Ending is the work of `deliver`, not of callers: they may be cancelled at any moment."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from makai.client.connection import Failure, MakaiConnection, refusal_in
from makai.client.failures import ClientFailure, broken_protocol, failure_of, transport_failure
from makai.core.errors import MakaiError, MakaiStreamError
from makai.protocols.makai.agent_payloads import AgentError, AgentStart, AgentStop
from makai.protocols.makai.client import Reply
from makai.protocols.makai.envelope import Scope

ANSWER_DEADLINE_S = 60.0
"""Opening the sessions of a MAKAI_HOME may mean waiting for another process to let go of them."""

_agent_error = msgspec.json.Decoder(AgentError).decode


class Attached(Protocol):
    """Who hears what happens in a session. No method may wait or raise."""

    def take(self, reply: Reply) -> None:
        """An envelope that answers no request of this client."""

    def released(self, reply: Reply) -> None:
        """The server has let go of the session: its `agent_stopped`."""

    def fail(self, failure: Failure) -> None:
        """The connection is lost."""


class _Request(NamedTuple):
    answer: asyncio.Future[Reply]
    until: str
    on_answer: Callable[[str], None] | None


class SessionLinks:
    def __init__(self, connection: MakaiConnection) -> None:
        self._connection = connection
        self._links: weakref.WeakValueDictionary[str, SessionLink] = weakref.WeakValueDictionary()

    def link(self, session_id: str) -> SessionLink:
        """The one link of a session; it lives as long as it is used."""
        link = self._links.get(session_id)
        if link is None:
            link = self._links[session_id] = SessionLink(self._connection, session_id)
        return link


class SessionLink:
    """A session, and at most one view of it."""

    def __init__(self, connection: MakaiConnection, session_id: str) -> None:
        self._connection = connection
        self._session_id = session_id
        self._scope: Scope | None = None
        self._requests: dict[str, _Request] = {}
        self._user: Attached | None = None
        """Whom the session is promised to."""
        self._view: Attached | None = None
        """The same, once its `agent_start` is on its way."""
        self._attached = False
        self._stopping = False
        self._saying = ""
        """The words on their way, by message id."""
        self._said = False
        """The session accepted this client's message, so the active run is this client's."""
        self._abort = False
        self._turn = asyncio.Lock()
        self._over = asyncio.Event()

    async def attach(self, view: Attached, starts: Sequence[AgentStart]) -> Reply:
        """Attach by the first of these starts whose session exists, or that begins one."""
        if self._user is not None:
            raise MakaiStreamError(
                "this client is using the session already",
                kind="unknown",
                code="agent_busy",
                hint="Wait for its run to end, leave it, or use another client.",
            )
        self._user = view
        try:
            async with self._turn:
                return await self._start(view, starts)
        except BaseException:
            self.leave(view)
            raise

    async def ask(self, kind: str, payload: msgspec.Struct, until: str) -> Reply:
        """Ask something about the session, attached or not, and wait for an answer of this type."""
        async with self._turn:
            if self._stopping or not self._attached:
                await self._begin()
            if kind != "agent_stop":
                return await self._send(kind, payload, until)
            self._stopping = True
            try:
                return await self._send(kind, payload, until)
            except MakaiError:
                self._stopping = False  # the session is as it was
                raise

    async def say(self, kind: str, payload: msgspec.Struct, on_accepted: Callable[[str], None]) -> None:
        """Send something to the attached session and wait until it is accepted. `on_accepted` is called with its
        message id before anything that arrives later is delivered."""
        if self._stopping or not self._attached:
            raise MakaiStreamError("the session was stopped", kind="aborted", code="aborted")

        def accept(message_id: str) -> None:
            self._said = True
            on_accepted(message_id)

        await self._send(kind, payload, "ack", accept)

    def post(self, kind: str, payload: msgspec.Struct) -> None:
        """Send something to the session without waiting for an answer, while it is attached."""
        if self._attached and not self._stopping and self._scope is not None:
            self._connection.post(self._scope, kind, payload)

    def leave(self, view: Attached, *, abort: bool = False) -> None:
        """The view hears no more; with `abort` the run that its words started is stopped. May be repeated."""
        if self._user is view:
            self._user = self._view = None
            self._abort = abort
            self._let_go()

    def deliver(self, reply: Reply) -> None:
        if reply.type == "agent_started":
            self._attached = True
        request = self._requests.get(reply.in_reply_to or "")
        if request is not None:
            self._answer(reply, request)
        elif reply.type not in ("ack", "nack", "agent_stopped") and self._view is not None:
            self._view.take(reply)
        if reply.type == "agent_stopped":
            self._attached = False
            view = self._detached()
            if view is not None:
                view.released(reply)
        if self._attached and self._view is None:
            self._let_go()  # who wanted the session left before it was known what to stop
        if not self._attached and not self._requests:
            self._end()

    def unread(self, failure: Failure) -> None:
        requests, self._requests = self._requests, {}
        for request in requests.values():
            _fail(request, failure())
        if not self._attached:
            self._end()

    def fail(self, failure: Failure) -> None:
        requests, self._requests = self._requests, {}
        for request in requests.values():
            _fail(request, failure())
        self._attached = False
        view = self._detached()
        self._end()
        if view is not None:
            view.fail(failure)

    def _answer(self, reply: Reply, request: _Request) -> None:
        failure: ClientFailure | None = None
        if reply.type == "nack":
            failure = refusal_in(reply)
        elif reply.type == "agent_error":
            failure = failure_in(reply)
        elif reply.type != request.until:
            return
        del self._requests[reply.in_reply_to or ""]
        if failure is not None:
            _fail(request, failure)
            return
        if request.on_answer is not None:
            request.on_answer(reply.in_reply_to or "")
        if not request.answer.done():
            request.answer.set_result(reply)

    async def _start(self, view: Attached, starts: Sequence[AgentStart]) -> Reply:
        for start in starts:
            await self._begin()
            self._view = view
            try:
                return await self._send("agent_start", start, "agent_started")
            except MakaiStreamError as error:
                if error.code != "session_not_found" or start is starts[-1]:
                    raise
        raise AssertionError("there is at least one start")

    async def _begin(self) -> None:
        """A new scope, once the one before it is over."""
        if self._scope is not None:
            try:
                async with asyncio.timeout(ANSWER_DEADLINE_S):
                    await self._over.wait()
            except TimeoutError:
                raise _late() from None
        await self._connection.ready()
        self._over.clear()
        self._stopping = self._said = self._abort = False
        self._scope = self._connection.listen("session_id", self._session_id, self)

    async def _send(
        self, kind: str, payload: msgspec.Struct, until: str, on_answer: Callable[[str], None] | None = None
    ) -> Reply:
        await self._connection.ready()
        if self._scope is None:
            raise MakaiStreamError("the session was let go of", kind="aborted", code="aborted")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        try:
            message_id = self._connection.post(self._scope, kind, payload)
        except MakaiError:
            if not self._attached and not self._requests:
                self._end()  # nothing was sent in this scope, so nothing will end it
            raise
        # The request stays in the table when its caller is cancelled: the scope is not over before its answer.
        self._requests[message_id] = _Request(answer, until, on_answer)
        if kind == "agent_message":
            self._saying = message_id
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                return await answer
        except TimeoutError:
            raise _late() from None

    def _let_go(self) -> None:
        """Stop only a run of this client: until its message is answered, the active run may be another client's."""
        if self._attached and not self._stopping and self._saying not in self._requests and self._scope is not None:
            self._connection.post(self._scope, "agent_stop", AgentStop(detach=not (self._abort and self._said)))
            self._stopping = True

    def _detached(self) -> Attached | None:
        """The view that was attached; another one may be waiting for the session already."""
        view, self._view = self._view, None
        if self._user is view:
            self._user = None
        return view

    def _end(self) -> None:
        if self._scope is not None:
            self._connection.forget(self._scope)
            self._scope = None
        self._over.set()


def failure_in(reply: Reply) -> ClientFailure:
    try:
        return failure_of(_agent_error(reply.payload))
    except (msgspec.DecodeError, ValueError) as error:
        return broken_protocol(f"a malformed agent_error: {error}")


def _fail(request: _Request, failure: Exception) -> None:
    if not request.answer.done():
        request.answer.set_exception(failure)


def _late() -> MakaiStreamError:
    return transport_failure(f"the server did not answer about the session within {ANSWER_DEADLINE_S:g} s")
