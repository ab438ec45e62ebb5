"""What a session does with the commands it takes."""

from __future__ import annotations

import pytest
from support.session_trials import MODEL_REF, Trial, asked, finished

from makai.core import session_events as ev
from makai.core.content import Text, ToolCall, ToolResult
from makai.core.messages import AssistantMessage, ToolMessage, UserMessage
from makai.core.usage import Usage
from makai.harness.base import StartCompaction, StartRun
from makai.sessions import commands as cmd
from makai.sessions.history import history

OUTSIDE = "Not run: the run was over before this tool started."


# ---------------------------------------------------------------- plain runs


@pytest.mark.req("MC-RUN-001", "MC-RUN-004")
def test_a_plain_run_logs_its_whole_life_in_order(trial: Trial) -> None:
    trial.send("hello", client_msg_id="m1")
    run_id = trial.run.run_id
    trial.answer("hi")

    assert trial.events() == [
        ev.SessionCreated(model_ref=MODEL_REF),
        ev.RunStarted(run_number=1, model_ref=MODEL_REF),
        ev.RunStatusChanged(status="starting"),
        ev.UserInput(input_id="input-hello", content="hello", client_msg_id="m1"),
        ev.RunStatusChanged(status="running"),
        ev.TurnStarted(turn=1, model_ref=MODEL_REF),
        ev.AssistantText(content_index=0, text="hi"),
        ev.TurnEnded(turn=1, stop_reason="end_turn", usage=Usage(input=10, output=2)),
        ev.RunStatusChanged(status="finished"),
        ev.RunFinished(stop_reason="end_turn", usage=Usage(input=10, output=2)),
    ]
    assert [logged.event_id for logged in trial.log] == list(range(1, 11))
    assert {logged.run_id for logged in trial.log[1:]} == {run_id}
    assert trial.effects == [StartRun(run_id=run_id, input_id="input-hello", model_ref=MODEL_REF)]
    assert trial.state.active_run is None
    assert (trial.run.status, trial.run.finished_at, trial.run.has_tool_output) == ("finished", 1_000, False)
    assert trial.state.usage == Usage(input=10, output=2)


@pytest.mark.req("MC-RUN-004")
def test_a_history_is_logged_before_the_input_and_a_run_may_answer_it_without_one(trial: Trial) -> None:
    called = AssistantMessage(content=(ToolCall(tool_call_id="c1", name="look", arguments_json="{}"),))
    seen = ToolMessage(result=ToolResult(tool_call_id="c1", tool_name="look", content="Water."))
    asked, more = UserMessage(content="hello"), UserMessage(content="more")
    send = cmd.Send(now=1, input_id="i1", content=(), history=(asked, called, seen), continues=True, client_msg_id="m1")

    trial.do(send)
    trial.answer("hi")
    trial.do(send)  # a repetition
    trial.do(cmd.Send(now=1, input_id="i2", content="what?", history=(more,)))

    logged = [event for event in trial.events() if isinstance(event, ev.RunStarted | ev.HistoryMessage | ev.UserInput)]
    assert logged == [
        ev.RunStarted(run_number=1, model_ref=MODEL_REF, input_id="i1", client_msg_id="m1"),
        *(ev.HistoryMessage(message=message) for message in (asked, called, seen)),
        ev.RunStarted(run_number=2, model_ref=MODEL_REF),
        ev.HistoryMessage(message=more),
        ev.UserInput(input_id="i2", content="what?"),
    ]
    said = history(trial.log)
    assert said.messages()[:3] == (asked, called, seen)
    assert [type(item).__name__ for item in said.items()][:1] == ["UserItem"]
    assert trial.state.fresh_call_id("c1") != "c1"
    waiting = cmd.Send(now=1, input_id="i3", content="x", history=(more,), delivery="queue")
    assert trial.refusal(waiting) == "BUSY"
    trial.answer("nothing")
    assert trial.refusal(cmd.Send(now=1, input_id="i3", content="x", continues=True)) == "BAD_ARGUMENT"
    assert trial.refusal(cmd.Send(now=1, input_id="i3", content=(), history=(more,))) == "BAD_ARGUMENT"


def test_every_run_has_an_id_of_its_own_even_for_a_reused_input_id(trial: Trial) -> None:
    for _ in range(3):
        trial.send("same")
        trial.answer("yes")

    run_ids = [logged.run_id for logged in trial.log if isinstance(logged.event, ev.RunStarted)]
    assert len(set(run_ids)) == 3
    assert trial.state.run_counter == 3


@pytest.mark.proof("D7")
@pytest.mark.req("MC-RUN-006")
def test_a_repeated_client_msg_id_is_taken_without_effect_for_good(trial: Trial) -> None:
    trial.send("hello", client_msg_id="m1")
    during = trial.send("hello again", client_msg_id="m1")
    trial.answer("hi")
    after = trial.send("hello again", client_msg_id="m1")
    trial.restart()
    after_restart = trial.send("hello again", client_msg_id="m1")

    assert [decision.events for decision in (during, after, after_restart)] == [(), (), ()]
    assert [decision.effects for decision in (during, after, after_restart)] == [(), (), ()]


def test_a_queued_message_counts_as_seen_before_its_run_starts(trial: Trial) -> None:
    trial.send("one")
    trial.send("two", "queue", client_msg_id="m2")

    assert trial.send("two", "queue", client_msg_id="m2").events == ()


@pytest.mark.req("MC-RUN-007")
def test_a_failed_run_ends_in_one_error_and_the_session_continues(trial: Trial) -> None:
    trial.send("hello")
    trial.report(ev.TurnStarted(turn=1), ev.RunFailed(code="overloaded", message="Too busy."))

    assert trial.last(3) == [
        ev.TurnEnded(turn=1, stop_reason="error"),
        ev.RunStatusChanged(status="error"),
        ev.RunFailed(code="overloaded", message="Too busy."),
    ]
    trial.send("again")
    assert trial.run.run_number == 2


def test_a_run_that_reports_its_own_usage_is_believed(trial: Trial) -> None:
    trial.send("hello")
    trial.report(ev.RunFinished(stop_reason="end_turn", usage=Usage(input=7, output=3, cost_usd=0.5)))

    assert trial.state.usage == Usage(input=7, output=3, cost_usd=0.5)


def test_a_session_is_archived_while_it_runs_and_after_its_end_and_a_new_message_brings_it_back(trial: Trial) -> None:
    trial.send("hello")
    trial.do(cmd.Archive(now=1_000))
    trial.do(cmd.Archive(now=1_000))  # no second event
    assert (trial.last(1), trial.state.archived) == ([ev.SessionArchived(archived=True)], True)
    trial.answer("hi")
    assert trial.state.archived
    trial.send("hello", client_msg_id="m1")
    assert trial.events().count(ev.SessionArchived(archived=False)) == 1
    assert not trial.state.archived
    trial.do(cmd.Archive(now=1_000))
    trial.send("and", "queue")
    assert trial.last(2) == [
        ev.SessionArchived(archived=False),
        ev.InputAccepted(input_id="input-and", content="and"),
    ]
    trial.answer("done")
    trial.answer("done")
    trial.do(cmd.Archive(now=1_000))
    assert trial.send("hello", client_msg_id="m1").events == ()  # a repetition is no new message
    trial.do(cmd.Archive(now=1_000, archived=False))
    trial.do(cmd.Close(now=1_000))
    trial.do(cmd.Archive(now=1_000))
    assert (trial.state.archived, trial.state.closed) == (True, True)


def test_time_never_decreases_although_the_clock_goes_backwards(trial: Trial) -> None:
    trial.now = 5_000
    trial.send("hello")
    trial.now = 10
    trial.answer("hi")
    trial.now = 6_000
    trial.do(cmd.SetTitle(now=trial.now, title="later"))

    times = [logged.ts for logged in trial.log]
    assert times == sorted(times)
    assert (times[0], times[-2], times[-1]) == (1_000, 5_000, 6_000)


# ---------------------------------------------------------------- queue and steer


def test_queued_messages_start_their_own_runs_in_order(trial: Trial) -> None:
    for text in ("one", "two", "three"):
        trial.send(text, "queue")
    trial.answer("1")
    trial.answer("2")
    trial.answer("3")

    assert [event.content for event in trial.of(ev.UserInput)] == ["one", "two", "three"]
    assert [event.content for event in trial.of(ev.InputAccepted)] == ["two", "three"]
    assert len(trial.effects_of(StartRun)) == 3
    assert trial.state.waiting == ()


def test_steering_words_reach_the_running_loop_and_are_said_when_it_has_read_them(trial: Trial) -> None:
    trial.send("one")
    trial.call("c1")
    trial.send("careful", "steer")
    assert trial.effects[-1] == cmd.Steer(run_id=trial.run.run_id, input_id="input-careful", content="careful")

    trial.run_tool("c1")
    trial.report(ev.UserInput(input_id="input-careful", content="what a harness made of it"))
    trial.answer("ok", turn=2)

    assert trial.of(ev.UserInput)[-1] == ev.UserInput(input_id="input-careful", content="careful")
    assert trial.state.run_counter == 1


def test_steering_input_that_was_not_read_starts_the_next_run_before_the_queue(trial: Trial) -> None:
    trial.send("one")
    trial.send("queued", "queue")
    trial.send("first", "steer")
    trial.send("second", "steer")
    trial.answer("1")

    assert trial.of(ev.UserInput)[-1].content == "first"
    assert trial.effects[-1] == cmd.Steer(run_id=trial.run.run_id, input_id="input-second", content="second")
    trial.answer("2")
    trial.answer("3")
    assert [event.content for event in trial.of(ev.UserInput)] == ["one", "first", "second", "queued"]


def test_words_for_a_run_that_is_being_aborted_wait_for_the_next_one(trial: Trial) -> None:
    trial.send("one")
    trial.do(cmd.Abort(now=trial.now))
    decision = trial.send("two", "steer")
    assert decision.effects == ()

    trial.report(ev.RunFinished(stop_reason="aborted"))
    assert trial.of(ev.UserInput)[-1].content == "two"


# ---------------------------------------------------------------- abort


@pytest.mark.req("MC-RUN-008", "MC-RUN-009", "MC-APPR-004")
def test_an_abort_resolves_what_is_pending_closes_what_is_open_and_ends_once(trial: Trial) -> None:
    trial.call("c1", "c2", "c3")
    trial.report(ev.ToolStarted(call_id="c1"), asked("c2"))
    before = len(trial.log)
    trial.do(cmd.Abort(now=trial.now, by="web", reason="enough"))
    assert trial.effects[-2:] == [
        cmd.ResolveApproval(
            run_id=trial.run.run_id, decided=ev.ApprovalDecided(call_id="c2", decision="deny_abort", by="abort")
        ),
        cmd.CancelRun(run_id=trial.run.run_id),
    ]
    trial.report(ev.AssistantText(content_index=0, text="late"), ev.ToolProgress(call_id="c1", text="late"))
    trial.report(ev.RunFinished(stop_reason="end_turn"))

    assert trial.events()[before:] == [
        ev.RunStatusChanged(status="aborting"),
        ev.RunAborted(by="web", reason="enough"),
        ev.ApprovalDecided(call_id="c2", decision="deny_abort", by="abort"),
        ev.ToolFinished(
            call_id="c1",
            content=(Text(text="Interrupted: the run was over while this tool ran; what it did is unknown."),),
            is_error=True,
            interrupted=True,
        ),
        ev.ToolFinished(call_id="c2", content=(Text(text=OUTSIDE),), is_error=True),
        ev.ToolFinished(call_id="c3", content=(Text(text=OUTSIDE),), is_error=True),
        ev.RunStatusChanged(status="finished"),
        ev.RunFinished(stop_reason="aborted", usage=Usage(input=10, output=5)),
    ]


def test_a_tool_that_finishes_while_its_run_is_aborted_keeps_its_result(trial: Trial) -> None:
    trial.call("c1")
    trial.report(ev.ToolStarted(call_id="c1"))
    trial.do(cmd.Abort(now=trial.now))
    trial.report(finished("c1"), finished("c1"), ev.RunFailed(code="aborted", message="cancelled"))

    assert trial.of(ev.ToolFinished) == [finished("c1")]
    assert trial.last(1) == [ev.RunFinished(stop_reason="aborted", usage=Usage(input=10, output=5))]


def test_a_second_abort_changes_nothing(trial: Trial) -> None:
    trial.send("go")
    trial.do(cmd.Abort(now=trial.now))

    assert trial.do(cmd.Abort(now=trial.now, run_id=trial.run.run_id)).events == ()


def test_a_run_that_its_agent_aborted_reads_like_every_aborted_run(trial: Trial) -> None:
    trial.report(ev.RunFinished(stop_reason="aborted"))

    assert trial.last(4) == [
        ev.RunStatusChanged(status="aborting"),
        ev.RunAborted(by="agent"),
        ev.RunStatusChanged(status="finished"),
        ev.RunFinished(stop_reason="aborted"),
    ]


def test_late_reports_of_a_run_that_is_over_are_dropped(trial: Trial) -> None:
    trial.send("one")
    old = trial.run.run_id
    trial.call("c1", ask=True)
    trial.do(cmd.Abort(now=trial.now))
    trial.report(ev.RunFinished(stop_reason="aborted"))
    trial.send("two")

    for event in (ev.AssistantText(content_index=0, text="x"), finished("c1"), ev.RunFinished(stop_reason="end_turn")):
        assert trial.do(cmd.Report(now=trial.now, event=event, run_id=old)).events == ()


# ---------------------------------------------------------------- the session itself


def test_settings_are_events_only_when_they_change_something(trial: Trial) -> None:
    commands = (
        cmd.SetMode(now=1, mode="plan"),
        cmd.SetModel(now=1, model_ref="acme/acme-chat@two"),
        cmd.SetTitle(now=1, title="A plan"),
    )
    for command in commands * 2:
        trial.do(command)

    assert len(trial.log) == 4
    assert (trial.state.mode, trial.state.model_ref, trial.state.title) == ("plan", "acme/acme-chat@two", "A plan")


def test_a_new_model_is_for_the_next_run(trial: Trial) -> None:
    trial.send("one")
    trial.do(cmd.SetModel(now=1, model_ref="acme/acme-chat@two"))
    trial.answer("1")
    trial.send("two")

    assert [event.model_ref for event in trial.of(ev.RunStarted)] == [MODEL_REF, "acme/acme-chat@two"]


def test_a_mode_may_change_during_a_run(trial: Trial) -> None:
    trial.send("one")
    trial.do(cmd.SetMode(now=1, mode="never_ask"))

    assert trial.last(1) == [ev.ModeChanged(mode="never_ask")]
    assert trial.log[-1].run_id is None


def test_a_compaction_is_a_run_of_its_own(trial: Trial) -> None:
    trial.send("one")
    trial.answer("1")
    trial.do(cmd.Compact(now=1, input_id="k1", instructions="keep names"))
    assert trial.effects[-1] == StartCompaction(run_id=trial.run.run_id, instructions="keep names", model_ref=MODEL_REF)
    trial.report(ev.Compacted(summary="They said hello.", through=10), ev.RunFinished(stop_reason="end_turn"))

    assert trial.state.compacted_through == 10
    assert [type(event) for event in trial.last(6)] == [
        ev.RunStarted,
        ev.RunStatusChanged,
        ev.RunStatusChanged,
        ev.Compacted,
        ev.RunStatusChanged,
        ev.RunFinished,
    ]


def test_a_compaction_is_not_resumed(trial: Trial) -> None:
    trial.send("one")
    trial.answer("1")
    trial.do(cmd.Compact(now=1, input_id="k1"))
    trial.restart()

    assert trial.run.status == "error"


def test_a_fork_names_what_it_continues() -> None:
    trial = Trial()
    trial.do(cmd.Create(now=1, model_ref=MODEL_REF, forked_from="s1", forked_at=12))

    assert trial.events() == [ev.SessionCreated(model_ref=MODEL_REF, forked_from="s1", forked_at=12)]
    assert trial.do(cmd.Compact(now=1, input_id="k1")).effects != ()


def test_a_closed_session_still_takes_what_it_has_taken_before(trial: Trial) -> None:
    trial.send("one", client_msg_id="m1")
    trial.answer("1")
    trial.do(cmd.Close(now=1, reason="done"))

    assert trial.last(1) == [ev.SessionClosed(reason="done")]
    assert trial.send("one", client_msg_id="m1").events == ()


def test_notices_may_come_without_a_run(trial: Trial) -> None:
    notice = ev.Notice(level="warning", code="mcp_down", message="The server x does not answer.")
    trial.do(cmd.Report(now=1, event=notice))

    assert trial.last(1) == [notice]


def test_a_model_that_reuses_its_call_ids_gets_new_ones(trial: Trial) -> None:
    trial.send("go")
    assert trial.state.fresh_call_id("call_0") == "call_0"
    trial.call("call_0")
    trial.run_tool("call_0")
    second = trial.state.fresh_call_id("call_0")
    trial.call(second, turn=2)

    assert second == "call_0#2"
    assert trial.state.fresh_call_id("call_0") == "call_0#3"
    assert trial.state.fresh_call_id("") == "call#3"
