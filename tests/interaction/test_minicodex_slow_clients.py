"""A client that stops reading: it costs the others nothing, gets a notice or is closed, and continues where it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.minicodex_client import BOTH, MinicodexClient, logged
from support.serving import serving
from support.slow_clients import BYTES_DECIDE, backpressure_states, everything, pausing_client, small_socket

from makai.protocols.minicodex import view
from makai.protocols.minicodex.server import Limits
from makai.transports import websocket

WORD = "x" * 4096
"""Long words: what a client does not read fills its socket's buffers soon."""
FAR_BEHIND = 500


@pytest.mark.proof("limit-outbound")
@pytest.mark.req("MC-EVT-011")
async def test_one_of_20_clients_stalls_the_others_go_on_and_it_resumes_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_DEADLINE_S", 60.0)  # on a busy machine it stalls for longer than 5 s
    limits = Limits(drain_events=20, max_behind=60)
    async with serving(tmp_path, f"pace: 2ms\nrepeat: 2000 {WORD}", limits=limits) as site, small_socket() as http:
        session_id = await site.session()
        others = [await site.client(session_id, *BOTH) for _ in range(19)]
        stalled = await pausing_client(site, http, session_id)
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
    assert await backpressure_states(tmp_path, f"pace: 2ms\nrepeat: 1500 {WORD}", limits) == (["drain", "ok"], [])


@pytest.mark.req("MC-EVT-011")
async def test_a_client_further_behind_than_the_view_remembers_is_told_to_drain_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MAX_FRAME_BYTES", 1024 * 1024)
    states, _ = await backpressure_states(tmp_path, f"pace: 1ms\nrepeat: 3000 {WORD}", BYTES_DECIDE)
    assert states == ["drain", "ok"]


@pytest.mark.proof("limit-inbound")
async def test_a_client_that_writes_and_never_reads_is_not_read_from_for_ever(tmp_path: Path) -> None:
    """Unread replies are bounded: the server stops reading commands, and serves the others."""
    async with serving(tmp_path, "say: Hello.", limits=Limits(unread_replies=10)) as site, small_socket() as http:
        session_id = await site.session()
        flooding = await pausing_client(site, http, session_id)
        flooding.pause()
        sent: list[int] = []
        flood = asyncio.create_task(_flood(flooding, sent))
        other = await site.client(session_id)
        while await _moves(flood, sent):  # until the sender is held up: somewhere the pipe is full
            assert await other.ask("ping") == "accepted"
            assert len(sent) < 100_000
        flood.cancel()
        flooding.drop()
        await other.ask("send", text="hi")
        await other.until_over()


async def _moves(flood: asyncio.Task[None], sent: list[int]) -> bool:
    before = len(sent)
    await asyncio.wait({flood}, timeout=3.0)
    return len(sent) > before


async def _flood(client: MinicodexClient, sent: list[int]) -> None:
    while True:
        await client.say("ping", req_id="r" * 4000)
        sent.append(1)
