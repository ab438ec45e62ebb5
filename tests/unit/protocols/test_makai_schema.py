"""Every frame both state machines make fits the published schema."""

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from support.answers import answers
from support.profiles import examples
from support.streams import model, new_parts
from support.wire import JSON, Server, ask, envelope, new_id

from makai.core.content import Audio, Image, Text, ToolCall, ToolResult
from makai.core.errors import AuthRequired
from makai.core.request import RequestOptions
from makai.core.stream_events import StreamEvent
from makai.protocols.makai import payloads as wire
from makai.protocols.makai.client import ClientConnection
from makai.protocols.makai.envelope import READY_FRAME, Scope
from makai.protocols.makai.server import ConnectionLimits
from tools.schema import makai_client_schema, makai_server_schema

SERVER = jsonschema_rs.validator_for(makai_server_schema())
CLIENT = jsonschema_rs.validator_for(makai_client_schema())


def check(frames: list[JSON]) -> None:
    assert frames
    for frame in frames:
        SERVER.validate(frame)


@given(events=answers)
@examples(150)
def test_every_stream_fits_in_both_encodings(events: list[StreamEvent]) -> None:
    for request in (ask(), ask(encoding="proxy"), ask("complete_request")):
        server = Server()
        check(server.play(server.open(request), events))


def test_replies_refusals_and_host_frames_fit() -> None:
    server = Server()
    check(server.say(b"{"))
    check(server.say(envelope("ping")))
    check(server.say(envelope("dance")))
    check(server.say(ask(version=3)))
    request = ask()
    server.say(request)
    refusal = AuthRequired("no key", provider_id="groq", hint="Set it.")
    server.connection.refuse(Scope("stream_id", request["stream_id"]), refusal)
    check(server.heard())
    SERVER.validate(msgspec.json.decode(READY_FRAME))


def test_fragments_fit() -> None:
    server = Server(ConnectionLimits(frame_bytes=1500))
    parts = new_parts(model("x"))
    parts.start()
    parts.text(0, "x" * 5000)
    parts.done("end_turn")
    check(server.play(server.open(), parts.take()))


MESSAGES = (
    wire.ChatMessage(role="system", content="s"),
    wire.ChatMessage(role="user", content=(Text(text="t"), Image(data="", mime_type="image/png"))),
    wire.ChatMessage(role="user", content=(Audio(data="", mime_type="audio/wav"),), name="Ada"),
    wire.ChatMessage(role="assistant", content=(ToolCall(tool_call_id="c", name="t", arguments_json="{}"),)),
    wire.ChatMessage(role="tool", content=(ToolResult(tool_call_id="c", tool_name="t", content="ok"),)),
)
REQUESTS = {
    "stream_request": wire.StreamRequest(model_ref="a/b@c", context=wire.RequestContext(messages=MESSAGES)),
    "complete_request": wire.CompleteRequest(
        model=model("x"),
        context=wire.RequestContext(messages=MESSAGES),
        options=RequestOptions(temperature=1.0, stop=("x",), metadata={"a": "b"}, reasoning_effort="high"),
    ),
    "abort_request": wire.AbortRequest(new_id(), "enough"),
    "ping": wire.PingPayload(),
    "goodbye": wire.Goodbye(),
}


@pytest.mark.req("MK-ENV-008")
@pytest.mark.parametrize("kind", REQUESTS)
def test_requests_fit_and_are_understood(kind: str) -> None:
    client = ClientConnection()
    client.send(client.begin(), kind, REQUESTS[kind])
    (frame,) = client.take()
    CLIENT.validate(msgspec.json.decode(frame))
    server = Server()
    answers = server.say(frame)
    assert all(answer["payload"].get("error_code") in (None, "stream_not_found") for answer in answers)


def test_the_schema_refuses_what_the_server_refuses() -> None:
    for wrong in (ask(stream_id=None), ask(session_id=new_id()), ask(version=2), ask(payload={})):
        assert not CLIENT.is_valid(wrong)
