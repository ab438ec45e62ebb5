"""Session events as `session/update`, to the field."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from support.acp_updates import MODERN, NOW_MS, PLAIN, Transcript, logged, projected, wire

from makai.core import session_events as ev
from makai.core.content import Audio, Image, Resource, ResourceLink, Text, Thinking, ToolCall, ToolResult
from makai.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from makai.core.usage import Usage
from makai.protocols.acp.projection import COMPACTED, UpdateProjection, joined, stop_reason_of
from makai.sessions.state import fold
from makai.wire.json_rpc_errors import RpcError

START = ev.RunStarted(run_number=1, model_ref="m")
TURN = ev.TurnStarted(turn=1)
END = ev.RunFinished(stop_reason="end_turn")


def message(text: str, message_id: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, "messageId": message_id}


@pytest.mark.req("ACP-UPD-001", "ACP-UPD-002")
def test_text_and_thinking_are_sent_as_they_come_and_completed_by_their_whole_texts() -> None:
    assert projected(
        START,
        TURN,
        ev.ReasoningDelta(content_index=0, delta="Let me"),
        ev.Reasoning(content_index=0, text="Let me see", signature="s"),
        ev.AssistantTextDelta(content_index=1, delta="Hel"),
        ev.AssistantTextDelta(content_index=1, delta="lo"),
        ev.AssistantText(content_index=1, text="Hello"),
        ev.TurnStarted(turn=2),
        ev.AssistantText(content_index=0, text="Again"),
    ) == [
        message("Let me", "run/1/thought-0", "agent_thought_chunk"),
        message(" see", "run/1/thought-0", "agent_thought_chunk"),
        message("Hel", "run/1/text-1"),
        message("lo", "run/1/text-1"),
        message("Again", "run/2/text-0"),
    ]


@pytest.mark.req("ACP-UPD-002")
def test_blocks_of_an_agent_without_turns_are_messages_of_their_own() -> None:
    blocks = [
        event
        for text in ("One", "Two")
        for event in (
            ev.AssistantTextDelta(content_index=0, delta=text[:2]),
            ev.AssistantText(content_index=0, text=text),
        )
    ]
    live = projected(START, *blocks)
    replay = projected(START, *(event for event in blocks if not isinstance(event, ev.Delta)))

    assert [(update["content"]["text"], update["messageId"]) for update in live] == [
        ("On", "run/0/text-0"),
        ("e", "run/0/text-0"),
        ("Tw", "run/0/text-0.1"),
        ("o", "run/0/text-0.1"),
    ]
    assert replay == [message("One", "run/0/text-0"), message("Two", "run/0/text-0.1")]


def test_a_whole_text_that_differs_from_its_deltas_is_shown_as_a_message_of_its_own() -> None:
    shown = projected(
        START, ev.AssistantTextDelta(content_index=0, delta="Wait"), ev.AssistantText(content_index=0, text="Other")
    )

    assert shown == [message("Wait", "run/0/text-0"), message("Other", "run/0/text-0.1")]


def test_a_block_that_follows_one_that_broke_off_is_not_repeated() -> None:
    said = [ev.AssistantTextDelta(content_index=0, delta=text) for text in ("Wait", "On", "e")]

    shown = projected(START, *said, ev.AssistantText(content_index=0, text="One"))

    assert "".join(update["content"]["text"] for update in shown) == "WaitOne"


def test_withheld_thinking_shows_nothing() -> None:
    assert projected(START, TURN, ev.Reasoning(content_index=0, text="", signature="s", redacted=True)) == []


@pytest.mark.req("ACP-SESS-009", "ACP-PROMPT-004")
def test_every_part_of_an_input_is_replayed_under_one_message() -> None:
    content = (
        Text(text="See"),
        Image(data="aGk=", mime_type="image/png"),
        Audio(data="aGk=", mime_type="audio/wav"),
        Resource(uri="file:///a.py", text="x = 1", mime_type="text/x-python"),
        Resource(uri="file:///b", data="aGk="),
        ResourceLink(uri="file:///c"),
    )
    blocks = [
        {"type": "text", "text": "See"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.py", "text": "x = 1", "mimeType": "text/x-python"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
        {"type": "resource_link", "uri": "file:///c", "name": "file:///c"},
    ]

    assert projected(ev.UserInput(input_id="i", content=content)) == [
        {"sessionUpdate": "user_message_chunk", "content": block, "messageId": "user/i"} for block in blocks
    ]


def test_a_prompt_of_this_client_is_not_echoed_but_the_same_words_of_another_client_are() -> None:
    projection = UpdateProjection(PLAIN)
    projection.skip_input("own")
    events = logged(
        ev.UserInput(input_id="i1", content="Hi", client_msg_id="own"),
        ev.UserInput(input_id="i2", content="Hi", client_msg_id="other"),
    )

    shown = [wire(update) for each in events for update in projection.project(each)]

    assert shown == [message("Hi", "user/i2", "user_message_chunk")]


@pytest.mark.req("ACP-UPD-003")
def test_an_earlier_conversation_is_shown_with_its_calls_each_under_an_id_of_its_own() -> None:
    call = ToolCall(tool_call_id="call_0", name="look", arguments_json='{"at": "sea"}')
    result = ToolMessage(result=ToolResult(tool_call_id="call_0", tool_name="look", content="waves"))
    transcript = Transcript()
    projection = UpdateProjection(PLAIN)
    told = (
        SystemMessage(content="Be brief."),
        UserMessage(content="Look"),
        AssistantMessage(content=(Thinking(thinking="Hm"), Text(text="I look."), call)),
        result,
        AssistantMessage(content=(call,)),
        result,
        AssistantMessage(content=(call,)),
    )
    for each in logged(START, *(ev.HistoryMessage(message=each) for each in told), END):
        for update in projection.project(each):
            transcript.take(update)

    assert transcript.texts == {
        ("user_message_chunk", "history/3"): "Look",
        ("agent_thought_chunk", "history/4/0"): "Hm",
        ("agent_message_chunk", "history/4/1"): "I look.",
    }
    assert transcript.statuses() == {"call_0": "completed", "call_0#6": "completed", "call_0#8": "failed"}
    assert transcript.calls["call_0"]["content"] == [{"type": "content", "content": {"type": "text", "text": "waves"}}]


@pytest.mark.req("ACP-UPD-009")
def test_a_plan_is_always_sent_whole() -> None:
    entries = (
        ev.PlanEntry(content="Read", status="completed", priority="high"),
        ev.PlanEntry(content="Write", status="in_progress"),
    )

    assert projected(ev.PlanUpdated(entries=entries)) == [
        {
            "sessionUpdate": "plan",
            "entries": [
                {"content": "Read", "priority": "high", "status": "completed"},
                {"content": "Write", "priority": "medium", "status": "in_progress"},
            ],
        }
    ]


def test_usage_is_sent_when_the_context_is_known_with_the_cost_when_it_is_priced() -> None:
    known = {"context_tokens": 1_200, "context_window": 8_000}
    shown = projected(
        ev.UsageReported(total=Usage(input=1_200), context_tokens=1_200),
        ev.UsageReported(total=Usage(input=1_200), context_window=8_000),
        ev.UsageReported(total=Usage(input=1_200), **known),
        ev.UsageReported(total=Usage(input=1_200, cost_usd=0.25), **known),
    )

    assert shown == [
        {"sessionUpdate": "usage_update", "used": 1_200, "size": 8_000},
        {"sessionUpdate": "usage_update", "used": 1_200, "size": 8_000, "cost": {"amount": 0.25, "currency": "USD"}},
    ]


def test_the_title_is_sent_when_it_changes_and_cleared_with_null() -> None:
    shown = projected(
        ev.SessionCreated(model_ref="m", title="First"), ev.TitleChanged(title="Second"), ev.TitleChanged(title="")
    )

    assert shown == [
        {"sessionUpdate": "session_info_update", "title": "First"},
        {"sessionUpdate": "session_info_update", "title": "Second", "updatedAt": "2023-11-14T22:13:20.002Z"},
        {"sessionUpdate": "session_info_update", "title": None, "updatedAt": "2023-11-14T22:13:20.003Z"},
    ]
    assert NOW_MS == 1_700_000_000_000


def test_notices_go_to_clients_that_declare_them() -> None:
    long = "Waiting. " * 100
    shown = projected(
        ev.Notice(level="info", code="retry", message="Waiting"),
        ev.Notice(level="error", code="broken", message=long),
        client=MODERN,
    )

    assert shown[0] == {"sessionUpdate": "notice", "severity": "info", "title": "Waiting"}
    assert (shown[1]["severity"], len(shown[1]["title"]), shown[1]["description"]) == ("error", 200, long)


def test_other_clients_see_warnings_as_a_thought_that_is_no_part_of_the_answer() -> None:
    shown = projected(
        ev.Notice(level="info", code="retry", message="Waiting"),
        ev.Notice(level="warning", code="sandbox_missing", message="There is no sandbox."),
    )

    assert shown == [message("Warning: There is no sandbox.\n", "notice/2", "agent_thought_chunk")]


def waits(seconds: int, attempt: int) -> ev.Notice:
    message = f"Busy. Attempt {attempt} follows."
    return ev.Notice(level="info", code="retry", message=message, notice_id="w", wait_ms=seconds * 1000)


def test_every_wait_for_another_attempt_is_a_notice_with_its_length() -> None:
    shown = projected(waits(2, 2), waits(30, 3), client=MODERN)

    assert [each["title"] for each in shown] == [
        "Waiting 2 s: Busy. Attempt 2 follows.",
        "Waiting 30 s: Busy. Attempt 3 follows.",
    ]


def test_other_clients_see_the_first_long_wait_as_a_thought() -> None:
    shown = projected(waits(2, 2), waits(30, 3), waits(60, 4))

    assert shown == [message("Info: Waiting 30 s: Busy. Attempt 3 follows.\n", "notice/2", "agent_thought_chunk")]


def test_a_replay_has_no_notices_for_they_are_news() -> None:
    projection = UpdateProjection(MODERN)
    (each,) = logged(ev.Notice(level="warning", code="retry", message="Waiting"))

    assert projection.project(each, replayed=True) == []


COMPACTION = ev.RunStarted(run_number=1, model_ref="m", purpose="compaction")
SUMMARY = ev.Compacted(summary="They greeted.", through=3)


@pytest.mark.parametrize(
    ("events", "statuses"),
    [
        ((COMPACTION, SUMMARY, END), ["in_progress", "completed"]),
        ((COMPACTION, ev.RunFinished(stop_reason="aborted")), ["in_progress", "cancelled"]),
        ((COMPACTION, ev.RunFailed(code="provider_error", message="No answer.")), ["in_progress", "failed"]),
        ((START, SUMMARY, END), ["completed"]),
    ],
)
def test_compactions_are_shown_to_clients_that_declare_them(
    events: tuple[ev.SessionEvent, ...], statuses: list[str]
) -> None:
    shown = projected(*events, client=MODERN)

    assert [update["status"] for update in shown] == statuses
    assert len({update["compactionId"] for update in shown}) == 1
    if statuses[-1] == "completed":
        assert shown[-1]["summary"] == [{"type": "text", "text": "They greeted."}]
    assert shown[-1].get("error") == ("No answer." if statuses[-1] == "failed" else None)


def test_other_clients_are_answered_when_they_asked_for_a_compaction() -> None:
    assert projected(COMPACTION, SUMMARY, END) == [message(COMPACTED, "compacted/2")]
    assert projected(START, SUMMARY, END) == []


def test_every_event_has_a_decided_translation() -> None:
    """None of them fails, whatever it is; what shows nothing is listed here."""
    silent = {
        ev.HarnessChanged, ev.FilesRestoring, ev.FilesRestored,
        ev.ModelChanged, ev.ModeChanged, ev.TermsChanged, ev.AgentSession, ev.SessionClosed, ev.InputAccepted,
        ev.InputWithdrawn, ev.SessionArchived,
        ev.RunStarted, ev.RunStatusChanged, ev.RunResumed, ev.RunAborted, ev.RunFinished, ev.RunFailed,
        ev.TurnStarted, ev.TurnEnded, ev.ApprovalRequested, ev.ApprovalDecided, ev.Compacted,
        ev.ToolStarted, ev.ToolProgress, ev.ToolUpdated, ev.ToolFinished,
    }  # fmt: skip
    samples: dict[str, Any] = {
        "delta": "d", "text": "t", "title": "t", "content": "c", "level": "error", "mode": "ask", "status": "running",
        "stop_reason": "end_turn", "entries": (), "total": Usage(), "terms": ev.SessionTerms(), "turn": 1,
        "message": UserMessage(content="m"), "content_index": 0, "through": 1, "run_number": 1, "decision": "approve",
        "context_tokens": 1, "context_window": 2, "call_id": "unknown", "arguments_json": "{}",
    }  # fmt: skip
    for kind in get_args(ev.SessionEvent):
        fields = {field.name: samples.get(field.name, "x") for field in msgspec.structs.fields(kind) if field.required}
        extra = {name: samples[name] for name in ("title", "context_tokens", "context_window") if hasattr(kind, name)}
        if kind is ev.Notice:
            fields["message"] = "m"
        if kind is ev.RunFailed:
            fields["message"] = "m"
        event = kind(**fields | (extra if kind in (ev.SessionCreated, ev.UsageReported) else {}))

        assert bool(projected(event)) == (kind not in silent), kind


def test_a_client_that_joins_a_run_learns_of_its_open_calls() -> None:
    events = logged(
        ev.SessionCreated(model_ref="m"),
        START,
        ev.TurnStarted(turn=3),
        ev.ToolCalled(call_id="c1", name="shell", arguments_json='{"command":"ls"}'),
        ev.ToolCalled(call_id="c2", name="read", arguments_json="{}"),
        ev.ToolStarted(call_id="c1"),
    )
    projection = UpdateProjection(PLAIN)
    transcript = Transcript(projection.resume(fold(events)))
    for each in logged(
        ev.AssistantTextDelta(content_index=0, delta="Hi"),
        ev.ToolFinished(call_id="c1", content=(Text(text="a.py"),)),
        first=7,
    ):
        for update in projection.project(each):
            transcript.take(update)

    assert transcript.statuses() == {"c1": "completed", "c2": "pending"}
    assert transcript.texts == {("agent_message_chunk", "run/3/text-0"): "Hi"}
    assert projection.resume(fold(logged(ev.SessionCreated(model_ref="m")))) == []


def test_neighbours_become_one_update_and_say_the_same() -> None:
    projection = UpdateProjection(PLAIN)
    events = logged(
        START,
        *(ev.AssistantTextDelta(content_index=0, delta=text) for text in "abc"),
        ev.ReasoningDelta(content_index=0, delta="d"),
        ev.AssistantTextDelta(content_index=0, delta="e"),
        ev.ToolCalled(call_id="c", name="shell", arguments_json="{}"),
        ev.ToolStarted(call_id="c"),
        *(ev.ToolProgress(call_id="c", text=text) for text in "xyz"),
    )
    single = [update for each in events for update in projection.project(each)]
    fewer = joined(single)

    assert (len(single), len(fewer)) == (10, 5)
    assert Transcript(fewer).texts == Transcript(single).texts
    assert Transcript(fewer).calls == Transcript(single).calls


@pytest.mark.req("ACP-PROMPT-006")
@pytest.mark.parametrize(
    ("settlement", "reason"),
    [
        (ev.RunFinished(stop_reason="end_turn"), "end_turn"),
        (ev.RunFinished(stop_reason="stop_sequence"), "end_turn"),
        (ev.RunFinished(stop_reason="max_tokens"), "max_tokens"),
        (ev.RunFinished(stop_reason="max_turns"), "max_turn_requests"),
        (ev.RunFinished(stop_reason="refusal"), "refusal"),
        (ev.RunFinished(stop_reason="aborted"), "cancelled"),
        (ev.RunAborted(by="editor"), "cancelled"),
        (ev.RunFailed(code="aborted", message="Stopped."), "cancelled"),
    ],
)
def test_the_end_of_a_run_is_the_stop_reason_of_its_prompt(settlement: Any, reason: str) -> None:
    assert stop_reason_of(settlement) == reason


@pytest.mark.req("ACP-PROMPT-011", "ACP-AUTH-003")
@pytest.mark.parametrize(
    ("failed", "code", "message", "data"),
    [
        (
            ev.RunFailed(code="rate_limited", message="Too many\nrequests.", hint="Wait.", retry_after_ms=10),
            -32603,
            "Too many requests. Wait.",
            {"code": "rate_limited", "retryAfterMs": 10},
        ),
        (
            ev.RunFailed(code="auth_expired", message="Log in again.", provider_id="openai"),
            -32000,
            "Log in again.",
            {"code": "auth_expired", "providerId": "openai"},
        ),
        (ev.RunFailed(code="internal_error", message=""), -32603, "The run failed: internal_error.", None),
    ],
)
def test_a_failed_run_is_an_error_of_one_readable_line(
    failed: ev.RunFailed, code: int, message: str, data: Any
) -> None:
    with pytest.raises(RpcError) as refused:
        stop_reason_of(failed)

    expected = (code, message, data or {"code": failed.code})
    assert (refused.value.rpc_code, refused.value.message, refused.value.data) == expected
