"""The state of a session: versions, bytes, batches."""

from __future__ import annotations

import msgspec
import pytest
from support.session_trials import Trial, asked

from makai.core import session_events as ev
from makai.sessions import commands as cmd
from makai.sessions.engine import Batch
from makai.sessions.log.base import UnknownLogged
from makai.sessions.state import Seen, SessionState, evolve, fold, packed, unpacked


def test_adding_to_an_old_version_of_a_set_leaves_the_newer_ones_alone() -> None:
    first = Seen(["a"])
    second = first.with_text("b")
    other = first.with_text("c")

    assert (list(first), list(second), list(other)) == (["a"], ["a", "b"], ["a", "c"])
    assert "b" not in first
    assert "b" not in other
    assert other.with_text("b") == Seen(["b", "c", "a"])
    assert second != other
    assert second.with_text("a") is second


def test_a_decision_that_was_not_committed_leaves_no_trace(trial: Trial) -> None:
    before = trial.state
    trial.send("lost", client_msg_id="m1")
    trial.state = before
    del trial.log[1:]

    assert trial.send("again", client_msg_id="m1").events != ()
    assert trial.state == fold(trial.log)


def test_a_state_comes_back_from_its_bytes(trial: Trial) -> None:
    trial.send("go", client_msg_id="m1")
    trial.send("later", "queue", client_msg_id="m2")
    trial.call("c1", ask=True)

    assert unpacked(packed(trial.state)) == trial.state
    assert unpacked(packed(SessionState())) == SessionState()


def test_events_this_version_does_not_know_only_take_their_number(trial: Trial) -> None:
    state = evolve(trial.state, UnknownLogged(event_id=2, ts=5_000, type="from_the_future", line=b"{}"))

    assert state == msgspec.structs.replace(trial.state, last_event_id=2, last_ts=5_000)


def test_deltas_may_be_left_out_of_a_fold(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), *[ev.AssistantTextDelta(content_index=0, delta="x")] * 5)
    trial.report(ev.AssistantText(content_index=0, text="xxxxx"))

    assert fold(e for e in trial.log if not isinstance(e.event, ev.AssistantTextDelta)) == trial.state


@pytest.mark.req("MC-EVT-012")
def test_deltas_of_one_block_in_one_batch_are_one_event(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1))
    run_id = trial.run.run_id
    words = [(0, "He"), (0, "l"), (0, "lo"), (1, "you"), (1, " there")]
    batch = Batch(trial.state)
    for index, delta in words:
        event = ev.AssistantTextDelta(content_index=index, delta=delta)
        assert batch.take(cmd.Report(now=trial.now, event=event, run_id=run_id)) == ()
    batch.take(cmd.SetTitle(now=trial.now, title="t"))
    batch.take(cmd.Report(now=trial.now, event=ev.AssistantTextDelta(content_index=1, delta="!"), run_id=run_id))

    assert [logged.event for logged in batch.events][:2] == [
        ev.AssistantTextDelta(content_index=0, delta="Hello"),
        ev.AssistantTextDelta(content_index=1, delta="you there"),
    ]
    assert [logged.event_id for logged in batch.events] == [7, 8, 9, 10]
    assert batch.state == fold([*trial.log, *batch.events])


def test_a_batch_drops_what_comes_after_an_abort(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1))
    batch = Batch(trial.state)
    delta = cmd.Report(now=1, event=ev.AssistantTextDelta(content_index=0, delta="x"), run_id=trial.run.run_id)
    batch.take(delta)
    effects = batch.take(cmd.Abort(now=1))
    batch.take(delta)

    assert effects == (cmd.CancelRun(run_id=trial.run.run_id),)
    assert [type(logged.event) for logged in batch.events] == [
        ev.AssistantTextDelta,
        ev.AssistantText,
        ev.RunStatusChanged,
        ev.RunAborted,
    ]


def test_a_request_that_is_pending_keeps_everything_a_client_shows(trial: Trial) -> None:
    trial.call("c1", ask=True)
    (pending,) = trial.run.pending()

    assert isinstance(pending.request, ev.ApprovalRequested)
    assert pending.request == asked("c1")
