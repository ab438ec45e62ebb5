"""Helpers for adapter tests: feed raw vendor bytes through a codec and look at the events.

`REFERENCE` is the one answer every adapter's recorded stream must become (MK-PROV-009).
"""

from __future__ import annotations

from collections.abc import Iterable

from makai.core import stream_events as ev
from makai.core.content import AssistantPart, Text, Thinking, ToolCall
from makai.core.errors import MakaiError, ProviderError
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import Context, StreamOptions
from makai.core.secret import Secret
from makai.core.stream_events import StreamEvent
from makai.core.usage import Usage
from makai.providers.base import Api, ProviderRequest
from makai.providers.parts import Parts

TIMESTAMP = 1_760_000_000_000
THINKING = "The user wants the weather in Paris."
TEXT = "Let me look that up."
TOOL_ID = "call_1"
TOOL_NAME = "get_weather"
TOOL_ARGUMENTS = '{"city":"Paris"}'

REFERENCE_KINDS = [
    "start",
    *("thinking_start", "thinking_delta", "thinking_end"),
    *("text_start", "text_delta", "text_end"),
    *("toolcall_start", "toolcall_delta", "toolcall_end"),
    "done",
]
"""The order of event kinds of the reference answer; runs of the same kind count once."""

REFERENCE_CONTENT: tuple[AssistantPart, ...] = (
    Thinking(thinking=THINKING),
    Text(text=TEXT),
    ToolCall(tool_call_id=TOOL_ID, name=TOOL_NAME, arguments_json=TOOL_ARGUMENTS),
)
"""Its final content, signatures and vendor-made ids aside (see `without_signatures`)."""

ALL_CAPABILITIES = tuple(ModelCapability)


def model(api: str, provider: str = "acme", **overrides: object) -> Model:
    fields: dict[str, object] = {
        "id": "test-model",
        "api": api,
        "provider": provider,
        "base_url": "http://127.0.0.1:9",
        "capabilities": ALL_CAPABILITIES,
        "max_output_tokens": 8192,
    }
    return Model(**{**fields, **overrides})  # type: ignore[arg-type]


def ask(
    target: Model,
    prompt: str = "Hi",
    *,
    context: Context | None = None,
    options: StreamOptions | None = None,
    secret: str | None = "test-key",
) -> ProviderRequest:
    return ProviderRequest(
        model=target,
        context=context or Context(messages=(UserMessage(content=prompt),)),
        options=options or StreamOptions(),
        secret=Secret(secret) if secret else None,
    )


def new_parts(target: Model) -> Parts:
    ids = iter(f"made_{number}" for number in range(1, 1000))
    return Parts(target, TIMESTAMP, lambda: next(ids))


def decode(api: Api, request: ProviderRequest, data: bytes, chunk: int | None = None) -> list[StreamEvent]:
    """The events of an answer, fed whole or in chunks of `chunk` bytes; a failure becomes the `error` event."""
    size = chunk or max(1, len(data))
    return decode_pieces(api, request, (data[at : at + size] for at in range(0, len(data), size)))


def decode_pieces(api: Api, request: ProviderRequest, pieces: Iterable[bytes]) -> list[StreamEvent]:
    parts = new_parts(request.model)
    parts.start()
    decoder = api.decoder(request, parts)
    try:
        for piece in pieces:
            decoder.feed(piece)
        decoder.close()
        if not parts.finished:
            raise ProviderError("ended before it was complete", provider_id=request.model.provider)
    except MakaiError as error:
        parts.fail(error)
    return parts.take()


def decode_whole(api: Api, request: ProviderRequest, body: bytes) -> list[StreamEvent]:
    parts = new_parts(request.model)
    parts.start()
    try:
        decoder = api.decoder(request, parts)
        decoder.whole(body)
        decoder.close()
    except MakaiError as error:
        parts.fail(error)
    return parts.take()


def kinds(events: list[StreamEvent]) -> list[str]:
    """Event kinds in order, runs of the same kind counted once, keep-alives left out."""
    names = [str(event.__struct_config__.tag) for event in events]
    names = [name for name in names if name != "keepalive"]
    return [name for position, name in enumerate(names) if position == 0 or names[position - 1] != name]


def without_signatures(content: tuple[AssistantPart, ...]) -> tuple[AssistantPart, ...]:
    """Content as every vendor must give it: no signatures, and the reference id for tool calls."""
    plain: list[AssistantPart] = []
    for part in content:
        match part:
            case Text():
                plain.append(Text(text=part.text))
            case Thinking():
                plain.append(Thinking(thinking=part.thinking))
            case ToolCall():
                plain.append(
                    ToolCall(
                        tool_call_id=TOOL_ID,
                        name=part.name,
                        arguments_json=part.arguments_json,
                        arguments_error=part.arguments_error,
                    )
                )
    return tuple(plain)


def done(events: list[StreamEvent]) -> AssistantMessage:
    last = events[-1]
    assert isinstance(last, ev.Done), last
    assert last.reason == last.message.stop_reason
    return last.message


def failed(events: list[StreamEvent]) -> ev.Failed:
    last = events[-1]
    assert isinstance(last, ev.Failed), last
    return last


def assert_reference(events: list[StreamEvent], usage: Usage) -> None:
    """The events are those of the reference answer (MK-PROV-009)."""
    message = done(events)
    assert kinds(events) == REFERENCE_KINDS
    assert without_signatures(message.content) == REFERENCE_CONTENT
    assert (message.usage, message.stop_reason) == (usage, "tool_use")


def assert_lawful(events: list[StreamEvent]) -> None:
    """`start` first, deltas only inside their block, indexes ascend, one terminal event and it is the last."""
    opened: dict[int, str] = {}
    newest = -1
    for event in events[1:-1]:
        match event:
            case ev.TextStart() | ev.ThinkingStart() | ev.ToolCallStart():
                assert event.content_index == newest + 1
                newest += 1
                opened[newest] = type(event).__name__.removesuffix("Start")
            case ev.TextDelta() | ev.ThinkingDelta() | ev.ToolCallDelta():
                assert opened[event.content_index] == type(event).__name__.removesuffix("Delta")
            case ev.TextEnd() | ev.ThinkingEnd() | ev.ToolCallEnd():
                assert opened.pop(event.content_index) == type(event).__name__.removesuffix("End")
            case _:
                assert isinstance(event, ev.Keepalive)
    assert isinstance(events[0], ev.Start)
    assert isinstance(events[-1], ev.Done | ev.Failed)
    assert not opened or isinstance(events[-1], ev.Failed)


def body_of(capture: bytes) -> bytes:
    """The body of a recorded HTTP answer (headers, blank line, body)."""
    for gap in (b"\r\n\r\n", b"\n\n"):
        head, found, body = capture.partition(gap)
        if found and head.startswith(b"HTTP/"):
            return body
    return capture
