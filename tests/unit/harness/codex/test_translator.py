"""What Codex's app-server reports, as updates of ACP: recorded conversations, and messages that they do not have."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from support.codex_captures import FOLDER, CapturedTurn, all_turns, begun, outputs, transcript
from support.machine import RecordMeasure, slack

from makai.harness.codex.messages import TurnFailure
from makai.harness.codex.translator import CodexTurnEnd, Output, Translator, failure_text, needs_login
from makai.wire.acp import updates as wire
from makai.wire.acp.sessions import TurnUsage

TEXT = {"type": "text", "text": "one"}
DONE = {"id": "turn", "status": "completed"}
TURNS = all_turns()
EXPECTED = json.loads((FOLDER / "transcripts.json").read_text(encoding="utf-8"))


def started(thread: str = "T") -> Translator:
    translator = Translator()
    translator.thread_id = thread
    translator.begin()
    translator.turn_id = "turn"
    return translator


def tell(translator: Translator, method: str, **params: Any) -> list[Output]:
    params = {"threadId": translator.thread_id, "turnId": "turn"} | params
    return translator.on_notification(method, msgspec.Raw(json.dumps(params).encode()))


def item(translator: Translator, when: str, kind: str, **members: Any) -> list[Output]:
    thread = {"threadId": members.pop("thread")} if "thread" in members else {}
    return tell(translator, f"item/{when}", item={"type": kind, "id": "i1", **members}, **thread)


def completed(translator: Translator, status: str = "completed", error: Any = None) -> list[Output]:
    return tell(translator, "turn/completed", turn={"id": "turn", "status": status, "error": error})


@pytest.mark.parametrize(("name", "turn"), TURNS, ids=[name for name, _ in TURNS])
def test_a_recorded_turn_becomes_these_updates(name: str, turn: CapturedTurn) -> None:
    translator = begun(turn)
    found = [output for line in turn.lines for output in outputs(translator, line)]
    assert transcript(found) == EXPECTED[name]
    assert translator.drift.counts == {}
    assert len([output for output in found if isinstance(output, CodexTurnEnd)]) <= 1


@pytest.mark.parametrize(("name", "turn"), TURNS, ids=[name for name, _ in TURNS])
def test_a_turn_that_is_cut_at_any_line_closes_every_call_and_ends_once(name: str, turn: CapturedTurn) -> None:
    for length in range(len(turn.lines) + 1):
        translator = begun(turn)
        found: list[Any] = [output for line in turn.lines[:length] for output in outputs(translator, line)]
        found += translator.end("cancelled")
        called = [output.tool_call_id for output in found if isinstance(output, wire.NewToolCall)]
        over = [
            output.tool_call_id
            for output in found
            if isinstance(output, wire.ToolCallUpdate) and output.status in ("completed", "failed")
        ]
        assert sorted(over) == sorted(called), length
        assert [isinstance(output, CodexTurnEnd) for output in found].count(True) == 1
        assert isinstance(found[-1], CodexTurnEnd) or length == len(turn.lines)
        assert translator.end() == []


def test_text_is_never_said_twice_and_what_the_stream_left_out_is_added() -> None:
    translator = started()
    assert transcript(
        [
            *tell(translator, "item/agentMessage/delta", itemId="i1", delta="Hel"),
            *item(translator, "completed", "agentMessage", text="Hello"),
            *item(translator, "completed", "agentMessage", text="Whole", id="i2"),
            *tell(translator, "item/agentMessage/delta", itemId="i3", delta="Other"),
            *item(translator, "completed", "agentMessage", text="Changed", id="i3"),
            *item(translator, "completed", "plan", text="A plan", id="i4"),
        ]
    ) == [["text", "HelloWholeOtherA plan"]]


def test_parts_of_a_reasoning_summary_are_paragraphs() -> None:
    translator = started()
    found = [
        *tell(translator, "item/reasoning/summaryPartAdded", itemId="i1", summaryIndex=0),
        *tell(translator, "item/reasoning/summaryTextDelta", itemId="i1", delta="One", summaryIndex=0),
        *tell(translator, "item/reasoning/summaryPartAdded", itemId="i1", summaryIndex=1),
        *tell(translator, "item/reasoning/summaryTextDelta", itemId="i1", delta="Two", summaryIndex=1),
        *item(translator, "completed", "reasoning", summary=["One", "Two"], content=[]),
        *item(translator, "completed", "reasoning", summary=[], content=["Raw"], id="i2"),
    ]
    assert transcript(found) == [["thought", "One\n\nTwoRaw"]]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (
            {"type": "webSearch", "query": "cats"},
            [["call", "fetch", "Search the web: cats", "in_progress"], ["update", "completed", ""]],
        ),
        (
            {"type": "imageView", "path": "/p/a.png"},
            [
                ["call", "read", "Look at: /p/a.png", "pending"], ["update", "in_progress", ""],
                ["update", "completed", ""],
            ],
        ),
        (
            {"type": "mcpToolCall", "server": "s", "tool": "t", "arguments": {"a": 1}, "readOnlyHint": True,
             "result": {"content": [TEXT, {"type": "image", "data": "AA", "mimeType": "x/y"}]}},
            [
                ["call", "read", "s: t", "pending"], ["update", "in_progress", ""],
                ["update", "completed", "oneContentItem"],
            ],
        ),
        (
            {"type": "mcpToolCall", "server": "s", "tool": "t", "status": "failed", "error": {"message": "broken"}},
            [["call", "other", "s: t", "pending"], ["update", "in_progress", ""], ["update", "failed", "broken"]],
        ),
        (
            {"type": "dynamicToolCall", "namespace": "n", "tool": "t", "success": False,
             "contentItems": [{"type": "inputText", "text": "no"}]},
            [["call", "other", "n__t", "pending"], ["update", "in_progress", ""], ["update", "failed", "no"]],
        ),
        (
            {"type": "commandExecution", "command": "ls src", "cwd": "/p", "processId": "1", "exitCode": 0,
             "commandActions": [{"type": "listFiles", "command": "ls src", "path": "src"}], "aggregatedOutput": "a"},
            [["call", "search", "ls src", "in_progress"], ["update", "completed", "a"]],
        ),
        (
            {"type": "fileChange", "status": "failed", "changes": [
                {"path": "/p/a", "kind": {"type": "delete"}, "diff": "old\n"},
                {"path": "/p/b", "kind": {"type": "update", "move_path": None}, "diff": "not a diff"},
            ]},
            [
                ["call", "delete", "Delete a, b", "pending"], ["update", "in_progress", ""],
                ["update", "failed", "/p/a: 'old\\n' -> ''not a diff"],
            ],
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_an_item_is_a_call_of_a_tool(members: dict[str, Any], expected: list[list[Any]]) -> None:
    translator = started()
    kind = members["type"]
    rest = {name: value for name, value in members.items() if name != "type"}
    begun = {"status": "inProgress", "result": None, "error": None, "contentItems": None, "success": None}
    found = item(translator, "started", kind, **(rest | begun))
    found += item(translator, "completed", kind, **({"status": "completed"} | rest))
    assert transcript(found) == expected


def test_updates_of_a_long_output_grow_apart_and_show_its_end() -> None:
    translator = started()
    item(translator, "started", "commandExecution", command="yes", cwd="/p", processId="1")
    found: list[Any] = []
    for number in range(5_000):
        found += tell(translator, "item/commandExecution/outputDelta", itemId="i1", delta=f"{number:09}\n")
    shown = ["".join(part.content.text for part in update.content) for update in found]
    assert len(shown) < 130
    assert max(map(len, shown)) <= 16_001
    assert sum(map(len, shown)) < 600_000


def test_a_sub_agent_works_inside_the_call_that_started_it() -> None:
    translator = started()
    spawn = {"tool": "spawnAgent", "prompt": "Look", "receiverThreadIds": ["C"], "id": "spawn"}
    found = [
        *item(translator, "started", "collabAgentToolCall", **(spawn | {"receiverThreadIds": []})),
        *item(translator, "completed", "collabAgentToolCall", **spawn, status="completed"),
        *tell(translator, "item/agentMessage/delta", threadId="C", itemId="m", delta="Seen"),
        *item(translator, "started", "commandExecution", command="ls", cwd="/p", processId="1", id="ls", thread="C"),
        *tell(translator, "item/agentMessage/delta", threadId="X", itemId="m", delta="Of a stranger"),
        *tell(translator, "turn/completed", threadId="C", turn={"id": "c", "status": "completed"}),
        *completed(translator),
    ]
    assert transcript(found) == [
        ["call", "other", "Start an agent: Look", "in_progress"],
        ["text of a sub-agent", "Seen"],
        ["call", "execute", "ls", "in_progress"],
        ["update", "completed", "This call was still running when the turn ended."],
        ["update", "completed", ""],
        ["end", "end_turn", None, None],
    ]
    inner: Any = found[2]
    assert inner.meta == {"claudeCode": {"parentToolUseId": "spawn"}}


def test_the_end_of_a_command_that_outlived_its_turn_is_not_a_new_call() -> None:
    translator = started()
    item(translator, "started", "commandExecution", command="sleep 9", cwd="/p", processId="1")
    completed(translator, "interrupted")
    translator.begin()
    assert item(translator, "completed", "commandExecution", command="sleep 9", cwd="/p", exitCode=143) == []


def test_usage_is_that_of_the_turn_and_its_sub_agents() -> None:
    def counts(calls: int) -> dict[str, int]:
        return {"totalTokens": 110 * calls, "inputTokens": 100 * calls, "cachedInputTokens": 20 * calls,
                "outputTokens": 10 * calls, "reasoningOutputTokens": 3 * calls}  # fmt: skip

    def told(thread: str, calls: int) -> list[Output]:
        usage = {"total": counts(calls), "last": counts(1), "modelContextWindow": 1_000}
        return tell(translator, "thread/tokenUsage/updated", threadId=thread, tokenUsage=usage)

    translator = started()
    assert told("T", 5) == [wire.UsageUpdate(used=110, size=1_000)]  # four calls were made before this process
    told("C", 1)
    once = TurnUsage(
        total_tokens=220, input_tokens=160, output_tokens=20, thought_tokens=6, cached_read_tokens=40
    )  # fmt: skip
    assert completed(translator) == [CodexTurnEnd("end_turn", once, None, 1)]
    translator.begin()
    told("T", 6)
    told("T", 6)
    assert translator.end()[-1] == CodexTurnEnd(
        "end_turn",
        TurnUsage(total_tokens=110, input_tokens=80, output_tokens=10, thought_tokens=3, cached_read_tokens=20),
        None,
        1,
    )


def test_calls_of_the_model_are_counted_by_turn_and_without_those_of_sub_agents() -> None:
    def told(thread: str, calls: int) -> None:
        usage = {"total": {"totalTokens": calls}, "last": {"totalTokens": 1}, "modelContextWindow": 1_000}
        tell(translator, "thread/tokenUsage/updated", threadId=thread, tokenUsage=usage)

    translator = started()
    for thread, calls in (("T", 1), ("C", 1), ("T", 2), ("T", 2), ("C", 2)):
        told(thread, calls)
    [end] = completed(translator)
    assert isinstance(end, CodexTurnEnd)
    assert end.model_calls == 2
    translator.begin()
    assert [end.model_calls for end in translator.end() if isinstance(end, CodexTurnEnd)] == [0]


def test_an_error_that_is_tried_again_is_a_notice_and_a_last_one_is_the_end() -> None:
    error = {"message": "Limit", "codexErrorInfo": "usageLimitExceeded"}
    translator = started()
    found = [
        *tell(translator, "error", error={"message": "Busy"}, willRetry=True),
        *tell(translator, "error", error=error, willRetry=False),
        *completed(translator, "failed", error),
    ]
    assert transcript(found) == [
        ["notice", "warning", "Codex tries again: Busy"], ["end", "end_turn", None, "usageLimitExceeded"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([("turn/completed", {"turn": {"id": "turn", "status": "completed", "error": {"message": "no"}}})], ["no"]),
        ([("turn/completed", {"turn": {"id": "turn", "status": "interrupted", "error": {"message": "no"}}})], ["no"]),
        ([("turn/completed", {"turn": {"id": "turn", "status": "failed"}})], ["The turn ended as failed."]),
        ([("turn/completed", {"turn": {"id": "turn", "status": "new"}})], ["The turn ended as new."]),
        (
            [("error", {"error": {"message": "hidden"}}), ("turn/completed", {"turn": DONE})],
            ["hidden"],
        ),
        ([("turn/completed", {"turn": {"id": "other", "status": "completed"}})], []),
        ([("turn/completed", {"turn": {"id": "turn", "status": "inProgress"}})], []),
    ],
)  # fmt: skip
def test_an_error_in_a_turn_that_looks_completed_is_a_failure(
    events: list[tuple[str, dict[str, Any]]], expected: list[str]
) -> None:
    translator = started()
    found = [output for method, params in events for output in tell(translator, method, **params)]
    failures = [output.failure for output in found if isinstance(output, CodexTurnEnd)]
    assert [failure_text(failure) for failure in failures if failure is not None] == expected


def test_an_error_after_an_answer_is_a_notice() -> None:
    translator = started()
    tell(translator, "item/agentMessage/delta", itemId="i1", delta="Done.")
    tell(translator, "error", error={"message": "late"})
    assert transcript(completed(translator)) == [["notice", "error", "late"], ["end", "end_turn", None, None]]


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ("unauthorized", True), ({"httpConnectionFailed": {"httpStatusCode": 401}}, True), ({"new": 401}, False),
        ({"httpConnectionFailed": {"httpStatusCode": None}}, False), ("usageLimitExceeded", False), (None, False),
    ],
)  # fmt: skip
def test_a_refused_login_is_told_from_other_errors(info: Any, expected: bool) -> None:
    assert needs_login(TurnFailure(message="x", codex_error_info=info)) is expected


def test_plans_titles_warnings_and_compactions_are_reported() -> None:
    translator = started()
    found: list[Any] = []
    steps = [{"step": "a", "status": "completed"}, {"step": "b", "status": "inProgress"}, {"step": "c", "status": "?"}]
    found += tell(translator, "turn/plan/updated", explanation=None, plan=steps)
    for _ in range(2):
        found += tell(translator, "warning", message="Careful")
    found += tell(translator, "configWarning", summary="Odd", details="key x")
    found += tell(translator, "mcpServer/startupStatus/updated", name="s", status="failed", error="gone")
    found += tell(translator, "mcpServer/startupStatus/updated", name="s", status="ready", error=None)
    found += tell(translator, "model/rerouted", fromModel="a", toModel="b", reason="x")
    found += tell(translator, "thread/name/updated", threadName="A title")
    found += item(translator, "started", "contextCompaction")
    found += item(translator, "completed", "contextCompaction")
    assert found == [
        wire.PlanUpdate(
            entries=tuple(
                wire.PlanItem(content=name, priority="medium", status=status)  # type: ignore[arg-type]
                for name, status in (("a", "completed"), ("b", "in_progress"), ("c", "pending"))
            )
        ),
        wire.NoticeUpdate(severity="warning", title="Careful"),
        wire.NoticeUpdate(severity="warning", title="Odd key x"),
        wire.NoticeUpdate(severity="warning", title="The MCP server 's' did not start. gone"),
        wire.NoticeUpdate(severity="warning", title="Codex uses b instead of a."),
        wire.SessionInfoUpdate(title="A title"),
        wire.CompactionUpdate(compaction_id="i1", status="in_progress"),
        wire.CompactionUpdate(compaction_id="i1", status="completed"),
    ]


def test_what_is_not_known_or_cannot_be_read_is_counted() -> None:
    translator = started()
    assert tell(translator, "thread/dreamt", about="sheep") == []
    assert tell(translator, "thread/dreamt", about="sheep") == []
    assert tell(translator, "account/rateLimits/updated", rateLimits={}) == []
    assert tell(translator, "item/agentMessage/delta", itemId=7, delta="x") == []
    assert item(translator, "completed", "hologram") == []
    assert item(translator, "completed", "userMessage", content=[]) == []
    assert translator.on_notification("turn/completed", None) == []
    assert translator.drift.counts == {
        "thread/dreamt": 2, "item/agentMessage/delta": 1, "item hologram": 1, "turn/completed": 1,
    }  # fmt: skip


def test_a_line_costs_a_few_microseconds(record_measure: RecordMeasure) -> None:
    lines = [
        (turn, [(line["method"], msgspec.Raw(json.dumps(line["params"]).encode())) for line in turn.lines])
        for _, turn in TURNS
    ]
    number = sum(len(told) for _, told in lines)
    fastest = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for turn, told in lines:
            translator = begun(turn)
            for method, params in told:
                translator.on_notification(method, params)
        fastest = min(fastest, time.perf_counter() - began)
    each = fastest / number * 1e6
    record_measure("codex: translation of a line", "20 µs", f"{each:.1f} µs")
    assert each < 20 * slack()
