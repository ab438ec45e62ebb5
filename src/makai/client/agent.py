"""`client.agent`: runs with tools and turns, in sessions that outlive them.

A failure after the server accepted the run is its terminal `error` event; refusals, a needed login and a lost
connection are raised: one failure surfaces once. Leaving a run stops it; leaving a session that is only followed does
not. After a lost connection the session continues, and `attach` follows it again.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack

import msgspec

from makai.client import agent_requests as requests
from makai.client import agent_types as sdk
from makai.client.agent_view import AgentView, Heard, RunView
from makai.client.auth import AuthApi
from makai.client.callbacks import Callbacks
from makai.client.connection import MakaiConnection
from makai.client.failures import broken_protocol
from makai.client.session_link import SessionLinks
from makai.client.types import MessageStartEvent
from makai.core.errors import MakaiAuthError, MakaiError, MakaiStreamError
from makai.protocols.makai.agent_payloads import AgentStart, AgentStatus, AgentStop

_NO_CONTENT: Final = (sdk.AgentStartEvent, sdk.TurnStartEvent, sdk.TurnEndEvent, MessageStartEvent)
"""Events after which a second attempt repeats nothing that the caller has."""

_info = msgspec.json.Decoder(sdk.AgentSessionInfo).decode


class AgentApi:
    """Agents of the server, and the sessions they work in."""

    def __init__(self, connection: MakaiConnection, auth: AuthApi) -> None:
        self._connection = connection
        self._auth = auth
        self._links = SessionLinks(connection)

    async def run(
        self, request: sdk.AgentRunRequest | Mapping[str, Any] | None = None, **fields: Unpack[requests.AgentRunFields]
    ) -> sdk.AgentRunResponse:
        """Run an agent to its end. Every failure is raised. Cancelling the caller stops the run."""
        run = _Run(self._connection, self._auth, self._links, requests.run_request_of(request, fields))
        try:
            while await run.next() is not None:
                pass
        finally:
            run.leave()
        return run.outcome()

    def stream(
        self, request: sdk.AgentRunRequest | Mapping[str, Any] | None = None, **fields: Unpack[requests.AgentRunFields]
    ) -> AgentStream:
        """Run an agent and get what happens as it happens: `async for event in client.agent.stream(...)`."""
        return AgentStream(self._connection, self._auth, self._links, requests.run_request_of(request, fields))

    def attach(
        self,
        session_id: str,
        *,
        after_event_id: int | None = None,
        tools: requests.AgentTools | None = None,
        on_permission_request: sdk.PermissionHandler | None = None,
    ) -> AgentFollower:
        """Follow a session and all its runs, also those of other clients, until the loop is left.

        Events come from `after_event_id` on; without it from the start of the active run, or from now. `tools` replace
        those that were declared for the session, and this client carries them out.
        """
        own_tools = requests.tools_of(tools)
        definitions = None if own_tools is None else tuple(tool.definition for tool in own_tools)
        start = AgentStart(resume=True, after_event_id=after_event_id, tools=definitions)
        callbacks = Callbacks(own_tools or (), on_permission_request)
        return AgentFollower(self._connection, self._links, requests.session_id_of(session_id), start, callbacks)

    async def stop(self, session_id: str, *, reason: str | None = None) -> None:
        """Stop the active run of a session, also one of another client; nothing happens when there is none."""
        link = self._links.link(requests.session_id_of(session_id))
        await link.ask("agent_stop", AgentStop(reason=reason), "agent_stopped")

    async def status(self, session_id: str) -> sdk.AgentSessionInfo:
        """How a session is: idle, running, waiting for whom, and what it has used."""
        reply = await self._links.link(requests.session_id_of(session_id)).ask(
            "agent_status", AgentStatus(), "session_info"
        )
        try:
            return _info(reply.payload)
        except (msgspec.DecodeError, ValueError) as error:
            raise broken_protocol(f"a malformed session_info: {error}") from error


class _Run:
    """One run, with its second attempt after a login."""

    def __init__(
        self, connection: MakaiConnection, auth: AuthApi, links: SessionLinks, request: sdk.AgentRunRequest
    ) -> None:
        self.session_id = requests.session_of(request)
        self._connection = connection
        self._auth = auth
        self._links = links
        self._request = request
        self._view: RunView | None = None
        self._logins_before = auth.logins
        self._may_retry = True
        self._started = False
        self._left = False

    @property
    def view(self) -> RunView | None:
        return self._view

    async def next(self) -> Heard | None:
        while not self._left:
            try:
                view = self._view or await self._begin()
                heard = await view.next()
            except MakaiAuthError as error:
                await self._log_in(error)
                continue
            if heard is None:
                return None
            if not isinstance(heard.event, _NO_CONTENT):
                self._may_retry = False
            elif isinstance(heard.event, sdk.AgentStartEvent):
                if self._started:
                    continue  # of the second attempt
                self._started = True
            return heard
        return None

    def outcome(self) -> sdk.AgentRunResponse:
        """The answer of a run that is over; raises its failure."""
        view = self._view
        if view is not None and view.error is not None:
            raise view.error
        if view is None or view.response is None:
            raise broken_protocol("a run ended without a result")
        return view.response

    def leave(self) -> None:
        """Stop the run, unless it is over. May be repeated, from any thread that the connection knows."""
        self._left = True
        if self._view is not None:
            self._view.abort()

    async def _begin(self) -> RunView:
        self._logins_before = self._auth.logins
        link = self._links.link(self.session_id)
        callbacks = Callbacks(self._request.tools or (), self._request.on_permission_request)
        self._view = view = RunView(self._connection, link, callbacks, self.session_id)
        is_new = self._request.options.session_id is None and not self._started
        await link.attach(view, requests.starts_of(self._request, is_new=is_new))
        await link.say("agent_message", requests.message_of(self._request), view.said)
        return view

    async def _log_in(self, error: MakaiAuthError) -> None:
        """Once, and only while a second attempt would not repeat what the caller already has."""
        if self._view is not None:
            self._view.leave()
            self._view = None
        if not self._may_retry:
            raise error
        self._may_retry = False
        await self._auth.login_for_retry(error, self._request.options.auth_retry_policy, self._logins_before)


class AgentStream:
    """The events of one run. It can be iterated once; the run is started when iteration begins.

    Leaving the loop early, by `break`, an exception or cancellation, stops the run.
    """

    def __init__(
        self, connection: MakaiConnection, auth: AuthApi, links: SessionLinks, request: sdk.AgentRunRequest
    ) -> None:
        self.response: sdk.AgentRunResponse | None = None
        """The newest answer with the usage of all turns, once `agent_end` was delivered."""
        self.event_id: int | None = None
        """Where `attach` can go on after what was delivered, when the connection is lost."""
        self._connection = connection
        self._run = _Run(connection, auth, links, request)
        self.session_id = self._run.session_id
        """The session of the run, known before it begins."""
        self._iterator: weakref.ref[AgentStreamIterator] | None = None

    def __aiter__(self) -> AgentStreamIterator:
        if self._iterator is not None:
            raise MakaiStreamError("a stream can be iterated once; run the agent again", kind="unknown")
        # The loop alone holds the iterator, so `break` drops it, and with it the run, although the stream lives on.
        iterator = AgentStreamIterator(self, self._connection, self._run)
        self._iterator = weakref.ref(iterator)
        return iterator

    async def aclose(self) -> None:
        """Stop the run if it is still active; for `contextlib.aclosing`."""
        self._run.leave()


class AgentStreamIterator:
    """The one iteration of an `AgentStream`."""

    def __init__(self, stream: AgentStream, connection: MakaiConnection, run: _Run) -> None:
        self._stream = stream
        self._connection = connection
        self._run = run
        self._over = False
        self._failure: MakaiError | None = None

    def __aiter__(self) -> AgentStreamIterator:
        return self

    async def __anext__(self) -> sdk.AgentStreamEvent:
        if self._over:
            raise StopAsyncIteration
        try:
            heard = await self._run.next()
        except BaseException:
            await self.aclose()
            raise
        if heard is None:
            self._over = True
            raise StopAsyncIteration
        if heard.event_id is not None:
            self._stream.event_id = heard.event_id
        if heard.event.type == "agent_end" and self._run.view is not None:
            self._stream.response = self._run.view.response
        return heard.event

    async def aclose(self) -> None:
        self._over = True
        self._run.leave()

    async def batch(self) -> list[sdk.AgentStreamEvent]:
        """At least one event and all that need no waiting, or none at the end: fewer hops for another thread."""
        if self._failure is not None:
            raise self._failure
        events: list[sdk.AgentStreamEvent] = []
        try:
            async for event in self:
                events.append(event)
                if self._run.view is None or not self._run.view.waiting:
                    break
        except MakaiError as error:
            if not events:
                raise
            self._failure = error  # the caller gets what came before it first
        return events

    def __del__(self) -> None:
        self._connection.call_soon(self._run.leave)


class AgentFollower:
    """What happens in a session, run after run. It can be iterated once; leaving it leaves the session as it is.

    Iterating attaches to the session; so does `async with`, which also lets go of it.
    """

    def __init__(
        self,
        connection: MakaiConnection,
        links: SessionLinks,
        session_id: str,
        start: AgentStart,
        callbacks: Callbacks,
    ) -> None:
        self.session_id = session_id
        self.event_id = start.after_event_id
        """Where another `attach` can go on after what was delivered."""
        self._connection = connection
        self._link = links.link(session_id)
        self._start = start
        self._view = AgentView(connection, self._link, callbacks, session_id)
        self._begun = False
        self._iterator: weakref.ref[AgentFollowerIterator] | None = None

    def __aiter__(self) -> AgentFollowerIterator:
        if self._iterator is not None:
            raise MakaiStreamError("a session can be followed once; attach again", kind="unknown")
        iterator = AgentFollowerIterator(self, self._connection, self._view)
        self._iterator = weakref.ref(iterator)
        return iterator

    async def begin(self) -> None:
        """Attach, the first time."""
        if not self._begun:
            self._begun = True
            await self._link.attach(self._view, (self._start,))

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.leave()

    async def aclose(self) -> None:
        self._view.leave()


class AgentFollowerIterator:
    """The one iteration of an `AgentFollower`."""

    def __init__(self, follower: AgentFollower, connection: MakaiConnection, view: AgentView) -> None:
        self._follower = follower
        self._connection = connection
        self._view = view

    def __aiter__(self) -> AgentFollowerIterator:
        return self

    async def __anext__(self) -> sdk.AgentStreamEvent:
        await self._follower.begin()
        heard = await self._view.next()
        if heard is None:
            raise StopAsyncIteration
        if heard.event_id is not None:
            self._follower.event_id = heard.event_id
        return heard.event

    async def aclose(self) -> None:
        self._view.leave()

    async def batch(self) -> list[sdk.AgentStreamEvent]:
        """At least one event and all that need no waiting, or none at the end."""
        events: list[sdk.AgentStreamEvent] = []
        async for event in self:
            events.append(event)
            if not self._view.waiting:
                break
        return events

    def __del__(self) -> None:
        self._connection.call_soon(self._view.leave)
