import re
import time

import msgspec
import pytest
from support.wire import JSON, Server, ask, encode, envelope, new_id

from makai.protocols.makai.envelope import MessageIds, Problem, is_uuid, read_envelope
from makai.protocols.makai.server import ConnectionLimits, ServerConnection


def example(
    kind: str, stream_id: str, sequence: int, timestamp: int, payload: JSON, message_id: str = "", **more: str
) -> JSON:
    ids = {"stream_id": stream_id, "message_id": message_id or stream_id}
    return {"type": kind, **ids, "sequence": sequence, "timestamp": timestamp, "version": 1, "payload": payload, **more}


LOGIN = "89ef1cb9-9d15-4f5a-8cb6-8659e1986f01"
LISTING = "4acb66d3-f669-454e-8f57-07ca938cc8a4"
ONE = "10f42e8a-3d4c-4a90-9459-a7207d1d8b5f"
ANSWER = "5f038bdf-f145-4852-bf80-5226eaeb7867"
LISTED = {"provider_id": "anthropic", "include_deprecated": False, "include_login_required": True}
PROMPT = {
    "flow_id": LOGIN,
    "prompt_id": "device_code",
    "provider_id": "anthropic",
    "message": "Enter the code shown in browser",
    "allow_empty": False,
}
SONNET = {
    "model_ref": "anthropic/anthropic-messages@claude-sonnet-4-5",
    "model_id": "claude-sonnet-4-5",
    "display_name": "Claude Sonnet 4.5",
    "provider_id": "anthropic",
    "api": "anthropic-messages",
    "auth_status": "authenticated",
    "lifecycle": "stable",
    "capabilities": ["chat", "streaming", "tools", "reasoning"],
    "source": "dynamic",
}
MODELS = {"fetched_at_ms": 1760000000198, "models": [SONNET], "cache_max_age_ms": 300000}
# The five normative examples of the protocol.
EXAMPLES: list[JSON] = [
    example("auth_providers_request", LOGIN, 1, 1760000000000, {}),
    example("auth_event", LOGIN, 3, 1760000000500, {"prompt": PROMPT}, "f642f5d0-30d1-4df2-8c5f-0fbc7b5f4fc2"),
    example("models_request", LISTING, 1, 1760000000000, LISTED),
    example("models_request", ONE, 1, 1760000001000, LISTED | {"model_id": "claude-sonnet-4-5"}),
    example("models_response", LISTING, 2, 1760000000200, MODELS, ANSWER, in_reply_to=LISTING),
]


@pytest.mark.req("MK-ENV-007")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["type"]))
def test_the_documents_examples_survive_a_round_trip(example: JSON) -> None:
    parsed = read_envelope(encode(example), 10**6)
    assert not isinstance(parsed, Problem)
    assert msgspec.json.decode(msgspec.json.encode(parsed)) == example


UNREADABLE = [
    *(b"", b"{", b"\xff", b"[]", b"7", b"null", b'"ping"', b"{}"),
    b'{"type":"ping"}',
    b'{"message_id":7}',
    b'{"message_id":"not-a-uuid","type":"ping"}',
    msgspec.json.encode(ask(message_id="not-a-uuid")),
    b'{"message_id":null}',
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b'{"x":NaN}',
]


@pytest.mark.req("MK-ENV-017")
@pytest.mark.parametrize("frame", UNREADABLE)
def test_input_without_a_readable_id_gets_the_hosts_error_frame(server: Server, frame: bytes) -> None:
    (answer,) = server.say(frame)
    assert (answer["type"], answer["code"], answer["protocol_version"]) == ("error", "unknown_envelope", "1")
    assert answer["message"]
    assert server.say(envelope("ping"))[0]["type"] == "pong"


FAULTS: list[JSON] = [
    *({"type": value} for value in (None, 7)),
    *({"sequence": value} for value in (None, "1", 1.0, True, -1)),
    *({"timestamp": value} for value in (None, "now")),
    {"version": None},
    {"payload": []},
    {"payload": "x"},
    {"in_reply_to": "x"},
    *({"stream_id": value} for value in (None, "not-a-uuid", 7)),
    {"fragment": {}},
    {"fragment": {"index": 2, "total": 2, "id": "x"}},
    {"fragment": [1]},
]


@pytest.mark.req("MK-ENV-019", "MK-ENV-011", "MK-ENV-004")
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_faulty_envelope_with_a_readable_id_is_nacked(server: Server, fault: JSON) -> None:
    value = ask(**fault)
    (nack,) = server.say(value)
    assert server.commands == []
    stream_id = value.get("stream_id")
    assert nack == {
        "type": "nack",
        "stream_id": stream_id if is_uuid(stream_id) else value["message_id"],
        "message_id": nack["message_id"],
        "sequence": 1,
        "timestamp": nack["timestamp"],
        "version": 1,
        "in_reply_to": value["message_id"],
        "payload": {
            "rejected_id": value["message_id"],
            "reason": nack["payload"]["reason"],
            "error_code": "invalid_request",
        },
    }


def test_a_missing_payload_is_nacked() -> None:
    value = ask()
    del value["payload"]
    (nack,) = Server().say(value)
    assert nack["payload"]["reason"] == "payload is missing"


@pytest.mark.req("MK-ENV-020")
def test_two_scope_ids_are_refused_and_not_routed_by_chance(server: Server) -> None:
    value = ask(session_id=new_id())
    (nack,) = server.say(value)
    assert (nack["payload"]["error_code"], nack["stream_id"]) == ("invalid_request", value["message_id"])
    assert server.commands == []


@pytest.mark.req("MK-ENV-014")
@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True])
def test_another_version_is_nacked_with_the_versions_we_speak(version: object) -> None:
    (nack,) = Server().say(ask(version=version))
    assert nack["payload"]["error_code"] == "version_mismatch"
    assert nack["payload"]["supported_versions"] == ["1"]


@pytest.mark.req("MK-ENV-018")
def test_an_unknown_type_is_nacked_by_name() -> None:
    (nack,) = Server().say(envelope("dance_request"))
    assert nack["payload"]["error_code"] == "not_implemented"
    assert "dance_request" in nack["payload"]["reason"]


@pytest.mark.req("MK-ENV-009")
def test_unknown_keys_are_ignored_everywhere(server: Server) -> None:
    value = ask(x_trace="abc", nonsense={"deep": [1]})
    value["payload"]["future"] = True
    value["payload"]["context"]["future"] = {"a": 1}
    value["payload"]["context"]["messages"][0]["future"] = 7
    assert server.say(value) == []
    assert len(server.commands) == 1


@pytest.mark.req("MK-ENV-003")
def test_message_ids_are_uuids_and_never_repeat() -> None:
    ids = MessageIds()
    made = [ids.new() for _ in range(10_000)]
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}", each) for each in made)
    assert MessageIds().new() != MessageIds().new()


@pytest.mark.req("MK-ENV-003")
def test_an_envelope_tells_the_milliseconds_at_which_it_was_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    nanoseconds = iter([1_760_000_000_123_999_999, 1_760_000_000_124_000_000])
    connection = ServerConnection()
    monkeypatch.setattr(time, "time_ns", lambda: next(nanoseconds))
    for _ in range(2):
        connection.receive(encode(envelope("ping")), 0.0)
    stamps = [msgspec.json.decode(frame)["timestamp"] for frame in connection.take()]
    assert stamps == [1_760_000_000_123, 1_760_000_000_124]


@pytest.mark.req("MK-ENV-015", "MK-ENV-004")
def test_a_ping_is_answered_in_its_scope_without_an_ack() -> None:
    for scope in ("stream_id", "session_id", "server_id"):
        ids: JSON = {"stream_id": None, scope: new_id()}
        ping = envelope("ping", **ids)
        (pong,) = Server().say(ping)
        assert pong == {
            "type": "pong",
            scope: ping[scope],
            "message_id": pong["message_id"],
            "sequence": 1,
            "timestamp": pong["timestamp"],
            "version": 1,
            "in_reply_to": ping["message_id"],
            "payload": {"ping_id": ping["message_id"]},
        }


def test_pings_are_exempt_from_inbound_sequences_and_counted_outbound(server: Server) -> None:
    stream_id = new_id()
    pongs = [server.say(envelope("ping", stream_id=stream_id, sequence=number))[0] for number in (1, 1, 0, 99)]
    assert [pong["sequence"] for pong in pongs] == [1, 2, 3, 4]


def test_a_frame_that_was_too_large_is_answered() -> None:
    server = Server(ConnectionLimits(frame_bytes=1000))
    request = ask(x_padding="y" * 2000)
    (answer,) = server.say(request)
    assert (answer["type"], answer["in_reply_to"]) == ("nack", request["message_id"])
    server.connection.receive_oversized(1000, msgspec.json.encode(request)[:1000])
    (answer,) = server.heard()
    assert (answer["type"], answer["in_reply_to"]) == ("nack", request["message_id"])
    assert "fragments" in answer["payload"]["reason"]
    server.connection.receive_oversized(1000, b"{")
    (answer,) = server.heard()
    assert "fragments" in answer["message"]
