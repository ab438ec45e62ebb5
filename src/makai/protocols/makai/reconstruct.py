"""Events of either encoding -> core stream events and the message so far, on the client side: equal to full encoding in
content (MK-PROV-024), and after the terminal event in every field (MK-PROV-025)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from makai.core import stream_events as ev
from makai.core.content import ToolCall
from makai.core.errors import ParseError
from makai.core.fold import MessageFold
from makai.core.messages import AssistantMessage, StopReason
from makai.core.usage import Usage
from makai.protocols.makai import payloads as wire


class _DoneFields(msgspec.Struct, frozen=True):
    """`done` of either encoding: full has the message, proxy has the usage."""

    reason: StopReason
    usage: Usage | None = None
    message: AssistantMessage | None = None


def _decoder(kind: type) -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(kind).decode


_delta = _decoder(wire.Delta)
_block_start = _decoder(wire.BlockStart)
_text_end = _decoder(wire.TextEndEvent)
_thinking_end = _decoder(wire.ThinkingEndEvent)
_tool_start = _decoder(wire.ToolCallStartEvent)
_tool_end = _decoder(wire.ProxyToolCallEnd)
_done = _decoder(_DoneFields)
_error = _decoder(wire.ErrorPayload)
_result = _decoder(wire.ProxyResult)
_whole = _decoder(AssistantMessage)


_keepalive = _decoder(ev.Keepalive)


def _noted(payload: bytes | msgspec.Raw) -> ev.Keepalive:
    """A sign of life whatever it holds: its note is an addition that another server may use otherwise."""
    try:
        return _keepalive(payload)  # type: ignore[no-any-return]
    except msgspec.DecodeError:
        return ev.Keepalive()


class Reconstructor:
    def __init__(self, model: str, timestamp: int) -> None:
        self._base = AssistantMessage(content=(), model=model, timestamp=timestamp)
        self._fold = MessageFold(self._base)
        self._calls: dict[int, wire.ToolCallStartEvent] = {}
        self._arguments: dict[int, list[str]] = {}
        self._final: AssistantMessage | None = None

    @property
    def message(self) -> AssistantMessage:
        return self._final or self._fold.message()

    def apply(self, kind: str, payload: bytes | msgspec.Raw) -> ev.StreamEvent | None:
        """Take one event. Returns it as a core event where it is one by itself (`done` and `error` are not: what they
        say is in `message`). An event of a later protocol version is ignored."""
        try:
            event = self._read(kind, payload)
        except (msgspec.DecodeError, ValueError) as error:
            raise ParseError(f"the server sent a malformed {kind} event: {error}") from error
        if event is not None:
            self._fold.apply(event)
        return event

    def result(self, payload: bytes | msgspec.Raw) -> AssistantMessage:
        """Take the terminal `result` of either encoding; the message is final."""
        try:
            if b'"content"' in bytes(payload):
                self._final = _whole(payload)
                return self._final
            result = _result(payload)
        except (msgspec.DecodeError, ValueError) as error:
            raise ParseError(f"the server sent a malformed result: {error}") from error
        self._final = AssistantMessage(
            content=self.message.content,
            **{name: getattr(result, name) for name in result.__struct_fields__ if name != "warnings"},
        )
        return self._final

    def _read(self, kind: str, payload: bytes | msgspec.Raw) -> ev.StreamEvent | None:
        match kind:
            case "text_delta":
                piece = _delta(payload)
                return ev.TextDelta(piece.content_index, piece.delta)
            case "thinking_delta":
                piece = _delta(payload)
                return ev.ThinkingDelta(piece.content_index, piece.delta)
            case "toolcall_delta":
                piece = _delta(payload)
                self._arguments.setdefault(piece.content_index, []).append(piece.delta)
                return ev.ToolCallDelta(piece.content_index, piece.delta)
            case "start":
                return ev.Start(self._base)
            case "keepalive":
                return _noted(payload)
            case "text_start":
                return ev.TextStart(_block_start(payload).content_index)
            case "thinking_start":
                return ev.ThinkingStart(_block_start(payload).content_index)
            case "text_end":
                text = _text_end(payload)
                return ev.TextEnd(text.content_index, text.content_signature)
            case "thinking_end":
                thinking = _thinking_end(payload)
                return ev.ThinkingEnd(thinking.content_index, thinking.thinking_signature, thinking.redacted)
            case "toolcall_start":
                call = _tool_start(payload)
                self._calls[call.content_index] = call
                self._arguments[call.content_index] = []
                return ev.ToolCallStart(call.content_index, call.id, call.name)
            case "toolcall_end":
                return self._tool_end(payload)
            case "done":
                done = _done(payload)
                self._final = done.message or self._fold.finish(done.reason, done.usage or Usage())
            case "error":  # MK-PROV-027: keep the content, replace usage only when the event carries it.
                error = _error(payload)
                reason: StopReason = "aborted" if error.reason == "aborted" else "error"
                self._final = self._fold.finish(reason, error.usage or Usage(), error_message=error.error_message)
        return None

    def _tool_end(self, payload: bytes | msgspec.Raw) -> ev.StreamEvent | None:
        end = _tool_end(payload)
        start = self._calls.pop(end.content_index, None)
        if start is None:
            return None
        extras = end.tool_call
        call = ToolCall(
            tool_call_id=start.id,
            name=start.name,
            arguments_json="".join(self._arguments.pop(end.content_index)),
            thought_signature=extras.thought_signature if extras else None,
            arguments_error=extras.arguments_error if extras else None,
        )
        return ev.ToolCallEnd(end.content_index, call)
