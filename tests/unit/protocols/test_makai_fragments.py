import base64
import random
from typing import Any

import msgspec
import pytest
from support.wire import EMPTY, JSON, Server, ask, code_of, envelope, new_id

from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.stream_events import Done
from makai.protocols.makai.client import ClientConnection
from makai.protocols.makai.commands import OpenStream
from makai.protocols.makai.envelope import Fragment, Scope
from makai.protocols.makai.framing import FragmentLimits, Joined, Reassembler, cut
from makai.protocols.makai.payloads import ChatMessage, RequestContext, StreamRequest
from makai.protocols.makai.server import ConnectionLimits

SCOPE = Scope("stream_id", new_id())
MANY_BYTES = "é☂😀 and plain text. " * 500


def pieces(payload: bytes, frame_bytes: int = 1500) -> list[Any]:
    """(fragment, sequence, payload) of a message, in order."""
    whole = new_id()
    slices = cut(payload, frame_bytes, 1024)
    return [
        (Fragment(index=index, total=len(slices), id=whole), 5 + index, {"data": piece.data})
        for index, piece in enumerate(slices)
    ]


def join(reassembler: Reassembler, parts: list[Any], now: float = 0.0) -> list[Joined]:
    results = [reassembler.add(SCOPE, fragment, sequence, payload, now) for fragment, sequence, payload in parts]
    return [result for result in results if result is not None]


@pytest.mark.req("MK-ENV-024")
@pytest.mark.parametrize("frame_bytes", [1030, 1031, 1100, 1500, 4096, 10**6])
def test_a_message_cut_anywhere_is_joined_to_the_same_bytes(frame_bytes: int) -> None:
    payload = MANY_BYTES.encode()
    parts = pieces(payload, frame_bytes)
    if len(parts) > 1024:
        parts = pieces(payload[:1000], frame_bytes)
        payload = payload[:1000]
    (joined,) = join(Reassembler(FragmentLimits()), parts)
    assert joined == Joined(payload=payload, first_sequence=5, total=len(parts))


@pytest.mark.req("MK-ENV-025")
def test_order_repetition_and_interleaving_do_not_matter_but_a_missing_piece_does() -> None:
    chance = random.Random(7)
    first, second, third = (chance.randbytes(9000) for _ in range(3))
    mixed = pieces(first) * 2 + pieces(second) + pieces(third)[:-1]
    chance.shuffle(mixed)
    results = join(Reassembler(FragmentLimits()), mixed)
    payloads = {result.payload for result in results}
    assert payloads == {first, second}


def fragment(index: int, total: int, name: str) -> Fragment:
    return Fragment(index=index, total=total, id=name)


def test_lies_and_excess_are_refused_and_forgotten() -> None:
    limits = FragmentLimits(message_bytes=1000, fragments=4, unfinished=2, seconds=30)
    reassembler = Reassembler(limits)
    with pytest.raises(InvalidRequest, match="at most 4 fragments"):
        reassembler.add(SCOPE, fragment(0, 5, "a"), 1, {"data": ""}, 0)
    reassembler.add(SCOPE, fragment(0, 3, "b"), 1, {"data": "AAAA"}, 0)
    with pytest.raises(InvalidRequest, match="disagree"):
        reassembler.add(SCOPE, fragment(1, 2, "b"), 2, {"data": "AAAA"}, 0)
    reassembler.add(SCOPE, fragment(0, 3, "c"), 1, {"data": "AAAA"}, 0)
    with pytest.raises(InvalidRequest, match="numbered"):
        reassembler.add(SCOPE, fragment(1, 3, "c"), 9, {"data": "AAAA"}, 0)
    with pytest.raises(InvalidRequest, match="base64"):
        reassembler.add(SCOPE, fragment(0, 3, "d"), 1, {"data": "%%%"}, 0)
    with pytest.raises(InvalidRequest, match="at most 1000 bytes"):
        reassembler.add(SCOPE, fragment(0, 3, "e"), 1, {"data": "A" * 4000}, 0)
    reassembler.add(SCOPE, fragment(0, 2, "f"), 1, {"data": "AAAA"}, 0)
    reassembler.add(SCOPE, fragment(0, 2, "g"), 1, {"data": "AAAA"}, 0)
    with pytest.raises(InvalidRequest, match="unfinished"):
        reassembler.add(SCOPE, fragment(0, 2, "h"), 1, {"data": "AAAA"}, 0)
    # What never completes is forgotten after its time, and makes room.
    assert reassembler.expire(30) == []
    assert [name for _, name in reassembler.expire(31)] == ["f", "g"]
    assert reassembler.add(SCOPE, fragment(0, 1, "i"), 1, {"data": "AAAA"}, 31) is not None


@pytest.mark.req("MK-ENV-024")
def test_a_request_too_large_for_a_frame_reaches_the_server_in_pieces() -> None:
    client = ClientConnection(frame_bytes=4096)
    scope = client.begin()
    request = StreamRequest(
        model_ref="scripted/scripted@echo",
        context=RequestContext(messages=(ChatMessage(role="user", content=MANY_BYTES),)),
    )
    message_id = client.send(scope, "stream_request", request)
    frames = client.take()
    assert len(frames) > 3
    assert all(len(frame) <= 4096 for frame in frames)
    assert [msgspec.json.decode(frame)["fragment"] for frame in frames] == [
        {"index": index, "total": len(frames), "id": message_id} for index in range(len(frames))
    ]
    server = Server(ConnectionLimits(frame_bytes=4096))
    random.Random(3).shuffle(frames)
    for frame in frames:
        assert server.say(frame) == []
    command = server.command(OpenStream)
    assert command.context.messages[0].content == MANY_BYTES  # type: ignore[union-attr]
    server.connection.accept(scope.id)
    (ack,) = server.heard()
    assert ack["payload"] == {"acknowledged_id": message_id}
    # The pieces used their numbers: the next request of the scope continues after them.
    assert code_of(server.say(ask(stream_id=scope.id, sequence=len(frames) + 1))) == "stream_already_exists"


def test_an_answer_too_large_for_a_frame_reaches_the_client_in_pieces() -> None:
    server = Server(ConnectionLimits(frame_bytes=4096))
    stream_id = server.open(ask("complete_request"))
    final = msgspec.structs.replace(EMPTY, content=(Text(text=MANY_BYTES),), stop_reason="end_turn")
    server.connection.event(stream_id, Done("end_turn", final))
    client = ClientConnection()
    frames = server.connection.take()
    replies = [client.receive(frame, 0.0) for frame in frames]
    assert replies[:-1] == [None] * (len(frames) - 1)
    (reply,) = [reply for reply in replies if reply]
    assert reply.type == "result"
    assert msgspec.json.decode(reply.payload, type=type(final)) == final


@pytest.mark.parametrize(
    "other", [{"kind": "complete_request"}, {"encoding": "proxy"}, {"in_reply_to": new_id()}], ids=range(3)
)
def test_a_fragment_of_another_type_is_refused_with_its_message(other: JSON) -> None:
    server = Server()
    payload = msgspec.json.encode(ask()["payload"])
    halves = [base64.b64encode(half).decode() for half in (payload[:20], payload[20:])]
    stream_id, whole = new_id(), new_id()
    for index, half in enumerate(halves):
        fields = {"stream_id": stream_id, "sequence": index + 1, **(other if index else {})}
        kind = fields.pop("kind", "stream_request")
        piece = envelope(kind, {"data": half}, fragment={"index": index, "total": 2, "id": whole}, **fields)
        frames = server.say(piece)
    assert code_of(frames) == "invalid_request"
    assert server.commands == []


def test_a_message_that_never_completes_is_nacked_when_its_time_is_over() -> None:
    server = Server(ConnectionLimits(fragments=FragmentLimits(seconds=30)))
    whole = new_id()
    piece = envelope("stream_request", {"data": "AAAA"}, fragment={"index": 0, "total": 2, "id": whole})
    assert server.say(piece, now=0.0) == []
    nack, pong = server.say(envelope("ping"), now=31.0)
    assert (nack["payload"]["rejected_id"], nack["payload"]["error_code"]) == (whole, "invalid_request")
    assert pong["type"] == "pong"


@pytest.mark.parametrize("payload", [b"[]", b"{", b"7", b'{"a":NaN}'])
def test_pieces_that_join_to_nonsense_are_nacked(payload: bytes) -> None:
    server = Server()
    (whole,) = pieces(payload)
    value = envelope("stream_request", whole[2], fragment={"index": 0, "total": 1, "id": new_id()})
    assert code_of(server.say(value)) == "invalid_request"
