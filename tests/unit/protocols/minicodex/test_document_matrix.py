"""Every row of the MiniCodex test matrix, and the order of frames it and the requirements want."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.minicodex import JSON, SESSION, Client, Room, events_of, of, types
from support.session_trials import finished

from makai.core import session_events as ev

DECIDED_RUN = [
    *("accepted", "approval_decision", "run_status running"),
    *("function_call_output", "assistant_text", "run_status finished"),
]
NOW = "1970-01-01T00:00:01.000Z"


@pytest.mark.req("MC-CMD-001", "MC-EVT-001", "MC-EVT-002", "MC-ENV-001", "MC-ENV-004", "MC-EVT-003")
def test_a_fresh_connection_says_hello_and_gets_welcome_and_snapshot() -> None:
    client = Room().connect()
    state = {
        "session_id": SESSION,
        "version": "1.0.0",
        "capabilities": ["reasoning", "approvals", "replay", "streaming", "makai.1"],
        "last_event_id": None,
        "active_run_id": None,
        "run_counter": 0,
    }

    assert client.say("hello", v="1.0.0", req_id="r-1") == [
        {"type": "accepted", "req_id": "r-1"},
        {"type": "welcome", "v": "1.0.0", "session_state": state},
        {"type": "snapshot", "v": "1.0.0", "session_state": state, "run_state": None, "transcript": [], "event_id": 0},
    ]


@pytest.mark.req("MC-CMD-002", "MC-CMD-006", "MC-RUN-001", "MC-RUN-002", "MC-RUN-004", "MC-EVT-004")
def test_a_plain_run_is_accepted_answered_finished_and_done(room: Room, client: Client) -> None:
    heard = client.say("send", text="hi", req_id="r-2")
    room.trial.answer("Hello.")
    heard += client.hear()

    run_id = room.trial.run.run_id
    run: JSON = {
        "run_id": run_id,
        "status": "starting",
        "started_at": NOW,
        "finished_at": None,
        "pending_approvals": [],
        "last_event_id": 3,
    }
    common = {"ts": NOW, "run_id": run_id}
    assert heard == [
        {"type": "accepted", "req_id": "r-2"},
        {"type": "run_status", "run_state": run, "event_id": 3, **common},
        {"type": "user_text", "text": "hi", "event_id": 4, **common},
        {"type": "run_status", "run_state": run | {"status": "running", "last_event_id": 5}, "event_id": 5, **common},
        {"type": "assistant_text", "text": "Hello.", "event_id": 7, **common},
        {
            "type": "run_status",
            "run_state": run | {"status": "finished", "finished_at": NOW, "last_event_id": 9},
            "event_id": 9,
            **common,
        },
        {"type": "turn_done", "event_id": 10, **common},
    ]


@pytest.mark.req("MC-EVT-001", "MC-RUN-004")
def test_welcome_names_the_run_that_is_active_and_counts_all_of_them(room: Room, client: Client) -> None:
    def told() -> tuple[str | None, int]:
        state = of(room.connect().hello(), "welcome")["session_state"]
        return state["active_run_id"], state["run_counter"]

    client.say("send", text="hi")
    first = room.trial.run.run_id
    assert told() == (first, 1)
    room.trial.answer("Hello.")
    assert told() == (None, 1)
    client.say("send", text="again")
    assert told() == (room.trial.run.run_id, 2)
    assert first != room.trial.run.run_id
    assert UUID(first).version, "a run_id is a UUID"


@pytest.mark.req(
    "MC-RUN-004", "MC-APPR-001", "MC-APPR-002", "MC-RUN-003", "MC-EVT-004", "MC-EVT-007", "MC-EVT-008", "MC-EVT-009"
)
def test_an_approved_tool_runs_and_the_run_finishes_without_turn_done(room: Room, client: Client) -> None:
    client.say("send", text="list")
    room.trial.call("c1", ask=True)
    asked_for = client.hear()

    brief = {"call_id": "c1", "tool_key": "shell", "args": {"command": "echo c1"}}
    assert types(asked_for) == ["run_status running", "tool_call", "approval_pending", "run_status awaiting_approval"]
    assert of(asked_for, "approval_pending")["args_json"] == '{"command":"echo c1"}'
    waiting = asked_for[-1]["run_state"]
    assert (waiting["pending_approvals"], waiting["finished_at"]) == ([brief], None)

    heard = client.say("approve", call_id="c1")
    room.trial.run_tool("c1")
    room.trial.answer("Done.", turn=2)
    heard += client.hear()

    assert types(heard) == DECIDED_RUN
    assert of(heard, "approval_decision")["decision"] == "approve"
    assert heard[2]["run_state"]["pending_approvals"] == []
    output = of(heard, "function_call_output")
    assert (output["result"], output["output"]) == (
        {"content": [{"type": "text", "text": "done"}], "isError": False},
        "done",
    )


@pytest.mark.req("MC-RUN-008", "MC-RUN-009")
def test_an_abort_in_the_middle_ends_in_turn_done(room: Room) -> None:
    client = room.client("streaming")
    client.say("send", text="write a book")
    room.trial.report(ev.TurnStarted(turn=1), ev.AssistantTextDelta(content_index=0, delta="Once"))
    client.hear()

    heard = client.say("abort", run_id=room.trial.run.run_id)
    room.trial.report(ev.AssistantText(content_index=0, text="Once upon"), ev.RunFinished(stop_reason="end_turn"))
    heard += client.hear()

    assert types(heard) == [
        *("accepted", "assistant_text", "run_status aborting", "error", "run_status finished", "turn_done"),
    ]
    assert heard[1]["text"] == "Once"
    error = of(heard, "error")
    assert (error["code"], error["run_id"]) == ("ABORTED", room.trial.run.run_id)
    assert of(heard, "turn_done")["run_id"] == room.trial.run.run_id


@pytest.mark.req("MC-RUN-008", "MC-APPR-004", "MC-ENV-005", "MC-ENV-006")
def test_an_aborted_run_with_tool_output_ends_in_turn_done_too_and_denies_what_waits(
    room: Room, client: Client
) -> None:
    room.asked(client, "c1", "c2")

    heard = client.say("abort")
    room.trial.report(ev.RunFinished(stop_reason="aborted"))
    heard += client.hear()

    assert types(heard) == [
        "accepted",
        "run_status aborting",
        "error",
        "approval_decision",
        "approval_decision",
        "function_call_output",
        "function_call_output",
        "run_status finished",
        "turn_done",
    ]
    assert [frame["decision"] for frame in heard if frame["type"] == "approval_decision"] == ["deny_abort"] * 2
    numbers = [frame["event_id"] for frame in heard[1:]]
    assert numbers == sorted(set(numbers)), "every event has a number of its own, in order"


@pytest.mark.req("MC-RESUME-001", "MC-RESUME-002", "MC-ENV-006")
def test_a_refreshed_client_hears_exactly_what_it_missed_and_then_goes_on(room: Room) -> None:
    first = room.client()
    live = first.say("send", text="hi")
    cursor = live[-1]["event_id"]
    room.trial.answer("Hello.")
    missed = first.hear()

    again = room.connect()
    heard = again.say("resume", last_seen_event_id=cursor, session_id=SESSION, req_id="r")

    assert types(heard[:2]) == ["accepted", "welcome"]
    assert heard[2:] == missed
    assert first.hear() == []
    assert events_of(again.say("send", text="more")) == events_of(first.hear())


@pytest.mark.req("MC-RUN-011", "MC-ENV-007", "MC-CMD-004")
def test_all_clients_hear_the_same_events_and_only_the_requester_is_answered(room: Room) -> None:
    one, two = room.client(), room.client()

    heard = one.say("send", text="hi", req_id="mine")
    assert events_of(heard) == two.hear()

    assert types(one.say("get_snapshot")) == ["accepted", "snapshot"]
    assert types(one.say("send", text="again")) == ["error"]
    assert two.hear() == []


@pytest.mark.req("MC-RUN-011", "MC-EVT-003")
def test_a_client_that_comes_in_the_middle_of_a_run_hears_the_rest_of_it(room: Room, client: Client) -> None:
    client.say("send", text="hi")
    late = room.client()
    room.trial.answer("Hello.")

    assert late.hear() == client.hear() != []


@pytest.mark.req("MC-RUN-006", "MC-RUN-005")
def test_a_repeated_client_msg_id_is_accepted_and_ignored_during_after_and_after_a_restart(
    room: Room, client: Client
) -> None:
    client.say("send", text="hi", client_msg_id="m-1")

    assert client.say("send", text="hi", client_msg_id="m-1") == [{"type": "accepted"}]
    assert client.say("send", text="hi", client_msg_id="m-2")[0]["code"] == "BUSY"
    room.trial.answer("Hello.")
    client.hear()
    assert client.say("send", text="hi", client_msg_id="m-1") == [{"type": "accepted"}]
    room.restart()
    client = room.client()
    assert client.say("send", text="hi", client_msg_id="m-1") == [{"type": "accepted"}]
    assert room.trial.state.run_counter == 1


@pytest.mark.req("MC-APPR-003", "MC-EVT-009")
def test_a_denied_call_is_not_run_and_the_run_goes_on(room: Room, client: Client) -> None:
    room.asked(client, "c1")

    heard = client.say("deny", call_id="c1")
    room.trial.report(finished("c1", "Denied.", is_error=True))
    room.trial.answer("Then not.", turn=2)
    heard += client.hear()

    assert types(heard) == DECIDED_RUN
    assert of(heard, "approval_decision")["decision"] == "deny_continue"
    assert of(heard, "function_call_output")["result"]["isError"] is True


@pytest.mark.req("MC-APPR-005", "MC-APPR-006", "MC-APPR-007")
def test_only_the_first_decision_counts(room: Room) -> None:
    one, two = room.client(), room.client()
    one.say("send", text="go")
    room.trial.call("c1", ask=True)

    first, second = one.say("approve", call_id="c1"), two.say("deny", call_id="c1", req_id="late")

    assert [frame["type"] for frame in first].count("accepted") == 1
    assert of(second, "error")["code"] == "APPROVAL_CONFLICT"
    assert of(second, "error")["req_id"] == "late"
    assert of(one.say("approve", call_id="never"), "error")["code"] == "UNKNOWN_CALL_ID"
    assert len([event for event in room.trial.events() if event.__struct_config__.tag == "approval_decided"]) == 1


@pytest.mark.req("MC-APPR-008")
def test_calls_that_wait_together_are_decided_one_by_one(room: Room, client: Client) -> None:
    room.asked(client, "c1", "c2")

    def waiting() -> list[str]:
        run_state = of(client.say("get_snapshot"), "snapshot")["run_state"]
        return [brief["call_id"] for brief in run_state["pending_approvals"]]

    assert waiting() == ["c1", "c2"]
    assert types(client.say("approve", call_id="c2")) == ["accepted", "approval_decision"]
    assert waiting() == ["c1"]
    assert types(client.say("deny", call_id="c1")) == ["accepted", "approval_decision", "run_status running"]


@pytest.mark.req("MC-APPR-009", "MC-RESUME-005")
def test_a_question_outlives_its_clients_and_is_in_the_snapshot(room: Room) -> None:
    room.client().say("send", text="go")
    room.trial.call("c1", ask=True)
    room.restart()

    client = room.connect()
    snapshot = of(client.hello(), "snapshot")

    assert snapshot["session_state"]["active_run_id"] == room.trial.run.run_id
    assert snapshot["run_state"]["status"] == "awaiting_approval"
    assert snapshot["run_state"]["pending_approvals"] == [
        {"call_id": "c1", "tool_key": "shell", "args": {"command": "echo c1"}}
    ]
    assert types(client.say("approve", call_id="c1"))[0] == "accepted"


@pytest.mark.req("MC-RUN-007", "MC-ENV-005", "MC-EVT-009")
def test_a_failure_is_logged_for_everyone_and_the_next_send_is_accepted(room: Room, client: Client) -> None:
    client.say("send", text="hi")
    room.trial.report(ev.RunFailed(code="rate_limited", message="Slow down.", hint="Wait."))

    heard = client.hear()
    assert types(heard) == ["run_status error", "error"]
    assert heard[1] == {
        "type": "error",
        "code": "RATE_LIMITED",
        "message": "Slow down.",
        "details": {"hint": "Wait."},
        "event_id": 6,
        "ts": NOW,
        "run_id": room.trial.run.run_id,
    }
    assert room.connect().say("resume", session_id=SESSION, last_seen_event_id=4)[-2:] == heard
    assert types(client.say("send", text="again"))[0] == "accepted"


@pytest.mark.req("MC-RUN-010", "MC-CMD-003")
def test_an_abort_needs_a_run_and_the_right_one(room: Room, client: Client) -> None:
    assert of(client.say("abort"), "error")["code"] == "NOT_RUNNING"
    client.say("send", text="hi")
    assert of(client.say("abort", run_id="other"), "error")["code"] == "STALE_RUN_ID"
    assert room.trial.run.status == "starting"
    assert types(client.say("abort")) == ["accepted", "run_status aborting", "error"]


def test_a_call_that_its_server_interrupted_says_so_only_with_makai(room: Room) -> None:
    plain, page = room.client(), room.client("makai.1")
    plain.say("send", text="go")
    room.trial.call("c1", ask=True)
    plain.say("approve", call_id="c1")
    room.trial.report(ev.ToolStarted(call_id="c1"))
    room.trial.restart()

    assert "interrupted" not in of(plain.hear(), "function_call_output")
    assert of(page.hear(), "function_call_output")["interrupted"] is True
