"""What is special about SSE: several requests make one connection, and streams come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from support.json_strategies import values
from support.transports import TOKEN, Accepted, eventually, exchange, http_server, read_to_the_end

from makai.core.access import Caller
from makai.core.errors import ChannelClosed, TransportError
from makai.core.secret import Secret
from makai.transports.channel import Channel, ServeCaller
from makai.transports.sse import CONNECTION_HEADER, SSEServer, connect_sse, encode_frames
from makai.wire import strict_json
from makai.wire.sse import SSEDecoder

DEADLINE_S = 60.0
LIMIT = 1000


@asynccontextmanager
async def sse_server(serve: ServeCaller, **options: float) -> AsyncIterator[tuple[SSEServer, int]]:
    server = SSEServer(serve, max_frame_bytes=LIMIT, **options)  # type: ignore[arg-type]
    async with asyncio.timeout(DEADLINE_S), http_server("POST", server.handle) as port:
        yield server, port


def post(port: int, body: bytes, connection: str = "", content_type: str = "application/json") -> bytes:
    extra = f"{CONNECTION_HEADER}: {connection}\r\n" if connection else ""
    head = (
        f"POST /v1/makai HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN.reveal()}\r\n{extra}"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def status_and_error(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"] if body else ""


class OpenStream:
    """A connection held by a raw client, the way `curl -N` holds one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self.reader = reader
        self.writer = writer
        self.head = head
        self.id = head.partition(f"{CONNECTION_HEADER}: ")[2].partition("\r\n")[0]


@asynccontextmanager
async def open_stream(port: int, body: bytes = b"1") -> AsyncIterator[OpenStream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(post(port, body))
        yield OpenStream(reader, writer, (await reader.readuntil(b"\r\n\r\n")).decode())
    finally:
        writer.transport.abort()


async def answer_and_close(channel: Channel, caller: Caller) -> None:
    """A server with nothing going on: one answer, and the stream ends."""
    frame = await channel.receive()
    assert isinstance(frame, bytes)
    await channel.send([b'{"to":' + frame + b"}"])
    await channel.close()


@pytest.mark.req("MK-TRANS-006")
async def test_a_post_is_answered_by_an_event_stream_that_ends_with_the_channel() -> None:
    async with sse_server(answer_and_close) as (server, port):
        answer = await exchange(port, post(port, b'{"n":1}'))
        live = server.live

    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 ")
    assert "\r\nContent-Type: text/event-stream\r\n" in head
    assert len(head.partition(f"{CONNECTION_HEADER}: ")[2].partition("\r\n")[0]) == 32
    assert 'data: {"to":{"n":1}}\n\n' in body
    assert live == 0


async def test_a_later_post_with_the_connections_id_is_accepted_and_answered_on_the_stream(accepted: Accepted) -> None:
    async with sse_server(accepted.serve) as (_, port), open_stream(port) as stream:
        channel = await accepted.channel
        first = await channel.receive()
        second, answer = await asyncio.gather(channel.receive(), exchange(port, post(port, b"2", stream.id)))
        await channel.send([b'"both"'])
        await stream.reader.readuntil(b'data: "both"\n\n')

    assert (first, second) == (b"1", b"2")
    assert status_and_error(answer) == (202, "")


@pytest.mark.parametrize("connection", ["unknown", "0" * 32, "../etc", "é"])
async def test_an_unknown_connection_is_not_found(connection: str) -> None:
    async with sse_server(answer_and_close) as (_, port):
        assert status_and_error(await exchange(port, post(port, b"1", connection))) == (404, "stream_not_found")


async def test_a_frame_the_server_did_not_take_is_not_accepted(accepted: Accepted) -> None:
    """Otherwise it would be lost: the client may now post it to a new connection."""
    async with sse_server(accepted.serve) as (_, port), open_stream(port) as stream:
        channel = await accepted.channel
        assert await channel.receive() == b"1"
        late = asyncio.create_task(exchange(port, post(port, b"2", stream.id)))
        await eventually(lambda: posts_waiting(channel) == 1)
        await channel.close()

        assert status_and_error(await late) == (404, "stream_not_found")


def posts_waiting(channel: Channel) -> int:
    return len(channel._channel.posted)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"1", "text/plain", (415, "invalid_request")),
        (b"1", "application/x-www-form-urlencoded", (415, "invalid_request")),
        (b'"' + b"x" * LIMIT + b'"', "application/json", (413, "invalid_request")),
    ],
    ids=["text", "form", "large"],
)
async def test_what_cannot_be_a_frame_is_refused(body: bytes, content_type: str, expected: tuple[int, str]) -> None:
    async with sse_server(answer_and_close) as (_, port):
        assert status_and_error(await exchange(port, post(port, body, content_type=content_type))) == expected


async def test_above_the_limit_no_connection_is_opened(accepted: Accepted) -> None:
    async with sse_server(accepted.serve, max_connections=1) as (server, port), open_stream(port):
        await accepted.channel

        assert status_and_error(await exchange(port, post(port, b"2"))) == (503, "overloaded")
        assert server.live == 1


async def test_an_idle_stream_is_kept_alive_by_comments(accepted: Accepted) -> None:
    async with sse_server(accepted.serve, keepalive_s=0.01) as (_, port), open_stream(port) as stream:
        for _ in range(3):
            await stream.reader.readuntil(b": keep-alive\n\n")


async def test_the_server_learns_at_once_that_its_client_has_gone(accepted: Accepted) -> None:
    async with sse_server(accepted.serve) as (server, port):
        async with open_stream(port):
            channel = await accepted.channel
            assert await channel.receive() == b"1"

        assert await channel.receive() is None
        with pytest.raises(ChannelClosed):
            await channel.send([b"1"])
        await eventually(lambda: server.live == 0)


async def test_a_closing_server_ends_every_stream(accepted: Accepted) -> None:
    async with sse_server(accepted.serve) as (server, port), open_stream(port) as stream:
        channel = await accepted.channel
        assert await channel.receive() == b"1"
        _, rest = await asyncio.gather(server.close(), read_to_the_end(channel))

        assert rest == []
        assert (await stream.reader.read()).endswith(b"0\r\n\r\n")


@pytest.mark.req("MK-TRANS-006")
async def test_a_client_opens_a_new_stream_when_the_last_has_ended() -> None:
    async with sse_server(answer_and_close) as (_, port):
        client = await connect_sse(f"http://127.0.0.1:{port}/v1/makai", TOKEN)
        received = []
        for number in (b"1", b"2", b"3"):
            await client.send([number])
            received.append(await client.receive())
        await client.send([b"4"])
        await client.send([b"5"])  # the stream of 4 has ended or is about to, and is not read yet
        received += [await client.receive(), await client.receive()]
        await client.close()

    assert received == [b'{"to":%d}' % number for number in range(1, 6)]


async def test_a_client_whose_stream_breaks_is_closed_for_good(accepted: Accepted) -> None:
    async with sse_server(accepted.serve) as (_, port):
        client = await connect_sse(f"http://127.0.0.1:{port}/v1/makai", TOKEN)
        await client.send([b"1"])
        channel = await accepted.channel
        await channel.send([b'"half of it"'])
        received = [await client.receive()]
        channel._channel.lose()  # type: ignore[attr-defined]
        received.append(await client.receive())

        assert received == [b'"half of it"', None]
        with pytest.raises(ChannelClosed):
            await client.send([b"2"])


async def test_a_client_says_why_it_cannot_send() -> None:
    async with sse_server(answer_and_close) as (_, port):
        url = f"http://127.0.0.1:{port}/v1/makai"
        refused = await connect_sse(url, Secret("wrong"))
        with pytest.raises(TransportError, match=r"refused a frame with HTTP 401\. Check the token\."):
            await refused.send([b"1"])
        large = await connect_sse(url, TOKEN)
        with pytest.raises(TransportError, match=r"refused a frame with HTTP 413\."):
            await large.send([b'"' + b"x" * LIMIT + b'"'])
        await asyncio.gather(refused.close(), large.close())
    idle = await connect_sse(url, TOKEN)
    with pytest.raises(TransportError, match="Could not reach"):
        await idle.send([b"1"])
    await idle.close()


@pytest.mark.proof("S3")
@pytest.mark.req("MK-TRANS-006")
@given(value=values)
@settings(max_examples=300)
def test_every_value_survives_the_event_stream(value: object) -> None:
    frames = [strict_json.encode(value), json.dumps(value, indent=1, ensure_ascii=False).encode(errors="replace")]
    encoded = encode_frames(frames)

    assert [strict_json.decode(frame) for frame in SSEDecoder().feed_data(encoded)] == [
        strict_json.decode(frame) for frame in frames
    ]
    assert not any(separator in encoded.decode() for separator in "\u2028\u2029\u0085\r")
