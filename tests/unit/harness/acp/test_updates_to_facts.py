"""What agents say, in their many ways, as facts of a session."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from makai.core import session_events as ev
from makai.core.content import Image, ResourceLink, Text
from makai.core.usage import Usage
from makai.harness.acp.updates_to_facts import FactMapper
from makai.wire.acp import updates as wire


class Agent:
    """Says updates as JSON, and keeps the facts they become."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.facts: list[ev.SessionEvent] = []
        self.mapper = FactMapper(self._fresh, usage_before=Usage(input=5), terminal_text=lambda name: f"$ in {name}")

    def _fresh(self, wanted: str) -> str:
        name = wanted if wanted not in self.seen else f"{wanted}#2"
        self.seen.add(name)
        return name

    def says(self, update_kind: str, /, **members: Any) -> list[ev.SessionEvent]:
        update = wire.session_update(msgspec.Raw(json.dumps({"sessionUpdate": update_kind, **members}).encode()))
        assert update is not None
        facts = self.mapper.facts(update)
        self.facts += facts
        return facts

    def calls(self, **members: Any) -> list[ev.SessionEvent]:
        return self.says("tool_call", **({"toolCallId": "a", "title": "A"} | members))

    def updates(self, **members: Any) -> list[ev.SessionEvent]:
        return self.says("tool_call_update", **({"toolCallId": "a"} | members))

    def asks(self, **members: Any) -> ev.ToolCalled:
        raw = json.dumps({"toolCallId": "a"} | members).encode()
        asked = self.mapper.question(msgspec.json.decode(raw, type=wire.ToolCallFields))
        self.facts += asked.facts
        asked.call.status = "asked"
        return asked.logged


def text(words: str) -> dict[str, Any]:
    return {"content": {"type": "text", "text": words}}


def kinds(facts: list[ev.SessionEvent]) -> list[str]:
    return [str(type(fact).__struct_config__.tag) for fact in facts]


@pytest.mark.req("ACP-CLIENT-004")
def test_a_block_ends_with_another_kind_another_message_a_call_and_the_answer() -> None:
    agent = Agent()
    agent.says("agent_thought_chunk", **text("Hm"))
    agent.says("agent_message_chunk", **text("One"), messageId="1")
    agent.says("agent_message_chunk", **text(""), messageId="2")
    agent.says("agent_message_chunk", **text("Two"), messageId="2")
    agent.calls(status="in_progress")
    agent.says("agent_message_chunk", **text("Three"))
    agent.facts += agent.mapper.end()
    assert agent.facts == [
        ev.ReasoningDelta(content_index=0, delta="Hm"),
        ev.Reasoning(content_index=0, text="Hm"),
        ev.AssistantTextDelta(content_index=1, delta="One"),
        ev.AssistantText(content_index=1, text="One"),
        ev.AssistantTextDelta(content_index=2, delta="Two"),
        ev.AssistantText(content_index=2, text="Two"),
        ev.ToolCalled(call_id="a", name="tool", arguments_json="{}", content_index=3, vendor_call_id="a", title="A"),
        ev.ToolStarted(call_id="a"),
        ev.AssistantTextDelta(content_index=4, delta="Three"),
        ev.AssistantText(content_index=4, text="Three"),
        ev.ToolFinished(call_id="a", content=(Text(text="The agent did not say how this call ended."),)),
    ]


def test_a_call_is_logged_with_the_arguments_that_come_later() -> None:
    agent = Agent()
    assert agent.calls(status="pending", rawInput={}) == []
    assert agent.calls(toolCallId="b", title="B", status="pending", rawInput={}) == []
    assert kinds(agent.updates(rawInput={"command": "ls"}, title="ls", _meta={"claudeCode": {"toolName": "Bash"}})) == [
        "tool_call"
    ]
    agent.says("usage_update", used=1, size=2)
    assert kinds(agent.says("agent_message_chunk", **text("Hi"))) == ["tool_call", "text_delta"]
    called = [fact for fact in agent.facts if isinstance(fact, ev.ToolCalled)]
    assert [(call.name, call.title, call.arguments_json) for call in called] == [
        ("Bash", "ls", '{"command": "ls"}'),
        ("tool", "B", "{}"),
    ]


def test_a_call_without_an_id_and_one_that_names_itself_have_no_parent() -> None:
    agent = Agent()
    own = {"_meta": {"claudeCode": {"parentToolUseId": "p"}}}
    agent.calls(toolCallId="", status="in_progress")
    agent.says("agent_message_chunk", **text("One"))
    agent.calls(toolCallId="p", status="in_progress", **own)
    agent.asks(toolCallId="p", rawInput={"x": 1}, **own)
    agent.says("agent_message_chunk", **text("Two"), **own)
    agent.updates(toolCallId="", status="completed")
    agent.facts += agent.mapper.end()
    parents = [(kinds([fact])[0], parent) for fact in agent.facts if (parent := getattr(fact, "parent_call_id", None))]
    assert parents == [("text_delta", "p#2"), ("assistant_text", "p#2")]
    assert [fact.call_id for fact in agent.facts if isinstance(fact, ev.ToolCalled)] == ["", "p", "p#2"]


@pytest.mark.req("ACP-CLIENT-005")
def test_an_update_replaces_the_given_fields_only_and_the_end_has_all_of_them() -> None:
    agent = Agent()
    agent.calls(kind="edit", rawInput={"path": "/f"}, locations=[{"path": "/f", "line": 3}])
    assert agent.updates(status="in_progress", title="Edit f") == [
        ev.ToolUpdated(call_id="a", title="Edit f", status="in_progress"),
        ev.ToolStarted(call_id="a"),
    ]
    diff = {"type": "diff", "path": "/f", "oldText": "a", "newText": "b"}
    shown = {"type": "content", "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"}}
    agent.updates(content=[diff, shown, {"type": "terminal", "terminalId": "t1"}])
    assert agent.updates(status="completed", rawOutput={"ok": True}) == [
        ev.ToolFinished(
            call_id="a",
            content=(Image(data="aGk=", mime_type="image/png"), Text(text="$ in t1")),
            diffs=(ev.FileDiff(path="/f", old_text="a", new_text="b"),),
            details_json='{"ok": true}',
        )
    ]
    assert agent.updates(status="failed", title="No") == []  # a final status never changes
    assert agent.mapper.end() == []


@pytest.mark.parametrize(
    ("members", "content"),
    [
        ({"rawOutput": "plain"}, (Text(text="plain"),)),
        ({"rawOutput": {"a": 1}}, (Text(text='{"a": 1}'),)),
        ({"rawOutput": None}, ()),
        ({}, ()),
        (
            {"content": [{"type": "content", "content": {"type": "resource_link", "uri": "file:///x", "name": "x"}}]},
            (ResourceLink(uri="file:///x", name="x"),),
        ),
    ],
)
def test_the_result_of_a_call_is_its_content_or_its_raw_output(members: dict[str, Any], content: Any) -> None:
    agent = Agent()
    agent.calls(status="failed", **members)
    assert agent.facts[-1] == ev.ToolFinished(call_id="a", content=content, is_error=True)


def test_a_call_that_was_never_announced_and_one_whose_id_is_used_again_are_calls() -> None:
    agent = Agent()
    assert kinds(agent.updates(status="completed", title="A")) == ["tool_call", "tool_started", "tool_finished"]
    assert kinds(agent.calls(status="completed")) == ["tool_call", "tool_started", "tool_finished"]
    assert [fact.call_id for fact in agent.facts if isinstance(fact, ev.ToolCalled)] == ["a", "a#2"]


def test_a_question_is_about_the_arguments_that_it_shows() -> None:
    agent = Agent()
    agent.calls(rawInput={"command": "ls"})
    assert agent.asks(rawInput={"command":"ls"}).call_id == "a"  # fmt: skip
    agent = Agent()
    agent.calls(rawInput={"command": "ls"})
    logged = agent.asks(rawInput={"command": "rm -r /"}, title="List")
    assert (logged.call_id, logged.arguments_json) == ("a#2", '{"command": "rm -r /"}')
    assert kinds(agent.facts) == ["tool_call", "tool_finished", "tool_call"]


def test_what_an_agent_does_with_a_denied_call_is_never_logged_as_started() -> None:
    agent = Agent()
    agent.asks(title="Remove", kind="delete")
    call = agent.mapper.call_of("a")
    assert call is not None
    assert agent.mapper.decided(call, approved=False) == []
    assert agent.updates(status="in_progress") == [ev.ToolUpdated(call_id="a", status="in_progress")]
    assert kinds(agent.updates(status="completed")) == ["tool_finished"]


def test_what_was_said_about_a_call_while_it_was_asked_counts_after_the_decision() -> None:
    agent = Agent()
    agent.asks(title="Remove")
    assert kinds(agent.updates(status="in_progress")) == ["tool_updated"]
    assert agent.updates(status="completed") == []
    call = agent.mapper.call_of("a")
    assert call is not None
    assert kinds(agent.mapper.decided(call, approved=True)) == ["tool_started", "tool_finished"]


def test_a_sub_agent_ends_with_the_call_in_which_it_runs() -> None:
    agent = Agent()
    inside = {"_meta": {"claudeCode": {"parentToolUseId": "a"}}}
    agent.calls(status="in_progress")
    agent.calls(toolCallId="b", title="B", status="in_progress", **inside)
    agent.says("agent_message_chunk", **text("Looking"), **inside)
    agent.updates(status="completed")
    agent.updates(toolCallId="b", status="completed", **inside)
    agent.facts += agent.mapper.end()
    parents = [getattr(fact, "parent_call_id", "") for fact in agent.facts]
    assert list(zip(kinds(agent.facts), parents, strict=True)) == [
        ("tool_call", ""), ("tool_started", ""), ("tool_call", "a"), ("tool_started", ""), ("text_delta", "a"),
        ("assistant_text", "a"), ("tool_finished", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "meta", [{"claudeCode": 1}, {"claudeCode": {"toolName": 7, "parentToolUseId": ["a"]}}, {"sessionId": "x"}]
)
def test_strange_metadata_changes_nothing(meta: dict[str, Any]) -> None:
    agent = Agent()
    agent.calls(status="in_progress", kind="read", _meta=meta)
    assert agent.facts[0] == ev.ToolCalled(
        call_id="a", name="read", arguments_json="{}", vendor_call_id="a", kind="read", title="A"
    )


@pytest.mark.req("ACP-CLIENT-005")
def test_plans_usage_notices_and_compaction_are_facts() -> None:
    agent = Agent()
    agent.says("plan", entries=[{"content": "One", "priority": "high", "status": "pending"}])
    agent.says("usage_update", used=10, size=100, cost={"amount": 0.5, "currency": "USD"})
    agent.says("notice", severity="error", title="Slow", description="very")
    agent.says("compaction_update", compactionId="c", status="in_progress")
    agent.says("compaction_summary_chunk", compactionId="c", **text("We "))
    agent.says("compaction_summary_chunk", compactionId="c", **text("met."))
    agent.says("compaction_update", compactionId="c", status="completed")
    agent.says("compaction_update", compactionId="d", status="failed", error="too long")
    agent.says("user_message_chunk", **text("echo"))
    assert agent.facts == [
        ev.PlanUpdated(entries=(ev.PlanEntry(content="One", status="pending", priority="high"),)),
        ev.UsageReported(total=Usage(input=5, cost_usd=0.5), context_tokens=10, context_window=100),
        ev.Notice(level="error", code="agent_notice", message="Slow: very"),
        ev.Notice(level="info", code="compacted", message="The agent summarised its conversation:\nWe met."),
        ev.Notice(
            level="warning",
            code="compaction_failed",
            message="The agent could not summarise its conversation: too long.",
        ),
    ]
