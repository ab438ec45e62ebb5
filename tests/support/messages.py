"""Short ways to write the messages and stream events that tests compare whole."""

from __future__ import annotations

from typing import Any

from makai.core import stream_events as ev
from makai.core.content import AssistantPart, Image, Text, ToolCall, ToolResult
from makai.core.messages import AssistantMessage, ToolMessage
from makai.core.model import Model
from makai.core.request import StreamOptions

EVERY_OPTION = StreamOptions(
    temperature=0.5,
    top_p=0.9,
    max_tokens=100,
    stop=("END",),
    reasoning_effort="high",
    json_schema='{"type":"object"}',
    session_id="s",
    metadata={"k": "v"},
)
"""Every option of a request but the choice of a tool."""


def said_by(target: Model, *content: AssistantPart, **fields: Any) -> AssistantMessage:
    """An answer of this model."""
    return AssistantMessage(content=content, provider=target.provider, api=target.api, model=target.id, **fields)


def call(call_id: str, name: str, arguments_json: str = "{}", **fields: Any) -> ToolCall:
    return ToolCall(tool_call_id=call_id, name=name, arguments_json=arguments_json, **fields)


def result(call_id: str, name: str, content: str | tuple[Text | Image, ...], *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(result=ToolResult(tool_call_id=call_id, tool_name=name, content=content, is_error=is_error))


def text_block(index: int, *deltas: str, signature: str | None = None) -> list[ev.StreamEvent]:
    """The events of a text that arrives in these pieces."""
    pieces = [ev.TextDelta(index, delta) for delta in deltas]
    return [ev.TextStart(index), *pieces, ev.TextEnd(index, signature, "".join(deltas))]


def thinking_block(
    index: int, *deltas: str, signature: str | None = None, redacted: bool = False
) -> list[ev.StreamEvent]:
    pieces = [ev.ThinkingDelta(index, delta) for delta in deltas]
    return [ev.ThinkingStart(index), *pieces, ev.ThinkingEnd(index, signature, redacted, "".join(deltas))]


def call_block(index: int, made: ToolCall, *deltas: str) -> list[ev.StreamEvent]:
    """The events of a call whose arguments arrive in these pieces, or at once."""
    pieces = [ev.ToolCallDelta(index, delta) for delta in deltas or (made.arguments_json,)]
    return [ev.ToolCallStart(index, made.tool_call_id, made.name), *pieces, ev.ToolCallEnd(index, made)]
