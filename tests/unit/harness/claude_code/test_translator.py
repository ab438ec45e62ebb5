"""Lines of Claude Code as updates: every recorded stream as a whole, and lines that were never recorded."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from support.claude_lab import CAPTURES, recorded
from support.fixtures import FIXTURES

from makai.harness.acp.updates_to_facts import UNPRICED
from makai.harness.claude_code.output_lines import ControlAnswer
from makai.harness.claude_code.running_cost import anthropic_row
from makai.harness.claude_code.translator import (
    AgentsChanged,
    ClaudeTranslator,
    ClaudeTurnStarted,
    PermissionAsked,
    Signal,
    StateChanged,
)
from makai.harness.claude_code.turn_results import ClaudeFailure, ClaudeTurnResult
from makai.wire.acp import sessions, updates
from makai.wire.acp.common import TextBlock

GOLDEN = FIXTURES / "claude" / "golden.json"


def shown(signals: list[Signal]) -> list[str]:
    """Signals as lines for people; pieces of one text joined."""
    found: list[str] = []
    open_text: tuple[str, str | None] | None = None
    for signal in signals:
        match signal:
            case updates.AgentMessageChunk() | updates.AgentThoughtChunk():
                assert isinstance(signal.content, TextBlock)
                block = (type(signal).__name__, signal.message_id)
                if block == open_text:
                    found[-1] += signal.content.text
                else:
                    found.append(f"{block[0]} {signal.content.text}")
                open_text = block
                continue
            case ClaudeTurnStarted():
                found.append("ClaudeTurnStarted")
            case ControlAnswer(subtype=subtype):
                found.append(f"ControlAnswer {subtype}")
            case PermissionAsked(tool_name=name, tool_call=call, suggestions=suggestions):
                kinds = [suggestion["type"] for suggestion in suggestions]
                found.append(f"PermissionAsked {name} {msgspec.json.encode(call).decode()} {kinds}")
            case other:
                found.append(f"{type(other).__name__} {msgspec.json.encode(other).decode()}")
        open_text = None
    return found


def translated(lines: list[bytes]) -> list[Signal]:
    translator = ClaudeTranslator()
    signals: list[Signal] = []
    for line in lines:
        said = translator.feed(line)
        assert said is not None, line
        signals += said
    assert dict(translator.drift.counts) == {}
    return signals


@pytest.mark.parametrize("name", CAPTURES)
def test_a_recorded_stream_becomes_these_updates(name: str) -> None:
    assert shown(translated(recorded(name))) == json.loads(GOLDEN.read_text())[name]


@pytest.mark.parametrize("name", CAPTURES)
def test_every_text_of_a_recorded_stream_is_reported_once(name: str) -> None:
    texts: list[str] = []
    for line in recorded(name):
        message = json.loads(line)
        if message["type"] == "assistant" and not message.get("is_api_error_message"):
            texts += [block["text"] for block in message["message"]["content"] if block["type"] == "text"]
    reported = [line.partition(" ")[2] for line in shown(translated(recorded(name))) if line.startswith("AgentMessage")]
    assert [text for text in reported if not text.startswith("Set model")] == texts


def feed(translator: ClaudeTranslator, **line: Any) -> list[Signal]:
    said = translator.feed(json.dumps(line).encode())
    assert said is not None
    return said


def test_unknown_lines_are_passed_over_and_counted() -> None:
    translator = ClaudeTranslator()
    assert feed(translator, type="hologram", subtype="new") == []
    assert feed(translator, type="system", subtype="brand_new") == []
    assert feed(translator, type="assistant", message={"content": [{"type": "hologram"}]}) == []
    assert feed(translator, type="assistant", message="not a message") == []
    assert feed(translator, type="keep_alive") == []
    assert translator.drift.counts == {
        "hologram/new": 1, "system/brand_new": 1, "assistant block hologram": 1, "assistant": 1,
    }  # fmt: skip
    assert (
        translator.drift.summary()
        == "assistant (1), assistant block hologram (1), hologram/new (1), system/brand_new (1)"
    )


@pytest.mark.parametrize(
    "line", [b"hello", b'{"type":', b"[1]", b"null", b'{"type": 5}', b"{}", b'{"type":"result"\xff}']
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    assert ClaudeTranslator().feed(line) is None


def test_a_block_that_was_streamed_in_part_is_completed() -> None:
    translator = ClaudeTranslator()
    feed(translator, type="stream_event", event={"type": "message_start", "message": {"id": "m"}})
    feed(translator, type="stream_event", event={"type": "content_block_start", "content_block": {"type": "text"}})
    delta = {"type": "text_delta", "text": "Hel"}
    assert shown(feed(translator, type="stream_event", event={"type": "content_block_delta", "delta": delta})) == [
        "AgentMessageChunk Hel"
    ]
    whole = {"id": "m", "content": [{"type": "text", "text": "Hello"}]}
    assert shown(feed(translator, type="assistant", message=whole)) == ["AgentMessageChunk lo"]
    assert shown(feed(translator, type="assistant", message=whole)) == ["AgentMessageChunk Hello"]


def test_a_sub_agent_in_the_background_keeps_its_call_open() -> None:
    translator = ClaudeTranslator()
    call = {"type": "tool_use", "id": "a", "name": "Agent", "input": {"description": "look"}}
    feed(translator, type="assistant", message={"id": "m", "content": [call]})
    feed(
        translator,
        type="system",
        subtype="task_started",
        tool_use_id="a",
        is_backgrounded=True,
        task_type="local_agent",
    )
    tasks = [{"task_type": "local_agent"}, {"task_type": "local_bash"}]
    assert feed(translator, type="system", subtype="background_tasks_changed", tasks=tasks) == [AgentsChanged(1)]
    result = {"type": "tool_result", "tool_use_id": "a", "content": "launched"}
    assert feed(translator, type="user", message={"content": [result]}) == [
        updates.ToolCallUpdate(tool_call_id="a", status="in_progress")
    ]
    inner = {"type": "text", "text": "below"}
    (chunk,) = feed(translator, type="assistant", message={"id": "n", "content": [inner]}, parent_tool_use_id="a")
    assert isinstance(chunk, updates.AgentMessageChunk)
    assert chunk.meta == {"claudeCode": {"parentToolUseId": "a"}}
    assert feed(
        translator, type="system", subtype="task_notification", tool_use_id="a", status="completed", summary="found"
    ) == [
        updates.ToolCallUpdate(
            tool_call_id="a",
            status="completed",
            content=(updates.ContentItem(content=TextBlock(text="found")),),
        )
    ]


def test_a_plan_is_a_plan_and_no_call() -> None:
    translator = ClaudeTranslator()
    todos = [{"content": "Look", "status": "in_progress", "activeForm": "Looking"}]
    call = {"type": "tool_use", "id": "p", "name": "TodoWrite", "input": {"todos": todos}}
    result = {"type": "tool_result", "tool_use_id": "p", "content": "ok"}
    assert feed(translator, type="assistant", message={"content": [call]}) == [
        updates.PlanUpdate(entries=(updates.PlanItem(content="Look", priority="medium", status="in_progress"),))
    ]
    assert feed(translator, type="user", message={"content": [result]}) == []


def test_changes_are_shown_with_the_call_and_with_its_result() -> None:
    translator = ClaudeTranslator({"/w/a.txt": "old"}.get)
    call = {"type": "tool_use", "id": "w", "name": "Write", "input": {"file_path": "/w/a.txt", "content": "new"}}
    diff = updates.DiffItem(path="/w/a.txt", old_text="old", new_text="new")
    (called,) = feed(translator, type="assistant", message={"content": [call]})
    assert isinstance(called, updates.NewToolCall)
    assert (called.title, called.kind, called.content) == ("Write /w/a.txt", "edit", (diff,))
    assert called.locations == (updates.Location(path="/w/a.txt"),)
    result = {"type": "tool_result", "tool_use_id": "w", "content": [{"type": "text", "text": "done"}]}
    assert feed(translator, type="user", message={"content": [result]}) == [
        updates.ToolCallUpdate(
            tool_call_id="w",
            status="completed",
            content=(diff, updates.ContentItem(content=TextBlock(text="done"))),
        )
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            {"subtype": "api_retry", "attempt": 1, "max_retries": 10, "error": "overloaded", "error_status": 529},
            updates.NoticeUpdate(
                severity="warning",
                title="The model did not answer: overloaded (529). Attempt 1 of 10 follows",
            ),
        ),
        (
            {"subtype": "status", "status": "compacting"},
            updates.CompactionUpdate(compaction_id="compaction", status="in_progress"),
        ),
        ({"subtype": "compact_boundary"}, updates.CompactionUpdate(compaction_id="compaction", status="completed")),
        ({"subtype": "status", "permissionMode": "plan"}, updates.CurrentModeUpdate(current_mode_id="plan")),
        ({"subtype": "session_state_changed", "state": "idle"}, StateChanged("idle")),
    ],
)
def test_system_lines_are_told(line: dict[str, Any], told: Signal) -> None:
    assert feed(ClaudeTranslator(), type="system", **line) == [told]


def test_an_mcp_server_that_does_not_work_is_told_once() -> None:
    translator, servers = (
        ClaudeTranslator(),
        [{"name": "docs", "status": "failed"}, {"name": "ok", "status": "connected"}],
    )
    told = feed(translator, type="system", subtype="init", session_id="s", mcp_servers=servers)
    assert told == [
        ClaudeTurnStarted("s"), updates.NoticeUpdate(severity="warning", title="The MCP server 'docs' did not start"),
    ]  # fmt: skip
    assert feed(translator, type="system", subtype="init", session_id="s", mcp_servers=servers) == [
        ClaudeTurnStarted("s")
    ]


@pytest.mark.parametrize(
    ("line", "result"),
    [
        (
            {"subtype": "success", "is_error": True, "result": "Not logged in · Please run /login"},
            ClaudeTurnResult(failure=ClaudeFailure(message="Not logged in · Please run /login", needs_login=True)),
        ),
        (
            {"subtype": "success", "is_error": True, "result": "API Error: 429 slow down", "api_error_status": 429},
            ClaudeTurnResult(
                failure=ClaudeFailure(
                    message="API Error: 429 slow down",
                    hint="Wait until your limit is reset, or choose another model.",
                )
            ),
        ),
        ({"subtype": "error_max_turns", "is_error": True}, ClaudeTurnResult(stop_reason="max_turn_requests")),
        ({"subtype": "success", "stop_reason": "max_tokens"}, ClaudeTurnResult(stop_reason="max_tokens")),
        ({"subtype": "success", "stop_reason": "refusal"}, ClaudeTurnResult(stop_reason="refusal")),
        (
            {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_tools"},
            ClaudeTurnResult(stop_reason="cancelled"),
        ),
        (
            {"subtype": "error_during_execution", "errors": [{"message": "a"}, "b"]},
            ClaudeTurnResult(failure=ClaudeFailure(message="a; b")),
        ),
        ({"subtype": 7, "is_error": "yes", "usage": [], "modelUsage": 3, "total_cost_usd": "x", "errors": {}},
         ClaudeTurnResult(failure=ClaudeFailure(message="It ended with 7."))),
    ],
)  # fmt: skip
def test_the_end_of_a_turn(line: dict[str, Any], result: ClaudeTurnResult) -> None:
    assert feed(ClaudeTranslator(), type="result", **line) == [result]


def test_the_cost_of_a_resumed_session_counts_from_where_this_process_began() -> None:
    translator = ClaudeTranslator()
    since = {"m": {"costUSD": 0.5}}
    usage = {"input_tokens": 3, "output_tokens": 2}
    feed(translator, type="assistant", message={"content": [], "usage": usage})
    models = {"m": {"contextWindow": 1000}}
    said = feed(
        translator,
        type="result",
        total_cost_usd=9.0,
        model_usage_since_last_result=since,
        usage=usage,
        modelUsage=models,
    )
    assert said == [
        updates.UsageUpdate(used=5, size=1000, cost=updates.Cost(amount=0.5, currency="USD")),
        ClaudeTurnResult(usage=sessions.TurnUsage(total_tokens=5, input_tokens=3, output_tokens=2)),
    ]
    feed(translator, type="result", total_cost_usd=9.25)
    assert translator.cost_usd == 0.75


def test_what_a_turn_costs_is_estimated_while_it_runs_and_exact_at_its_end() -> None:
    translator = ClaudeTranslator(row_of=anthropic_row)
    row = anthropic_row("claude-sonnet-4-5-20250929")
    assert row is not None
    assert row.price is not None
    started = {"id": "m", "model": "claude-sonnet-4-5-20250929", "usage": {"input_tokens": 1_000_000}}
    of_sub_agent = {"id": "s", "model": "claude-sonnet-4-5", "usage": {"output_tokens": 100_000}, "content": []}

    begun = feed(translator, type="stream_event", event={"type": "message_start", "message": started})
    again = feed(translator, type="stream_event", event={"type": "message_start", "message": started})
    more = feed(translator, type="stream_event", event={"type": "message_delta", "usage": {"output_tokens": 1_000_000}})
    nested = feed(translator, type="assistant", message=of_sub_agent, parent_tool_use_id="call")
    ended = feed(translator, type="result", subtype="success", total_cost_usd=7.5, usage={})

    costs = [
        signal.cost.amount
        for signal in (*begun, *again, *more, *nested, *ended)
        if isinstance(signal, updates.UsageUpdate) and signal.cost is not None
    ]
    whole = row.price.input + row.price.output
    assert costs == pytest.approx([row.price.input, whole, whole + row.price.output / 10, 7.5])
    assert anthropic_row("claude-sonnet-4-5[1m]") == row
    assert anthropic_row("us.anthropic.claude-sonnet-4-5-20250929-v1:0") == row
    assert anthropic_row("claude-sonnet-4-5@20250929") == row
    assert anthropic_row("of another vendor") is None


def test_a_model_without_a_price_is_named_once_in_a_turn() -> None:
    translator = ClaudeTranslator(row_of=anthropic_row)
    started = {"type": "message_start", "message": {"id": "m", "model": "own", "usage": {"input_tokens": 1}}}
    more = {"type": "message_delta", "usage": {"output_tokens": 1_000_000}}
    unpriced = updates.UsageUpdate(used=0, size=0, meta={UNPRICED: "own"})

    assert feed(translator, type="stream_event", event=started) == [unpriced]
    assert feed(translator, type="stream_event", event=more) == []
    feed(translator, type="result", subtype="success")
    assert feed(translator, type="stream_event", event=started) == [unpriced]
