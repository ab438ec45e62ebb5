"""The checked-in schema is what the types say, and describes what we send."""

from __future__ import annotations

import jsonschema_rs
import msgspec
import pytest

from makai.core.content import Text, Thinking, ToolCall
from makai.core.messages import AssistantMessage
from makai.core.stream_events import Done, Failed, Keepalive, Start, StreamEvent, TextDelta, ToolCallEnd
from tools.schema import SCHEMA_DIRECTORY, SCHEMAS, events_schema, render

CALL = ToolCall(tool_call_id="call_1", name="read_file", arguments_json='{"path":"a"}')
MESSAGE = AssistantMessage(content=(Thinking(thinking="hm", thinking_signature="s"), Text(text="hi"), CALL))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_checked_in_schema_equals_the_types(name: str) -> None:
    checked_in = (SCHEMA_DIRECTORY / name).read_text(encoding="utf-8")
    assert checked_in == render(SCHEMAS[name]()), "run `make schema` and review the change"


@pytest.mark.parametrize(
    "event",
    [
        Start(AssistantMessage(content=())),
        TextDelta(0, "hi"),
        ToolCallEnd(2, CALL),
        Done("tool_use", MESSAGE),
        Failed("error", "rate_limited", "slow down", MESSAGE, retry_after_ms=1000),
        Keepalive(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_as_we_send_it_is_valid(event: StreamEvent) -> None:
    jsonschema_rs.validate(events_schema(), msgspec.json.decode(msgspec.json.encode(event)))


def test_an_event_without_its_index_is_not_valid() -> None:
    assert not jsonschema_rs.is_valid(events_schema(), {"type": "text_delta", "delta": "hi"})
