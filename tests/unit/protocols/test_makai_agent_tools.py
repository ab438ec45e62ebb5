"""Tools and permissions in a session's scope: who is told what, once, and which answers count."""

from __future__ import annotations

import pytest
from support.agent_server import AgentServer, asked, called, events_of, execution, kinds
from support.wire import NOW_MS, Server, code_of, envelope

from makai.core import session_events as ev
from makai.protocols.makai.agent_payloads import ToolResultMessage
from makai.protocols.makai.commands import AnswerTool


@pytest.fixture
def server() -> AgentServer:
    """A client that is attached to its session, in which a run is active."""
    server = AgentServer().attached()
    server.running()
    return server


@pytest.mark.req("MK-TOOL-002", "MK-TOOL-003", "MK-TOOL-004")
def test_a_client_is_told_to_execute_after_the_start_of_the_execution_and_its_result_is_taken_once(
    server: AgentServer,
) -> None:
    server.happens(called())
    server.agents.execute(server.session_id, execution())
    assert server.heard() == []
    frames = server.happens(ev.ToolStarted(call_id="c1"))
    assert kinds(frames) == ["agent_event", "tool_execute"]
    assert frames[1]["payload"] == {
        "tool_call_id": "c1",
        "tool_name": "look",
        "arguments": {"at": "sea"},
        "run_id": "run",
    }
    result = {"tool_call_id": "c1", "content": [{"type": "text", "text": "Water."}], "details_json": "{}"}
    (ack,) = server.ask("tool_result", result)
    assert (ack["type"], ack["in_reply_to"]) == ("ack", server.message_id)
    (answer,) = server.commands
    assert isinstance(answer, AnswerTool)
    assert isinstance(answer.result, ToolResultMessage)
    assert (answer.session_id, answer.result.tool_call_id) == (server.session_id, "c1")


def test_a_call_whose_start_was_told_already_is_executed_at_once(server: AgentServer) -> None:
    server.happens(called(), ev.ToolStarted(call_id="c1"))
    server.agents.execute(server.session_id, execution())
    assert kinds(server.heard()) == ["tool_execute"]


@pytest.mark.req("MK-TOOL-007", "MK-TOOL-008")
def test_results_are_matched_by_id_in_any_order_and_unknown_or_second_ones_are_nacked(server: AgentServer) -> None:
    for call_id in ("c1", "c2"):
        server.happens(called(call_id), ev.ToolStarted(call_id=call_id))
        server.agents.execute(server.session_id, execution(call_id))
    server.heard()
    answers = []
    for call_id in ("c2", "unknown", "c2", "c1"):
        (frame,) = server.ask("tool_result", {"tool_call_id": call_id, "content": "x"})
        answers.append((call_id, frame["payload"].get("error_code"), len(server.commands)))
    assert answers == [
        ("c2", None, 1),
        ("unknown", "tool_call_not_found", 0),
        ("c2", "tool_call_not_found", 0),
        ("c1", None, 1),
    ]


@pytest.mark.req("MK-TOOL-008", "MK-TOOL-010")
def test_a_result_that_nobody_wants_any_more_is_nacked(server: AgentServer) -> None:
    server.happens(called(), ev.ToolStarted(call_id="c1"))
    server.agents.execute(server.session_id, execution())
    server.agents.withdraw(server.session_id, "c1")
    server.heard()
    assert code_of(server.ask("tool_result", {"tool_call_id": "c1", "content": "late"})) == "tool_call_not_found"
    assert code_of(Server().say(envelope("tool_result", {"tool_call_id": "c1", "content": "?"}))) == "not_implemented"


def test_a_question_is_asked_and_settled_once_whoever_decided(server: AgentServer) -> None:
    question = asked(
        title="Look at the sea",
        diffs=(ev.FileDiff(path="a", old_text=None, new_text="b"),),
        deadline_ms=NOW_MS,
        grant="look",
    )
    server.happens(called())
    frames = server.happens(
        question, ev.ApprovalDecided(call_id="c1", decision="deny_continue", by="another", reason="No.")
    )
    assert [(frame["type"], frame["payload"]) for frame in frames] == [
        (
            "permission_request",
            {
                "tool_call_id": "c1",
                "tool_name": "look",
                "arguments": {"at": "sea"},
                "digest": "d1",
                "run_id": "run",
                "title": "Look at the sea",
                "diffs": [{"path": "a", "new_text": "b"}],
                "deadline_ms": NOW_MS,
                "grant": "look",
            },
        ),
        ("permission_settled", {"tool_call_id": "c1", "decision": "deny", "by": "another", "reason": "No."}),
    ]


def test_what_a_rule_decided_was_never_a_question(server: AgentServer) -> None:
    frames = server.happens(called(), ev.ApprovalDecided(call_id="c1", decision="approve", by="rule"))
    assert events_of(frames) == ["tool_call"]
    assert kinds(frames) == ["agent_event"]


def test_a_question_from_before_the_client_came_is_asked_once(server: AgentServer) -> None:
    server.agents.ask_again(server.session_id, asked(), "run")
    server.agents.ask_again(server.session_id, asked(), "run")
    assert kinds(server.heard()) == ["permission_request"]
    frames = server.happens(ev.ApprovalDecided(call_id="c1", decision="deny_abort", by="abort"))
    assert [frame["payload"]["decision"] for frame in frames] == ["abort"]


@pytest.mark.req("MK-TOOL-006")
def test_a_failed_tool_is_told_as_failed(server: AgentServer) -> None:
    frames = server.happens(
        called(), ev.ToolStarted(call_id="c1"), ev.ToolFinished(call_id="c1", content=(), is_error=True)
    )
    assert frames[-1]["payload"]["event"] == {"type": "tool_execution_end", "tool_call_id": "c1", "is_error": True}
