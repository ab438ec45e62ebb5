"""Calls that wait for a person."""

from __future__ import annotations

import msgspec
import pytest
from support.session_trials import Trial, asked, finished

from makai.core import session_events as ev
from makai.core.confinement import OfferedGrant
from makai.sessions import commands as cmd
from makai.sessions.state import Grant


def statuses(trial: Trial) -> list[str]:
    return [event.status for event in trial.of(ev.RunStatusChanged)]


@pytest.mark.proof("T4")
@pytest.mark.req("MC-APPR-001", "MC-APPR-002")
def test_an_approved_call_runs_once_its_start_is_logged(trial: Trial) -> None:
    trial.call("c1", ask=True)
    assert trial.last(2) == [asked("c1"), ev.RunStatusChanged(status="awaiting_approval")]
    assert [call.call_id for call in trial.run.pending()] == ["c1"]

    decision = trial.approve("c1")
    decided = ev.ApprovalDecided(call_id="c1", decision="approve", by="web")
    assert [logged.event for logged in decision.events] == [decided, ev.RunStatusChanged(status="running")]
    assert decision.effects == (cmd.ResolveApproval(run_id=trial.run.run_id, decided=decided),)
    assert trial.run.pending() == ()

    trial.report(ev.ToolStarted(call_id="c1"))
    assert trial.effects[-1] == cmd.RunTool(run_id=trial.run.run_id, call_id="c1")
    trial.report(finished("c1"))
    trial.answer("done", turn=2)
    assert trial.run.has_tool_output


@pytest.mark.req("MC-APPR-003")
def test_a_denied_call_does_not_run_and_the_run_continues(trial: Trial) -> None:
    trial.call("c1", ask=True)
    trial.do(cmd.DenyCall(now=trial.now, call_id="c1", by="web", reason="too risky"))
    denied = ev.ApprovalDecided(call_id="c1", decision="deny_continue", by="web", reason="too risky")
    assert trial.effects[-1] == cmd.ResolveApproval(run_id=trial.run.run_id, decided=denied)
    assert trial.report_refusal(ev.ToolStarted(call_id="c1")) == "INVALID_COMMAND"

    trial.report(finished("c1", "denied: too risky", is_error=True))
    trial.answer("understood", turn=2)
    assert trial.run.status == "finished"
    assert trial.of(ev.ToolStarted) == []


@pytest.mark.req("MC-APPR-008")
def test_pending_calls_are_decided_one_by_one(trial: Trial) -> None:
    trial.call("c1", "c2", ask=True)
    trial.approve("c2")
    assert trial.run.status == "awaiting_approval"
    trial.approve("c1")

    assert statuses(trial) == ["starting", "running", "awaiting_approval", "running"]


def test_a_call_without_a_decision_is_denied_at_its_deadline(trial: Trial) -> None:
    trial.call("c1", "c2")
    trial.report(asked("c1", deadline_ms=9_000), asked("c2"))
    assert trial.state.next_deadline() == 9_000
    assert trial.do(cmd.TimePassed(now=8_999)).events == ()

    trial.do(cmd.TimePassed(now=9_000))
    assert trial.last(1) == [
        ev.ApprovalDecided(call_id="c1", decision="deny_continue", by="deadline", reason="No decision came in time.")
    ]
    assert trial.run.status == "awaiting_approval"
    assert trial.state.next_deadline() is None


def test_a_decision_for_the_session_sets_the_rule_that_was_offered(trial: Trial) -> None:
    trial.call("c1", "c2")
    trial.report(asked("c1", grant="Bash(git log:*)"), asked("c2", grant="Bash(rm:*)"))
    trial.do(cmd.ApproveCall(now=trial.now, call_id="c1", by="web", scope="session", digest="digest of c1"))
    trial.do(cmd.DenyCall(now=trial.now, call_id="c2", by="web", scope="session"))

    assert trial.state.grants == (Grant(rule="Bash(git log:*)", allow=True), Grant(rule="Bash(rm:*)", allow=False))
    decided = ev.ApprovalDecided(call_id="c1", decision="approve", by="web", scope="session", grant="Bash(git log:*)")
    assert trial.effects_of(cmd.ResolveApproval)[0] == cmd.ResolveApproval(run_id=trial.run.run_id, decided=decided)


def test_a_decision_chooses_among_the_rules_that_were_offered_and_brings_none(trial: Trial) -> None:
    widths = (
        OfferedGrant(rule="Edit(./src/a.py)", label="this file"),
        OfferedGrant(rule="Edit(./src/**)", label="this folder"),
        OfferedGrant(rule="Edit", label="all edits", session_only=True),
    )
    trial.call("c1", "c2", "c3")
    offering = [msgspec.structs.replace(asked(call, grant=widths[0].rule), grants=widths) for call in ("c1", "c2")]
    trial.report(*offering, asked("c3"))

    def approve(scope: ev.GrantScope, grant: str, call_id: str = "c1") -> cmd.ApproveCall:
        return cmd.ApproveCall(now=trial.now, call_id=call_id, by="web", scope=scope, grant=grant)

    assert trial.refusal(approve("session", "Bash")) == "BAD_ARGUMENT"
    assert trial.refusal(approve("always", "Edit")) == "BAD_ARGUMENT"
    assert trial.refusal(approve("session", "Edit", "c3")) == "BAD_ARGUMENT"
    trial.do(approve("session", "Edit"))
    trial.do(cmd.DenyCall(now=trial.now, call_id="c2", by="web", scope="session", grant="Edit(./src/**)"))
    trial.do(approve("once", "Bash", "c3"))

    assert trial.state.grants == (Grant(rule="Edit", allow=True), Grant(rule="Edit(./src/**)", allow=False))


def test_a_decision_for_always_replaces_one_for_the_session_and_is_left_to_the_log(trial: Trial) -> None:
    trial.call("c1", "c2")
    trial.report(asked("c1", grant="Bash(rm:*)"), asked("c2", grant="Bash(rm:*)"))
    trial.do(cmd.DenyCall(now=trial.now, call_id="c1", by="web", scope="session"))
    trial.do(cmd.ApproveCall(now=trial.now, call_id="c2", by="web", scope="always", digest="digest of c2"))

    assert trial.state.grants == ()


def test_a_rule_may_decide_a_call_without_a_question(trial: Trial) -> None:
    trial.call("c1")
    trial.report(ev.ApprovalDecided(call_id="c1", decision="approve", by="rule"), ev.ToolStarted(call_id="c1"))

    assert trial.run.calls["c1"].status == "started"


def test_a_harness_may_withdraw_its_question_but_not_answer_it(trial: Trial) -> None:
    trial.call("c1", ask=True)
    yes = ev.ApprovalDecided(call_id="c1", decision="approve", by="rule")
    assert trial.report_refusal(yes) == "APPROVAL_CONFLICT"

    trial.report(ev.ApprovalDecided(call_id="c1", decision="deny_continue", by="harness"))
    assert trial.run.status == "running"
