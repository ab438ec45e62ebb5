"""Sub-agents of the native loop: they take turns while a call of their parent is open, and end with it."""

from __future__ import annotations

from support.session_trials import Trial, asked, finished

from makai.core import session_events as ev
from makai.core.usage import Usage
from makai.sessions.history import history


def nested(call_id: str, parent_call_id: str) -> ev.ToolCalled:
    return ev.ToolCalled(
        call_id=call_id, name="shell", arguments_json=f'{{"of":"{call_id}"}}', parent_call_id=parent_call_id
    )


def test_a_sub_agent_takes_turns_between_two_turns_of_its_parent(trial: Trial) -> None:
    trial.call("task")
    trial.report(ev.ToolStarted(call_id="task"), ev.TurnStarted(turn=1, parent_call_id="task"))
    trial.report(ev.AssistantText(content_index=0, text="I look", parent_call_id="task"), nested("look", "task"))
    trial.report(ev.TurnEnded(turn=1, stop_reason="tool_use", usage=Usage(output=3), parent_call_id="task"))
    assert (trial.run.turn, trial.run.turn_open, trial.run.usage) == (1, False, Usage(input=10, output=8))
    assert trial.report_refusal(ev.TurnStarted(turn=2)) == "INVALID_COMMAND"  # both calls are open

    trial.report(ev.ToolStarted(call_id="look"), finished("look"), finished("task"))
    trial.answer("done", turn=2)
    said = str(history(trial.log).messages())
    assert "done" in said
    assert "I look" not in said


def test_what_a_sub_agent_says_needs_the_open_call_it_runs_in(trial: Trial) -> None:
    trial.call("task")
    for fact in (
        ev.TurnStarted(turn=1, parent_call_id="other"),
        ev.AssistantText(content_index=0, text="lost", parent_call_id="other"),
        nested("look", "other"),
    ):
        assert trial.report_refusal(fact) == "INVALID_COMMAND"


def test_a_parent_that_ends_withdraws_the_questions_of_its_sub_agents_and_closes_their_calls(trial: Trial) -> None:
    trial.call("task")
    trial.report(ev.ToolStarted(call_id="task"), nested("inner", "task"), ev.ToolStarted(call_id="inner"))
    trial.report(nested("innermost", "inner"))
    question = ev.ApprovalRequested(
        call_id="innermost", name="shell", arguments_json='{"of":"innermost"}', digest="digest"
    )
    trial.report(question)
    assert trial.run.status == "awaiting_approval"

    trial.report(finished("task"))
    assert [(fact.call_id, fact.interrupted) for fact in trial.of(ev.ToolFinished)] == [
        ("innermost", False),
        ("inner", True),
        ("task", False),
    ]
    assert [(fact.call_id, fact.decision) for fact in trial.of(ev.ApprovalDecided)] == [("innermost", "deny_continue")]
    assert (trial.run.status, trial.run.calls) == ("running", {})


def test_updates_of_a_call_are_logged_while_it_is_open(trial: Trial) -> None:
    trial.call("c1", ask=True)
    before = len(trial.log)
    trial.report(ev.ToolUpdated(call_id="c1", title="Reading"))
    trial.approve("c1")
    trial.run_tool("c1")
    trial.report(ev.ToolUpdated(call_id="c1", title="late"))
    assert [fact.title for fact in trial.of(ev.ToolUpdated)] == ["Reading"]
    assert isinstance(trial.events()[before], ev.ToolUpdated)
    assert asked("c1") == trial.of(ev.ApprovalRequested)[0]
