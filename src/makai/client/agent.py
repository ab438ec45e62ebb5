"""`client.agent`: runs with tools and turns, in sessions that outlive them. A failure after the server accepted the run
is its terminal `error` event; refusals, a needed login and a lost connection are raised: one failure surfaces once.
Leaving a run stops it; leaving a session that is only followed does not. After a lost connection the session continues,
and `attach` follows it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self, Unpack

import msgspec

from makai.client import requests
from makai.client import types as sdk
from makai.client.agent_view import AgentView, Heard, RunView
from makai.client.auth import AuthApi
from makai.client.callbacks import Callbacks
from makai.client.connection import MakaiConnection
from makai.client.failures import broken_protocol
from makai.client.session_link import SessionLinks
from makai.core.errors import MakaiAuthError, MakaiError, MakaiStreamError
from makai.protocols.makai.agent_payloads import AgentStart, AgentStatus, AgentStop

_NO_CONTENT: Final = (sdk.AgentStartEvent, sdk.TurnStartEvent, sdk.TurnEndEvent, sdk.MessageStartEvent)
"""Events after which a second attempt repeats nothing that the caller has."""

_info = msgspec.json.Decoder(sdk.AgentSessionInfo).decode


class AgentApi:
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
        asked = requests.run_request_of(request, fields)
        return AgentStream(self._connection, _Run(self._connection, self._auth, self._links, asked))

    def attach(
        self,
        session_id: str,
        *,
        after_event_id: int | None = None,
        tools: requests.AgentTools | None = None,
        on_permission_request: sdk.PermissionHandler | None = None,
    ) -> AgentFollower:
        """Follow a session and all its runs, also those of other clients, until the loop is left. Events come from
        `after_event_id` on; without it from the start of the active run, or from now. `tools` replace those that were
        declared for the session, and this client carries them out."""
        own_tools = requests.tools_of(tools)
        definitions = None if own_tools is None else tuple(tool.definition for tool in own_tools)
        session_id = requests.session_id_of(session_id)
        callbacks = Callbacks(own_tools or (), on_permission_request)
        view = _FollowedView(self._connection, self._links.link(session_id), callbacks, session_id)
        view.start = AgentStart(resume=True, after_event_id=after_event_id, tools=definitions)
        return AgentFollower(self._connection, view, after_event_id)

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
        self.response: sdk.AgentRunResponse | None = None
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
    def waiting(self) -> bool:
        return self._view is not None and self._view.waiting

    async def next(self) -> Heard | None:
        """The next event, or None after the last one. What it raises, also cancellation, stops the run."""
        try:
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
                if isinstance(heard.event, sdk.AgentEndEvent):
                    self.response = view.response
                return heard
            return None
        except BaseException:
            self.leave()
            raise

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


class _FollowedView(AgentView):
    """A view that attaches to its session when it is first read."""

    start: AgentStart
    _begun = False

    async def begin(self) -> None:
        if not self._begun:
            self._begun = True
            await self._link.attach(self, (self.start,))

    async def next(self) -> Heard | None:
        await self.begin()
        return await super().next()


class _AgentEvents:
    """Events of a session that can be iterated once."""

    _once: ClassVar[str]

    def __init__(self, connection: MakaiConnection, source: _Run | _FollowedView, event_id: int | None = None) -> None:
        self.session_id = source.session_id
        self.event_id = event_id
        """Where `attach` can continue after what was delivered, when the connection is lost."""
        self._connection = connection
        self._source = source
        self._iterated = False

    def __aiter__(self) -> AgentIterator:
        if self._iterated:
            raise MakaiStreamError(self._once, kind="unknown")
        self._iterated = True
        # The loop alone holds the iterator, so `break` drops it and leaves the source, although this object lives on.
        return AgentIterator(self, self._connection, self._source)

    async def aclose(self) -> None:
        """As leaving the loop; for `contextlib.aclosing`."""
        self._source.leave()


class AgentStream(_AgentEvents):
    """The events of one run. It can be iterated once; the run is started when iteration begins. Leaving the loop early,
    by `break`, an exception or cancellation, stops the run. `session_id` is known before that."""

    _once = "a stream can be iterated once; run the agent again"
    _source: _Run

    @property
    def response(self) -> sdk.AgentRunResponse | None:
        """The newest answer with the usage of all turns, once `agent_end` was delivered."""
        return self._source.response


class AgentFollower(_AgentEvents):
    """What happens in a session, run after run. It can be iterated once; leaving it leaves the session as it is.
    Iterating attaches to the session; so does `async with`, which also lets go of it."""

    _once = "a session can be followed once; attach again"
    _source: _FollowedView

    async def __aenter__(self) -> Self:
        await self._source.begin()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class AgentIterator:
    """The one iteration of an `AgentStream` or an `AgentFollower`."""

    def __init__(self, events: _AgentEvents, connection: MakaiConnection, source: _Run | _FollowedView) -> None:
        self._events = events
        self._connection = connection
        self._source = source
        self._failure: MakaiError | None = None

    def __aiter__(self) -> AgentIterator:
        return self

    async def __anext__(self) -> sdk.AgentStreamEvent:
        heard = await self._source.next()
        if heard is None:
            raise StopAsyncIteration
        if heard.event_id is not None:
            self._events.event_id = heard.event_id
        return heard.event

    async def aclose(self) -> None:
        self._source.leave()

    async def batch(self) -> list[sdk.AgentStreamEvent]:
        """At least one event and all that need no waiting, or none at the end: fewer hops for another thread."""
        if self._failure is not None:
            raise self._failure
        events: list[sdk.AgentStreamEvent] = []
        try:
            async for event in self:
                events.append(event)
                if not self._source.waiting:
                    break
        except MakaiError as error:
            if not events:
                raise
            self._failure = error  # the caller gets what came before it first
        return events

    def __del__(self) -> None:
        self._connection.call_soon(self._source.leave)
