"""Everything a session refuses, and with which word. `Trial.refusal` checks that nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from support.session_trials import MODEL_REF, Trial, asked, finished

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import LogConflict
from makai.sessions import commands as cmd
from makai.sessions.engine import MAX_WAITING
from makai.sessions.state import evolve

Situation: TypeAlias = Callable[[], Trial]

unknown: Situation = Trial


def idle() -> Trial:
    trial = Trial().create()
    trial.send("earlier")
    trial.call("old", ask=True)
    trial.approve("old")
    trial.run_tool("old")
    trial.answer("done", turn=2)
    return trial


def after(earlier: Situation, step: Callable[[Trial], object]) -> Situation:
    def situation() -> Trial:
        trial = earlier()
        step(trial)
        return trial

    return situation


closed = after(idle, lambda trial: trial.do(cmd.Close(now=1)))
running = after(idle, lambda trial: trial.send("now"))
in_a_turn = after(running, lambda trial: trial.report(ev.TurnStarted(turn=1)))
called = after(running, lambda trial: trial.call("c1"))
asking = after(running, lambda trial: trial.call("c1", ask=True))
decided = after(asking, lambda trial: trial.approve("c1"))
started = after(decided, lambda trial: trial.report(ev.ToolStarted(call_id="c1")))
aborting = after(asking, lambda trial: trial.do(cmd.Abort(now=1)))
crowded = after(running, lambda trial: [trial.send(str(number), "queue") for number in range(MAX_WAITING)])


def send(text: str = "hello", **fields: object) -> cmd.Send:
    return cmd.Send(**({"now": 1, "input_id": "i1", "content": text} | fields))  # type: ignore[arg-type]


def approve(call_id: str = "c1", **fields: object) -> cmd.ApproveCall:
    return cmd.ApproveCall(**({"now": 1, "call_id": call_id, "by": "web"} | fields))  # type: ignore[arg-type]


def deny(call_id: str = "c1", **fields: object) -> cmd.DenyCall:
    return cmd.DenyCall(**({"now": 1, "call_id": call_id, "by": "web"} | fields))  # type: ignore[arg-type]


COMMANDS: list[tuple[Situation, cmd.Command, str]] = [
    # send
    (running, send(), "BUSY"),
    (asking, send(), "BUSY"),
    (aborting, send(), "BUSY"),
    (crowded, send(delivery="queue"), "BUSY"),
    (crowded, send(delivery="steer"), "BUSY"),
    (idle, send("  \n"), "BAD_ARGUMENT"),
    (idle, send(content=()), "BAD_ARGUMENT"),
    (idle, send(input_id=""), "BAD_ARGUMENT"),
    (idle, send(client_msg_id=""), "BAD_ARGUMENT"),
    (idle, send(client_msg_id="x" * 257), "BAD_ARGUMENT"),
    (running, send(delivery="shout"), "BAD_ARGUMENT"),
    (crowded, send(input_id="input-1", delivery="queue"), "BUSY"),
    # withdraw
    (idle, cmd.WithdrawInput(now=1, input_id="input-earlier"), "INPUT_NOT_WAITING"),
    (crowded, cmd.WithdrawInput(now=1, input_id="input-now"), "INPUT_NOT_WAITING"),
    (crowded, cmd.WithdrawInput(now=1, input_id=""), "INPUT_NOT_WAITING"),
    # approve and deny
    (decided, approve(), "APPROVAL_CONFLICT"),
    (decided, deny(), "APPROVAL_CONFLICT"),
    (started, approve(), "APPROVAL_CONFLICT"),
    (aborting, approve(), "APPROVAL_CONFLICT"),
    (idle, approve("old"), "APPROVAL_CONFLICT"),
    (called, approve(), "APPROVAL_CONFLICT"),
    (asking, approve("never"), "UNKNOWN_CALL_ID"),
    (idle, deny("never"), "UNKNOWN_CALL_ID"),
    (asking, approve(by=""), "BAD_ARGUMENT"),
    (asking, approve(by="rule"), "BAD_ARGUMENT"),
    (asking, approve(scope="eternity"), "BAD_ARGUMENT"),
    (asking, approve(scope="session"), "BAD_ARGUMENT"),
    (asking, approve(digest="of other arguments"), "APPROVAL_CONFLICT"),
    # abort
    (idle, cmd.Abort(now=1), "NOT_RUNNING"),
    (idle, cmd.Abort(now=1, run_id="r"), "NOT_RUNNING"),
    (running, cmd.Abort(now=1, run_id="of yesterday"), "STALE_RUN_ID"),
    # the session
    (idle, cmd.Create(now=1, model_ref=MODEL_REF), "SESSION_EXISTS"),
    (unknown, cmd.Create(now=1, model_ref=" "), "BAD_ARGUMENT"),
    (unknown, cmd.Create(now=1, model_ref=MODEL_REF, mode="yolo"), "BAD_ARGUMENT"),  # type: ignore[arg-type]
    (unknown, cmd.Create(now=1, model_ref=MODEL_REF, forked_from="s1"), "BAD_ARGUMENT"),
    (unknown, cmd.Create(now=1, model_ref=MODEL_REF, forked_at=3), "BAD_ARGUMENT"),
    (unknown, cmd.Create(now=1, model_ref=MODEL_REF, forked_from="s1", forked_at=-1), "BAD_ARGUMENT"),
    (unknown, cmd.Create(now=1, model_ref=MODEL_REF, made_by="a program"), "BAD_ARGUMENT"),
    (unknown, cmd.Archive(now=1), "UNKNOWN_SESSION"),
    (idle, cmd.SetMode(now=1, mode="yolo"), "BAD_ARGUMENT"),  # type: ignore[arg-type]
    (idle, cmd.SetModel(now=1, model_ref=""), "BAD_ARGUMENT"),
    (idle, cmd.SetTitle(now=1, title="x" * 501), "BAD_ARGUMENT"),
    (running, cmd.Close(now=1), "BUSY"),
    (running, cmd.Compact(now=1, input_id="k"), "BUSY"),
    (idle, cmd.Compact(now=1, input_id=""), "BAD_ARGUMENT"),
    (lambda: Trial().create(), cmd.Compact(now=1, input_id="k"), "INVALID_COMMAND"),
]


@pytest.mark.req("MC-RUN-005", "MC-RUN-010", "MC-APPR-005", "MC-APPR-006", "MC-CMD-009")
@pytest.mark.parametrize(("situation", "command", "code"), COMMANDS)
def test_a_command_that_does_not_fit_is_refused_and_changes_nothing(
    situation: Situation, command: cmd.Command, code: str
) -> None:
    assert situation().refusal(command) == code


FOR_ALL: list[cmd.Command] = [
    send(),
    cmd.WithdrawInput(now=1, input_id="i1"),
    approve(),
    deny(),
    cmd.Abort(now=1),
    cmd.SetMode(now=1, mode="plan"),
    cmd.SetModel(now=1, model_ref=MODEL_REF),
    cmd.SetTitle(now=1, title="t"),
    cmd.Compact(now=1, input_id="k"),
    cmd.Close(now=1),
    cmd.Report(now=1, event=ev.PlanUpdated(entries=()), run_id="r"),
]


@pytest.mark.parametrize("command", FOR_ALL)
def test_nothing_can_be_asked_of_a_session_that_is_not_there_or_closed(command: cmd.Command) -> None:
    assert unknown().refusal(command) == "UNKNOWN_SESSION"
    assert closed().refusal(command) == "SESSION_CLOSED"


REPORTS: list[tuple[Situation, ev.SessionEvent, str]] = [
    # what is not for agents to say
    (running, ev.SessionCreated(model_ref=MODEL_REF), "INVALID_COMMAND"),
    (running, ev.RunStatusChanged(status="finished"), "INVALID_COMMAND"),
    (running, ev.InputAccepted(input_id="i", content="x"), "INVALID_COMMAND"),
    (running, ev.SessionArchived(archived=True), "INVALID_COMMAND"),
    (running, ev.InputWithdrawn(input_id="i"), "INVALID_COMMAND"),
    (running, ev.ModeChanged(mode="never_ask"), "INVALID_COMMAND"),
    # turns
    (in_a_turn, ev.TurnStarted(turn=2), "INVALID_COMMAND"),
    (called, ev.TurnStarted(turn=1), "INVALID_COMMAND"),
    (called, ev.TurnStarted(turn=2), "INVALID_COMMAND"),
    (running, ev.TurnEnded(turn=1, stop_reason="end_turn"), "INVALID_COMMAND"),
    (in_a_turn, ev.TurnEnded(turn=2, stop_reason="end_turn"), "INVALID_COMMAND"),
    (running, ev.AssistantText(content_index=0, text="x"), "INVALID_COMMAND"),
    (running, ev.AssistantTextDelta(content_index=0, delta="x"), "INVALID_COMMAND"),
    (running, ev.UserInput(input_id="unknown", content="x"), "INPUT_NOT_WAITING"),
    # calls
    (running, ev.ToolCalled(call_id="c9", name="shell", arguments_json="{}"), "INVALID_COMMAND"),
    (in_a_turn, ev.ToolCalled(call_id="old", name="shell", arguments_json="{}"), "BAD_ARGUMENT"),
    (in_a_turn, ev.ToolCalled(call_id="", name="shell", arguments_json="{}"), "BAD_ARGUMENT"),
    (called, asked("never"), "UNKNOWN_CALL_ID"),
    (asking, asked("c1"), "INVALID_COMMAND"),
    (
        called,
        ev.ApprovalRequested(call_id="c1", name="shell", arguments_json='{"command":"rm"}', digest="d"),
        "BAD_ARGUMENT",
    ),
    (asking, ev.ToolStarted(call_id="c1"), "INVALID_COMMAND"),
    (started, ev.ToolStarted(call_id="c1"), "INVALID_COMMAND"),
    (called, ev.ToolStarted(call_id="never"), "UNKNOWN_CALL_ID"),
    (called, ev.ToolStarted(call_id="old"), "INVALID_COMMAND"),
    (asking, finished("c1"), "INVALID_COMMAND"),
    (called, finished("old"), "INVALID_COMMAND"),
    (asking, ev.ApprovalDecided(call_id="c1", decision="approve", by="rule"), "APPROVAL_CONFLICT"),
    (called, ev.ApprovalDecided(call_id="c1", decision="deny_abort", by="rule"), "BAD_ARGUMENT"),
    (
        called,
        ev.ApprovalDecided(call_id="c1", decision="approve", by="rule", scope="session", grant="Bash(*)"),
        "BAD_ARGUMENT",
    ),
    # the end
    (in_a_turn, ev.RunFinished(stop_reason="end_turn"), "INVALID_COMMAND"),
    (running, ev.RunFinished(stop_reason="error"), "BAD_ARGUMENT"),
    (running, ev.Compacted(summary="", through=1), "BAD_ARGUMENT"),
    (running, ev.Compacted(summary="s", through=0), "BAD_ARGUMENT"),
    (running, ev.Compacted(summary="s", through=10_000), "BAD_ARGUMENT"),
]


@pytest.mark.parametrize(("situation", "event", "code"), REPORTS)
def test_a_report_that_breaks_a_rule_is_refused(situation: Situation, event: ev.SessionEvent, code: str) -> None:
    assert situation().report_refusal(event) == code


def test_words_are_read_once_in_order_and_not_in_the_middle_of_a_turn() -> None:
    trial = in_a_turn()
    trial.send("later", "queue")
    trial.send("careful", "steer")
    trial.send("very careful", "steer")
    read = ev.UserInput(input_id="input-careful", content="careful")
    assert trial.report_refusal(read) == "INVALID_COMMAND"
    for other in ("input-very careful", "input-later"):
        assert trial.report_refusal(ev.UserInput(input_id=other, content="x")) == "BAD_ARGUMENT"
    trial.report(ev.TurnEnded(turn=1, stop_reason="end_turn"), read)

    assert trial.report_refusal(read) == "INPUT_NOT_WAITING"


def test_a_compaction_has_no_turns_and_reads_no_words() -> None:
    trial = idle()
    trial.do(cmd.Compact(now=1, input_id="k"))
    assert trial.send("careful", "steer").effects == ()

    assert trial.report_refusal(ev.TurnStarted(turn=1)) == "INVALID_COMMAND"
    assert trial.report_refusal(ev.UserInput(input_id="input-careful", content="careful")) == "INVALID_COMMAND"


def test_a_summary_cannot_end_inside_the_turn_that_is_open() -> None:
    trial = in_a_turn()
    inside = trial.state.last_event_id
    assert trial.report_refusal(ev.Compacted(summary="s", through=inside)) == "BAD_ARGUMENT"
    trial.report(ev.Compacted(summary="s", through=inside - 1))

    assert trial.report_refusal(ev.Compacted(summary="s", through=inside - 1)) == "BAD_ARGUMENT"


def test_what_belongs_to_a_run_has_to_name_it() -> None:
    assert running().refusal(cmd.Report(now=1, event=finished("c1"))) == "INVALID_COMMAND"


def test_arguments_that_break_the_schema_end_in_an_error_result_without_a_start() -> None:
    trial = called()
    trial.report(finished("c1", "arguments: command is required", is_error=True))
    trial.answer("sorry", turn=2)

    assert trial.run.status == "finished"


def test_a_message_of_parts_is_a_message() -> None:
    assert idle().do(send(content=(Text(text="hello"),))).events != ()


def test_an_event_that_is_out_of_place_is_no_part_of_the_log() -> None:
    trial = idle()
    stale = ev.Logged(event_id=trial.state.last_event_id, ts=1, event=ev.PlanUpdated(entries=()))
    with pytest.raises(LogConflict, match="cannot follow"):
        evolve(trial.state, stale)
