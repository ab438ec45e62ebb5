"""The JSON-RPC peer: requests both ways, exact ids, raw values, cancellation, and survival of any input."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_strategies import values as json_values

from makai.core.errors import InvalidRequest, TransportError
from makai.wire import json_rpc

Raw = msgspec.Raw


def line(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


@pytest.fixture
def peer() -> json_rpc.JsonRpcPeer:
    return json_rpc.JsonRpcPeer()


def test_the_codes_are_those_of_json_rpc_and_acp() -> None:
    assert (json_rpc.PARSE_ERROR, json_rpc.INVALID_REQUEST, json_rpc.METHOD_NOT_FOUND) == (-32700, -32600, -32601)
    assert (json_rpc.INVALID_PARAMS, json_rpc.INTERNAL_ERROR) == (-32602, -32603)
    assert [json_rpc.AUTH_REQUIRED, json_rpc.RESOURCE_NOT_FOUND, json_rpc.REQUEST_CANCELLED] == [-32000, -32002, -32800]


def test_a_request_is_numbered_and_its_answer_reported_once(peer: json_rpc.JsonRpcPeer) -> None:
    assert peer.request("initialize", {"protocolVersion": 1}) == (
        1,
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n',
    )
    assert peer.request("session/list") == (2, b'{"jsonrpc":"2.0","id":2,"method":"session/list"}\n')
    assert peer.receive(line(id=2, result={"sessions": []})) == [json_rpc.Response(2, Raw(b'{"sessions": []}'))]
    assert peer.receive(line(id=1, error={"code": json_rpc.AUTH_REQUIRED, "message": "log in", "data": None})) == [
        json_rpc.ErrorResponse(1, json_rpc.AUTH_REQUIRED, "log in", Raw(b"null"))
    ]
    assert (peer.receive(line(id=2, result=1)), peer.receive(line(id="1", result=1))) == ([], [])
    assert (peer.stray_responses, peer.malformed) == (2, 0)


def test_an_answer_may_carry_a_null_beside_what_it_means(peer: json_rpc.JsonRpcPeer) -> None:
    for _ in range(3):
        peer.request("m")

    assert peer.receive(line(id=1, result=None)) == [json_rpc.Response(1, Raw(b"null"))]
    assert peer.receive(line(id=2, result=3, error=None)) == [json_rpc.Response(2, Raw(b"3"))]
    assert peer.receive(line(id=3, result=None, error={"code": 1, "message": "no"})) == [
        json_rpc.ErrorResponse(3, 1, "no")
    ]


@pytest.mark.parametrize(
    "content", [rb"a\u0000b", rb"a\ud800b", rb"a\uDC00b", b"a\xffb"], ids=["NUL", "high", "low", "bytes"]
)
def test_text_of_an_answer_that_cannot_be_carried_is_replaced(peer: json_rpc.JsonRpcPeer, content: bytes) -> None:
    peer.request("m")

    (event,) = peer.receive(b'{"jsonrpc":"2.0","id":1,"result":{"content":"%s"}}' % content)

    assert isinstance(event, json_rpc.Response)
    assert (event.id, json.loads(bytes(event.result)), peer.malformed) == (1, {"content": "a\ufffdb"}, 0)


def test_an_answer_that_cannot_be_read_ends_its_request(peer: json_rpc.JsonRpcPeer) -> None:
    peer.request("m")
    peer.request("m")
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"content":"a" "b"}}'

    (failed,) = peer.receive(answer)
    assert isinstance(failed, json_rpc.ErrorResponse)
    assert (failed.id, failed.code, failed.message[:26]) == (1, json_rpc.PARSE_ERROR, "The answer cannot be read:")
    assert [type(event) for event in peer.receive(answer)] == [json_rpc.Malformed]
    assert [type(event) for event in peer.receive(line(id=2, method="m\0"))] == [json_rpc.Malformed]
    assert peer.receive(line(id=2, result=3)) == [json_rpc.Response(2, Raw(b"3"))]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (line(id=1, error="out of memory"), 'The answer cannot be read: its error is "out of memory"'),
        (line(id=1, error={"message": "no code"}), 'The answer cannot be read: its error is {"message": "no code"}'),
        (line(id=1), "The answer cannot be read: neither a request nor a response"),
        (b'{"jsonrpc":"1.0","id":1,"result":3}', 'The answer cannot be read: `jsonrpc` must be "2.0"'),
    ],
)
def test_an_answer_without_a_result_or_a_proper_error_ends_its_request(
    peer: json_rpc.JsonRpcPeer, answer: bytes, message: str
) -> None:
    peer.request("m")

    assert peer.receive(answer) == [json_rpc.ErrorResponse(1, json_rpc.INVALID_REQUEST, message)]
    assert (peer.malformed, peer.receive(line(id=1, result=3)), peer.stray_responses) == (1, [], 1)


def test_an_error_that_names_no_request_is_reported_without_id() -> None:
    error = {"code": json_rpc.PARSE_ERROR, "message": "what?"}
    assert json_rpc.JsonRpcPeer().receive(line(id=None, error=error)) == [
        json_rpc.ErrorResponse(None, json_rpc.PARSE_ERROR, "what?")
    ]


def test_notifications_go_both_ways_in_order(peer: json_rpc.JsonRpcPeer) -> None:
    assert peer.notify("session/update", {"title": None}) == (
        b'{"jsonrpc":"2.0","method":"session/update","params":{"title":null}}\n'
    )
    assert [peer.receive(line(method="n", params=[number])) for number in range(3)] == [
        [json_rpc.IncomingNotification("n", Raw(b"[%d]" % number))] for number in range(3)
    ]


def test_parameters_stay_as_they_were_written_and_null_is_not_absent(peer: json_rpc.JsonRpcPeer) -> None:
    assert peer.receive(b'{"jsonrpc":"2.0","id":7,"method":"m","params":{ "new":1.50, "a":null}, "x":1}') == [
        json_rpc.IncomingRequest(7, "m", Raw(b'{ "new":1.50, "a":null}'))
    ]
    assert peer.receive(line(method="m", params=None)) == [json_rpc.IncomingNotification("m", Raw(b"null"))]
    assert peer.receive(line(method="m")) == [json_rpc.IncomingNotification("m", None)]
    assert peer.notify("m", Raw(b'{"a":\n1}')) == b'{"jsonrpc":"2.0","method":"m","params":{"a": 1}}\n'


@pytest.mark.proof("E7")
@pytest.mark.parametrize("raw", [b"0", b"-5", b"123456789012345678901234567890", b'"1"', b'"\\u00e9 x"', b'""'])
def test_ids_are_echoed_byte_for_byte(peer: json_rpc.JsonRpcPeer, raw: bytes) -> None:
    [request] = peer.receive(b'{"jsonrpc":"2.0","id":%s,"method":"m"}' % raw)
    assert isinstance(request, json_rpc.IncomingRequest)
    assert peer.respond(request.id, {}) == b'{"jsonrpc":"2.0","id":%s,"result":{}}\n' % raw


@pytest.mark.proof("E7")
def test_one_and_the_text_one_are_two_ids(peer: json_rpc.JsonRpcPeer) -> None:
    assert peer.receive(line(id=1, method="a")) == [json_rpc.IncomingRequest(1, "a", None)]
    assert peer.receive(line(id="1", method="b")) == [json_rpc.IncomingRequest("1", "b", None)]
    assert peer.respond("1", None) == b'{"jsonrpc":"2.0","id":"1","result":null}\n'
    assert peer.respond_error(1, json_rpc.METHOD_NOT_FOUND, "no such method", {"method": "a"}) == (
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method","data":{"method":"a"}}}\n'
    )
    with pytest.raises(InvalidRequest, match="1 is not waiting"):
        peer.respond(1, None)


def test_the_peer_may_cancel_its_request_and_still_gets_one_answer(peer: json_rpc.JsonRpcPeer) -> None:
    peer.receive(line(id="a", method="session/prompt"))

    assert peer.receive(line(method="$/cancel_request", params={"requestId": "a"})) == [json_rpc.Cancelled("a")]
    peer.respond_error("a", json_rpc.REQUEST_CANCELLED, "cancelled")
    assert peer.receive(line(method="$/cancel_request", params={"requestId": "a"})) == []
    assert peer.receive(line(method="$/cancel_request", params={})) == [
        json_rpc.Malformed(json_rpc.INVALID_PARAMS, "$/cancel_request names no request", None)
    ]


def test_a_request_can_be_cancelled_until_it_is_answered_and_forgotten_any_time(peer: json_rpc.JsonRpcPeer) -> None:
    peer.request("m")

    assert peer.cancel(1) == b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}\n'
    assert peer.receive(line(id=1, error={"code": json_rpc.REQUEST_CANCELLED, "message": "cancelled"})) == [
        json_rpc.ErrorResponse(1, json_rpc.REQUEST_CANCELLED, "cancelled")
    ]
    assert peer.cancel(1) is None
    peer.forget(peer.request("m")[0])
    assert (peer.receive(line(id=2, result=1)), peer.stray_responses) == ([], 1)


@pytest.mark.proof("limit-inbound")
def test_unanswered_requests_are_bounded_in_both_directions() -> None:
    peer = json_rpc.JsonRpcPeer(max_pending=2)
    for number in (1, 2):
        peer.request("m")
        peer.receive(line(id=number, method="m"))

    with pytest.raises(TransportError, match="2 requests are waiting"):
        peer.request("m")
    why = "2 requests are waiting already"
    reply = b'{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"%b"}}\n' % why.encode()
    refused = [json_rpc.Malformed(json_rpc.INTERNAL_ERROR, why, reply)]
    assert peer.receive(line(id=3, method="m")) == refused
    peer.respond(1, {})
    assert peer.receive(line(id=3, method="m")) == [json_rpc.IncomingRequest(3, "m", None)]


@pytest.mark.parametrize(
    ("junk", "code", "reply_id"),
    [
        (b"Hello, I am an agent!", json_rpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m"', json_rpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', json_rpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"\\u0000"}}', json_rpc.PARSE_ERROR, 7),
        (b'{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":"\\ud800"}}', json_rpc.PARSE_ERROR, "x"),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"\\u0000', json_rpc.PARSE_ERROR, None),
        (b"[" * 100_000, json_rpc.PARSE_ERROR, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', json_rpc.INVALID_REQUEST, None),
        (b"[]", json_rpc.INVALID_REQUEST, None),
        (b"17", json_rpc.INVALID_REQUEST, None),
        (b"null", json_rpc.INVALID_REQUEST, None),
        (b"{}", json_rpc.INVALID_REQUEST, None),
        (line(id=5), json_rpc.INVALID_REQUEST, 5),
        (line(id=5, method=6), json_rpc.INVALID_REQUEST, 5),
        (line(id=5, method="m", params=6), json_rpc.INVALID_REQUEST, 5),
        (line(id=None, method="m"), json_rpc.INVALID_REQUEST, None),
        (line(id=True, method="m"), json_rpc.INVALID_REQUEST, None),
        (line(id=1.0, method="m"), json_rpc.INVALID_REQUEST, None),
        (line(id=[1], method="m"), json_rpc.INVALID_REQUEST, None),
        (b'{"id":"x","method":"m"}', json_rpc.INVALID_REQUEST, "x"),
        (b'{"jsonrpc":"1.0","id":"x","method":"m"}', json_rpc.INVALID_REQUEST, "x"),
    ],
)
def test_junk_is_answered_and_the_connection_continues(
    peer: json_rpc.JsonRpcPeer, junk: bytes, code: int, reply_id: object
) -> None:
    [refused] = peer.receive(junk)
    assert isinstance(refused, json_rpc.Malformed)
    assert refused.reply is not None
    answer = json.loads(refused.reply)
    assert answer == {"jsonrpc": "2.0", "id": reply_id, "error": {"code": code, "message": refused.message}}
    assert peer.receive(line(id=5, method="m")) == [json_rpc.IncomingRequest(5, "m", None)]
    assert peer.malformed == 1


@pytest.mark.parametrize(
    "junk",
    [
        line(method="m", params=6),
        line(method=None),
        line(id=1, error="text"),
        line(id=1, error=None),
        line(result=None, jsonrpc=2),
    ],
)
def test_notifications_and_responses_are_never_answered(peer: json_rpc.JsonRpcPeer, junk: bytes) -> None:
    [refused] = peer.receive(junk)
    assert isinstance(refused, json_rpc.Malformed)
    assert refused.reply is None


def test_a_request_whose_id_is_in_use_does_not_disturb_the_first(peer: json_rpc.JsonRpcPeer) -> None:
    peer.receive(line(id=1, method="a"))

    [refused] = peer.receive(line(id=1, method="b"))
    assert isinstance(refused, json_rpc.Malformed)
    assert json.loads(refused.reply or b"")["id"] is None
    assert peer.respond(1, {}) == b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


def test_a_lenient_peer_neither_wants_nor_sends_the_version() -> None:
    peer = json_rpc.JsonRpcPeer(lenient=True)

    assert peer.receive(b'{"id":1,"method":"m"}') == [json_rpc.IncomingRequest(1, "m", None)]
    assert peer.receive(line(method="n")) == [json_rpc.IncomingNotification("n", None)]
    assert peer.respond(1, {}) == b'{"id":1,"result":{}}\n'
    assert peer.request("m")[1] == b'{"id":1,"method":"m"}\n'


def test_blank_lines_mean_nothing() -> None:
    assert [json_rpc.JsonRpcPeer().receive(blank) for blank in (b"", b" \r\n", b"\t")] == [[], [], []]


members = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "id": st.integers(0, 3) | st.text(max_size=3) | json_values,
        "method": st.sampled_from(["m", "$/cancel_request"]) | json_values,
        "params": st.fixed_dictionaries({"requestId": st.integers(0, 3)}) | json_values,
        "result": json_values,
        "error": st.fixed_dictionaries({"code": st.integers(), "message": st.text()}) | json_values,
    },
)
lines = st.binary() | members.map(lambda value: msgspec.json.encode(value))


@given(lines=st.lists(lines, max_size=20), lenient=st.booleans())
def test_no_input_raises_and_every_reply_is_a_valid_error(lines: list[bytes], lenient: bool) -> None:
    peer = json_rpc.JsonRpcPeer(lenient=lenient, max_pending=4)
    for _ in range(3):
        peer.request("m")
    for data in lines:
        for event in peer.receive(data):
            if isinstance(event, json_rpc.Malformed) and event.reply is not None:
                other = json_rpc.JsonRpcPeer(lenient=lenient)
                assert event.reply.count(b"\n") == 1
                answered = other.receive(event.reply)
                assert other.malformed == 0
                assert all(isinstance(answer, json_rpc.ErrorResponse) for answer in answered)
            elif isinstance(event, json_rpc.IncomingRequest) and event.method == "m":
                peer.respond(event.id, event.params)
