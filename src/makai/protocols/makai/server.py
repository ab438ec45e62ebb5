"""The server side of one connection, sans-IO: frames of a client to commands, and what became of them to an outbox.
Nothing a client sends raises or stays unanswered: what is accepted is acked first, what is refused is nacked once, what
has no readable id gets `unknown_envelope`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from makai.catalog.models import ModelsRequest, ModelsResponse
from makai.core.errors import InvalidRequest, MakaiError, ParseError, RateLimited
from makai.core.messages import AssistantMessage
from makai.core.stream_events import Done, Failed, Keepalive, Start, StreamEvent
from makai.protocols.makai import auth
from makai.protocols.makai import payloads as wire
from makai.protocols.makai.commands import CancelStream, Command, EndConnection, ListModels, OpenStream
from makai.protocols.makai.envelope import (
    MAX_DEPTH,
    Envelope,
    HostError,
    Problem,
    Scope,
    encode,
    problem_in,
    read_envelope,
)
from makai.protocols.makai.framing import EnvelopeSender, FragmentLimits, Inbound, Reassembler, unix_milliseconds
from makai.protocols.makai.messages import context_of, options_of
from makai.protocols.makai.projection import (
    FullProjection,
    ProxyProjection,
    nack_of,
    proxy_result,
    stream_error,
    whole_result,
)
from makai.wire import strict_json

if TYPE_CHECKING:
    from makai.protocols.makai.agent import AgentScopes
    from makai.protocols.makai.tool_server import ToolServerScopes

_AGENT_REQUESTS: Final = frozenset(
    {
        "agent_start",
        "agent_message",
        "agent_stop",
        "agent_status",
        "agent_restore",
        "agent_diff",
        "tool_list",
        "tool_result",
        "permission_response",
    }
)
"""The envelope types whose payloads are in `agent_payloads`, which is loaded with the first of them."""
_TOOL_REQUESTS: Final = frozenset(
    ("tool_register", "tool_unregister", "tool_execution_start", "tool_execution_update", "tool_response")
)
"""The same for `tool_payloads`."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that one connection may use."""

    frame_bytes: int = 16 * 1024 * 1024
    streams: int = 100
    listings: int = 100
    logins: int = 8
    """Provider queries and logins together."""
    sessions: int = 100
    tool_servers: int = 32
    fragments: FragmentLimits = FragmentLimits()


class _Request:
    def __init__(self, scope: Scope, message_id: str, encoding: Literal["proxy"] | None, *, whole: bool) -> None:
        self.scope = scope
        self.message_id = message_id
        self.whole = whole
        self.encoding = None if whole else encoding
        self.projection = ProxyProjection() if encoding == "proxy" else FullProjection()
        self.accepted = False
        self.warnings: list[str] = []


class ServerConnection:
    def __init__(
        self,
        limits: ConnectionLimits | None = None,
        clock: Callable[[], int] = unix_milliseconds,
        *,
        agents: bool = False,
    ) -> None:
        self._limits = limits or ConnectionLimits()
        self._serves_agents = agents
        self._agents: AgentScopes | None = None
        self._tools: ToolServerScopes | None = None
        self._sender = EnvelopeSender(self._limits.frame_bytes, clock)
        self._inbound = Inbound()
        self._reassembler = Reassembler(self._limits.fragments)
        self._streams: dict[str, _Request] = {}
        self._listings: dict[Scope, _Request] = {}
        self.auth = auth.AuthScopes(self._sender, self._inbound)
        """What the auth runtime tells: provider lists, login events and results."""

    @property
    def agents(self) -> AgentScopes:
        """What sessions tell. Made, and its part of the protocol loaded, when the first session is asked something."""
        if self._agents is None:
            from makai.protocols.makai.agent import AgentScopes

            self._agents = AgentScopes(self._sender, self._inbound, self._limits.sessions, self._forget_unless_live)
        return self._agents

    @property
    def tools(self) -> ToolServerScopes:
        """The tool servers of this client; made and loaded with the first request about one."""
        if self._tools is None:
            from makai.protocols.makai.tool_server import ToolServerScopes

            limit = self._limits.tool_servers
            self._tools = ToolServerScopes(self._sender, self._inbound, limit, self._forget_unless_live)
        return self._tools

    @property
    def busy(self) -> bool:
        """Whether any request has not reached its terminal, the client is attached to a session or serves tools."""
        joined = sum(part.running for part in (self._agents, self._tools) if part is not None)
        return bool(self._streams or self._listings or self.auth.running or joined)

    @property
    def pending_bytes(self) -> int:
        return self._sender.pending_bytes

    def take(self) -> list[bytes]:
        return self._sender.take()

    def receive(self, frame: bytes, now: float) -> list[Command]:
        """Take one frame. `now` is a monotonic time in seconds, for unfinished fragments."""
        for scope, message_id in self._reassembler.expire(now):
            self._refuse(
                scope, message_id, "invalid_request", "the fragments of this message did not all arrive in time"
            )
        envelope = read_envelope(frame, self._limits.frame_bytes)
        if isinstance(envelope, Problem):
            self._answer_problem(envelope)
            return []
        numbers_used = 1
        if envelope.fragment is not None:
            numbers_used = envelope.fragment.total
            joined = self._join(envelope, now)
            if joined is None:
                return []
            envelope = joined
        return self._dispatch(envelope, numbers_used)

    def receive_oversized(self, limit: int, start: bytes) -> None:
        """A frame that the transport skipped; its ids may be in its first bytes."""
        reason = f"a frame exceeds the limit of {limit} bytes; send it in fragments"
        self._answer_problem(problem_in(start, reason))

    def accept(self, stream_id: str, answer: AssistantMessage | None = None) -> None:
        """Ack a stream. `answer` is the empty message that it begins with, which names the model."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.accepted:
            stream.accepted = True
            ack = wire.Ack(stream.message_id)
            if answer is not None and answer.provider and stream.encoding == "proxy":
                ack = wire.Ack(stream.message_id, answer.provider, answer.api, answer.model)
            self._reply(stream.scope, "ack", ack, stream.message_id)

    def refuse(self, scope: Scope, error: MakaiError) -> None:
        """The request cannot be carried out: nack it, and that was all."""
        request = self._streams.get(scope.id) if scope.kind == "stream_id" else None
        request = request or self._listings.get(scope)
        if request is None:
            return
        self._reply(scope, "nack", nack_of(request.message_id, error), request.message_id)
        self._end(scope)

    def event(self, stream_id: str, event: StreamEvent) -> None:
        """The next event of an accepted stream; the terminal one also sends `result` or `stream_error`."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return  # aborted meanwhile: nothing more is sent for it
        scope = stream.scope
        if not stream.whole:
            kind, payload = stream.projection.project(event)
            self._sender.send(scope, kind, payload, encoding=stream.encoding)
        if isinstance(event, Done):
            result = proxy_result if stream.encoding == "proxy" else whole_result
            payload = result(event.message, stream.warnings)
            self._sender.send(scope, "result", payload, encoding=stream.encoding)
            self._end(scope)
        elif isinstance(event, Failed):
            self._sender.send(scope, "stream_error", stream_error(event), encoding=stream.encoding)
            self._end(scope)
        elif isinstance(event, Keepalive) and event.level == "warning":
            stream.warnings.append(event.note)

    def models(self, scope: Scope, response: ModelsResponse) -> None:
        request = self._listings.get(scope)
        if request is None:
            return
        self._ack(scope, request.message_id)
        self._reply(scope, "models_response", response, request.message_id)
        self._end(scope)

    def _join(self, envelope: Envelope, now: float) -> Envelope | None:
        assert envelope.fragment is not None
        try:
            kind = envelope.type, envelope.encoding, envelope.in_reply_to
            joined = self._reassembler.add(
                envelope.scope, envelope.fragment, envelope.sequence, envelope.payload, now, kind
            )
            if joined is None:
                return None
            payload = strict_json.decode(
                joined.payload, max_bytes=self._limits.fragments.message_bytes, max_depth=MAX_DEPTH
            )
            if not isinstance(payload, dict):
                raise InvalidRequest("the joined payload is not an object")
        except (InvalidRequest, ParseError) as error:
            fragment = envelope.fragment
            self._count_in_session(envelope.scope, envelope.sequence - fragment.index, fragment.total)
            self._refuse(envelope.scope, fragment.id, "invalid_request", error.message)
            return None
        return msgspec.structs.replace(
            envelope,
            message_id=envelope.fragment.id,
            sequence=joined.first_sequence,
            fragment=None,
            payload=payload,
        )

    def _dispatch(self, envelope: Envelope, numbers_used: int) -> list[Command]:
        scope, message_id = envelope.scope, envelope.message_id
        kind = envelope.type
        if kind == "ping":
            self._reply(scope, "pong", wire.PongPayload(message_id), message_id)
            return []
        if self._agents is not None and envelope.sequence == 1 and self._agents.is_resting(scope):
            self._agents.restart(scope)
        is_late = kind in auth.AUTH_AFTERTHOUGHTS and not self.auth.is_live(scope)
        if not is_late and (fault := self._inbound.check(scope, envelope.sequence)):
            self._refuse(scope, message_id, fault, f"sequence {envelope.sequence} is not the next one of its scope")
            return []
        if self._count_in_session(scope, envelope.sequence, numbers_used):
            numbers_used = 0
        if self.auth.is_live(scope):
            # A client may count what was refused, or use its number again: neither may end the login.
            self._inbound.allow(scope, envelope.sequence + numbers_used)
        payload_type = self._payload_type(kind, scope)
        if payload_type is None:
            has_no_tools = scope.kind == "server_id" and not self._serves_agents
            reason = "no tool endpoint is configured" if has_no_tools else f"unknown request type {kind!r}"
            self._refuse(scope, message_id, "not_implemented", reason)
            return []
        try:
            payload = wire.read_payload(envelope.payload, payload_type)
            return self._carry_out(envelope, payload, numbers_used)
        except msgspec.ValidationError as error:
            self._refuse(scope, message_id, "invalid_request", f"{kind}: {error}")
        except MakaiError as error:
            self._reply(scope, "nack", nack_of(message_id, error), message_id)
            self._forget_unless_live(scope)
        return []

    def _count_in_session(self, scope: Scope, first: int, numbers_used: int) -> bool:
        """Count a message of a session or tool server before it is known whether it is refused: the scope stays live
        after a nack, and the client has counted what it sent. False in other scopes, and for a number that is not the
        next one."""
        if not self._is_joined(scope) or self._inbound.check(scope, first):
            return False
        self._inbound.take(scope, numbers_used)
        return True

    def _payload_type(self, kind: str, scope: Scope) -> type[msgspec.Struct] | None:
        """What a request of this type carries; None when it is not answered here."""
        if kind in _TOOL_REQUESTS and self._serves_agents:
            from makai.protocols.makai.tool_payloads import TOOL_CLIENT_PAYLOADS

            return TOOL_CLIENT_PAYLOADS[kind]
        if scope.kind == "server_id" and kind != "goodbye":
            return None  # MK-TOOL-011
        if kind in _AGENT_REQUESTS and self._serves_agents:
            from makai.protocols.makai.agent_payloads import AGENT_CLIENT_PAYLOADS

            return AGENT_CLIENT_PAYLOADS[kind]
        return wire.CLIENT_PAYLOADS.get(kind) or auth.AUTH_CLIENT_PAYLOADS.get(kind)

    def _carry_out(self, envelope: Envelope, payload: Any, numbers_used: int) -> list[Command]:
        scope, message_id = envelope.scope, envelope.message_id
        if envelope.type in _AGENT_REQUESTS:
            return [*self.agents.receive(envelope, payload, numbers_used)]
        if envelope.type in _TOOL_REQUESTS:
            return [self.tools.receive(envelope, payload, numbers_used)]
        match payload:
            case wire.StreamRequest():
                return self._open(envelope, payload, numbers_used)
            case wire.AbortRequest():
                return self._abort(scope, message_id, payload)
            case ModelsRequest():
                return self._begin_listing(envelope, payload, numbers_used)
            case wire.Goodbye():
                return [EndConnection()]
            case auth.AuthProvidersRequest() | auth.AuthLoginStart():
                if not self._is_free(envelope, numbers_used, self.auth.running, self._limits.logins, "logins"):
                    return []
                return [self.auth.begin(envelope, payload, numbers_used)]
            case auth.AuthPromptResponse() | auth.AuthCancel():
                return [*self.auth.carry_on(envelope, payload, numbers_used)]
            case _:
                raise AssertionError("every type of CLIENT_PAYLOADS but ping is handled above")

    def _open(self, envelope: Envelope, payload: wire.StreamRequest, numbers_used: int) -> list[Command]:
        scope = envelope.scope
        if scope.kind != "stream_id":
            raise InvalidRequest(f"{envelope.type} belongs to a stream_id, not to a {scope.kind}")
        if not self._is_free(envelope, numbers_used, len(self._streams), self._limits.streams, "streams"):
            return []
        model = payload.model_ref or payload.model
        if model is None:
            raise InvalidRequest(f"{envelope.type} needs model_ref or model")
        command = OpenStream(
            stream_id=scope.id, model=model, context=context_of(payload), options=options_of(payload.options)
        )
        self._inbound.take(scope, numbers_used)
        self._sender.sequences.begin(scope)
        whole = isinstance(payload, wire.CompleteRequest)
        self._streams[scope.id] = _Request(scope, envelope.message_id, envelope.encoding, whole=whole)
        return [command]

    def _begin_listing(self, envelope: Envelope, payload: ModelsRequest, numbers_used: int) -> list[Command]:
        scope = envelope.scope
        if not self._is_free(envelope, numbers_used, len(self._listings), self._limits.listings, "model lists"):
            return []
        self._inbound.take(scope, numbers_used)
        self._sender.sequences.begin(scope)
        self._listings[scope] = _Request(scope, envelope.message_id, None, whole=True)
        return [ListModels(scope=scope, request=payload)]

    def _is_free(self, envelope: Envelope, numbers_used: int, running: int, limit: int, what: str) -> bool:
        """Whether a request may begin in its scope; it is refused otherwise. Raises `RateLimited`."""
        scope = envelope.scope
        if self._is_taken(scope):
            if not self.auth.is_live(scope):
                self._inbound.take(scope, numbers_used)
            reason = "this id is in use by a request that has not ended"
            self._refuse(scope, envelope.message_id, "stream_already_exists", reason)
            return False
        if running >= limit:
            raise RateLimited(f"at most {limit} {what} may run on one connection")
        return True

    def _abort(self, scope: Scope, message_id: str, payload: wire.AbortRequest) -> list[Command]:
        target_id = payload.target_stream_id
        if target_id not in self._streams:
            self._refuse(scope, message_id, "stream_not_found", "no stream of that id is running on this connection")
            return []
        self._ack(scope, message_id)
        self._forget_unless_live(scope)
        stream = self._streams[target_id]
        if not stream.accepted:
            self.accept(target_id)
            self.event(target_id, Start(AssistantMessage(content=())))
        aborted = Failed(
            reason="aborted",
            error_code="aborted",
            error_message=payload.reason or "aborted by the client",
            message=AssistantMessage(content=()),
        )
        self.event(target_id, aborted)
        return [CancelStream(target_id)]

    def _answer_problem(self, problem: Problem) -> None:
        if problem.message_id is None:
            self._sender.put(encode(HostError(code="unknown_envelope", message=problem.reason)))
            return
        # MK-ENV-019: "the nack using the `message_id` as `stream_id` when no scope id is readable"
        scope = problem.scope or Scope("stream_id", problem.message_id)
        if problem.sequence is not None:
            self._count_in_session(scope, problem.sequence, 1)
        self._refuse(scope, problem.message_id, problem.code, problem.reason)

    def _refuse(self, scope: Scope, message_id: str, code: str, reason: str) -> None:
        versions = ("1",) if code == "version_mismatch" else None
        nack = wire.Nack(rejected_id=message_id, reason=reason, error_code=code, supported_versions=versions)
        self._reply(scope, "nack", nack, message_id)
        self._forget_unless_live(scope)

    def _ack(self, scope: Scope, message_id: str) -> None:
        self._reply(scope, "ack", wire.Ack(message_id), message_id)

    def _reply(self, scope: Scope, kind: str, payload: Any, message_id: str) -> None:
        self._sender.send(scope, kind, payload, in_reply_to=message_id)

    def _is_taken(self, scope: Scope) -> bool:
        """Whether an active request leaves no place for another. A session has place for a model list."""
        if scope in self._listings or self.auth.is_live(scope):
            return True
        return scope.kind == "stream_id" and scope.id in self._streams

    def _end(self, scope: Scope) -> None:
        if scope.kind == "stream_id":
            self._streams.pop(scope.id, None)
        self._listings.pop(scope, None)
        self._forget_unless_live(scope)

    def _forget_unless_live(self, scope: Scope) -> None:
        if not (self._is_taken(scope) or self._is_joined(scope)):
            self._inbound.forget(scope)
            self._sender.sequences.forget(scope)

    def _is_joined(self, scope: Scope) -> bool:
        """Whether the scope is that of a session or tool server that this client has begun and not ended."""
        return any(part is not None and part.is_live(scope) for part in (self._agents, self._tools))
