"""Connections that never become a request do not keep the owner of the token out, with 1,024 descriptors."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from support.machine import RecordMeasure
from support.serve_process import ServeProcess, serve_process

HALF_OPEN = 2_000
DESCRIPTORS = 1_024
ANSWER_S = 1.0
HOST = b"Host: 127.0.0.1:%d\r\n"
UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: makai.v1\r\n\r\n"
)
KINDS: dict[str, Callable[[int], bytes]] = {
    "nothing": lambda port: b"",
    "part of a request line": lambda port: b"POST /v1/ma",
    "part of the head": lambda port: b"GET /api/sessions HTTP/1.1\r\n" + HOST % port + b"X-Slow: ",
    "part of a body": lambda port: (
        b"POST /api/sessions HTTP/1.1\r\n"
        + HOST % port
        + b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
    ),
    "an upgrade without a token": lambda port: b"GET /v1/makai HTTP/1.1\r\n" + HOST % port + UPGRADE,
    "a TLS hello": lambda port: bytes.fromhex("16030100c8010000c40303") + bytes(64),
    "garbage": lambda port: bytes(range(256)),
    "a public page that is not read": lambda port: b"GET / HTTP/1.1\r\n" + HOST % port + b"\r\n",
}


@asynccontextmanager
async def limited_server(folder: Path) -> AsyncIterator[ServeProcess]:
    limit = f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"
    async with serve_process(folder, "text: hi\n", before=("prlimit", limit)) as server:
        yield server


def flood(server: ServeProcess, opened: ExitStack, kinds: list[str], count: int = HALF_OPEN) -> None:
    port = int(server.url.rpartition(":")[2])
    for number in range(count):
        connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        connection.setblocking(False)
        if said := KINDS[kinds[number % len(kinds)]](port):
            try:
                connection.send(said)
            except OSError:  # the server has closed it already
                continue


async def longest_answer(server: ServeProcess, times: int = 10) -> float:
    """How long the slowest of some requests took, each over a new connection. An earlier one, not counted, waits until
    the server has accepted what the kernel had queued before it."""
    if times > 1:
        await longest_answer(server, 1)
    longest = 0.0
    for _ in range(times):
        begun = time.monotonic()
        async with server.http.get(
            f"{server.url}/api/sessions", headers={**server.headers, "Connection": "close"}
        ) as response:
            assert response.status == 200
            await response.read()
        longest = max(longest, time.monotonic() - begun)
    return longest


@pytest.mark.proof("limit-unauthenticated")
async def test_the_owner_is_answered_while_2000_connections_are_half_open(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    async with limited_server(tmp_path) as server:
        with ExitStack() as opened:
            await asyncio.to_thread(flood, server, opened, list(KINDS))
            answered = await longest_answer(server)
            client = await server.connect(await server.session(tmp_path))
            await client.close()

    record_measure(f"answer beside {HALF_OPEN} half-open connections", "1 s", f"{answered * 1000:.0f} ms")
    assert answered < ANSWER_S
    assert "Traceback" not in server.said()


@pytest.mark.alone
@pytest.mark.proof("limit-unauthenticated")
@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
async def test_no_kind_of_half_open_connection_keeps_the_owner_out(
    tmp_path: Path, kind: str, record_measure: RecordMeasure
) -> None:
    async with limited_server(tmp_path) as server:
        with ExitStack() as opened:
            await asyncio.to_thread(flood, server, opened, [kind])
            answered = await longest_answer(server)

    record_measure(f"answer beside {HALF_OPEN} connections with {kind}", "1 s", f"{answered * 1000:.0f} ms")
    assert answered < ANSWER_S
