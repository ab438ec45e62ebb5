"""Events as JSON: flat, closed, exact, and back."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core.errors import InvalidRequest, MissingEventKind, ParseError, UnknownEventKind
from makai.harness import (
    AssistantTextEvent,
    CostData,
    ErrorEvent,
    Event,
    EventKind,
    InitEvent,
    ResultEvent,
    SystemEvent,
    ToolCategory,
    ToolProgressEvent,
    ToolResultEvent,
    ToolUseEvent,
    decode_event,
    encode_event,
    is_terminal,
)

KINDS = ["init", "system", "assistant_text", "tool_use", "tool_result", "tool_progress", "result", "error"]
FULL: dict[str, tuple[Event, dict[str, Any]]] = {
    "init": (InitEvent(session_id="s-1", raw={"a": 1}), {"sessionId": "s-1", "raw": {"a": 1}}),
    "system": (
        SystemEvent(subtype="compaction", message="done", raw=[]),
        {"subtype": "compaction", "message": "done", "raw": []},
    ),
    "assistant_text": (AssistantTextEvent(text="hello", raw="x"), {"text": "hello", "raw": "x"}),
    "tool_use": (
        ToolUseEvent(tool_name="Bash", tool_use_id="t1", input={"command": "ls"}, tool_category="shell", raw=0),
        {"toolName": "Bash", "toolUseId": "t1", "input": {"command": "ls"}, "toolCategory": "shell", "raw": 0},
    ),
    "tool_result": (
        ToolResultEvent(tool_name="Bash", tool_use_id="t1", content="a", is_error=True, raw=False),
        {"toolName": "Bash", "toolUseId": "t1", "content": "a", "isError": True, "raw": False},
    ),
    "tool_progress": (
        ToolProgressEvent(tool_name="Bash", elapsed_seconds=1.5, raw={}),
        {"toolName": "Bash", "elapsedSeconds": 1.5, "raw": {}},
    ),
    "result": (
        ResultEvent(
            success=True,
            message="ok",
            errors=("a", "b"),
            error_subtype="error_max_turns",
            cost=CostData(input_tokens=1, output_tokens=2, cached_input_tokens=3, total_cost_usd=0.5, num_turns=4),
            raw={"n": None},
        ),
        {
            "success": True,
            "message": "ok",
            "errors": ["a", "b"],
            "errorSubtype": "error_max_turns",
            "cost": {"inputTokens": 1, "outputTokens": 2, "cachedInputTokens": 3, "totalCostUsd": 0.5, "numTurns": 4},
            "raw": {"n": None},
        },
    ),
    "error": (
        ErrorEvent(message="gone", code="spawn_no_result", raw=1),
        {"message": "gone", "code": "spawn_no_result", "raw": 1},
    ),
}
EMPTY: dict[str, tuple[Event, dict[str, Any]]] = {
    "init": (InitEvent(session_id=""), {"sessionId": ""}),
    "system": (SystemEvent(subtype=""), {"subtype": ""}),
    "assistant_text": (AssistantTextEvent(text=""), {"text": ""}),
    "tool_use": (ToolUseEvent(tool_name=""), {"toolName": "", "input": {}}),
    "tool_result": (ToolResultEvent(), {"content": "", "isError": False}),
    "tool_progress": (ToolProgressEvent(tool_name=""), {"toolName": "", "elapsedSeconds": 0.0}),
    "result": (ResultEvent(success=False), {"success": False}),
    "error": (ErrorEvent(message=""), {"message": ""}),
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
COUNTS = st.integers(min_value=0, max_value=2**80)
COSTS = st.builds(
    CostData,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cached_input_tokens=COUNTS,
    total_cost_usd=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    num_turns=COUNTS,
)
RAW = {"raw": JSON_VALUES}
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(InitEvent, session_id=st.text(), **RAW),
    st.builds(SystemEvent, subtype=st.text(), message=st.text(), **RAW),
    st.builds(AssistantTextEvent, text=st.text(), **RAW),
    st.builds(
        ToolUseEvent,
        tool_name=st.text(),
        tool_use_id=st.text(),
        input=st.dictionaries(st.text(), JSON_VALUES, max_size=3),
        tool_category=st.none() | st.sampled_from(get_args(ToolCategory)),
        **RAW,
    ),
    st.builds(
        *(ToolResultEvent,),
        tool_name=st.text(),
        tool_use_id=st.text(),
        content=st.text(),
        is_error=st.booleans(),
        **RAW,
    ),
    st.builds(
        ToolProgressEvent,
        tool_name=st.text(),
        elapsed_seconds=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
        **RAW,
    ),
    st.builds(
        ResultEvent,
        success=st.booleans(),
        message=st.text(),
        errors=st.lists(st.text(), max_size=3).map(tuple),
        error_subtype=st.text(),
        cost=st.none() | COSTS,
        **RAW,
    ),
    st.builds(ErrorEvent, message=st.text(), code=st.text(), **RAW),
)


@pytest.mark.req("DM-EVT-001")
def test_there_are_exactly_eight_kinds_and_each_has_one_class() -> None:
    assert list(get_args(EventKind)) == KINDS
    assert [event.kind for event, _ in FULL.values()] == KINDS
    assert [type(event) for event, _ in FULL.values()] == list(get_args(Event))


@pytest.mark.req("DM-EVT-002", "DM-EVT-005", "DM-EVT-006", "DM-EVT-007", "DM-EVT-008", "DM-EVT-009")
@pytest.mark.parametrize("kind", KINDS)
def test_an_event_is_one_flat_object_with_its_kind_and_camel_case_fields(kind: str) -> None:
    event, fields = FULL[kind]

    assert json.loads(encode_event(event)) == {"kind": kind, **fields}
    assert decode_event(json.dumps({**fields, "kind": kind})) == event


def test_a_line_begins_with_the_kind_and_ends_with_the_opaque_part() -> None:
    event = ToolUseEvent(raw={"x": [1]}, input={"a": "é"}, tool_name="Bash")

    assert encode_event(event).decode() == '{"kind":"tool_use","toolName":"Bash","input":{"a":"é"},"raw":{"x":[1]}}'


@pytest.mark.req("DM-EVT-005", "DM-EVT-006", "DM-EVT-007", "DM-EVT-008", "DM-EVT-009", "DM-EVT-010", "DM-EVT-011")
@pytest.mark.parametrize("kind", KINDS)
def test_empty_optional_fields_are_left_out_and_required_ones_are_present(kind: str) -> None:
    event, fields = EMPTY[kind]

    assert json.loads(encode_event(event)) == {"kind": kind, **fields}
    assert decode_event(encode_event(event)) == event


@pytest.mark.req("DM-EVT-010")
def test_zero_costs_are_left_out_of_the_cost() -> None:
    event = ResultEvent(success=True, cost=CostData(output_tokens=7))

    assert json.loads(encode_event(event)) == {"kind": "result", "success": True, "cost": {"outputTokens": 7}}
    for cost in (CostData(), CostData(total_cost_usd=float("0"), input_tokens=int("0"))):
        assert json.loads(encode_event(ResultEvent(success=True, cost=cost)))["cost"] == {}


@pytest.mark.req("DM-EVT-006")
def test_the_categories_of_tools_are_exactly_these() -> None:
    assert get_args(ToolCategory) == ("filesystem", "shell", "network", "linear", "code-intel")
    with pytest.raises(ParseError, match="toolCategory"):
        decode_event('{"kind":"tool_use","toolName":"a","toolCategory":"magic"}')


@pytest.mark.req("DM-EVT-002")
@given(event=EVENTS)
def test_an_event_survives_the_way_through_json(event: Event) -> None:
    text = encode_event(event)

    assert decode_event(text) == event
    assert type(decode_event(text)) is type(event)
    assert b"\n" not in text


@pytest.mark.req("DM-EVT-002")
@pytest.mark.parametrize("number", [2**53 + 1, -(2**63) - 1, 2**64, 2**200 + 1])
def test_integers_of_any_size_keep_every_digit(number: int) -> None:
    event = ToolUseEvent(tool_name="x", input={"n": number}, raw={"id": [number]})

    assert decode_event(encode_event(event)) == event
    assert encode_event(event).count(str(number).encode()) == 2


@pytest.mark.req("DM-EVT-003")
@pytest.mark.parametrize("text", ["{}", '{"kind":""}', '{"kind":null}', '{"text":"x"}'])
def test_an_event_without_a_kind_is_refused_as_such(text: str) -> None:
    with pytest.raises(MissingEventKind, match="has no kind"):
        decode_event(text)


@pytest.mark.req("DM-EVT-003")
@pytest.mark.parametrize(
    ("text", "kind"), [('{"kind":"llm_call"}', "llm_call"), ('{"kind":7}', "7"), ('{"kind":[]}', "[]")]
)
def test_an_unknown_kind_is_refused_by_its_name(text: str, kind: str) -> None:
    with pytest.raises(UnknownEventKind) as refusal:
        decode_event(text)

    assert refusal.value.kind == kind
    assert repr(kind) in refusal.value.message


@pytest.mark.req("DM-EVT-003")
def test_the_message_about_an_unknown_kind_is_bounded() -> None:
    with pytest.raises(UnknownEventKind) as refusal:
        decode_event(json.dumps({"kind": "x" * 1_000_000}))

    assert len(refusal.value.message) < 200


@pytest.mark.req("DM-EVT-003")
def test_missing_and_unknown_kinds_are_different_errors() -> None:
    assert not issubclass(UnknownEventKind, MissingEventKind)
    assert not issubclass(MissingEventKind, UnknownEventKind)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "[]", "3", "null", '"init"', b"\xff", '{"kind":"init"'),
        *('{"kind":"init"}', '{"kind":"init","sessionId":3}', '{"kind":"tool_result","isError":"no"}'),
        *('{"kind":"result"}', '{"kind":"tool_use","toolName":"a","toolCategory":"magic"}', "[" * 100_000),
    ],
)
def test_what_is_no_event_is_a_parse_error(text: str | bytes) -> None:
    with pytest.raises(ParseError):
        decode_event(text)


def test_unknown_fields_are_ignored_and_null_means_unset() -> None:
    text = '{"kind":"tool_use","toolName":"a","input":null,"toolUseId":null,"raw":null,"parentToolUseId":"p"}'

    assert decode_event(text) == ToolUseEvent(tool_name="a")


@pytest.mark.req("DM-EVT-004")
def test_classes_from_elsewhere_are_refused_even_with_a_kind() -> None:
    class Foreign(msgspec.Struct, tag_field="kind", tag="init"):
        session_id: str = "s"

    class Derived(InitEvent, frozen=True, tag="init"):
        pass

    for stranger in (Foreign(), Derived(session_id="s"), {"kind": "init", "sessionId": "s"}, None):
        with pytest.raises(InvalidRequest, match="not an event"):
            encode_event(stranger)  # type: ignore[arg-type]


@pytest.mark.parametrize("raw", [object(), {1j}, {"a": object()}])
def test_a_raw_value_that_json_cannot_hold_is_refused(raw: object) -> None:
    with pytest.raises(InvalidRequest, match="init event"):
        encode_event(InitEvent(session_id="s", raw=raw))


@pytest.mark.req("DM-EVT-009")
def test_only_a_result_and_an_error_end_a_stream() -> None:
    assert [kind for kind, (event, _) in FULL.items() if is_terminal(event)] == ["result", "error"]
