from typing import Any

import pytest
from hypothesis import given
from support.answers import Push, answers, endings, perform, pushes
from support.profiles import examples
from support.streams import TIMESTAMP, assert_lawful, done, model, new_parts

from makai.core import stream_events as ev
from makai.core.content import AssistantPart, Text, Thinking, ToolCall
from makai.core.errors import RateLimited
from makai.core.messages import AssistantMessage
from makai.core.usage import Price, Usage
from makai.providers.parts import Parts


@pytest.fixture
def parts() -> Parts:
    return new_parts(model("x"))


def message(*content: AssistantPart, **fields: Any) -> AssistantMessage:
    who = {"provider": "acme", "api": "x", "model": "test-model", "timestamp": TIMESTAMP}
    return AssistantMessage(content=content, **{**who, **fields})


@pytest.mark.req("MK-PROV-011", "MK-PROV-012", "MK-PROV-013")
@given(events=answers)
@examples(500)
def test_whatever_a_vendor_sends_the_events_keep_the_law(events: list[ev.StreamEvent]) -> None:
    assert_lawful(events)


@pytest.mark.proof("S4")
@given(steps=pushes, ending=endings)
@examples(100)
def test_nothing_follows_the_terminal_event(steps: list[Push], ending: Push) -> None:
    parts = new_parts(model("x"))
    perform(parts, steps, ending)
    parts.take()
    for step in [*steps, ending]:
        step(parts)
    assert all(type(event).__name__ == "Keepalive" for event in parts.take())


@pytest.mark.req("MK-PROV-026")
@pytest.mark.parametrize("size", range(1, 30))
def test_arguments_cut_anywhere_come_out_as_they_were_written(parts: Parts, size: int) -> None:
    written = '{"path":"a\\u00e9\\n\\"b\\"","deep":{"k":[1,2.50,null]}, "é": "☂"}'
    parts.tool(0, "call_9", "write")
    for at in range(0, len(written), size):
        parts.arguments(0, written[at : at + size])
    parts.done("tool_use")
    assert done(parts.take()).content == (ToolCall(tool_call_id="call_9", name="write", arguments_json=written),)


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", "nonsense", '{"a":NaN}', "{}{}", '"text"', "[" * 5000])
def test_malformed_arguments_are_kept_and_marked_never_replaced(parts: Parts, arguments: str) -> None:
    parts.tool(0, "c", "t")
    parts.arguments(0, arguments)
    parts.done("tool_use")
    (call,) = done(parts.take()).tool_calls()
    assert call.arguments_json == arguments
    assert call.arguments_error is not None


def test_a_lone_surrogate_in_arguments_is_named_to_the_model(parts: Parts) -> None:
    parts.tool(0, "c", "t")
    parts.arguments(0, '{"a": "q\\ud800e"}')
    parts.done("tool_use")
    (call,) = done(parts.take()).tool_calls()

    assert call.arguments_error == (
        "the model wrote arguments that are not a JSON object: a string has a lone surrogate "
        "(one of \\ud800 to \\udfff without its other half)"
    )


@pytest.mark.req("MK-PROV-012")
def test_a_tool_without_parameters_gets_an_empty_object_that_is_also_a_delta(parts: Parts) -> None:
    parts.tool(0, "c", "t")
    parts.end(0)
    assert parts.take() == [
        ev.ToolCallStart(0, "c", "t"),
        ev.ToolCallDelta(0, "{}"),
        ev.ToolCallEnd(0, ToolCall(tool_call_id="c", name="t", arguments_json="{}")),
    ]


@pytest.mark.req("MK-PROV-012")
def test_a_call_without_an_id_gets_one(parts: Parts) -> None:
    parts.tool(0, None, "t")
    assert parts.take() == [ev.ToolCallStart(0, "made_1", "t")]


@pytest.mark.req("MK-PROV-013")
def test_blocks_that_end_in_another_order_stand_in_the_order_of_their_index(parts: Parts) -> None:
    parts.text("first", "a")
    parts.thinking("second", "b")
    parts.tool("third", "c", "t")
    for key in ("third", "second", "first"):
        parts.end(key)
    parts.done("end_turn")
    assert [type(part) for part in done(parts.take()).content] == [Text, Thinking, ToolCall]


def test_stop_after_a_tool_call_means_tool_use(parts: Parts) -> None:
    parts.tool(0, "c", "t")
    parts.done("end_turn")
    assert done(parts.take()).stop_reason == "tool_use"


def test_a_redacted_thought_keeps_its_signature(parts: Parts) -> None:
    parts.open_thinking(0)
    parts.sign(0, "opaque")
    parts.end(0, redacted=True)
    parts.text(1, "Hi")
    parts.done("end_turn")
    assert done(parts.take()).content == (
        Thinking(thinking="", thinking_signature="opaque", redacted=True),
        Text(text="Hi"),
    )


def test_the_cost_is_in_the_final_message() -> None:
    parts = new_parts(model("x", price=Price(input=2, output=10)))
    parts.usage = Usage(input=500_000, output=100_000)
    parts.done("end_turn", response_id="resp_7")
    usage = Usage(input=500_000, output=100_000, cost_usd=2.0)
    assert parts.take() == [ev.Done("end_turn", message(stop_reason="end_turn", response_id="resp_7", usage=usage))]


def test_a_failure_keeps_what_had_arrived_and_says_how_long_to_wait(parts: Parts) -> None:
    parts.text(0, "Hel")
    parts.take()
    parts.fail(RateLimited("too fast", provider_id="acme", retry_after_ms=2000, hint="Wait."))
    assert parts.take() == [
        ev.Failed(
            reason="error",
            error_code="rate_limited",
            error_message="too fast",
            message=message(Text(text="Hel"), stop_reason="error", error_message="too fast"),
            retry_after_ms=2000,
            provider_id="acme",
            hint="Wait.",
        )
    ]
