"""A request that cannot be decoded is one refused request: the nack names it, and its session counts it."""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_server import HELLO, AgentServer
from support.json_strategies import mutated_json, values
from support.profiles import examples
from support.wire import JSON, Server, ask, envelope, new_id

from makai.core.errors import InvalidRequest, ParseError
from makai.protocols.makai.client import ClientConnection
from makai.protocols.makai.commands import AskSession
from makai.wire import strict_json

UNREADABLE = {
    "NUL": rb'"a\u0000b"',
    "a lone surrogate": rb'"a\ud800b"',
    "invalid UTF-8": b'"\xff\xfe"',
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "a number beyond a double": b"1e400",
    "nested deeper than 128": b"[" * 200 + b"]" * 200,
    "nested deeper than any stack": b"[" * 100_000 + b"]" * 100_000,
    "a raw control character": b'"\x00"',
}
parametrized = pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)


def spoilt(request: dict[str, object], value: bytes) -> bytes:
    """The frame of this request with `value` somewhere in its payload."""
    return msgspec.json.encode(request | {"payload": {"model_ref": "HERE"}}).replace(b'"HERE"', value)


@pytest.mark.req("MK-ENV-017", "MK-ENV-019")
@parametrized
@pytest.mark.parametrize("order", [dict, lambda value: dict(reversed(value.items()))], ids=["ids first", "ids last"])
def test_a_request_that_cannot_be_decoded_is_nacked_by_its_ids(value: bytes, order: Callable[..., object]) -> None:
    server = Server()
    request = ask()
    frame = msgspec.json.encode(order(request | {"payload": {"model_ref": "HERE"}})).replace(b'"HERE"', value)
    (nack,) = server.say(frame)
    assert (nack["type"], nack["stream_id"]) == ("nack", request["stream_id"])
    assert nack["in_reply_to"] == nack["payload"]["rejected_id"] == request["message_id"]
    assert nack["payload"]["error_code"] == "invalid_request"
    assert server.say(envelope("ping"))[0]["type"] == "pong"


@parametrized
@pytest.mark.parametrize("kind", ["agent_message", "tool_result", "permission_response", "agent_stop", "agent_status"])
def test_the_next_request_of_a_session_is_accepted_after_one_that_was_not(value: bytes, kind: str) -> None:
    server = AgentServer().attached()
    for _ in range(2):
        server.sent += 1
        ids: JSON = {"stream_id": None, "session_id": server.session_id, "sequence": server.sent}
        request = envelope(kind, **ids)
        (nack,) = server.say(spoilt(request, value))
        assert (nack["type"], nack["session_id"]) == ("nack", server.session_id)
        assert nack["in_reply_to"] == request["message_id"]
    assert server.ask("agent_message", HELLO) == []
    assert isinstance(server.command(AskSession), AskSession)


@pytest.mark.parametrize(
    "fields",
    [{"version": 2}, {"timestamp": "now"}, {"in_reply_to": "me"}, {"fragment": {"index": 4}}],
    ids=str,
)
def test_a_malformed_envelope_of_a_session_is_counted_too(fields: JSON) -> None:
    server = AgentServer().attached()
    (nack,) = server.ask("agent_message", HELLO, **fields)
    assert nack["type"] == "nack"
    assert server.ask("agent_message", HELLO) == []


@pytest.mark.proof("E3")
def test_a_number_out_of_order_is_not_counted() -> None:
    server = AgentServer().attached()
    ids: JSON = {"stream_id": None, "session_id": server.session_id, "sequence": server.sent + 5}
    assert server.say(spoilt(envelope("agent_message", **ids), b"NaN"))[0]["type"] == "nack"
    assert server.ask("agent_message", HELLO) == []


@parametrized
def test_a_message_in_fragments_is_refused_once_under_its_own_id_and_counted(value: bytes) -> None:
    server = AgentServer().attached()
    whole, payload = new_id(), b'{"messages":' + value + b"}"
    pieces = [payload[: len(payload) // 2], payload[len(payload) // 2 :]]
    heard = []
    for index, piece in enumerate(pieces):
        fragment = {"index": index, "total": 2, "id": whole}
        heard += server.ask("agent_message", {"data": base64.b64encode(piece).decode()}, fragment=fragment)
    (nack,) = heard
    assert (nack["type"], nack["in_reply_to"]) == ("nack", whole)
    assert server.ask("agent_message", HELLO) == []


def test_the_other_fragments_of_a_refused_message_are_ignored() -> None:
    server = AgentServer().attached()
    whole, heard = new_id(), []
    for index, data in enumerate(["%%%", "AAAA", "AAAA"]):
        heard += server.ask("agent_message", {"data": data}, fragment={"index": index, "total": 3, "id": whole})
    (nack,) = heard
    assert (nack["type"], nack["in_reply_to"]) == ("nack", whole)
    assert server.ask("agent_message", HELLO) == []


@examples(200)
@given(st.one_of(mutated_json(), st.binary(max_size=60)), st.booleans())
def test_ids_are_read_of_anything(payload: bytes, last: bool) -> None:
    """Whatever stands where a value should: the ids before it are found, and nothing raises."""
    head = b'{"message_id":"m","sequence":7'
    members = strict_json.readable_members(head + b',"payload":' + payload + (b"}" if last else b""))
    assert (members["message_id"], members["sequence"]) == ("m", 7) or b'"message_id"' in payload


@examples(200)
@given(st.dictionaries(st.text(max_size=5), values, max_size=6))
def test_what_is_read_of_a_good_document_is_what_it_says(value: dict[str, object]) -> None:
    encoded = msgspec.json.encode(value)
    expected = {key: each for key, each in value.items() if not isinstance(each, dict | list)}
    assert strict_json.readable_members(encoded) == {**expected}


@examples(300)
@given(
    st.recursive(
        st.text(max_size=8) | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    st.integers(0, 140),
)
def test_a_client_sends_exactly_what_a_server_reads(value: object, depth: int) -> None:
    """Any text with NUL and surrogates, any depth: a request is refused here, before its number is taken, or read."""
    for _ in range(depth):
        value = [value]
    client, server = ClientConnection(), Server()
    scope = client.begin()
    try:
        client.send(scope, "stream_request", {"x": value})
    except InvalidRequest:
        assert client.take() == []
        client.send(scope, "ping", {})
    (frame,) = client.take()
    try:
        assert msgspec.json.decode(frame)["sequence"] == 1
        strict_json.decode(frame, max_depth=128)
    except ParseError as error:
        pytest.fail(f"the server would refuse it: {error}")
    assert server.say(frame)[0].get("in_reply_to")
