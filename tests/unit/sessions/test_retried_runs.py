"""A run that failed is asked again on the conversation as it is: no second message, and no words that broke off."""

from __future__ import annotations

import pytest
from support.session_trials import MODEL_REF, Trial

from makai.core import session_events as ev
from makai.core.messages import UserMessage
from makai.harness.base import StartCompaction, StartRun
from makai.sessions import commands as cmd
from makai.sessions.history import history
from makai.sessions.state import fold

FAILED = ev.RunFailed(code="overloaded", message="Try later.")


def retry(trial: Trial, token: str = "") -> cmd.RetryRun:
    return cmd.RetryRun(now=trial.now, run_id=trial.run.run_id, input_id="again", token=token)


def failed_after_some_words() -> Trial:
    trial = Trial().create()
    terms = ev.RunTerms(max_turns=3, token="laptop/1")
    trial.do(cmd.Send(now=trial.now, input_id="i1", content="Hi", terms=terms))
    trial.report(ev.TurnStarted(turn=1), ev.AssistantTextDelta(content_index=0, delta="I beg"), FAILED)
    return trial


def test_a_retried_run_has_the_terms_of_the_failed_one_and_no_second_message() -> None:
    trial = failed_after_some_words()
    failed = trial.run.run_id
    trial.do(retry(trial, token="phone/2"))

    assert trial.of(ev.RunStarted)[-1] == ev.RunStarted(
        run_number=2,
        model_ref=MODEL_REF,
        terms=ev.RunTerms(max_turns=3, token="phone/2"),
        input_id="again",
        retried_run_id=failed,
    )
    assert [event.content for event in trial.of(ev.UserInput)] == ["Hi"]
    assert trial.effects_of(StartRun)[-1] == StartRun(run_id=trial.run.run_id, input_id="again", model_ref=MODEL_REF)
    assert history(trial.log).messages() == (UserMessage(content="Hi"),)
    assert trial.state == fold(trial.log)


def test_the_second_of_two_retries_is_refused() -> None:
    trial = failed_after_some_words()
    both = retry(trial)
    trial.do(both)
    assert trial.refusal(both) == "STALE_RUN_ID"


def test_words_that_broke_off_stay_in_the_conversation_when_a_tool_ran_with_them() -> None:
    trial = Trial().create()
    trial.send("Hi")
    trial.call("c1")
    trial.run_tool("c1")
    trial.report(ev.TurnStarted(turn=2), ev.AssistantTextDelta(content_index=0, delta="I beg"), FAILED)
    before = history(trial.log).messages()
    trial.do(retry(trial))
    assert history(trial.log).messages() == before[:-1]
    assert [type(message).__name__ for message in before] == [
        "UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage"
    ]  # fmt: skip


def test_a_failed_compaction_is_compacted_again() -> None:
    trial = Trial().create()
    trial.send("Hi")
    trial.answer("Hello.")
    trial.do(cmd.Compact(now=trial.now, input_id="k"))
    trial.report(FAILED)
    trial.do(retry(trial))
    assert trial.run.purpose == "compaction"
    assert len(trial.effects_of(StartCompaction)) == 2


@pytest.mark.parametrize("ending", [ev.RunFinished(stop_reason="end_turn"), ev.RunFinished(stop_reason="aborted")])
def test_a_run_that_did_not_fail_is_not_retried(ending: ev.RunFinished) -> None:
    trial = Trial().create()
    trial.send("Hi")
    trial.report(ending)
    assert trial.refusal(retry(trial)) == "INVALID_COMMAND"


def test_an_agent_that_keeps_its_conversation_is_sent_the_message_again_instead() -> None:
    trial = Trial()
    able = ev.HarnessCapabilities(has_turns=False, needs_model=False)
    trial.do(cmd.Create(now=trial.now, model_ref="", harness="claude-code", capabilities=able))
    trial.send("Hi")
    trial.report(FAILED)
    assert trial.refusal(retry(trial)) == "INVALID_COMMAND"
