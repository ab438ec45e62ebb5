"""Deadlines of a real listener for clients that send or read too slowly, with short times."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trustme
from aiohttp import web
from support.transports import TOKEN, exchange, http_server

from makai.transports import connection_table, http_guard, http_listener
from makai.transports.connection_table import ListenerLimits
from makai.transports.http_listener import HttpListener

SHORT_S = 0.3
WAIT_S = 30.0
HEAD = "POST /v1/makai HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
BEARER = f"Authorization: Bearer {TOKEN.reveal()}\r\n"


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (connection_table, "HEADER_DEADLINE_S"),
        (connection_table, "UNAUTHENTICATED_S"),
        (connection_table, "FLUSH_DEADLINE_S"),
        (http_listener, "HEADER_DEADLINE_S"),
        (http_listener, "KEEPALIVE_S"),
        (http_listener, "WRITE_DEADLINE_S"),
        (http_listener, "LINGER_S"),
        (http_guard, "BODY_DEADLINE_S"),
        (http_guard, "_ANSWER_S"),
    ):
        monkeypatch.setattr(module, name, SHORT_S)
    monkeypatch.setattr(http_listener, "_SWEEP_S", 0.05)


async def hello(request: web.Request) -> web.StreamResponse:
    return web.Response(text="inside")


async def unread(request: web.Request) -> web.StreamResponse:
    """A handler that never looks at the body, and takes long."""
    await asyncio.Event().wait()
    raise AssertionError


async def dribble(port: int, head: str, piece: bytes) -> bytes:
    """Send `piece` again and again behind `head`, never idle; what the server said when it closed the connection."""
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.format(port=port).encode())
        answer = asyncio.ensure_future(reader.read())
        try:
            while not answer.done():
                writer.write(piece)
                await asyncio.wait({answer}, timeout=0.02)
            return answer.result()
        except ConnectionError:
            return b"reset"
        finally:
            writer.transport.abort()
            await asyncio.gather(answer, return_exceptions=True)


@pytest.mark.parametrize(
    ("head", "piece"),
    [("", b""), ("POST /v1/", b"x"), (HEAD, b"X-More: 1\r\n"), (HEAD + BEARER + "X: ", b"y")],
    ids=["silent", "request line", "headers", "header with the token"],
)
async def test_a_head_that_does_not_end_in_time_is_not_awaited(head: str, piece: bytes) -> None:
    async with http_server("POST", hello) as port:
        assert (await dribble(port, head, piece)).partition(b"\r\n")[0] in (b"", b"reset", b"HTTP/1.0 400 Bad Request")


@pytest.mark.parametrize("framing", ["Content-Length: 1000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"])
async def test_a_body_has_a_deadline_on_a_route_that_does_not_read_it(framing: str) -> None:
    piece = b" " if "Length" in framing else b"1\r\n \r\n"
    async with http_server("POST", unread) as port:
        assert await dribble(port, HEAD + BEARER + framing, piece) in (b"", b"reset")


async def test_the_body_of_a_refused_request_is_not_read_for_long() -> None:
    async with http_server("POST", hello) as port:
        said = await dribble(port, HEAD + "Content-Length: 1000000\r\n\r\n", b" ")

    assert said.startswith(b"HTTP/1.1 401 ") or said == b"reset"


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    cut_off = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        try:
            await response.prepare(request)
            while True:
                await response.write(bytes(65_536))
        finally:
            cut_off.set()

    async with http_server("POST", endless) as port, asyncio.timeout(WAIT_S):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall((HEAD.format(port=port) + BEARER + "Content-Length: 0\r\n\r\n").encode())
            await cut_off.wait()


async def test_an_idle_connection_is_closed_after_its_answer() -> None:
    async with http_server("POST", hello) as port:
        answer = await exchange(port, (HEAD.format(port=port) + BEARER + "Content-Length: 0\r\n\r\n").encode())

    assert answer.endswith(b"\r\n\r\ninside")


async def test_a_half_closed_connection_is_closed() -> None:
    async with http_server("POST", unread) as port, asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((HEAD.format(port=port) + BEARER + "Content-Length: 10\r\n\r\n").encode())
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


@asynccontextmanager
async def listening(limits: ListenerLimits, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get("/", hello)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    with socket.create_server(("127.0.0.1", 0)) as bound:
        listener = HttpListener(runner.server, bound, tls=tls, limits=limits)
        yield bound.getsockname()[1]
        await listener.close()
        await runner.cleanup()


async def test_a_tls_handshake_has_a_deadline_and_counts_as_a_connection() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with listening(ListenerLimits(unauthenticated=2, total=10), context) as port, asyncio.timeout(WAIT_S):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for reader, writer in opened:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.transport.abort()


async def test_the_oldest_silent_connection_makes_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_table, "HEADER_DEADLINE_S", WAIT_S)
    async with listening(ListenerLimits(unauthenticated=3, total=10, burst_s=0.0)) as port, asyncio.timeout(WAIT_S):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, _ in opened[:2]:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        answer = await exchange(port, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert answer.endswith(b"inside")
        for _, writer in opened:
            writer.transport.abort()


async def test_clients_that_connect_at_once_are_all_served_although_they_are_more_than_silent_ones_may_be() -> None:
    async with listening(ListenerLimits(unauthenticated=3, total=100, burst_s=WAIT_S)) as port, asyncio.timeout(WAIT_S):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        for _, writer in opened:
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answers = [await reader.read() for reader, _ in opened]
        for _, writer in opened:
            writer.close()

    assert [answer.endswith(b"inside") for answer in answers] == [True] * 50
