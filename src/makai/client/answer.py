"""Replies to one model request -> the SDK's events and its `CompletionResponse`.

In: replies of a `stream_request` (proxy encoding) or a `complete_request`. Out: `ProviderStreamEvent`s, the response,
or the failure. Pure; it must not know how replies arrive. Stop reasons this version does not know are passed through
(document 000 §3: the set is open).
"""

from __future__ import annotations

from typing import Final

import msgspec

from makai.catalog.descriptors import ModelDescriptor
from makai.client.failures import ClientFailure, broken_protocol, stream_failure
from makai.client.types import (
    CompletionResponse,
    ErrorEvent,
    MessageEndEvent,
    MessageStartEvent,
    ProviderStreamEvent,
    TextDeltaEvent,
    ThinkingDeltaEvent,
    ToolCallEvent,
)
from makai.core.content import ContentPart
from makai.core.errors import MakaiAuthError, ParseError
from makai.core.stream_events import Start, StreamEvent, TextDelta, ThinkingDelta, ToolCallEnd
from makai.core.usage import Usage
from makai.protocols.makai.client import Reply
from makai.protocols.makai.payloads import ChatMessage, StartEvent, StreamError
from makai.protocols.makai.reconstruct import Reconstructor


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """The terminal `result`: whole for `complete_request`, without content in proxy encoding."""

    content: tuple[ContentPart, ...] | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    model: str = ""
    api: str = ""
    provider: str = ""
    timestamp: int = 0


_SAID_AGAIN_BY_THE_TERMINAL: Final = frozenset({"done", "error"})

_start = msgspec.json.Decoder(StartEvent).decode
_result = msgspec.json.Decoder(_Result).decode
_stream_error = msgspec.json.Decoder(StreamError).decode


class Answer:
    """One answer while it arrives. `known` is the model if this client has seen it listed."""

    def __init__(self, known: ModelDescriptor | None = None) -> None:
        self._known = known
        self._reconstructor = Reconstructor("", 0)
        self.response: CompletionResponse | None = None
        self.ended = False

    def read(self, reply: Reply) -> ProviderStreamEvent | None:
        """Take a reply; the event it is for the caller, if any. Raises the failures that are not events."""
        kind = reply.type
        if kind in _SAID_AGAIN_BY_THE_TERMINAL:
            return None
        try:
            if kind == "result":
                return self._end(_result(reply.payload))
            if kind == "stream_error":
                return self._fail(_stream_error(reply.payload))
            event = self._reconstructor.apply(kind, reply.payload)
            if isinstance(event, TextDelta):
                return TextDeltaEvent(event.delta)
            return self._start(reply) if isinstance(event, Start) else _event_of(event)
        except ParseError as error:
            raise broken_protocol(error.message) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise broken_protocol(f"a malformed {kind}: {error}") from error

    def _start(self, reply: Reply) -> MessageStartEvent:
        partial = _start(reply.payload).partial
        if partial is not None:
            return MessageStartEvent(provider_id=partial.provider, api=partial.api, model_id=partial.model)
        if self._known is not None:
            known = self._known
            return MessageStartEvent(provider_id=known.provider_id, api=known.api, model_id=known.model_id)
        return MessageStartEvent()

    def _end(self, result: _Result) -> MessageEndEvent:
        self.ended = True
        content = self._reconstructor.message.content if result.content is None else result.content
        message = ChatMessage(
            role="assistant",
            content=content,
            provider=result.provider,
            api=result.api,
            model=result.model,
            stop_reason=result.stop_reason,
            usage=result.usage,
            timestamp=result.timestamp,
        )
        self.response = CompletionResponse(
            message=message,
            usage=result.usage,
            provider_id=result.provider,
            api=result.api,
            model_id=result.model,
            stop_reason=result.stop_reason,
        )
        return MessageEndEvent(usage=result.usage, stop_reason=result.stop_reason)

    def _fail(self, error: StreamError) -> ErrorEvent:
        self.ended = True
        failure = stream_failure(error)
        if isinstance(failure, MakaiAuthError):
            # A needed login is the caller's turn to act: raised, with the provider's id (document 000 §3.6).
            raise failure
        return ErrorEvent(
            message=failure.message,
            code=failure.code,
            provider_id=failure.provider_id,
            retry_after_ms=failure.retry_after_ms,
            hint=failure.hint,
        )


def failure_in(reply: Reply) -> ClientFailure:
    """The exception a `stream_error` stands for."""
    try:
        return stream_failure(_stream_error(reply.payload))
    except (msgspec.DecodeError, ValueError) as error:
        return broken_protocol(f"a malformed stream_error: {error}")


def _event_of(event: StreamEvent | None) -> ProviderStreamEvent | None:
    match event:
        case ThinkingDelta():
            return ThinkingDeltaEvent(event.delta)
        case ToolCallEnd(tool_call=call):
            return ToolCallEvent(name=call.name, arguments_json=call.arguments_json, tool_call_id=call.tool_call_id)
        case _:
            return None  # block boundaries and keep-alives are not for callers
