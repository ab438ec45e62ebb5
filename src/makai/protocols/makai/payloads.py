"""Every payload of the provider side of the protocol, the source of `schema/makai`. What does not apply is left out."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from makai.catalog.models import ModelsRequest, ModelsResponse
from makai.core.content import ContentPart, ToolCall
from makai.core.messages import AssistantMessage, StopReason
from makai.core.model import Model
from makai.core.request import RequestOptions, ToolDefinition
from makai.core.usage import Usage

StructT = TypeVar("StructT", bound=msgspec.Struct)


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of every payload."""


def read_payload(value: Any, kind: type[StructT]) -> StructT:
    """A payload from plain JSON. An optional field that is null counts as absent. Raises
    `msgspec.ValidationError`."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(value), kind, strict=True)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


class ChatMessage(Payload, frozen=True, kw_only=True):
    """The last six fields are additions: an assistant message that carries who made it can be sent back to
    the same model with its signatures."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[ContentPart, ...]
    name: str | None = None
    tool_call_id: str | None = None
    provider: str = ""
    api: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: Usage | None = None
    timestamp: int = 0


class RequestContext(Payload, frozen=True, kw_only=True):
    messages: tuple[ChatMessage, ...]
    system_prompt: str | None = None
    tools: tuple[ToolDefinition, ...] = ()


class StreamRequest(Payload, frozen=True, kw_only=True):
    """Ask for an answer as it arrives. One of `model_ref` and `model` names the model."""

    context: RequestContext
    model_ref: str | None = None
    model: Model | None = None
    options: RequestOptions = RequestOptions()


class CompleteRequest(StreamRequest, frozen=True, kw_only=True):
    """Ask for a whole answer."""


class AbortRequest(Payload, frozen=True):
    target_stream_id: str
    reason: str | None = None


class PingPayload(Payload, frozen=True):
    pass


class Goodbye(Payload, frozen=True):
    reason: str | None = None


class Ack(Payload, frozen=True):
    acknowledged_id: str
    provider_id: str | None = None
    """With the two below the model that answers, for proxy encoding, whose `start` is empty (MK-SDK-024)."""
    api: str | None = None
    model_id: str | None = None


class Nack(Payload, frozen=True, kw_only=True):
    rejected_id: str
    reason: str
    error_code: str | None = None
    supported_versions: tuple[str, ...] | None = None
    provider_id: str | None = None
    retry_after_ms: int | None = None
    hint: str | None = None


class PongPayload(Payload, frozen=True):
    ping_id: str


class StreamError(Payload, frozen=True, kw_only=True):
    error_code: str
    error_message: str
    retry_after_ms: int | None = None
    usage: Usage | None = None
    provider_id: str | None = None
    hint: str | None = None


class ErrorPayload(Payload, frozen=True, kw_only=True):
    reason: Literal["aborted", "error"]
    error_message: str | None = None
    error_code: str | None = None
    usage: Usage | None = None


class StartEvent(Payload, frozen=True):
    partial: AssistantMessage | None = None


class BlockStart(Payload, frozen=True):
    content_index: int
    partial: AssistantMessage | None = None


class Delta(Payload, frozen=True):
    content_index: int
    delta: str
    partial: AssistantMessage | None = None


class TextEndEvent(Payload, frozen=True):
    content_index: int
    content_signature: str | None = None
    partial: AssistantMessage | None = None


class ThinkingEndEvent(Payload, frozen=True):
    content_index: int
    thinking_signature: str | None = None
    redacted: bool = False
    partial: AssistantMessage | None = None


class ToolCallStartEvent(Payload, frozen=True):
    content_index: int
    id: str
    name: str
    partial: AssistantMessage | None = None


class ToolCallExtras(Payload, frozen=True, kw_only=True):
    """What the deltas of a tool call did not carry (MK-PROV-022)."""

    thought_signature: str | None = None
    arguments_error: str | None = None


class ToolCallEndEvent(Payload, frozen=True):
    """Full encoding: the whole call. Proxy encoding: only what is missing, or nothing."""

    content_index: int
    tool_call: ToolCall | None = None
    partial: AssistantMessage | None = None


class ProxyToolCallEnd(Payload, frozen=True):
    content_index: int
    tool_call: ToolCallExtras | None = None


class KeepaliveEvent(Payload, frozen=True):
    """All fields but the first are additions. With a `note` it tells the user something: which options of the request
    the vendor does not take (`option_ignored`), or why makai waits before it asks again."""

    partial: AssistantMessage | None = None
    code: str = ""
    note: str = ""
    level: Literal["info", "warning"] = "info"


class DoneEvent(Payload, frozen=True):
    reason: StopReason
    message: AssistantMessage


class ProxyDone(Payload, frozen=True):
    reason: StopReason
    usage: Usage


class WholeResult(AssistantMessage, frozen=True, kw_only=True, omit_defaults=True, tag_field="role", tag="assistant"):
    """`warnings` is an addition: what the user should know about this answer, such as which options of the request
    the vendor does not take."""

    warnings: tuple[str, ...] = ()


class ProxyResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    stop_reason: StopReason
    usage: Usage
    model: str
    api: str
    provider: str
    timestamp: int
    response_id: str | None = None
    warnings: tuple[str, ...] = ()


CLIENT_PAYLOADS: dict[str, type[msgspec.Struct]] = {
    "ping": PingPayload,
    "goodbye": Goodbye,
    "models_request": ModelsRequest,
    "stream_request": StreamRequest,
    "complete_request": CompleteRequest,
    "abort_request": AbortRequest,
}
"""What a client may send, by envelope type."""

ResultPayload: TypeAlias = WholeResult | ProxyResult

SERVER_PAYLOADS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "ack": (Ack,),
    "nack": (Nack,),
    "pong": (PongPayload,),
    "goodbye": (Goodbye,),
    "models_response": (ModelsResponse,),
    "start": (StartEvent,),
    "text_start": (BlockStart,),
    "text_delta": (Delta,),
    "text_end": (TextEndEvent,),
    "thinking_start": (BlockStart,),
    "thinking_delta": (Delta,),
    "thinking_end": (ThinkingEndEvent,),
    "toolcall_start": (ToolCallStartEvent,),
    "toolcall_delta": (Delta,),
    "toolcall_end": (ToolCallEndEvent, ProxyToolCallEnd),
    "keepalive": (KeepaliveEvent,),
    "done": (DoneEvent, ProxyDone),
    "error": (ErrorPayload,),
    "result": (WholeResult, ProxyResult),
    "stream_error": (StreamError,),
}
"""What a server may send, by envelope type: in full encoding, and in proxy encoding where that differs."""
