"""A client that stops reading: it costs the others nothing, gets a notice or is closed, and continues where it was."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from support.minicodex_client import BOTH, JSON, MinicodexClient, logged
from support.serving import Site, connected, serving

from makai.protocols.minicodex import view
from makai.protocols.minicodex.server import Limits
from makai.transports import websocket

WORD = "x" * 4096
"""Long words: what a client does not read fills its socket's buffers soon."""
FAR_BEHIND = 500


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


async def stalling(site: Site, http: aiohttp.ClientSession, session_id: str) -> MinicodexClient:
    client = await connected(http, site.url, session_id, *BOTH)
    await client.hello()
    return client


async def everything(client: MinicodexClient) -> list[JSON]:
    await client.until_over()
    return logged(client.frames)


@pytest.mark.req("MC-EVT-011")
async def test_one_of_20_clients_stalls_the_others_go_on_and_it_resumes_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_DEADLINE_S", 60.0)  # on a busy machine it stalls for longer than 5 s
    limits = Limits(drain_events=20, max_behind=60)
    async with serving(tmp_path, f"pace: 2ms\nrepeat: 2000 {WORD}", limits=limits) as site, small_socket() as http:
        session_id = await site.session()
        others = [await site.client(session_id, *BOTH) for _ in range(19)]
        stalled = await stalling(site, http, session_id)
        await others[0].ask("send", text="talk")
        await stalled.until("assistant_text_delta")
        stalled.pause()
        the_others = asyncio.gather(*map(everything, others[1:]))
        await others[0].until_event(FAR_BEHIND)
        stalled.go_on()
        assert await stalled.closed() == 1013
        seen = logged(stalled.frames)
        log = await everything(others[0])
        assert await the_others == [log] * 18
        assert 0 < len(seen) < FAR_BEHIND

        again = await site.connect(session_id, *BOTH)
        assert await again.resume(seen[-1]["event_id"]) == "accepted"
        assert seen + await everything(again) == log


@pytest.mark.req("MC-EVT-011")
async def test_a_client_that_falls_behind_is_told_to_drain_and_told_when_it_has_everything(tmp_path: Path) -> None:
    limits = Limits(drain_events=20, max_behind=1_000_000)
    async with serving(tmp_path, f"pace: 2ms\nrepeat: 1500 {WORD}", limits=limits) as site, small_socket() as http:
        session_id = await site.session()
        other = await site.client(session_id, *BOTH)
        stalled = await stalling(site, http, session_id)
        await other.ask("send", text="talk")
        await stalled.until("assistant_text_delta")
        stalled.pause()
        expected = await everything(other)
        stalled.go_on()
        assert await everything(stalled) == expected
        await stalled.until("backpressure")
        assert [frame["state"] for frame in stalled.of_type("backpressure")] == ["drain", "ok"]
        assert other.of_type("backpressure") == []


@pytest.mark.req("MC-EVT-011")
async def test_a_client_further_behind_than_the_view_remembers_is_told_to_drain_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MAX_FRAME_BYTES", 1024 * 1024)
    limits = Limits(drain_events=1_000_000, max_behind=1_000_000)  # bytes alone decide
    async with serving(tmp_path, f"pace: 1ms\nrepeat: 3000 {WORD}", limits=limits) as site, small_socket() as http:
        session_id = await site.session()
        other = await site.client(session_id, *BOTH)
        stalled = await stalling(site, http, session_id)
        await other.ask("send", text="talk")
        await stalled.until("assistant_text_delta")
        stalled.pause()
        expected = await everything(other)
        stalled.go_on()
        assert await everything(stalled) == expected
        await stalled.until("backpressure")
        assert [frame["state"] for frame in stalled.of_type("backpressure")] == ["drain", "ok"]


async def test_a_client_that_writes_and_never_reads_is_not_read_from_for_ever(tmp_path: Path) -> None:
    """Unread replies are bounded: the server stops reading commands, and serves the others."""
    async with serving(tmp_path, "say: Hello.", limits=Limits(unread_replies=10)) as site, small_socket() as http:
        session_id = await site.session()
        flooding = await stalling(site, http, session_id)
        flooding.pause()
        flood = asyncio.create_task(_flood(flooding))
        other = await site.client(session_id)
        for _ in range(20):
            assert await other.ask("ping") == "accepted"
        with pytest.raises(TimeoutError):  # the sender is held up: somewhere the pipe is full
            await asyncio.wait_for(asyncio.shield(flood), 60)
        flood.cancel()
        flooding.drop()
        await other.ask("send", text="hi")
        await other.until_over()


async def _flood(client: MinicodexClient) -> None:
    while True:
        await client.say("ping", req_id="r" * 4000)
