"""The agent side of a server connection, sans-IO: sessions that a client attached to, and what it asks of them. A
session's scope is live while a request in it is unanswered, and from `agent_started` (or the first message to a session
that exists) to `agent_stopped`, which is the last envelope of the scope. Then the client may continue to count, or
begin with 1 again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest, MakaiError, RateLimited, SessionRefused
from makai.core.request import RequestOptions, StreamOptions, ToolDefinition
from makai.core.tool_server_ids import check_server_ids
from makai.protocols.makai import agent_payloads as wire
from makai.protocols.makai.agent_projection import AgentProjection, permission_request
from makai.protocols.makai.commands import AgentCommand, AnswerTool, AskSession
from makai.protocols.makai.envelope import Envelope, Scope
from makai.protocols.makai.framing import MAX_IDLE_SCOPES, EnvelopeSender, Inbound
from makai.protocols.makai.messages import check_schema
from makai.protocols.makai.payloads import Ack
from makai.protocols.makai.projection import nack_of, wire_code

MAX_UNANSWERED = 64
"""Requests of one session that may wait for their answers; commits take milliseconds."""
_ANSWERS: Final[dict[type[wire.SessionAnswer], str]] = {
    wire.SessionInfo: "session_info",
    wire.ToolListResponse: "tool_list_response",
    wire.AgentRestoreResult: "restore_result",
    wire.AgentDiffResult: "diff_result",
}


class _Session:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.unanswered: set[str] = set()
        self.projection: AgentProjection | None = None
        """Set while the client is attached."""
        self.own_inputs: dict[str, str] = {}
        """Our name for the words of a message -> its message id, until its run is seen."""
        self.own_runs: dict[str, str] = {}
        """Runs this client started and that have not settled -> the message they answer."""
        self.calls: dict[str, wire.ToolExecute] = {}
        """What the client has to carry out, until it has or the result is no longer wanted."""
        self.executing: set[str] = set()
        """Those of them it was told about."""
        self.asked: set[str] = set()
        """Questions without a decision."""


class AgentScopes:
    """The sessions of one connection. `forget` gets scopes in which no agent is active any more."""

    def __init__(
        self, sender: EnvelopeSender, inbound: Inbound, max_sessions: int, forget: Callable[[Scope], None]
    ) -> None:
        self._sender = sender
        self._inbound = inbound
        self._max_sessions = max_sessions
        self._forget = forget
        self._sessions: dict[str, _Session] = {}
        self._left: OrderedDict[Scope, None] = OrderedDict()

    @property
    def running(self) -> int:
        return len(self._sessions)

    def is_live(self, scope: Scope) -> bool:
        """Whether the client is attached to this session or waits for an answer in it."""
        return scope.kind == "session_id" and scope.id in self._sessions

    def is_resting(self, scope: Scope) -> bool:
        """Whether the client let go of the session, and its numbers are still known."""
        return scope in self._left

    def restart(self, scope: Scope) -> None:
        """A client that comes back to a session it had let go of counts from 1."""
        self._left.pop(scope, None)
        self._forget(scope)

    def receive(self, envelope: Envelope, payload: msgspec.Struct, numbers_used: int) -> list[AgentCommand]:
        """A request in a session's scope. Raises what it is nacked for. In a live scope its numbers are taken
        already."""
        if envelope.session_id is None:
            raise InvalidRequest(f"{envelope.type} belongs to a session_id")
        scope = envelope.scope
        if isinstance(payload, wire.ToolResultMessage):
            return [self._take_result(envelope, payload)]
        if isinstance(payload, wire.AgentStart):
            check_start(payload)
        session = self._sessions.get(scope.id) or self._begin(scope)
        if len(session.unanswered) >= MAX_UNANSWERED:
            raise RateLimited(f"at most {MAX_UNANSWERED} requests of a session may wait for their answers")
        self._inbound.take(scope, numbers_used)
        session.unanswered.add(envelope.message_id)
        request: wire.AgentRequest = payload  # type: ignore[assignment]  # AGENT_CLIENT_PAYLOADS has no others
        return [AskSession(session_id=scope.id, message_id=envelope.message_id, request=request)]

    def _begin(self, scope: Scope) -> _Session:
        if len(self._sessions) >= self._max_sessions:
            raise RateLimited(f"at most {self._max_sessions} sessions may be open on one connection")
        self._left.pop(scope, None)
        self._sender.sequences.begin(scope)
        session = self._sessions[scope.id] = _Session(scope)
        return session

    def _take_result(self, envelope: Envelope, result: wire.ToolResultMessage) -> AnswerTool:
        """MK-TOOL-008: "nacked and does not change the run" unless exactly this call waits for an answer."""
        session = self._sessions.get(envelope.scope.id)
        call_id = result.tool_call_id
        if session is None or call_id not in session.executing:
            raise SessionRefused("UNKNOWN_CALL_ID", f"No call {call_id!r} waits for a result from this client.")
        session.executing.discard(call_id)
        session.calls.pop(call_id, None)
        self._reply(session, "ack", Ack(envelope.message_id), envelope.message_id)
        return AnswerTool(session_id=session.scope.id, result=result)

    def attach(self, session_id: str, projection: AgentProjection) -> None:
        """From here on the client gets what `logged` brings. The projection may know the beginning of a run."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.projection = projection

    def started(self, session_id: str, message_id: str, answer: wire.AgentStarted) -> None:
        self._answer(session_id, message_id, ("ack", Ack(message_id)), ("agent_started", answer))

    def info(self, session_id: str, message_id: str, answer: wire.SessionAnswer) -> None:
        self._answer(session_id, message_id, ("ack", Ack(message_id)), (_ANSWERS[type(answer)], answer))

    def accept(self, session_id: str, message_id: str) -> None:
        self._answer(session_id, message_id, ("ack", Ack(message_id)))

    def refuse(self, session_id: str, message_id: str, error: MakaiError) -> None:
        self._answer(session_id, message_id, ("nack", nack_of(message_id, error)))

    def words_taken(self, session_id: str, message_id: str, input_id: str) -> None:
        """The words of an `agent_message` are in the log under this name; their run answers the message."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.own_inputs[input_id] = message_id
        self.accept(session_id, message_id)

    def busy(self, session_id: str, message_id: str, error: MakaiError) -> None:
        """MK-AGENT-015: "gets `agent_error` with code agent_busy and leaves that run untouched"."""
        busy = wire.AgentError(code="agent_busy", message=error.message, hint=error.hint)
        self._answer(session_id, message_id, ("agent_error", busy))

    def stopped(self, session_id: str, message_id: str | None, reason: str | None) -> None:
        """The client has let go of the session, or the session is gone: the last envelope of its scope. Other requests
        that wait are refused: there is nothing left that could answer them."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        for other in session.unanswered - {message_id}:
            self._reply(session, "nack", nack_of(other, InvalidRequest("the session was let go of")), other)
        stopped = wire.AgentStopped(session_id=session_id, reason=reason)
        self._reply(session, "agent_stopped", stopped, message_id)
        self._sender.sequences.rest(session.scope)
        self._left[session.scope] = None
        if len(self._left) > MAX_IDLE_SCOPES:
            self._forget(self._left.popitem(last=False)[0])

    def lost(self, session_id: str, error: MakaiError) -> None:
        """Nothing more can be learnt about the session; runs of this client are settled as far as it is concerned."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        failure = wire.AgentError(code=wire_code(error.code), message=error.message, hint=error.hint)
        for message_id in (*session.own_inputs.values(), *session.own_runs.values()):
            self._reply(session, "agent_error", failure, message_id)
        self.stopped(session_id, None, error.message)

    def logged(self, session_id: str, logged: ev.Logged) -> str | None:
        """Tell the client about an event. The id of the run that it settled, if it did."""
        session = self._sessions.get(session_id)
        if session is None or session.projection is None:
            return None
        event, run_id = logged.event, logged.run_id or ""
        for kind, payload in session.projection.project(logged):
            self._tell(session, kind, payload, run_id)
        match event:
            case ev.UserInput(input_id=input_id) | ev.RunStarted(input_id=input_id) if input_id in session.own_inputs:
                session.own_runs[run_id] = session.own_inputs.pop(input_id)
            case ev.ToolStarted(call_id=call_id):
                self._execute_if_started(session, call_id)
            case ev.RunFinished() | ev.RunFailed():
                return run_id
        return None

    def ask_again(self, session_id: str, asked: ev.ApprovalRequested, run_id: str) -> None:
        """A question that was pending before the client attached."""
        session = self._sessions.get(session_id)
        if session is not None and asked.call_id not in session.asked:
            self._tell(session, "permission_request", permission_request(asked, run_id), run_id)

    def execute(self, session_id: str, call: wire.ToolExecute) -> None:
        """The client has to carry out a tool. It is sent after the call's `tool_execution_start`, never before."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.calls[call.tool_call_id] = call
            self._execute_if_started(session, call.tool_call_id)

    def withdraw(self, session_id: str, tool_call_id: str) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            session.calls.pop(tool_call_id, None)
            session.executing.discard(tool_call_id)

    def _tell(self, session: _Session, kind: str, payload: Any, run_id: str) -> None:
        """Send what the projection said; questions are tracked, and a settlement names the message it answers."""
        in_reply_to = None
        if kind == "permission_request":
            session.asked.add(payload.tool_call_id)
        elif isinstance(payload, wire.PermissionSettled):
            if payload.tool_call_id not in session.asked:
                return  # a rule or the mode decided without a question
            session.asked.discard(payload.tool_call_id)
        elif kind in ("agent_result", "agent_error"):
            in_reply_to = session.own_runs.pop(run_id, None)
        self._sender.send(session.scope, kind, payload, in_reply_to=in_reply_to)

    def _execute_if_started(self, session: _Session, call_id: str) -> None:
        call = session.calls.get(call_id)
        is_told = session.projection is not None and session.projection.is_started(call_id)
        if call is not None and is_told and call_id not in session.executing:
            session.executing.add(call_id)
            self._sender.send(session.scope, "tool_execute", call, exact=True)

    def _answer(self, session_id: str, message_id: str, *replies: tuple[str, msgspec.Struct]) -> None:
        session = self._sessions.get(session_id)
        if session is None or message_id not in session.unanswered:
            return
        session.unanswered.discard(message_id)
        for kind, payload in replies:
            self._reply(session, kind, payload, message_id)
        if session.projection is None and not session.unanswered:
            del self._sessions[session_id]
            self._forget(session.scope)

    def _reply(self, session: _Session, kind: str, payload: Any, message_id: str | None) -> None:
        self._sender.send(session.scope, kind, payload, in_reply_to=message_id)


def check_start(wanted: wire.AgentStart) -> None:
    """What can be said about a start without knowing any session; raises `InvalidRequest`."""
    if wanted.model_ref is None and wanted.agent is None and not wanted.resume:
        raise InvalidRequest("agent_start needs model_ref, or the name of an agent")
    if wanted.agent is not None and not wanted.agent.strip():
        raise InvalidRequest("agent is empty")
    if wanted.after_event_id is not None and not wanted.resume:
        raise InvalidRequest("after_event_id needs resume: a new session has no events")
    if wanted.builtin_tools and not wanted.resume and wanted.cwd is None:
        raise InvalidRequest("builtin_tools need a cwd to work in")
    if wanted.cwd is not None and not wanted.cwd.startswith("/"):
        raise InvalidRequest("cwd is not an absolute path")
    check_tools(wanted.tools or ())
    check_server_ids(wanted.tool_servers or ())


def check_tools(tools: Sequence[ToolDefinition]) -> None:
    """Raise `InvalidRequest` for definitions that no client can declare."""
    names: set[str] = set()
    for tool in tools:
        if not tool.name or tool.name in names:
            raise InvalidRequest(f"tools: every tool has a name of its own, and {tool.name!r} is not one")
        names.add(tool.name)
        check_schema(tool)


def run_terms(options: wire.AgentOptions) -> ev.RunTerms:
    given = {name: getattr(options, name) for name in options.__struct_fields__}
    asking = {name: given.pop(name) for name in RequestOptions.__struct_fields__}
    return ev.RunTerms(options=StreamOptions(**asking), **given)
