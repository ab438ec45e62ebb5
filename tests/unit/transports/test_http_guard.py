"""The guard in front of a real listener, spoken to in raw bytes."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest
from aiohttp import web
from support.transports import TOKEN, exchange, http_server

from makai.core.errors import TransportError
from makai.core.secret import Secret
from makai.transports.channel import Channel
from makai.transports.sse import connect_sse
from makai.transports.websocket import connect_websocket

Connect: TypeAlias = Callable[[str, Secret], Awaitable[Channel]]
BEARER = f"Authorization: Bearer {TOKEN.reveal()}\r\nContent-Type: application/json\r\n"


class Route:
    """Counts who reached it, and can hold them."""

    def __init__(self) -> None:
        self.port = 0
        self.reached = 0
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()

    async def ask(self, headers: str = "", **more: str) -> bytes:
        return await exchange(self.port, request(self.port, headers, **more))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.reached += 1
        self.entered.set()
        await self.release.wait()
        return web.Response(text="inside")


def request(port: int, headers: str = "", line: str = "POST /v1/makai HTTP/1.1", host: str = "") -> bytes:
    return f"{line}\r\nHost: {host or f'127.0.0.1:{port}'}\r\nConnection: close\r\n{headers}\r\n".encode()


@pytest.fixture
async def route() -> AsyncIterator[Route]:
    found = Route()
    async with http_server("POST", found.handle) as found.port:
        yield found


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_with_token_host_and_no_origin_the_route_is_reached(route: Route) -> None:
    assert (await route.ask(BEARER)).endswith(b"\r\n\r\ninside")


@pytest.mark.proof("L1")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("", 401),
        ("Authorization: Bearer wrong\r\n", 401),
        (BEARER + "Origin: https://evil.example\r\n", 403),
        (BEARER + "Origin: null\r\n", 403),
        (BEARER + "Host: evil.com\r\n", 421),
        (BEARER + "Content-Length: 99999999999\r\n", 413),
    ],
    ids=["no token", "wrong token", "foreign origin", "null origin", "second host", "large body"],
)
async def test_a_refusal_comes_before_the_handler_and_the_body(route: Route, headers: str, expected: int) -> None:
    body = "" if "Content-Length" in headers else "Content-Length: 1000\r\n"
    # The body never comes. The server then waits for it a while, so that the answer is not lost; we do not.
    answer = await exchange(route.port, request(route.port, headers + body), head_only=True)

    # aiohttp itself refuses a second Host as a malformed request
    assert status(answer) == expected or (expected == 421 and status(answer) == 400)
    assert route.reached == 0
    assert b"access-control" not in answer.lower()


@pytest.mark.proof("L4")
@pytest.mark.parametrize(
    "line",
    [
        "POST http://127.0.0.1/v1/makai HTTP/1.1", "POST http://evil.com/v1/makai HTTP/1.1", "POST //v1/makai HTTP/1.1",
        "POST /v1/./makai HTTP/1.1", "POST /healthz/../v1/makai HTTP/1.1", "POST /%76%31/makai HTTP/1.1",
        "POST /v1/makai?/healthz HTTP/1.1", "POST /v1/makai#/healthz HTTP/1.1", "POST /v1/makai;x HTTP/1.1",
        "OPTIONS * HTTP/1.1", "OPTIONS /v1/makai HTTP/1.1", "CONNECT 127.0.0.1:80 HTTP/1.1", "POST /v1/makai HTTP/1.0",
    ],
)  # fmt: skip
async def test_no_request_line_reaches_a_handler_without_the_token(route: Route, line: str) -> None:
    answer = await route.ask(line=line)

    assert status(answer) in (400, 401)
    assert route.reached == 0


@pytest.mark.proof("L3")
@pytest.mark.parametrize("host", ["evil.com", "127.0.0.1.nip.io:{}", "LOCALHOST:{}", "localhost", "[::]:{}", "a/b?"])
async def test_a_foreign_host_reaches_nothing(route: Route, host: str) -> None:
    assert status(await route.ask(BEARER, host=host.format(route.port))) in (400, 421)
    assert route.reached == 0


@pytest.mark.proof("L2")
async def test_a_preflight_is_never_answered_with_permission(route: Route) -> None:
    preflight = "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n"
    answer = await route.ask(preflight, line="OPTIONS /v1/makai HTTP/1.1")

    assert status(answer) == 403
    assert b"access-control" not in answer.lower()


@pytest.mark.proof("limit-connections")
async def test_above_the_limit_connections_are_refused_and_let_in_again_later() -> None:
    route = Route()
    route.release.clear()
    async with http_server("POST", route.handle, max_connections=1) as port:
        first = asyncio.create_task(exchange(port, request(port, BEARER)))
        await route.entered.wait()
        second = await exchange(port, request(port, BEARER))
        route.release.set()
        third = (await first, await exchange(port, request(port, BEARER)))[1]

    assert (status(second), status(third)) == (503, 200)


async def test_wrong_tokens_are_slowed_down(route: Route) -> None:
    statuses = [status(await route.ask()) for _ in range(22)]
    with_token = status(await route.ask(BEARER))

    assert (statuses[0], statuses[-1], with_token) == (401, 429, 200)


@pytest.mark.proof("L1")
async def test_the_token_is_never_logged(route: Route, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    offer = (
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"Sec-WebSocket-Protocol: makai.token.{TOKEN.reveal()}\r\n"
    )
    await route.ask(BEARER)
    await route.ask(offer, line="GET /v1/makai HTTP/1.1")

    assert TOKEN.reveal() not in caplog.text


@pytest.mark.parametrize(
    "token", ["s3cr3t\nX: y", "s3cr3t\r\n\r\n", "s3cr3t\x00", "s3cr3t-\u2028", " s3cr3t", "s3cr3t" * 5000]
)
@pytest.mark.parametrize("connect", [connect_websocket, connect_sse], ids=["websocket", "sse"])
async def test_no_error_of_a_client_repeats_its_token(route: Route, connect: Connect, token: str) -> None:
    scheme = "ws" if connect is connect_websocket else "http"

    async def talk() -> None:
        client = await connect(f"{scheme}://127.0.0.1:{route.port}/v1/makai", Secret(token))
        try:
            await client.send([b"{}"])
        finally:
            await client.close()

    with pytest.raises(TransportError) as failure:
        await talk()
    assert "s3cr3t" not in "".join(traceback.format_exception(failure.value))
