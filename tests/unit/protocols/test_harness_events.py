"""The log of a session as the events of the harness contract, and the law of the stream over generated logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.usage import Usage
from makai.harness.contract import events as out
from makai.harness.contract.events import decode_event, encode_event, is_terminal
from makai.protocols.harness_events import HarnessEvents

SESSION = "makai-session"
AGENT = ev.AgentSession(agent_session_id="agents-own", agent="Agent")


def projected(*facts: ev.SessionEvent, external: bool = True, step_ms: int = 1_000) -> list[out.Event]:
    """The events of a log, closed at its end, as a handle closes it."""
    projection = HarnessEvents(SESSION, named_by_agent=external)
    events: list[out.Event] = []
    for number, fact in enumerate(facts, 1):
        events += projection.take(ev.Logged(event_id=number, ts=number * step_ms, event=fact, run_id="run-1"))
    return events + projection.close("The log ended.")


@pytest.mark.req("DM-PROV-003", "DM-EVT-007")
def test_a_run_is_told_by_init_texts_calls_and_one_result() -> None:
    call = ev.ToolCalled(call_id="c1", name="Bash", arguments_json='{"command":"ls"}', kind="execute")
    nested = ev.ToolCalled(call_id="c2", name="Read", arguments_json="{}", kind="read", parent_call_id="c1")
    usage = Usage(input=7, output=3, cache_read=5, cache_write=2, cost_usd=0.25)

    events = projected(
        ev.UserInput(input_id="i1", content="go"),
        ev.Notice(level="warning", code="setting_ignored", message="temperature"),
        AGENT,
        ev.AssistantTextDelta(content_index=0, delta="Hel"),
        ev.AssistantText(content_index=0, text="Hello"),
        call,
        ev.ToolStarted(call_id="c1"),
        ev.ToolProgress(call_id="c1", text="a"),
        nested,
        ev.AssistantText(content_index=1, text="inside", parent_call_id="c1"),
        ev.ToolFinished(call_id="c2", content=(Text(text="x"),), is_error=True),
        ev.ToolFinished(call_id="c1", content=(Text(text="a.txt"),)),
        ev.UserInput(input_id="i2", content="and more"),
        ev.AssistantText(content_index=2, text="Done"),
        ev.RunFinished(stop_reason="end_turn", usage=usage),
        ev.AssistantText(content_index=3, text="after the end"),
    )

    assert events == [
        out.InitEvent(session_id="agents-own"),
        out.SystemEvent(subtype="setting_ignored", message="temperature"),
        out.AssistantTextEvent(text="Hello"),
        out.ToolUseEvent(tool_name="Bash", tool_use_id="c1", input={"command": "ls"}, tool_category="shell"),
        out.ToolProgressEvent(tool_name="Bash", elapsed_seconds=1.0, raw={"text": "a"}),
        out.ToolUseEvent(tool_name="Read", tool_use_id="c2", tool_category="filesystem", raw={"parentToolUseId": "c1"}),
        out.AssistantTextEvent(text="inside", raw={"parentToolUseId": "c1"}),
        out.ToolResultEvent(tool_name="Read", tool_use_id="c2", content="x", is_error=True),
        out.ToolResultEvent(tool_name="Bash", tool_use_id="c1", content="a.txt"),
        out.SystemEvent(subtype="user_message", message="and more"),
        out.AssistantTextEvent(text="Done"),
        out.ResultEvent(
            success=True,
            message="Done",
            cost=out.CostData(input_tokens=9, output_tokens=3, cached_input_tokens=5, total_cost_usd=0.25, num_turns=1),
        ),
    ]


@pytest.mark.req("DM-PROV-003")
def test_the_native_agent_is_named_by_makais_own_id_and_its_turns_are_counted() -> None:
    events = projected(
        ev.RunStarted(run_number=1, model_ref="m"),
        ev.TurnStarted(turn=1),
        ev.TurnStarted(turn=1, parent_call_id="c"),
        ev.RunFinished(stop_reason="end_turn"),
        external=False,
    )

    result = out.ResultEvent(success=True, cost=out.CostData(num_turns=1))
    assert events == [out.InitEvent(session_id=SESSION), result]


@pytest.mark.req("DM-EVT-010")
def test_the_turns_of_an_agent_are_as_many_as_it_says() -> None:
    events = projected(
        AGENT,
        ev.InputAccepted(input_id="later", content="more"),
        ev.RunFinished(stop_reason="end_turn", turns=2),
        ev.UserInput(input_id="later", content="more"),
        ev.RunFinished(stop_reason="end_turn", turns=3),
    )

    assert events[-1] == out.ResultEvent(success=True, cost=out.CostData(num_turns=5))


@pytest.mark.req("DM-PROV-003")
@pytest.mark.parametrize(
    ("facts", "terminal"),
    [
        (
            [ev.RunFailed(code="agent_failed", message="It died.", hint="Look.")],
            out.AgentErrorEvent(message="It died. Look.", code="agent_failed"),
        ),
        (
            [ev.RunFailed(code="agent_failed", message="It died.", usage=Usage(output=3, cost_usd=4.5))],
            out.AgentErrorEvent(
                message="It died.", code="agent_failed", cost=out.CostData(output_tokens=3, total_cost_usd=4.5)
            ),
        ),
        ([], out.AgentErrorEvent(message="The log ended.", code="stream_ended")),
        (
            [ev.RunFinished(stop_reason="aborted")],
            out.ResultEvent(
                success=False,
                errors=("The session ended with aborted.",),
                error_subtype="stopped",
                cost=out.CostData(),
            ),
        ),
        (
            [
                ev.Notice(level="warning", code="limit_usd", message="Too much."),
                ev.RunFinished(stop_reason="max_turns"),
            ],
            out.ResultEvent(
                success=False, errors=("Too much.",), error_subtype="error_max_usd", cost=out.CostData(num_turns=1)
            ),
        ),
    ],
)
def test_every_end_is_one_terminal_after_init(facts: list[ev.SessionEvent], terminal: out.Event) -> None:
    events = projected(*facts)

    assert (events[0], events[-1]) == (out.InitEvent(session_id=SESSION), terminal)


@pytest.mark.req("DM-PROV-009")
def test_a_result_waits_for_inputs_that_the_next_run_answers() -> None:
    used = Usage(input=1, output=1)
    events = projected(
        AGENT,
        ev.InputAccepted(input_id="i2", content="more", delivery="steer"),
        ev.RunFinished(stop_reason="end_turn", usage=used),
        ev.UserInput(input_id="i2", content="more"),
        ev.AssistantText(content_index=0, text="More."),
        ev.RunFinished(stop_reason="end_turn", usage=used),
    )

    cost = out.CostData(input_tokens=2, output_tokens=2, num_turns=2)
    assert [event.kind for event in events] == ["init", "assistant_text", "result"]
    assert events[-1] == out.ResultEvent(success=True, message="More.", cost=cost)


@pytest.mark.req("DM-PROV-009")
def test_a_result_does_not_wait_for_an_input_that_was_taken_back() -> None:
    events = projected(
        AGENT,
        ev.InputAccepted(input_id="i2", content="more"),
        ev.InputWithdrawn(input_id="i2"),
        ev.AssistantText(content_index=0, text="Done."),
        ev.RunFinished(stop_reason="end_turn"),
    )

    assert events[-1] == out.ResultEvent(success=True, message="Done.", cost=out.CostData(num_turns=1))


_ids = st.sampled_from(["c1", "c2", ""])
_facts = st.one_of(
    st.builds(ev.AgentSession, agent_session_id=st.sampled_from(["a1", "a2"])),
    st.builds(ev.RunStarted, run_number=st.just(1), model_ref=st.just("m")),
    st.builds(ev.RunFinished, stop_reason=st.sampled_from(["end_turn", "aborted", "max_turns", "refusal", "error"])),
    st.builds(ev.RunFailed, code=st.just("agent_failed"), message=st.text()),
    st.builds(ev.AssistantText, content_index=st.just(0), text=st.text(), parent_call_id=_ids),
    st.builds(ev.AssistantTextDelta, content_index=st.just(0), delta=st.text()),
    st.builds(ev.Reasoning, content_index=st.just(0), text=st.text()),
    st.builds(ev.ToolCalled, call_id=_ids, name=st.text(), arguments_json=st.sampled_from(["{}", "[", "3", '{"a":1}'])),
    st.builds(ev.ToolStarted, call_id=_ids),
    st.builds(ev.ToolProgress, call_id=_ids, text=st.text()),
    st.builds(ev.ToolUpdated, call_id=_ids, status=st.sampled_from(["in_progress", "failed"])),
    st.builds(ev.ToolFinished, call_id=_ids, content=st.just((Text(text="x"),)), is_error=st.booleans()),
    st.builds(ev.InputAccepted, input_id=_ids, content=st.text()),
    st.builds(ev.InputWithdrawn, input_id=_ids),
    st.builds(ev.UserInput, input_id=_ids, content=st.text()),
    st.builds(ev.Notice, level=st.just("info"), code=st.sampled_from(["limit_usd", "x"]), message=st.text()),
    st.builds(ev.ApprovalDecided, call_id=_ids, decision=st.sampled_from(["approve", "deny_continue"])),
    st.builds(ev.Compacted, summary=st.text(), through=st.just(1)),
    st.builds(ev.RunResumed),
    st.builds(ev.TitleChanged, title=st.text()),
)


@pytest.mark.req("DM-PROV-003", "DM-EVT-002", "DM-EVT-009")
@given(facts=st.lists(_facts, max_size=40), external=st.booleans())
def test_the_law_of_the_stream_holds_for_every_log(facts: list[ev.SessionEvent], external: bool) -> None:
    events = projected(*facts, external=external)

    assert [isinstance(event, out.InitEvent) for event in events] == [True] + [False] * (len(events) - 1)
    assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True]
    assert [decode_event(encode_event(event)) for event in events] == events
