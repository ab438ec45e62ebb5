"""Session events as agent events: as the specification wants them, to the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.wire import NOW_MS

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.messages import StopReason
from makai.core.request import StreamOptions
from makai.core.usage import Usage
from makai.protocols.makai.agent import run_terms
from makai.protocols.makai.agent_payloads import AgentOptions
from makai.protocols.makai.agent_projection import AgentProjection

REF = "scripted/scripted@m%3A1"
START = ev.RunStarted(run_number=1, model_ref=REF)
MODEL = {"provider_id": "scripted", "api": "scripted", "model_id": "m:1"}
CALL = ev.ToolCalled(call_id="c1", name="look", arguments_json='{"at":"sea"}', content_index=1, signature="sig")


def told(*events: ev.SessionEvent, run_id: str = "run", has_turns: bool = True) -> list[tuple[str, Any]]:
    projection = AgentProjection("session", has_turns=has_turns)
    result = []
    for number, event in enumerate(events, 1):
        logged = ev.Logged(event_id=number, ts=NOW_MS, event=event, run_id=run_id)
        result += [
            (kind, msgspec.json.decode(msgspec.json.encode(payload))) for kind, payload in projection.project(logged)
        ]
    return result


def events_in(frames: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [payload["event"] for kind, payload in frames if kind == "agent_event"]


def turn(
    number: int, *said: ev.SessionEvent, reason: StopReason = "end_turn", usage: Usage | None = None
) -> list[ev.SessionEvent]:
    begin = ev.TurnStarted(turn=number, model_ref=REF)
    return [begin, *said, ev.TurnEnded(turn=number, stop_reason=reason, usage=usage or Usage(input=1, output=1))]


@pytest.mark.req(
    "MK-AGENT-004", "MK-AGENT-005", "MK-AGENT-006", "MK-AGENT-007", "MK-AGENT-008", "MK-AGENT-009", "MK-AGENT-010"
)
@pytest.mark.req("MK-AGENT-002", "MK-AGENT-012", "MK-AGENT-013", "MK-TOOL-004", "MK-TOOL-005")
def test_a_run_of_two_turns_says_exactly_this() -> None:
    first = Usage(input=10, output=4, cache_read=3, cache_write=2, reasoning=1, cost_usd=0.5)
    second = Usage(input=2, output=5, cache_read=12)
    frames = told(
        START,
        ev.RunStatusChanged(status="starting"),
        ev.UserInput(input_id="i", content="What is there?"),
        ev.RunStatusChanged(status="running"),
        *turn(
            1,
            ev.ReasoningDelta(content_index=0, delta="Hm."),
            ev.Reasoning(content_index=0, text="Hm.", signature="s"),
            CALL,
            reason="tool_use",
            usage=first,
        ),
        ev.UsageReported(total=first),
        ev.ToolStarted(call_id="c1"),
        ev.ToolProgress(call_id="c1", text="looking"),
        ev.ToolFinished(call_id="c1", content=(Text(text="Water."),)),
        ev.PlanUpdated(entries=()),
        ev.Notice(level="info", code="x", message="y"),
        ev.TitleChanged(title="Sea"),
        *turn(
            2,
            ev.AssistantTextDelta(content_index=0, delta="Wat"),
            ev.AssistantTextDelta(content_index=0, delta="er."),
            ev.AssistantText(content_index=0, text="Water.", signature="t"),
            usage=second,
        ),
        ev.RunFinished(stop_reason="end_turn", usage=first + second),
    )
    assert events_in(frames) == [
        {"type": "agent_start", "session_id": "session"},
        {"type": "turn_start"},
        {"type": "message_start", **MODEL},
        {"type": "thinking_delta", "delta": "Hm."},
        {"type": "tool_call", "name": "look", "arguments_json": '{"at":"sea"}', "tool_call_id": "c1"},
        {
            "type": "message_end",
            "usage": {"input": 10, "output": 4, "cache_read": 3, "cache_write": 2},
            "stop_reason": "tool_use",
        },
        {"type": "turn_end", "stop_reason": "tool_use"},
        {"type": "tool_execution_start", "tool_call_id": "c1", "tool_name": "look"},
        {"type": "tool_execution_end", "tool_call_id": "c1"},
        {"type": "turn_start"},
        {"type": "message_start", **MODEL},
        {"type": "text_delta", "delta": "Wat"},
        {"type": "text_delta", "delta": "er."},
        {"type": "message_end", "usage": {"input": 2, "output": 5, "cache_read": 12}, "stop_reason": "end_turn"},
        {"type": "turn_end", "stop_reason": "end_turn"},
        {
            "type": "agent_end",
            "stop_reason": "end_turn",
            "usage": {"input": 12, "output": 9, "cache_read": 15, "cache_write": 2},
        },
    ]
    assert frames[-1] == (
        "agent_result",
        {
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Water.", "text_signature": "t"}]},
            "usage": {"input": 12, "output": 9, "cache_read": 15, "cache_write": 2, "reasoning": 1, "cost_usd": 0.5},
            **MODEL,
            "stop_reason": "end_turn",
            "run_id": "run",
        },
    )


def test_every_event_id_is_a_cursor_after_which_nothing_is_missing() -> None:
    frames = told(START, *turn(1), ev.RunFinished(stop_reason="end_turn"))
    ids = [payload.get("event_id") for kind, payload in frames if kind == "agent_event"]
    assert ids == [1, None, 2, None, 3, 4]


@pytest.mark.req("MK-AGENT-006", "MK-AGENT-009")
def test_a_run_that_succeeds_after_a_broken_turn_has_no_error_event() -> None:
    broken = turn(1, ev.AssistantTextDelta(content_index=0, delta="Wat"), reason="error")
    whole = turn(2, ev.AssistantText(content_index=0, text="Water."))
    frames = told(START, *broken, *whole, ev.RunFinished(stop_reason="end_turn"))
    assert [event["type"] for event in events_in(frames)] == [
        *("agent_start", "turn_start", "message_start", "text_delta", "turn_end"),
        *("turn_start", "message_start", "message_end", "turn_end", "agent_end"),
    ]


@pytest.mark.req("MK-AGENT-010")
def test_a_run_cut_by_its_turn_limit_says_so_at_its_end_only() -> None:
    frames = told(START, *turn(1, CALL, reason="tool_use"), ev.RunFinished(stop_reason="max_turns"))
    ends = [event for event in events_in(frames) if "stop_reason" in event]
    assert [(event["type"], event["stop_reason"]) for event in ends] == [
        ("message_end", "tool_use"),
        ("turn_end", "tool_use"),
        ("agent_end", "max_turns"),
    ]
    kind, result = frames[-1]
    assert (kind, result["stop_reason"]) == ("agent_result", "max_turns")
    assert result["message"]["content"] == [
        {
            "type": "tool_call",
            "tool_call_id": "c1",
            "name": "look",
            "arguments_json": '{"at":"sea"}',
            "thought_signature": "sig",
        }
    ]


@pytest.mark.req("MK-AGENT-011", "MK-AGENT-014")
def test_a_failing_run_surfaces_one_error_and_names_whose_login_is_missing() -> None:
    frames = told(
        START,
        *turn(1, ev.AssistantTextDelta(content_index=0, delta="Wat"), reason="error"),
        ev.RunStatusChanged(status="error"),
        ev.RunFailed(code="auth_required", message="No key.", hint="Log in.", usage=Usage(input=1)),
    )
    assert [event["type"] for event in events_in(frames)] == [
        "agent_start",
        "turn_start",
        "message_start",
        "text_delta",
        "turn_end",
        "error",
    ]
    assert events_in(frames)[-1] == {"type": "error", "message": "No key.", "code": "auth_required"}
    assert frames[-1] == (
        "agent_error",
        {
            "code": "auth_required",
            "message": "No key.",
            "provider_id": "scripted",
            "hint": "Log in.",
            "usage": {"input": 1, "output": 0},
            "run_id": "run",
        },
    )


def test_other_failures_name_no_provider_and_codes_are_the_protocols() -> None:
    for code, wire in (("rate_limited", "rate_limited"), ("parse_error", "invalid_request"), ("BUSY", "agent_busy")):
        kind, error = told(START, ev.RunFailed(code=code, message="x"))[-1]
        assert (kind, error["code"], error.get("provider_id")) == ("agent_error", wire, None)


@pytest.mark.req("MK-AGENT-011")
def test_a_turn_that_broke_off_and_is_tried_again_is_no_error_of_the_run() -> None:
    frames = told(
        START,
        *turn(1, ev.AssistantTextDelta(content_index=0, delta="Wa"), reason="error"),
        ev.Notice(level="warning", code="rate_limited", message="Waiting 2 s."),
        *turn(2, ev.AssistantText(content_index=0, text="Water.")),
        ev.RunFinished(stop_reason="end_turn"),
    )
    types = [event["type"] for event in events_in(frames)]
    assert types.count("error") == 0
    assert types.count("message_end") == 1
    assert types.count("turn_end") == 2
    assert frames[-1][1]["message"]["content"] == [{"type": "text", "text": "Water."}]


@pytest.mark.req("MK-AGENT-017")
def test_a_stopped_run_ends_in_the_error_aborted() -> None:
    frames = told(
        START,
        *turn(1, reason="aborted"),
        ev.RunAborted(by="someone", reason="enough"),
        ev.RunFinished(stop_reason="aborted"),
    )
    assert events_in(frames)[-1] == {"type": "error", "message": "enough", "code": "aborted"}
    assert [kind for kind, _ in frames if kind != "agent_event"] == ["agent_error"]


@pytest.mark.req("MK-TOOL-004", "MK-TOOL-009")
def test_a_call_that_was_refused_before_it_started_has_its_pair_too() -> None:
    frames = told(START, *turn(1, CALL), ev.ToolFinished(call_id="c1", content=(), is_error=True))
    assert events_in(frames)[-2:] == [
        {"type": "tool_execution_start", "tool_call_id": "c1", "tool_name": "look"},
        {"type": "tool_execution_end", "tool_call_id": "c1", "is_error": True},
    ]


@pytest.mark.req("MK-TOOL-005")
@pytest.mark.parametrize(
    ("written", "error", "arguments_json"),
    [
        ('{"at": ', "it is not complete", '"{\\"at\\": "'),
        ("[1]", "it is no object", "[1]"),
        ('{"at": 1}', None, '{"at": 1}'),
    ],
)
def test_arguments_are_always_json_and_never_invented(written: str, error: str | None, arguments_json: str) -> None:
    call = ev.ToolCalled(call_id="c1", name="look", arguments_json=written, arguments_error=error)
    (event,) = [event for event in events_in(told(START, *turn(1, call))) if event["type"] == "tool_call"]
    assert event["arguments_json"] == arguments_json
    msgspec.json.decode(event["arguments_json"])


def test_compactions_and_runs_from_before_are_not_told() -> None:
    assert (
        told(
            ev.RunStarted(run_number=1, model_ref=REF, purpose="compaction"),
            ev.Compacted(summary="s", through=1),
            ev.RunFinished(stop_reason="end_turn"),
        )
        == []
    )
    assert (
        told(ev.TurnEnded(turn=1, stop_reason="end_turn"), ev.RunResumed(), ev.RunFinished(stop_reason="end_turn"))
        == []
    )
    assert told(ev.InputAccepted(input_id="i", content="x"), ev.InputWithdrawn(input_id="i")) == []


def test_a_model_that_has_no_canonical_name_is_simply_not_named() -> None:
    frames = told(
        ev.RunStarted(run_number=1, model_ref="fast"),
        ev.TurnStarted(turn=1, model_ref="fast"),
        ev.RunFailed(code="auth_required", message="x"),
    )
    assert events_in(frames)[2] == {"type": "message_start"}
    assert "provider_id" not in frames[-1][1]


def test_options_become_the_terms_of_a_run() -> None:
    options = AgentOptions(
        temperature=0.5, metadata={"a": "b"}, max_turns=2, max_usd=1.5, allow=("Read(src/**)",), deny=("Bash(rm:*)",)
    )
    assert run_terms(options) == ev.RunTerms(
        options=StreamOptions(temperature=0.5, metadata={"a": "b"}),
        max_turns=2,
        max_usd=1.5,
        allow=("Read(src/**)",),
        deny=("Bash(rm:*)",),
    )


def test_an_agent_without_turns_gets_one_that_ends_with_its_first_tool_or_with_the_run() -> None:
    frames = told(
        ev.RunStarted(run_number=1, model_ref=""),
        ev.AssistantTextDelta(content_index=0, delta="Hm"),
        ev.AssistantText(content_index=0, text="Hm"),
        ev.ToolCalled(call_id="a", name="look", arguments_json="{}", content_index=1),
        ev.ToolStarted(call_id="a"),
        ev.ToolFinished(call_id="a", content=()),
        ev.AssistantText(content_index=2, text="Done"),
        ev.RunFinished(stop_reason="end_turn"),
        has_turns=False,
    )
    assert [event["type"] for event in events_in(frames)] == [
        "agent_start", "turn_start", "message_start", "text_delta", "tool_call", "message_end", "turn_end",
        "tool_execution_start", "tool_execution_end", "turn_start", "message_start", "message_end", "turn_end",
        "agent_end",
    ]  # fmt: skip
    assert frames[-1][1]["message"]["content"] == [{"type": "text", "text": "Done"}]


@pytest.mark.req("MK-PROV-005")
@pytest.mark.parametrize(
    ("end", "settlement"),
    [
        (ev.RunFinished(stop_reason="end_turn", usage=Usage()), "agent_result"),
        (ev.RunFinished(stop_reason="aborted", usage=Usage()), "agent_error"),
        (ev.RunFailed(code="provider_error", message="It broke."), "agent_error"),
    ],
)
def test_a_settlement_has_the_warnings_of_its_run(end: ev.RunFinished | ev.RunFailed, settlement: str) -> None:
    frames = told(
        START,
        ev.Notice(level="warning", code="option_ignored", message="acme does not take `stop`."),
        ev.Notice(level="info", code="x", message="y"),
        *turn(1, ev.AssistantText(content_index=0, text="Hi")),
        end,
    )

    assert [payload["warnings"] for kind, payload in frames if kind == settlement] == [["acme does not take `stop`."]]
