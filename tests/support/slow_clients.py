"""Clients of a session that stop reading."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from makai.protocols.minicodex.server import Limits
from support.minicodex_client import BOTH, JSON, MinicodexClient, logged
from support.serving import Site, connected, serving

BYTES_DECIDE = Limits(drain_events=1_000_000, max_behind=1_000_000)
"""A client is never too many events behind, only too many bytes."""


@asynccontextmanager
async def small_socket() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client whose system takes in little of what it does not read."""

    def make(address: object) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.setblocking(False)
        return made

    connector = aiohttp.TCPConnector(socket_factory=make)
    async with aiohttp.ClientSession(connector=connector) as http:
        yield http


async def pausing_client(site: Site, http: aiohttp.ClientSession, session_id: str) -> MinicodexClient:
    client = await connected(http, site.url, session_id, *BOTH)
    await client.hello()
    return client


async def everything(client: MinicodexClient) -> list[JSON]:
    await client.until_over()
    return logged(client.frames)


async def backpressure_states(folder: Path, scenario: str, limits: Limits) -> tuple[list[str], list[str]]:
    """What a client that reads nothing during an answer is told afterwards, and what one that reads all of it is. Both
    receive the same events."""
    async with serving(folder, scenario, limits=limits) as site, small_socket() as http:
        session_id = await site.session()
        other = await site.client(session_id, *BOTH)
        paused = await pausing_client(site, http, session_id)
        await other.ask("send", text="talk")
        await paused.until("assistant_text_delta")
        paused.pause()
        expected = await everything(other)
        paused.go_on()
        assert await everything(paused) == expected
        await paused.until("backpressure")
        paused_states, other_states = (
            [frame["state"] for frame in client.of_type("backpressure")] for client in (paused, other)
        )
        return paused_states, other_states
