"""What is special about WebSocket: the handshake, the client's states, compression, and frames meant to do harm."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from aiohttp import web
from support.transports import TOKEN, Accepted, exchange, http_server

from makai.core.errors import ChannelClosed, TransportError
from makai.core.secret import Secret
from makai.transports.channel import Channel
from makai.transports.websocket import ConnectionState, WebSocketClient, connect_websocket, serve_websocket
from makai.transports.websocket_frames import COMPRESS_FROM_BYTES, TextFrameEncoder

LIMIT = 100_000
TEXT, BINARY, CONTINUATION, CLOSE = 1, 2, 0, 8
FIN, RSV1 = 0x80, 0x40
DEADLINE_S = 60.0


async def echo(channel: Channel) -> None:
    while (frame := await channel.receive()) is not None:
        assert isinstance(frame, bytes)
        await channel.send([frame])


@asynccontextmanager
async def websocket_server(serve: Callable[[Channel], Awaitable[None]] = echo) -> AsyncIterator[int]:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await serve_websocket(request, serve, max_frame_bytes=LIMIT)

    async with asyncio.timeout(DEADLINE_S), http_server("GET", handler) as port:
        yield port


def upgrade(port: int, protocols: str = "makai.v1", extra: str = "") -> bytes:
    return (
        f"GET /v1/makai HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN.reveal()}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: {protocols}\r\n{extra}\r\n"
    ).encode()


class RawClient:
    """A client that can send any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self.reader = reader
        self.writer = writer
        self.head = head.decode().lower()

    def send(self, first_byte: int, payload: bytes, *, length: int | None = None) -> None:
        """One frame; `length` lies about the payload's."""
        size = len(payload) if length is None else length
        mask = b"\0\0\0\0"  # masking with zeros changes nothing
        self.writer.write(bytes((first_byte, 0x80 | 127)) + struct.pack("!Q", size) + mask + payload)

    async def receive(self) -> tuple[int, bytes]:
        """First byte and payload of the next frame."""
        first_byte, length = await self.reader.readexactly(2)
        if length == 126:
            (length,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first_byte, await self.reader.readexactly(length)

    async def close_code(self) -> int:
        """The code of the close frame that comes next."""
        first_byte, payload = await self.receive()
        assert first_byte == FIN | CLOSE, (first_byte, payload)
        return int.from_bytes(payload[:2], "big")


@asynccontextmanager
async def raw_client(port: int, extra: str = "") -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        writer.write(upgrade(port, extra=extra))
        yield RawClient(reader, writer, await reader.readuntil(b"\r\n\r\n"))
    finally:
        writer.transport.abort()


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Yields a function that tells how many bytes were in use at once, above those at the beginning."""
    tracemalloc.start()
    peak = 0
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield lambda: peak
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate\r\n"


@pytest.mark.req("MK-TRANS-008")
async def test_the_client_offers_our_subprotocol_with_its_headers_and_the_server_selects_it(
    accepted: Accepted,
) -> None:
    seen: dict[str, str] = {}

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.update(request.headers)
        return await serve_websocket(request, accepted.serve)

    async with asyncio.timeout(DEADLINE_S), http_server("GET", handler) as port:
        client = await connect_websocket(f"ws://127.0.0.1:{port}/v1/makai", TOKEN, headers={"X-Trace": "7"})
        await asyncio.gather(client.close(), (await accepted.channel).receive())

    assert seen["Sec-WebSocket-Protocol"] == "makai.v1"
    assert seen["X-Trace"] == "7"
    assert seen["Authorization"] == f"Bearer {TOKEN.reveal()}"
    assert "permessage-deflate" in seen["Sec-WebSocket-Extensions"]


@pytest.mark.req("MK-TRANS-008")
@pytest.mark.parametrize("offer", ["makai.v1", "makai.v1, makai.token.x", "other, makai.v1"])
async def test_of_several_subprotocols_the_server_selects_ours(offer: str) -> None:
    async with websocket_server() as port:
        head = await exchange(port, upgrade(port, offer), head_only=True)

    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"\r\nSec-WebSocket-Protocol: makai.v1\r\n" in head


@pytest.mark.parametrize(
    "request_of",
    [
        lambda port: upgrade(port, "other"),
        lambda port: upgrade(port).replace(b"Upgrade: websocket\r\n", b""),
        lambda port: upgrade(port).replace(b"Key: AAAA", b"Key: "),
        lambda port: upgrade(port).replace(b"Version: 13", b"Version: 99"),
    ],
    ids=["other subprotocol", "no upgrade", "bad key", "bad version"],
)
async def test_anything_but_a_proper_upgrade_is_told_how_to(request_of: Callable[[int], bytes]) -> None:
    async with websocket_server() as port:
        head = await exchange(port, request_of(port), head_only=True)

    assert head.startswith(b"HTTP/1.1 426 ")


@pytest.mark.req("MK-TRANS-009")
async def test_a_client_moves_through_its_states() -> None:
    async with websocket_server() as port:
        client = WebSocketClient(f"http://127.0.0.1:{port}/v1/makai", TOKEN)
        states = [client.state]
        connecting = asyncio.create_task(client.connect())
        await asyncio.sleep(0)
        states.append(client.state)
        await connecting
        states.append(client.state)
        closing = asyncio.create_task(client.close("done"))
        await asyncio.sleep(0)
        states.append(client.state)
        await closing
        await client.close()
        states.append(client.state)

        assert states == list(ConnectionState)
        assert client.close_code == 1000
        with pytest.raises(TransportError, match="connects once; this one is closed"):
            await client.connect()


@pytest.mark.req("MK-TRANS-009")
async def test_a_client_that_was_refused_is_not_connected() -> None:
    async with websocket_server() as port:
        client = WebSocketClient(f"http://127.0.0.1:{port}/v1/makai", Secret("wrong"))
        with pytest.raises(TransportError, match=r"refused the connection with HTTP 401\. Check the token\."):
            await client.connect()

        states = [client.state]
        assert await client.receive() is None
        with pytest.raises(ChannelClosed):
            await client.send([b"1"])
        await client.close()
        assert [*states, client.state] == [ConnectionState.DISCONNECTED, ConnectionState.CLOSED]


@pytest.mark.req("MK-TRANS-009")
async def test_a_server_that_is_not_there_or_silent_or_other_is_an_error() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def no_subprotocol(request: web.Request) -> web.StreamResponse:
        response = web.WebSocketResponse()
        await response.prepare(request)
        await response.receive()
        return response

    silent = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises(TransportError, match=r"did not answer within 0\.2 s"):
        await connect_websocket(f"http://127.0.0.1:{port}/", deadline_s=0.2)
    silent.close()
    await silent.wait_closed()
    with pytest.raises(TransportError, match="Could not connect"):
        await connect_websocket(f"http://127.0.0.1:{port}/")
    async with http_server("GET", no_subprotocol) as port:
        with pytest.raises(TransportError, match=r"but not makai\.v1"):
            await connect_websocket(f"http://127.0.0.1:{port}/v1/makai", TOKEN)


@pytest.mark.req("MK-TRANS-009")
async def test_a_client_sees_that_the_server_has_gone() -> None:
    async def leave(channel: Channel) -> None:
        await channel.close("going away")

    async with websocket_server(leave) as port:
        client = await connect_websocket(f"http://127.0.0.1:{port}/v1/makai", TOKEN)

        assert await client.receive() is None
        assert (client.state, client.close_code) == (ConnectionState.CLOSED, 1000)


@pytest.mark.proof("W1", "W3", "limit-message")
@pytest.mark.req("MK-TRANS-010")
@pytest.mark.parametrize(
    ("first_byte", "payload", "length", "code"),
    [
        (FIN | BINARY, b"{}", None, 1003),
        (FIN | TEXT, b'"\xff"', None, 1007),
        (FIN | TEXT, b"\xed\xa0\x80", None, 1007),
        (FIN | TEXT, b"x" * (LIMIT + 1), None, 1009),
        (FIN | TEXT, b"", 2**62, 1009),
        (FIN | TEXT, b"", 2**63 + 1, 1009),
        (FIN | CONTINUATION, b"x", None, 1002),
        (FIN | 3, b"", None, 1002),
        (FIN | 0x20 | TEXT, b"{}", None, 1002),
        (FIN | RSV1 | TEXT, b"{}", None, 1002),
        (FIN | 9, b"p" * 126, None, 1002),
    ],
    ids=["binary", "utf-8", "surrogate", "large", "2^62", "2^63", "continuation", "opcode", "rsv2", "rsv1", "ping"],
)
async def test_a_frame_we_do_not_take_ends_the_connection_with_its_code(
    first_byte: int, payload: bytes, length: int | None, code: int
) -> None:
    async with websocket_server() as port, raw_client(port) as client:
        client.send(FIN | TEXT, b'"before"')
        assert await client.receive() == (FIN | TEXT, b'"before"')
        client.send(first_byte, payload, length=length)

        assert await client.close_code() == code


@pytest.mark.req("MK-TRANS-010")
async def test_text_that_is_no_json_is_passed_on_and_the_connection_stays() -> None:
    """What to answer is the business of the protocol."""
    async with websocket_server() as port, raw_client(port) as client:
        for payload in (b"not json", b"", b"{}" * 1000, b"x" * LIMIT):
            client.send(FIN | TEXT, payload)
            assert await client.receive() == (FIN | TEXT, payload)


@pytest.mark.proof("W1")
async def test_a_message_in_fragments_with_a_ping_between_them_arrives_whole() -> None:
    async with websocket_server() as port, raw_client(port) as client:
        client.send(TEXT, b'"one ')
        client.writer.write(b"\x89\x80\0\0\0\0")
        client.send(FIN | CONTINUATION, b'message"')

        assert sorted([await client.receive(), await client.receive()]) == [
            (FIN | TEXT, b'"one message"'),
            (FIN | 10, b""),
        ]


@pytest.mark.proof("W2")
async def test_a_deflate_bomb_is_refused_without_being_unpacked() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = compressor.compress(bytes(64 * 1024 * 1024)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    assert len(bomb) < LIMIT
    async with websocket_server() as port, raw_client(port, DEFLATE) as client:
        with peak_memory() as peak:
            client.send(FIN | RSV1 | TEXT, bomb[:-4])
            code = await client.close_code()

    assert code == 1009
    assert peak() < 5_000_000


@pytest.mark.proof("W2")
async def test_endless_fragments_cost_no_memory() -> None:
    async with websocket_server() as port, raw_client(port) as client:
        with peak_memory() as peak:
            client.send(TEXT, b"")
            for payload, times in ((b"", 10), (b"x", LIMIT // 10_000 + 1)):
                fragment = bytes((CONTINUATION, 0x80 | len(payload), 0, 0, 0, 0)) + payload
                for _ in range(times):
                    client.writer.write(fragment * 10_000)
                    await client.writer.drain()
            code = await client.close_code()

    assert code == 1009
    assert peak() < 5_000_000


@pytest.mark.parametrize("extension", ["", "; server_no_context_takeover", "; server_max_window_bits=9"])
async def test_large_frames_are_compressed_as_negotiated_and_small_ones_are_not(extension: str) -> None:
    chosen = random.Random(1)
    frames = [b"a small one", *(b"".join(chosen.choices([b"many ", b"words "], k=800)) for _ in range(3))]
    bits = 9 if "bits" in extension else 15
    async with websocket_server() as port, raw_client(port, DEFLATE.replace("\r\n", f"{extension}\r\n")) as client:
        assert "permessage-deflate" in client.head
        reader = zlib.decompressobj(-bits)
        for sent in frames:
            client.send(FIN | TEXT, sent)
            first_byte, payload = await client.receive()
            if first_byte == FIN | RSV1 | TEXT:
                if "takeover" in extension:
                    reader = zlib.decompressobj(-bits)
                assert len(payload) < len(sent) / 2
                payload = reader.decompress(payload + b"\0\0\xff\xff")
            assert payload == sent
            assert bool(first_byte & RSV1) == (len(sent) >= COMPRESS_FROM_BYTES)


async def test_a_sender_cancelled_while_it_compresses_does_not_spoil_what_follows(accepted: Accepted) -> None:
    words = b"words " * 10_000
    async with websocket_server(accepted.serve) as port:
        client = await connect_websocket(f"http://127.0.0.1:{port}/v1/makai", TOKEN)
        server = await accepted.channel
        await server.send([words[:5000]])
        sending = asyncio.create_task(server.send([os.urandom(1_000_000).hex().encode(), words]))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await server.send([words[1000:7000], b"1"])

        assert sending.cancelled()
        assert [await client.receive() for _ in range(3)] == [words[:5000], words[1000:7000], b"1"]
        await asyncio.gather(client.close(), server.receive())


def test_frames_have_the_shortest_head_their_length_allows() -> None:
    encoder = TextFrameEncoder()

    assert {size: encoder.encode([b"x" * size])[:-size] for size in (1, 125, 126, 65535, 65536, 100_000)} == {
        1: b"\x81\x01",
        125: b"\x81\x7d",
        126: b"\x81\x7e\x00\x7e",
        65535: b"\x81\x7e\xff\xff",
        65536: b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00",
        100_000: b"\x81\x7f\x00\x00\x00\x00\x00\x01\x86\xa0",
    }


@pytest.mark.proof("limit-heartbeat")
async def test_a_client_that_stops_answering_pings_is_dropped() -> None:
    ended = asyncio.Event()

    async def serve(channel: Channel) -> None:
        assert await channel.receive() is None
        ended.set()

    async def handler(request: web.Request) -> web.StreamResponse:
        return await serve_websocket(request, serve, heartbeat_s=0.05)

    async with asyncio.timeout(DEADLINE_S), http_server("GET", handler) as port, raw_client(port):
        await ended.wait()


async def test_a_server_that_does_not_end_when_its_peer_has_gone_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.transports.connection.END_DEADLINE_S", 0.05)
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def deaf(channel: Channel) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with websocket_server(deaf) as port:
        async with raw_client(port):
            await started.wait()
        await cancelled.wait()
