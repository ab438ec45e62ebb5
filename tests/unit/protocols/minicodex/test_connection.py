"""One connection: its order, its cursor, its pressure, and whom it belongs to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.minicodex import SESSION, Client, Room, events_of, of, types
from support.session_trials import Trial

from makai.core.errors import SessionRefused, StorageUnavailable
from makai.core.session_events import AssistantTextDelta, Notice, RunFinished, TurnStarted
from makai.protocols.minicodex.commands import Ask, Open, Request
from makai.protocols.minicodex.projection import NamedCapabilities
from makai.protocols.minicodex.server import Limits, MinicodexConnection
from makai.sessions.requests import Receipt


def the_request(connection: MinicodexConnection, kind: str, **fields: Any) -> Request:
    (request,) = connection.receive(msgspec.json.encode({"type": kind, **fields}))
    return request


def notices(trial: Trial, number: int) -> None:
    for _ in range(number):
        trial.report(Notice(level="info", code="x", message="x"))


@pytest.mark.req("MC-CMD-006")
def test_no_event_is_handed_out_between_a_command_and_its_answer(room: Room, client: Client) -> None:
    request = the_request(client.connection, "send", text="hi")
    assert isinstance(request, Ask)
    room.trial.do(msgspec.structs.replace(request.command, now=1))
    room.publish()

    assert client.connection.take() == []
    client.connection.answered(request, Receipt(last=room.trial.state.last_event_id))
    assert types(client.hear()) == ["accepted", "run_status starting", "user_text"]


@pytest.mark.req("MC-ENV-005", "MC-ENV-007")
def test_replies_have_no_event_id_and_repeat_the_req_id_only_when_there_was_one(client: Client) -> None:
    assert client.say("abort", req_id="q") == [
        {"type": "error", "code": "NOT_RUNNING", "message": "No run is active.", "req_id": "q"}
    ]
    assert client.say("abort") == [{"type": "error", "code": "NOT_RUNNING", "message": "No run is active."}]
    assert client.say("ping") == [{"type": "accepted"}]


@pytest.mark.req("MC-CMD-009")
def test_a_rejected_command_changes_nothing(room: Room, client: Client) -> None:
    client.say("send", text="hi")
    before, log = client.say("get_snapshot"), list(room.trial.log)

    rejected: list[tuple[str, dict[str, Any]]] = [
        ("send", {"text": "more"}),
        ("send", {}),
        ("approve", {"call_id": "never"}),
        ("abort", {"run_id": "other"}),
        ("resume", {"last_seen_event_id": 10_000}),
        ("dance", {}),
    ]
    for kind, fields in rejected:
        assert types(client.say(kind, **fields)) == ["error"], kind

    assert client.say("get_snapshot") == before
    assert room.trial.log == log


def test_commands_need_a_greeting() -> None:
    client = Room().connect(session_id=None)

    assert of(client.say("send", text="hi"), "error")["code"] == "INVALID_COMMAND"
    assert of(client.say("abort"), "error")["code"] == "INVALID_COMMAND"
    assert of(client.say("get_snapshot"), "error")["code"] == "INVALID_COMMAND"


def test_a_command_for_another_session_is_refused(client: Client) -> None:
    error = of(client.say("send", text="hi", session_id="s-2"), "error")

    assert (error["code"], error["details"]) == ("BAD_ARGUMENT", {"field": "session_id"})


def test_clients_of_equal_capabilities_share_the_bytes_of_a_frame_and_of_a_snapshot(room: Room) -> None:
    clients = [room.connect("streaming") for _ in range(3)]
    for client in clients:
        the_hello = the_request(client.connection, "hello", v="1.0.0", client_capabilities=["streaming"])
        assert isinstance(the_hello, Open)
        client.connection.opened(the_hello, room.view)
    snapshots = [client.connection.take()[2] for client in clients]
    room.trial.send("hi")
    room.publish()
    frames = [client.connection.take() for client in clients]

    assert all(other is snapshots[0] for other in snapshots)
    assert all(one is other for others in frames[1:] for one, other in zip(frames[0], others, strict=True))
    assert len(frames[0]) == 2


def test_an_address_without_a_session_opens_a_new_one_or_the_one_that_is_resumed() -> None:
    connection = Room().connect(session_id=None).connection

    assert the_request(connection, "hello", v="1.0.0") == Open(session_id=None, client_capabilities=())
    assert the_request(connection, "resume", session_id="s-9", last_seen_event_id=3) == Open(session_id="s-9", cursor=3)
    assert connection.receive('{"type":"resume","last_seen_event_id":3}') == []
    assert msgspec.json.decode(connection.take()[-1])["code"] == "MISSING_FIELD"


def test_a_greeting_that_is_refused_leaves_the_capabilities_as_they_were(room: Room) -> None:
    client = room.connect("streaming", "makai")
    client.say("hello", v="1.0.0", client_capabilities=["streaming", "makai"])
    before = client.connection.capabilities

    for command, fields in (("hello", {"v": "1.0.0"}), ("resume", {})):
        refused = client.say(command, session_id="another", client_capabilities=[], **fields)
        assert [frame["type"] for frame in refused] == ["error"]
        assert client.connection.capabilities == before != NamedCapabilities()


def test_a_session_nobody_knows_is_refused_and_the_client_may_try_another() -> None:
    client = Room().connect(session_id=None)

    error = of(client.say("resume", session_id="s-9", last_seen_event_id=3), "error")

    assert error["code"] == "UNKNOWN_SESSION"
    assert types(client.say("resume", session_id=SESSION)) == ["accepted", "welcome", "snapshot"]


def test_a_deleted_session_says_so(client: Client) -> None:
    client.connection.session_gone()

    assert of(client.hear(), "error")["code"] == "UNKNOWN_SESSION"
    assert of(client.say("send", text="hi"), "error")["code"] == "INVALID_COMMAND"


@pytest.mark.req("MC-CMD-004", "MC-EVT-005")
@pytest.mark.parametrize("wanted", [True, False])
def test_a_client_that_knows_its_session_may_begin_with_a_snapshot(room: Room, wanted: bool) -> None:
    room.client().say("send", text="hi")

    heard = room.connect().say("get_snapshot", include_transcript_window=wanted)

    assert types(heard) == ["accepted", "welcome", "snapshot"]
    assert heard[-1]["run_state"].get("transcript_window") == (
        [{"type": "user_text", "text": "hi"}] if wanted else None
    )


@pytest.mark.req("MC-ENV-006", "MC-RUN-011")
def test_a_client_that_takes_one_frame_at_a_time_gets_every_event_once() -> None:
    room = Room(limits=Limits(batch_bytes=1))
    slow = room.client()
    room.trial.send("hi")
    room.trial.answer("Hello.")

    numbers = [frame["event_id"] for frame in slow.hear()]

    assert numbers == sorted(set(numbers))
    assert len(numbers) == 6


@pytest.mark.req("MC-RESUME-003")
@pytest.mark.parametrize("fields", [{}, {"last_seen_event_id": None}], ids=str)
def test_a_resume_without_a_cursor_is_a_fresh_load(room: Room, fields: dict[str, Any]) -> None:
    room.client().say("send", text="hi")

    assert types(room.connect().say("resume", **fields)) == ["accepted", "welcome", "snapshot"]


@pytest.mark.req("MC-RESUME-004")
@pytest.mark.parametrize(
    "fields",
    [
        {"last_seen_event_id": 10_000},
        {"last_seen_event_id": 2**80},
        {"last_seen_event_id": -1},
        {"last_seen_event_id": 2},
        {"last_seen_event_id": 14, "session_id": "another"},
    ],
    ids=["future", "far future", "negative", "too old", "another session"],
)
def test_a_cursor_that_cannot_be_replayed_asks_for_a_snapshot_which_restores_everything(fields: dict[str, Any]) -> None:
    room = Room(limits=Limits(replay_events=10))
    writer = room.client()
    writer.say("send", text="hi")
    notices(room.trial, 10)
    client = room.connect()

    (error,) = client.say("resume", req_id="r", **fields)
    assert (error["code"], error["details"], error["req_id"]) == ("RESYNC_REQUIRED", {"command": "get_snapshot"}, "r")
    room.trial.answer("Hello.")
    assert client.hear() == [], "no partial replay"

    assert client.say("get_snapshot")[-1] == writer.say("get_snapshot")[-1]
    assert events_of(client.say("send", text="more")) == events_of(writer.hear())


def test_a_following_client_keeps_following_after_a_refused_resume(room: Room, client: Client) -> None:
    assert types(client.say("resume", last_seen_event_id=99)) == ["error"]
    assert types(client.say("send", text="hi")) == ["accepted", "run_status starting", "user_text"]


def test_a_resume_while_following_goes_back_to_the_cursor(room: Room, client: Client) -> None:
    heard = client.say("send", text="hi")

    again = client.say("resume", last_seen_event_id=0)

    assert types(again[:2]) == ["accepted", "welcome"]
    assert again[2:] == heard[1:]


def test_what_a_command_leads_to_waits_for_its_answer_also_while_the_log_is_replayed(room: Room) -> None:
    room.client().say("send", text="hi")
    room.trial.answer("Hello.")
    room.view = room.opened_view()
    client = room.connect()
    (request,) = client.connection.receive('{"type":"resume","last_seen_event_id":4}')
    client.carry_out(request)
    assert client.connection.is_behind

    asked = the_request(client.connection, "send", text="more")
    assert isinstance(asked, Ask)
    room.trial.do(msgspec.structs.replace(asked.command, now=1))
    assert not client.connection.is_behind
    client.connection.replay(room.trial.log[4:])
    assert types([msgspec.json.decode(frame) for frame in client.connection.take()]) == ["accepted", "welcome"]

    client.connection.answered(asked, Receipt(last=room.trial.state.last_event_id))
    heard = client.hear()
    assert types(heard)[0] == "accepted"
    assert [frame["event_id"] for frame in events_of(heard)] == [5, 7, 9, 10, 12, 13]


def test_a_client_that_resumes_while_the_log_is_read_gets_nothing_of_the_old_place(room: Room) -> None:
    room.client().say("send", text="hi")
    room.trial.answer("Hello.")
    room.view = room.opened_view()
    client = room.connect()
    client.carry_out(the_request(client.connection, "resume", last_seen_event_id=2))
    lookup = client.connection.lookup()
    assert lookup is not None
    client.carry_out(the_request(client.connection, "resume", last_seen_event_id=7))

    client.connection.begin_replay(lookup)
    client.connection.replay(room.trial.log[2:])

    assert [frame["event_id"] for frame in events_of(client.hear())] == [9, 10]


@pytest.mark.req("MC-CMD-004", "MC-EVT-003")
def test_a_snapshot_comes_after_everything_it_contains_and_what_follows_is_newer(room: Room, client: Client) -> None:
    client.say("send", text="hi")
    room.trial.answer("Hello.")

    heard = client.say("get_snapshot")

    assert types(heard)[0] == "accepted"
    assert types(heard)[-1] == "snapshot"
    assert heard[-1]["event_id"] == heard[-2]["event_id"] == room.trial.state.last_event_id
    assert client.hear() == []


def test_a_snapshot_waits_for_what_its_client_was_told_was_accepted(room: Room, client: Client) -> None:
    client.say("send", text="hi")

    request: Any = the_request(client.connection, "get_snapshot")

    assert request.at_least == room.trial.state.last_event_id


@pytest.mark.req("MC-EVT-011")
def test_a_client_that_fell_behind_is_told_to_drain_and_then_that_all_is_well() -> None:
    room = Room(limits=Limits(drain_events=20, max_behind=1_000, batch_bytes=400))
    slow, quick = room.client("makai.1"), room.client("makai.1")
    quick.say("send", text="hi")
    slow.hear()
    for _ in range(3):
        notices(room.trial, 10)
        assert "backpressure" not in types(quick.hear())

    heard = slow.hear()

    assert types(heard)[0] == "backpressure"
    assert types(heard)[-1] == "backpressure"
    assert [frame["state"] for frame in heard if frame["type"] == "backpressure"] == ["drain", "ok"]
    assert len(events_of(heard)) == 31


def test_a_client_that_catches_up_after_a_resume_is_not_called_slow() -> None:
    room = Room(limits=Limits(drain_events=5, max_behind=10))
    room.client().say("send", text="hi")
    notices(room.trial, 40)
    room.publish()
    client = room.connect("makai.1")

    heard = client.say("resume", session_id=SESSION, last_seen_event_id=2, client_capabilities=["makai.1"])

    assert "backpressure" not in types(heard)
    assert not client.connection.is_too_slow


@pytest.mark.req("MC-EVT-011")
def test_a_client_beyond_the_bound_is_too_slow_and_its_cursor_stays_good() -> None:
    room = Room(limits=Limits(drain_events=5, max_behind=10))
    slow, writer = room.client(), room.client()
    writer.say("send", text="hi")
    slow.hear()
    cursor = slow.connection.cursor
    notices(room.trial, 20)
    room.trial.answer("Hello.")
    missed = events_of(writer.hear())

    assert slow.connection.is_too_slow
    assert room.connect().say("resume", last_seen_event_id=cursor)[2:] == missed


def test_replies_that_nobody_reads_stop_the_reading_of_commands() -> None:
    room = Room(limits=Limits(unread_replies=3))
    connection = room.connect().connection
    for _ in range(3):
        assert not connection.is_full
        connection.receive('{"type":"ping"}')

    assert connection.is_full
    assert len(connection.take()) == 3
    assert not connection.is_full


@pytest.mark.req("MC-EVT-010")
def test_a_heartbeat_says_its_interval(client: Client) -> None:
    client.connection.beat(15_000)

    assert client.hear() == [{"type": "heartbeat", "interval_ms": 15_000}]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            SessionRefused("BUSY", "A run is active.", hint="Wait."),
            {"code": "BUSY", "message": "A run is active.", "details": {"hint": "Wait."}},
        ),
        (StorageUnavailable("The disk is full."), {"code": "STORAGE_UNAVAILABLE", "message": "The disk is full."}),
        (RuntimeError("secret"), {"code": "INTERNAL_ERROR", "message": "The server failed."}),
    ],
)
def test_failures_are_told_without_what_is_not_for_clients(
    client: Client, error: Exception, expected: dict[str, Any]
) -> None:
    request = the_request(client.connection, "send", text="hi", req_id="r")

    client.connection.refused(request, error)

    assert client.hear() == [{"type": "error", "req_id": "r", **expected}]


def test_a_new_hello_changes_what_the_client_sees(room: Room, client: Client) -> None:
    client.say("send", text="hi")
    client.names = ("streaming",)

    assert types(client.hello()) == ["accepted", "welcome", "snapshot"]
    room.trial.report(TurnStarted(turn=1), AssistantTextDelta(content_index=0, delta="He"))
    assert types(client.hear()) == ["run_status running", "assistant_text_delta"]
    client.names = ()
    client.hello()
    room.trial.report(AssistantTextDelta(content_index=0, delta="llo"), RunFinished(stop_reason="aborted"))
    assert "assistant_text_delta" not in types(client.hear())
