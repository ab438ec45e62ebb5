"""What an answer said that was aborted or failed is in the log as whole blocks, before its end."""

from __future__ import annotations

import pytest
from support.session_trials import Trial

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.messages import AssistantMessage
from makai.sessions import commands as cmd
from makai.sessions import open_texts
from makai.sessions.engine import Batch
from makai.sessions.history import history
from makai.sessions.log.base import Pending
from makai.sessions.log.encoding import MAX_EVENT_BYTES, encoded


def delta(text: str, index: int = 0, parent: str = "") -> ev.AssistantTextDelta:
    return ev.AssistantTextDelta(content_index=index, delta=text, parent_call_id=parent)


def broken_off(text: str, index: int = 0) -> ev.AssistantText:
    return ev.AssistantText(content_index=index, text=text, broken_off=True)


def texts(trial: Trial) -> list[ev.AssistantText]:
    return [logged.event for logged in trial.log if isinstance(logged.event, ev.AssistantText)]


@pytest.mark.req("MC-RUN-009")
def test_an_abort_logs_what_was_said_and_then_that_the_run_is_aborted(trial: Trial) -> None:
    trial.report(
        ev.TurnStarted(turn=1), ev.ReasoningDelta(content_index=0, delta="Hm"), delta("Hel", 1), delta("lo", 1)
    )
    before = len(trial.log)
    trial.do(cmd.Abort(now=trial.now))
    trial.report(delta(" there", 1), ev.AssistantText(content_index=1, text="Hello there"))
    trial.report(ev.RunFinished(stop_reason="aborted"))

    assert [logged.event for logged in trial.log[before:]] == [
        ev.Reasoning(content_index=0, text="Hm", broken_off=True),
        broken_off("Hello", 1),
        ev.RunStatusChanged(status="aborting"),
        ev.RunAborted(),
        ev.TurnEnded(turn=1, stop_reason="aborted"),
        ev.RunStatusChanged(status="finished"),
        ev.RunFinished(stop_reason="aborted"),
    ]


@pytest.mark.parametrize("with_deltas", [True, False])
def test_readers_with_and_without_deltas_have_the_same_words(trial: Trial, with_deltas: bool) -> None:
    trial.report(ev.TurnStarted(turn=1), ev.AssistantText(content_index=0, text="One."), delta("Tw", 1), delta("o", 1))
    trial.do(cmd.Abort(now=trial.now))
    trial.report(ev.RunFinished(stop_reason="aborted"))
    told = history(each for each in trial.log if with_deltas or not isinstance(each.event, ev.Delta))

    (_, answer) = told.messages()
    assert isinstance(answer, AssistantMessage)
    assert answer.content == (Text(text="One."), Text(text="Two"))
    assert [(item.text, item.whole) for item in told.items()[1:3]] == [("One.", True), ("Two", False)]  # type: ignore[union-attr]


def test_a_text_that_is_whole_already_is_not_said_again(trial: Trial) -> None:
    whole = ev.AssistantText(content_index=0, text="Hello")
    trial.report(ev.TurnStarted(turn=1), delta("Hel"), delta("lo"), whole, delta("", 1))
    trial.do(cmd.Abort(now=trial.now))

    assert texts(trial) == [whole]


def test_words_of_an_earlier_turn_and_of_a_sub_agent_are_not_taken_for_the_answer(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), delta("Fail"), ev.TurnEnded(turn=1, stop_reason="error"))
    trial.report(ev.TurnStarted(turn=2), ev.ToolCalled(call_id="c1", name="task", arguments_json="{}"))
    trial.report(delta("of a sub-agent", 0, "c1"), delta("Mine"))
    trial.report(ev.AssistantText(content_index=0, text="of a sub-agent", parent_call_id="c1"))
    trial.do(cmd.Abort(now=trial.now))

    assert texts(trial)[1:] == [broken_off("Mine")]


def test_an_answer_that_a_limit_of_the_run_ended_is_whole_too(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), delta("Half"), ev.TurnEnded(turn=1, stop_reason="aborted"))

    assert trial.last(2) == [broken_off("Half"), ev.TurnEnded(turn=1, stop_reason="aborted")]


def test_an_answer_that_failed_stays_in_deltas_because_it_may_be_asked_for_again(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), delta("Half"), ev.TurnEnded(turn=1, stop_reason="error"))
    trial.report(ev.RunFailed(code="overloaded", message="Too busy."))

    assert texts(trial) == []


def test_an_answer_that_failed_for_good_is_whole_too(trial: Trial) -> None:
    thought = ev.ReasoningDelta(content_index=0, delta="Hm")
    ended = ev.TurnEnded(turn=1, stop_reason="error", is_final=True)
    trial.report(ev.TurnStarted(turn=1), thought, delta("Half", 1), ended)
    trial.report(ev.RunFailed(code="overloaded", message="Too busy."))

    assert trial.last(5) == [
        ev.Reasoning(content_index=0, text="Hm", broken_off=True),
        broken_off("Half", 1),
        ended,
        ev.RunStatusChanged(status="error"),
        ev.RunFailed(code="overloaded", message="Too busy."),
    ]
    (_, answer) = history(each for each in trial.log if not isinstance(each.event, ev.Delta)).messages()
    assert answer.content == (Text(text="Half"),)  # type: ignore[union-attr]


def test_a_run_that_fails_in_the_middle_of_a_turn_logs_what_was_said(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), delta("Half"), ev.RunFailed(code="agent_ended", message="It ended."))

    assert trial.last(4) == [
        broken_off("Half"),
        ev.TurnEnded(turn=1, stop_reason="error"),
        ev.RunStatusChanged(status="error"),
        ev.RunFailed(code="agent_ended", message="It ended."),
    ]


def test_an_abort_after_a_restart_does_not_repeat_what_the_failed_turn_said(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), delta("Before"))
    trial.restart()
    trial.report(ev.TurnStarted(turn=2), delta("After"))
    trial.do(cmd.Abort(now=trial.now))
    trial.restart()

    assert texts(trial) == [broken_off("After")]
    assert trial.last(1) == [ev.RunFinished(stop_reason="aborted")]


def test_a_batch_adds_its_own_words_to_the_committed_ones_and_one_that_is_dropped_leaves_no_trace(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), delta("com"), delta("mitted"))
    for _ in range(2):
        batch = Batch(trial.state, trial.open_texts)
        batch.take(cmd.Report(now=1, event=delta(", then"), run_id=trial.run.run_id))
        batch.take(cmd.Report(now=1, event=delta(" more"), run_id=trial.run.run_id))
        batch.take(cmd.Abort(now=1))
        assert broken_off("committed, then more") in [logged.event for logged in batch.events]


@pytest.mark.parametrize("text", ["\x01", "\U0001f389"])
def test_an_answer_of_any_length_can_be_aborted(trial: Trial, text: str) -> None:
    trial.report(ev.TurnStarted(turn=1), delta(text * open_texts.MAX_LENGTH))
    (longest,) = trial.open_texts.broken_off()
    (body,) = encoded([Pending(0, None, longest)])
    assert len(body.event) <= MAX_EVENT_BYTES
    trial.report(delta("x"), delta("y"))
    trial.do(cmd.Abort(now=trial.now))

    assert texts(trial) == []


def test_an_answer_in_very_many_pieces_can_be_aborted(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), *(delta("x", index) for index in range(open_texts.MAX_BLOCKS + 1)))
    trial.report(ev.AssistantText(content_index=0, text="x"))

    assert trial.open_texts.broken_off() == ()
    trial.report(ev.TurnEnded(turn=1, stop_reason="end_turn"), ev.TurnStarted(turn=2), delta("Short"))
    assert trial.open_texts.broken_off() == (broken_off("Short"),)
