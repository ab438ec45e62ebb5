"""What becomes of a run when the server ends."""

from __future__ import annotations

import pytest
from support.session_trials import MODEL_REF, Trial

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.messages import StopReason
from makai.core.usage import Usage
from makai.harness.base import ResumeRun
from makai.sessions import commands as cmd
from makai.sessions.engine import MAX_RESUMES


def test_a_pending_approval_survives_a_restart_and_its_tool_runs_once(trial: Trial) -> None:
    trial.call("c1", "c2", ask=True)
    trial.approve("c2")
    decision = trial.restart()
    assert [logged.event for logged in decision.events] == [ev.RunResumed()]
    assert decision.effects == (ResumeRun(run_id=trial.run.run_id, model_ref=MODEL_REF),)
    assert trial.run.status == "awaiting_approval"
    assert {call.call_id: call.status for call in trial.run.calls.values()} == {"c1": "pending", "c2": "approved"}

    trial.approve("c1")
    trial.run_tool("c1")
    trial.run_tool("c2")
    trial.answer("done", turn=2)
    assert [effect.call_id for effect in trial.effects_of(cmd.RunTool)] == ["c1", "c2"]


def test_a_tool_that_ran_when_the_server_died_is_interrupted_and_never_run_again(trial: Trial) -> None:
    trial.call("c1")
    trial.report(ev.ToolStarted(call_id="c1"))
    trial.restart()

    assert trial.last(2) == [
        ev.ToolFinished(
            call_id="c1",
            content=(Text(text="The server ended while this tool ran; what it did is unknown."),),
            is_error=True,
            interrupted=True,
        ),
        ev.RunResumed(),
    ]
    assert trial.report_refusal(ev.ToolStarted(call_id="c1")) == "INVALID_COMMAND"


def test_a_call_of_an_answer_that_broke_off_is_not_run_when_the_server_died_before_it_was_dropped(trial: Trial) -> None:
    called = ev.ToolCalled(call_id="c1", name="read", arguments_json="{}", content_index=0)
    trial.report(ev.TurnStarted(turn=1), called, ev.TurnEnded(turn=1, stop_reason="error"))
    trial.restart()

    not_run = "Not run: the model's answer broke off before this tool started."
    assert trial.last(2) == [
        ev.ToolFinished(call_id="c1", content=(Text(text=not_run),), is_error=True),
        ev.RunResumed(),
    ]
    assert trial.run.calls == {}


def test_a_run_whose_harness_cannot_resume_is_closed_as_interrupted_and_the_queue_continues(trial: Trial) -> None:
    trial.send("go")
    trial.send("next", "queue")
    trial.call("c1", ask=True)
    before = len(trial.log)
    trial.restart(can_resume=False)

    assert trial.events()[before : before + 4] == [
        ev.ApprovalDecided(call_id="c1", decision="deny_abort", by="run_ended"),
        ev.ToolFinished(
            call_id="c1", content=(Text(text="Not run: the run failed before this tool started."),), is_error=True
        ),
        ev.RunStatusChanged(status="error"),
        ev.RunFailed(code="interrupted", message="The server ended during this run.", usage=Usage(input=10, output=5)),
    ]
    assert trial.of(ev.UserInput)[-1].content == "next"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        pytest.param(ev.AssistantTextDelta(content_index=0, delta="Hel"), "error", id="an answer is asked for again"),
        pytest.param(ev.ToolCalled(call_id="c1", name="shell", arguments_json="{}"), "tool_use", id="a call is one"),
    ],
)
def test_a_turn_that_broke_off_is_ended_and_the_run_continues(
    trial: Trial, said: ev.SessionEvent, reason: StopReason
) -> None:
    trial.report(ev.TurnStarted(turn=1), said)
    trial.restart()
    assert trial.last(2) == [ev.TurnEnded(turn=1, stop_reason=reason), ev.RunResumed()]

    if isinstance(said, ev.ToolCalled):
        trial.run_tool("c1")
    trial.answer("Hello", turn=2)
    assert trial.run.status == "finished"


def test_steering_words_are_handed_over_again_after_a_restart(trial: Trial) -> None:
    trial.send("go")
    trial.send("careful", "steer")

    assert trial.restart().effects[1:] == (
        cmd.Steer(run_id=trial.run.run_id, input_id="input-careful", content="careful"),
    )


def test_a_run_that_was_being_aborted_is_over_after_a_restart(trial: Trial) -> None:
    trial.send("go")
    trial.do(cmd.Abort(now=trial.now))
    trial.restart()

    assert trial.last(2) == [ev.RunStatusChanged(status="finished"), ev.RunFinished(stop_reason="aborted")]


def test_a_run_that_ends_the_server_every_time_is_given_up(trial: Trial) -> None:
    trial.send("go")
    outcomes = []
    for _ in range(MAX_RESUMES + 1):
        trial.report(ev.TurnStarted(turn=trial.run.turn + 1))
        trial.restart()
        outcomes.append(trial.run.status)

    assert outcomes == [*["running"] * MAX_RESUMES, "error"]
    assert trial.state.active_run is None


@pytest.mark.parametrize(("kept", "settlement"), [(0, [ev.RunFailed]), (1, [])], ids=["before it", "after it"])
def test_a_log_that_was_cut_at_the_settlement_gets_one_and_the_next_run_starts(
    trial: Trial, kept: int, settlement: list[type]
) -> None:
    trial.send("go")
    trial.send("next", "queue")
    trial.answer("done")
    cut = next(place for place, event in enumerate(trial.events()) if isinstance(event, ev.RunFinished)) + kept
    del trial.log[cut:]
    trial.restart()

    started = [ev.RunStarted, ev.RunStatusChanged, ev.UserInput]
    assert [type(event) for event in trial.events()[cut:]] == [*settlement, *started]
    assert trial.of(ev.UserInput)[-1].content == "next"


def test_a_restart_of_an_idle_a_closed_and_an_unknown_session_is_no_event(trial: Trial) -> None:
    assert trial.restart().events == ()
    trial.do(cmd.Close(now=trial.now))
    assert trial.restart().events == ()
    assert Trial().restart().events == ()
