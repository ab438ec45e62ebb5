"""Stream events -> (envelope type, payload). The encoding `full` carries the message so far on every event, `proxy`
never repeats content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, assert_never

import msgspec

from makai.core import stream_events as ev
from makai.core.content import ToolCall
from makai.core.errors import MakaiError
from makai.core.fold import MessageFold
from makai.core.messages import AssistantMessage
from makai.protocols.makai import payloads as wire

Projected: TypeAlias = tuple[str, Any]

MAX_PARTIAL_CHARS = 1024 * 1024
"""`partial` is left out once the message exceeds this: it would be sent again with every delta."""


class FullProjection:
    def __init__(self) -> None:
        self._fold = MessageFold(AssistantMessage(content=()))
        self._size = 0

    def project(self, event: ev.StreamEvent) -> Projected:
        self._fold.apply(event)
        if isinstance(event, ev.TextDelta | ev.ThinkingDelta | ev.ToolCallDelta):
            self._size += len(event.delta)
        partial = self._fold.message() if self._size <= MAX_PARTIAL_CHARS else None
        match event:
            case ev.Start():
                return "start", wire.StartEvent(partial)
            case ev.ToolCallEnd():
                return "toolcall_end", wire.ToolCallEndEvent(event.content_index, event.tool_call, partial)
            case ev.Done():
                return "done", wire.DoneEvent(event.reason, event.message)
            case _:
                return _common(event, partial)


class ProxyProjection:
    def project(self, event: ev.StreamEvent) -> Projected:
        match event:
            case ev.TextDelta():
                return "text_delta", wire.Delta(event.content_index, event.delta)
            case ev.Start():
                return "start", wire.StartEvent()
            case ev.ToolCallEnd():
                return "toolcall_end", wire.ProxyToolCallEnd(event.content_index, _extras(event.tool_call))
            case ev.Done():
                return "done", wire.ProxyDone(event.reason, event.message.usage)
            case _:
                return _common(event, None)


def _common(event: ev.StreamEvent, partial: AssistantMessage | None) -> Projected:
    """What both encodings say alike but for `partial`."""
    match event:
        case ev.TextDelta():
            return "text_delta", wire.Delta(event.content_index, event.delta, partial)
        case ev.ThinkingDelta():
            return "thinking_delta", wire.Delta(event.content_index, event.delta, partial)
        case ev.ToolCallDelta():
            return "toolcall_delta", wire.Delta(event.content_index, event.delta, partial)
        case ev.TextStart():
            return "text_start", wire.BlockStart(event.content_index, partial)
        case ev.ThinkingStart():
            return "thinking_start", wire.BlockStart(event.content_index, partial)
        case ev.ToolCallStart():
            return "toolcall_start", wire.ToolCallStartEvent(event.content_index, event.id, event.name, partial)
        case ev.TextEnd():
            return "text_end", wire.TextEndEvent(event.content_index, event.content_signature, partial)
        case ev.ThinkingEnd():
            ended = wire.ThinkingEndEvent(event.content_index, event.thinking_signature, event.redacted, partial)
            return "thinking_end", ended
        case ev.Keepalive():
            return "keepalive", wire.KeepaliveEvent(partial, event.code, event.note, event.level)
        case ev.Failed():
            code = wire_code(event.error_code)
            failure = msgspec.convert(event, wire.ErrorPayload, from_attributes=True)
            return "error", msgspec.structs.replace(failure, error_code=code)
        case ev.Start() | ev.Done() | ev.ToolCallEnd():
            raise AssertionError("projected by the encoding itself")
        case _:
            assert_never(event)


def _extras(call: ToolCall) -> wire.ToolCallExtras | None:
    extras = wire.ToolCallExtras(thought_signature=call.thought_signature, arguments_error=call.arguments_error)
    return None if extras == wire.ToolCallExtras() else extras


def failed(error: MakaiError) -> ev.Failed:
    """The terminal event of an accepted stream whose provider raised."""
    return ev.Failed(
        reason="error",
        error_code=error.code,
        error_message=error.message,
        message=AssistantMessage(content=()),
        hint=error.hint,
    )


def stream_error(event: ev.Failed) -> wire.StreamError:
    error = msgspec.convert(event, wire.StreamError, from_attributes=True)
    return msgspec.structs.replace(error, error_code=wire_code(event.error_code))


def proxy_result(message: AssistantMessage, warnings: Sequence[str]) -> wire.ProxyResult:
    whole = msgspec.structs.replace(message, stop_reason=message.stop_reason or "end_turn")
    result = msgspec.convert(whole, wire.ProxyResult, from_attributes=True)
    return msgspec.structs.replace(result, warnings=tuple(warnings))


def whole_result(message: AssistantMessage, warnings: Sequence[str]) -> wire.WholeResult:
    return wire.WholeResult(**msgspec.structs.asdict(message), warnings=tuple(warnings))


def nack_of(rejected_id: str, error: MakaiError) -> wire.Nack:
    return wire.Nack(
        rejected_id=rejected_id,
        reason=error.message,
        error_code=wire_code(error.code),
        provider_id=getattr(error, "provider_id", None),
        retry_after_ms=getattr(error, "retry_after_ms", None),
        hint=error.hint,
    )


_WIRE_CODES = {
    "parse_error": "invalid_request",
    "BUSY": "agent_busy",
    "UNKNOWN_SESSION": "session_not_found",
    "SESSION_EXISTS": "session_already_exists",
    "SESSION_CLOSED": "session_closed",
    "UNKNOWN_CALL_ID": "tool_call_not_found",
    "APPROVAL_CONFLICT": "permission_conflict",
    "BAD_ARGUMENT": "invalid_request",
    "INVALID_COMMAND": "invalid_request",
    "NOT_RUNNING": "invalid_request",
    "STALE_RUN_ID": "invalid_request",
    "INPUT_NOT_WAITING": "invalid_request",
}


def wire_code(code: str) -> str:
    """Our code in this protocol's list: what cannot be parsed is an invalid request here, and refusals of
    sessions have their own names."""
    return _WIRE_CODES.get(code, code)
