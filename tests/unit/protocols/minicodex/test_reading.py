"""What clients write, good and bad, and the one answer each gets."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from support.minicodex import ANY_COMMAND, BOTH, SESSION, Client, Room, of, types

from makai.core.content import Image, Text
from makai.core.errors import RefusalCode
from makai.protocols.minicodex import commands
from makai.protocols.minicodex.commands import Refusal, engine_command, read
from makai.protocols.minicodex.projection import NamedCapabilities
from makai.protocols.minicodex.vocabulary import ErrorCode
from makai.sessions import commands as engine

PLAIN = NamedCapabilities()
MAKAI = NamedCapabilities(makai=True)
PIXEL = {"data": "iVBORw0KGgo=", "mime_type": "image/png"}


def refusal(capabilities: NamedCapabilities = PLAIN, /, **fields: Any) -> tuple[str, Any]:
    answer = read(msgspec.json.encode(fields), capabilities)
    assert isinstance(answer, Refusal), answer
    return answer.code, (answer.details or {}).get("field")


@pytest.mark.req("MC-CMD-007")
@pytest.mark.parametrize(
    "text", ["", "nonsense", "{", "[]", "null", "7", '"hello"', "{}", '{"type":"dance"}', '{"type":7}', '{"type":null}']
)
def test_what_is_no_command_is_invalid_and_the_connection_goes_on(client: Client, text: str) -> None:
    assert of(client.say_raw(text), "error")["code"] == "INVALID_COMMAND"
    assert types(client.say("ping")) == ["accepted"]


@pytest.mark.req("MC-ENV-004", "MC-CMD-002", "MC-CMD-003")
@pytest.mark.parametrize(
    ("kind", "field"), [("hello", "v"), ("send", "text"), ("approve", "call_id"), ("deny", "call_id")]
)
def test_a_missing_field_is_named(kind: str, field: str) -> None:
    assert refusal(type=kind) == ("MISSING_FIELD", field)


@pytest.mark.req("MC-ENV-003", "MC-CMD-008")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"type": "send", "text": 7}, "text"),
        ({"type": "send", "text": None}, "text"),
        ({"type": "send", "text": "x", "client_msg_id": 1}, "client_msg_id"),
        ({"type": "send", "text": "x", "colour": "red"}, "colour"),
        ({"type": "send", "text": "x", "payload": {}}, "payload"),
        ({"type": "resume", "last_seen_event_id": "7"}, "last_seen_event_id"),
        ({"type": "resume", "last_seen_event_id": 7.5}, "last_seen_event_id"),
        ({"type": "resume", "last_seen_event_id": True}, "last_seen_event_id"),
        ({"type": "hello", "v": "1.0.0", "client_capabilities": "streaming"}, "client_capabilities"),
        ({"type": "hello", "v": "1.0.0", "client_capabilities": [1]}, "client_capabilities"),
        ({"type": "get_snapshot", "include_transcript_window": "yes"}, "include_transcript_window"),
        ({"type": "ping", "nonce": {}}, "nonce"),
        ({"type": "ping", "req_id": 7}, "req_id"),
        ({"type": "abort", "run_id": []}, "run_id"),
    ],
    ids=str,
)
def test_a_field_that_is_unknown_or_of_the_wrong_type_is_named(fields: dict[str, Any], field: str) -> None:
    assert refusal(**fields) == ("BAD_ARGUMENT", field)


REQUIRED = {
    "v": "1.0.0",
    "text": "x",
    "call_id": "c",
    "mode": "plan",
    "model_ref": "a/b@c",
    "title": "t",
    "agent": "codex",
    "input_id": "i",
    "run_id": "r",
}


@pytest.mark.req("MC-ENV-002")
@pytest.mark.parametrize("kind", get_args(commands.ClientMessage))
def test_null_in_an_optional_field_means_that_the_field_is_absent(kind: type[commands.Command]) -> None:
    fields = msgspec.structs.fields(kind)
    needed = {"type": kind.__struct_config__.tag} | {each.name: REQUIRED[each.name] for each in fields if each.required}
    nulls = {each.name: None for each in fields if not each.required}
    ANY_COMMAND.validate(needed | nulls)

    for capabilities in (PLAIN, MAKAI) if kind not in commands.MAKAI_COMMANDS else (MAKAI,):
        absent = read(msgspec.json.encode(needed), capabilities)
        assert isinstance(absent, kind)
        assert read(msgspec.json.encode(needed | nulls), capabilities) == absent
    for field in needed.keys() - {"type"}:
        assert refusal(MAKAI, **needed | {field: None}) == ("BAD_ARGUMENT", field)
    assert refusal(MAKAI, **needed, colour=None) == ("BAD_ARGUMENT", "colour")


def test_a_hello_and_a_snapshot_with_nulls_are_those_without_them() -> None:
    client = Room().connect()

    assert types(client.say("hello", v="1.0.0", client_capabilities=None, session_id=None)) == [
        "accepted",
        "welcome",
        "snapshot",
    ]
    assert types(client.say("get_snapshot", include_transcript_window=None)) == ["accepted", "snapshot"]
    assert types(client.say("send", text="go", images=None, delivery=None)) == [
        "accepted",
        "run_status starting",
        "user_text",
    ]


@pytest.mark.req("MC-ENV-001")
@pytest.mark.parametrize("kind", [kind.__struct_config__.tag for kind in get_args(commands.ClientMessage)])
def test_no_command_has_a_payload_wrapper(kind: str) -> None:
    assert refusal(MAKAI, type=kind, payload={}) == ("BAD_ARGUMENT", "payload")


@pytest.mark.parametrize("v", ["1.0.0", "1.7.3", "1.0.0-beta.1", "1.2.3+build"])
def test_every_version_of_our_major_is_welcome(v: str) -> None:
    assert read(msgspec.json.encode({"type": "hello", "v": v}), PLAIN) == commands.HelloCommand(v=v)


@pytest.mark.req("MC-ENV-004")
@pytest.mark.parametrize("v", ["2.0.0", "0.9.0", "1", "1.0", "one", "", "01.0.0", "11.0.0"])
def test_another_version_is_refused_with_ours(v: str) -> None:
    client = Room().connect()

    error = of(client.say("hello", v=v, req_id="r"), "error")

    assert (error["code"], error["details"]) == ("BAD_ARGUMENT", {"supported": ["1.0.0"], "field": "v"})
    assert error["req_id"] == "r"
    assert types(client.hello()) == ["accepted", "welcome", "snapshot"]


@pytest.mark.req("MC-ENV-002")
def test_the_common_fields_may_stand_beside_every_command() -> None:
    common = {"v": "1.0.0", "session_id": SESSION, "run_id": "r", "event_id": 7, "ts": "t", "req_id": "q"}
    command = read(msgspec.json.encode({"type": "ping", **common}), PLAIN)

    assert command == commands.PingCommand(
        v="1.0.0", session_id=SESSION, run_id="r", event_id=7, ts="t", req_id="q", nonce=None
    )


@pytest.mark.req("MC-CMD-005")
def test_a_ping_is_answered_by_accepted_alone_even_before_hello() -> None:
    client = Room().connect()

    assert client.say("ping", nonce="n", req_id="r") == [{"type": "accepted", "req_id": "r"}]


BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"type": "set_mode", "mode": "plan"}, "type"),
    ({"type": "set_model", "model_ref": "a/b@c"}, "type"),
    ({"type": "set_title", "title": "t"}, "type"),
    ({"type": "compact"}, "type"),
    ({"type": "send", "text": "x", "delivery": "queue"}, "delivery"),
    ({"type": "send", "text": "x", "images": [PIXEL]}, "images"),
    ({"type": "approve", "call_id": "c", "scope": "once"}, "scope"),
    ({"type": "approve", "call_id": "c", "digest": "d"}, "digest"),
    ({"type": "deny", "call_id": "c", "reason": "no"}, "reason"),
    ({"type": "resume", "client_capabilities": ["streaming"]}, "client_capabilities"),
]


@pytest.mark.req("MC-ENV-002")
@pytest.mark.parametrize(("fields", "field"), BEYOND, ids=str)
def test_commands_and_fields_beyond_the_document_need_their_capability(fields: dict[str, Any], field: str) -> None:
    assert refusal(**fields) == ("INVALID_COMMAND" if field == "type" else "BAD_ARGUMENT", field)
    assert not isinstance(read(msgspec.json.encode(fields), MAKAI), Refusal)
    ANY_COMMAND.validate(fields)


def test_a_resume_may_bring_the_capability_it_needs(room: Room) -> None:
    client = room.connect(*BOTH)

    heard = client.say("resume", session_id=SESSION, last_seen_event_id=0, client_capabilities=list(BOTH))

    assert types(heard) == ["accepted", "welcome", "session_details"]
    assert client.connection.capabilities == NamedCapabilities(streaming=True, makai=True)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"data": "not base64!", "mime_type": "image/png"}, "images: The data of a picture is base64."),
        ({"data": "", "mime_type": "text/html"}, "images: A picture has a mime_type that begins with image/."),
        ({"data": "é", "mime_type": "image/png"}, "images: The data of a picture is base64."),
    ],
)
def test_a_picture_that_is_none_is_refused(image: dict[str, str], message: str) -> None:
    client = Room().client("makai.1")

    error = of(client.say("send", text="look", images=[image]), "error")

    assert (error["code"], error["message"]) == ("BAD_ARGUMENT", message)


def test_commands_become_those_of_the_engine() -> None:
    def asked(**fields: Any) -> Any:
        command: Any = read(msgspec.json.encode(fields), MAKAI)
        return engine_command(command, by="web", input_id="i")

    assert asked(type="send", text="x", client_msg_id="m", delivery="steer") == engine.Send(
        now=0, input_id="i", content="x", client_msg_id="m", delivery="steer"
    )
    picture = Image(data=PIXEL["data"], mime_type="image/png")
    assert asked(type="send", text="x", images=[PIXEL]).content == (Text(text="x"), picture)
    assert asked(type="send", text=" ", images=[PIXEL]).content == (picture,)
    assert asked(type="approve", call_id="c", scope="session", digest="d") == engine.ApproveCall(
        now=0, call_id="c", by="web", scope="session", digest="d"
    )
    assert asked(type="deny", call_id="c", reason="no") == engine.DenyCall(now=0, call_id="c", by="web", reason="no")
    assert asked(type="abort", run_id="r") == engine.Abort(now=0, run_id="r", by="web")
    assert asked(type="set_mode", mode="plan") == engine.SetMode(now=0, mode="plan")
    assert asked(type="set_model", model_ref="m") == engine.SetModel(now=0, model_ref="m")
    assert asked(type="set_agent", agent="claude") == engine.SetHarness(now=0, harness="claude-code")
    assert asked(type="set_title", title="t") == engine.SetTitle(now=0, title="t")
    assert asked(type="undo", to=7, plan_id="p") == engine.RestoreFiles(now=0, to=7, plan_id="p")
    assert asked(type="redo", count=2) == engine.RestoreFiles(now=0, direction="redo", count=2)
    assert asked(type="undo", paths=["a"]) == engine.RestoreFiles(now=0, paths=("a",))
    assert asked(type="withdraw", input_id="other") == engine.WithdrawInput(now=0, input_id="other")
    assert asked(type="retry", run_id="r") == engine.RetryRun(now=0, run_id="r", input_id="i")
    assert asked(type="compact") == engine.Compact(now=0, input_id="i")


def test_every_refusal_of_the_engine_is_a_documented_code() -> None:
    assert set(get_args(RefusalCode)) <= set(get_args(ErrorCode))
