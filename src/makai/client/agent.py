"""`client.agent`: runs with tools and turns, in sessions that outlive them. A failure after the server accepted the run
is its terminal `error` event; refusals, a needed login and a lost connection are raised: one failure surfaces once.
Leaving a run stops it; leaving a session that is only followed does not. After a lost connection the session continues,
and `attach` follows it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, Unpack, overload

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
from makai.protocols.makai.agent_payloads import (
    AgentDiff,
    AgentDiffResult,
    AgentRestore,
    AgentStart,
    AgentStatus,
    AgentStop,
)

if TYPE_CHECKING:
    from makai.client.typed_output import TypedOutput

_NO_CONTENT: Final = (sdk.AgentStartEvent, sdk.TurnStartEvent, sdk.TurnEndEvent, sdk.MessageStartEvent)
"""Events after which a second attempt repeats nothing that the caller has."""

_AnswerT = TypeVar("_AnswerT")
_OutputT = TypeVar("_OutputT")

_info = msgspec.json.Decoder(sdk.AgentSessionInfo).decode
_restored = msgspec.json.Decoder(sdk.AgentRestoreResult).decode
_diff = msgspec.json.Decoder(AgentDiffResult).decode


class AgentApi:
    def __init__(self, connection: MakaiConnection, auth: AuthApi) -> None:
        self._connection = connection
        self._auth = auth
        self._links = SessionLinks(connection)

    @overload
    async def run(
        self, request: None = None, *, output: type[_OutputT], **fields: Unpack[requests.UntypedRunFields]
    ) -> sdk.AgentRunResponse[_OutputT]: ...
    @overload
    async def run(
        self, request: sdk.AgentRunRequest | Mapping[str, Any] | None = None, **fields: Unpack[requests.AgentRunFields]
    ) -> sdk.AgentRunResponse: ...
    async def run(
        self, request: sdk.AgentRunRequest | Mapping[str, Any] | None = None, **fields: Any
    ) -> sdk.AgentRunResponse:
        """Run an agent to its end. Every failure is raised. Cancelling the caller stops the run."""
        asked = requests.run_request_of(request, fields)
        run = _Run(self._connection, self._auth, self._links, asked)
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
        return await self._ask(session_id, "agent_status", AgentStatus(), "session_info", _info)

    async def undo(
        self,
        session_id: str,
        *,
        count: int = 1,
        to: int | None = None,
        paths: Sequence[str] = (),
        plan_id: str = "",
        preview: bool = False,
    ) -> sdk.AgentRestoreResult:
        """Put files back as they were before the last `count` messages in which tools changed any, or before the
        message of event `to`: all of them or none. With `paths` only these files, absolute or below the session's
        folder, and the others stay as they are. With `preview` nothing is changed, and the `plan_id` of the result
        makes a later call do exactly that. Raises when a file was changed since."""
        wanted = AgentRestore(
            direction="undo", count=count, to=to, paths=tuple(paths), plan_id=plan_id, preview=preview
        )
        return await self._ask(session_id, "agent_restore", wanted, "restore_result", _restored)

    async def redo(
        self,
        session_id: str,
        *,
        count: int = 1,
        to: int | None = None,
        paths: Sequence[str] = (),
        plan_id: str = "",
        preview: bool = False,
    ) -> sdk.AgentRestoreResult:
        """Take back an `undo`, with the same arguments."""
        wanted = AgentRestore(
            direction="redo", count=count, to=to, paths=tuple(paths), plan_id=plan_id, preview=preview
        )
        return await self._ask(session_id, "agent_restore", wanted, "restore_result", _restored)

    async def diff(self, session_id: str) -> tuple[sdk.FileChange, ...]:
        """The files that tools of a session changed, each from before its first change to after its last; what was
        undone does not count. An empty `new_text` may be a removed file."""
        return (await self._ask(session_id, "agent_diff", AgentDiff(), "diff_result", _diff)).files

    async def _ask(
        self, session_id: str, kind: str, payload: msgspec.Struct, until: str, read: Callable[[bytes], _AnswerT]
    ) -> _AnswerT:
        """Ask something about a session without attaching to it."""
        reply = await self._links.link(requests.session_id_of(session_id)).ask(kind, payload, until)
        try:
            return read(reply.payload)
        except (msgspec.DecodeError, ValueError) as error:
            raise broken_protocol(f"a malformed {until}: {error}") from error


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
        self._output = _typed_output(request)
        self._request = request if self._output is None else self._output.asked(request)
        self._failure: MakaiStreamError | None = None
        self._view: RunView | None = None
        self._logins_before = auth.logins
        self._may_retry = True
        self._started = False
        self._has_session = False
        """An attempt began or found the session; it may have failed before anything was heard of it."""
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
                match heard.event:
                    case sdk.AgentEndEvent() if view.response is not None:
                        ended = self._ended(heard, view.response)
                        if ended is None:
                            continue  # the answer is asked for again
                        return ended
                    case sdk.TurnStartEvent() if self._output is not None:
                        self._output.turn_began()
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
        if self._failure is not None:
            raise self._failure
        if view is None or view.response is None:
            raise broken_protocol("a run ended without a result")
        return self.response or view.response

    def leave(self) -> None:
        """Stop the run, unless it is over. May be repeated, from any thread that the connection knows."""
        self._left = True
        if self._view is not None:
            self._view.abort()

    def _ended(self, heard: Heard, response: sdk.AgentRunResponse) -> Heard | None:
        """The end of the run for the caller; None when another run follows, because the answer has no `output`."""
        self.response = response
        if self._output is None:
            return heard
        self.response = response = self._output.read(response)
        self._failure = failure = self._output.failure
        if failure is None:
            return Heard(sdk.AgentEndEvent(stop_reason=response.stop_reason, usage=response.usage), heard.event_id)
        again = self._output.again(self._request, response)
        if again is None:
            self.response = None
            return Heard(sdk.ErrorEvent(message=failure.message, code=failure.code), heard.event_id)
        self._request = again
        self._view = None
        return None

    async def _begin(self) -> RunView:
        self._logins_before = self._auth.logins
        link = self._links.link(self.session_id)
        callbacks = Callbacks(self._request.tools or (), self._request.on_permission_request)
        self._view = view = RunView(self._connection, link, callbacks, self.session_id)
        is_new = self._request.options.session_id is None and not self._has_session
        await link.attach(view, requests.starts_of(self._request, is_new=is_new))
        self._has_session = True
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


def _typed_output(request: sdk.AgentRunRequest) -> TypedOutput | None:
    if request.output is None:
        return None
    from makai.client.typed_output import TypedOutput

    return TypedOutput(request)


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
