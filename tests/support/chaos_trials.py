"""Clients behind a bad network: what they received, compared with the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

import makai
from makai.core import session_events as ev
from makai.core.errors import MakaiError
from makai.sessions.requests import GetState
from support.chaos_proxy import ChaosProxy, ChaosReport, chaos_proxy
from support.live_sessions import whole_log
from support.minicodex_client import BOTH, JSON, Ended, MinicodexClient, logged
from support.server_trials import TALK, cursor_of, replayed
from support.serving import Site, connected, serving
from support.transports import TOKEN

LISTEN_S = 0.4
"""A connection that is not cut is dropped after this time."""
CATCH_UP_S = 120.0


class ChaosTrial(msgspec.Struct, frozen=True):
    """What a client behind the proxy has received in so many connections."""

    disconnects: int
    received: int
    lost: int
    repeated: int
    unlike_the_log: int
    messages: int
    """Messages that the client repeated until they were accepted."""
    not_once: tuple[str, ...]
    """Of these, the ones that are not in the log exactly once."""
    network: ChaosReport

    @property
    def is_clean(self) -> bool:
        return (self.lost, self.repeated, self.unlike_the_log, self.not_once) == (0, 0, 0, ())


@asynccontextmanager
async def _site_behind_chaos(folder: Path, seed: int) -> AsyncIterator[tuple[Site, ChaosProxy]]:
    async with chaos_proxy(seed) as proxy, serving(folder, TALK, hosts=frozenset({f"127.0.0.1:{proxy.port}"})) as site:
        proxy.target = site.port
        yield site, proxy


# ---------------------------------------------------------------- MiniCodex over a WebSocket


class _Follower:
    """A MiniCodex client that comes back with its cursor, and repeats a message until it is accepted."""

    def __init__(self, site: Site, proxy: ChaosProxy, session_id: str) -> None:
        self.received: list[JSON] = []
        self.accepted: list[str] = []
        self.connections = 0
        self._site = site
        self._url = f"http://127.0.0.1:{proxy.port}"
        self._session_id = session_id

    async def once(self) -> None:
        """One connection, from its handshake to its end."""
        self.connections += 1
        try:
            client = await connected(self._site.http, self._url, self._session_id, *BOTH)
        except aiohttp.ClientError:
            return
        try:
            async with asyncio.timeout(LISTEN_S):
                await self._listen(client)
        except (Ended, TimeoutError, aiohttp.ClientError, ConnectionError):
            pass
        finally:
            client.drop()
            self.received += logged(client.frames)

    async def _listen(self, client: MinicodexClient) -> None:
        message = f"message {len(self.accepted)}"
        await client.say(
            "resume", last_seen_event_id=cursor_of(self.received), client_capabilities=list(BOTH), req_id="resume"
        )
        await client.say("send", text=message, client_msg_id=message, req_id=message)
        while True:
            heard = await client.hear()
            if (heard["type"], heard.get("req_id")) == ("accepted", message):
                self.accepted.append(message)


async def minicodex_through_chaos(folder: Path, disconnects: int, *, seed: int) -> ChaosTrial:
    async with _site_behind_chaos(folder, seed) as (site, proxy):
        session_id = await site.session()
        follower = _Follower(site, proxy, session_id)
        while follower.connections < disconnects:
            await follower.once()
        network, proxy.is_calm = proxy.report, True
        last = await _idle(site, session_id)
        deadline = time.monotonic() + CATCH_UP_S
        while cursor_of(follower.received) < last:
            assert time.monotonic() < deadline, "the client does not catch up on a calm network"
            await follower.once()
            last = await _idle(site, session_id)
        log = await replayed(site, session_id, last)
        said = [logged.event for logged in await whole_log(site.sessions, session_id)]
    said_texts = [event.content for event in said if isinstance(event, ev.UserInput)]
    numbers = [frame["event_id"] for frame in follower.received]
    return ChaosTrial(
        disconnects=disconnects,
        received=len(numbers),
        lost=len({frame["event_id"] for frame in log} - set(numbers)),
        repeated=len(numbers) - len(set(numbers)),
        unlike_the_log=sum(mine != theirs for mine, theirs in zip(follower.received, log, strict=False)),
        messages=len(follower.accepted),
        not_once=tuple(text for text in follower.accepted if said_texts.count(text) != 1),
        network=network,
    )


async def _idle(site: Site, session_id: str) -> int:
    """Wait until no run is active; the number of the last event."""
    client = await site.client(session_id, *BOTH)
    async with asyncio.timeout(CATCH_UP_S):
        while (state := await site.sessions.dispatch(GetState(session_id))).active_run is not None:
            await client.hear()
    await client.close()
    return state.last_event_id


# ---------------------------------------------------------------- the Python SDK


async def sdk_through_chaos(folder: Path, scheme: str, disconnects: int, *, seed: int) -> ChaosTrial:
    """Follow a session by `client.agent.attach` over WebSocket (`ws`) or server-sent events (`http`)."""
    events: list[makai.AgentStreamEvent] = []
    cursor = 0
    async with _site_behind_chaos(folder, seed) as (site, proxy):
        session_id = await site.session()
        options = makai.MakaiClientOptions(url=f"{scheme}://127.0.0.1:{proxy.port}", token=TOKEN)
        direct = makai.MakaiClientOptions(url=f"{scheme}://127.0.0.1:{site.port}", token=TOKEN)
        stop = asyncio.Event()
        talking = asyncio.create_task(_talk_until(stop, site, session_id))
        for _ in range(disconnects):
            cursor = await _attached(options, session_id, cursor, events)
        network, proxy.is_calm = proxy.report, True
        stop.set()
        runs = await talking
        deadline = time.monotonic() + CATCH_UP_S
        while _ends(events) < runs:
            assert time.monotonic() < deadline, "the client does not catch up on a calm network"
            cursor = await _attached(options, session_id, cursor, events)
        whole: list[makai.AgentStreamEvent] = []
        position = 0
        while _ends(whole) < runs:
            assert time.monotonic() < deadline, "a client that is not disturbed does not get everything"
            position = await _attached(direct, session_id, position, whole)
    return ChaosTrial(
        disconnects=disconnects,
        received=len(events),
        lost=max(0, len(whole) - len(events)),
        repeated=max(0, len(events) - len(whole)),
        unlike_the_log=sum(mine != theirs for mine, theirs in zip(events, whole, strict=False)),
        messages=runs,
        not_once=(),
        network=network,
    )


async def _attached(
    options: makai.MakaiClientOptions, session_id: str, cursor: int, events: list[makai.AgentStreamEvent]
) -> int:
    """Follow for one connection. What came after the last cursor comes again, so it is forgotten."""
    kept = len(events)
    try:
        async with asyncio.timeout(LISTEN_S), makai.create_makai_client(options) as client:
            follower = client.agent.attach(session_id, after_event_id=cursor)
            async for event in follower:
                events.append(event)
                if follower.event_id is not None and follower.event_id != cursor:
                    cursor, kept = follower.event_id, len(events)
    except (MakaiError, TimeoutError):
        pass
    del events[kept:]
    return cursor


async def _talk_until(stop: asyncio.Event, site: Site, session_id: str) -> int:
    """Runs, one after the other, without the proxy; how many there were."""
    client = await site.client(session_id, *BOTH)
    runs = 0
    while not stop.is_set():
        assert await client.ask("send", text="talk") == "accepted"
        await client.until_over()
        client.frames.clear()
        runs += 1
    await client.close()
    return runs


def _ends(events: list[makai.AgentStreamEvent]) -> int:
    return sum(isinstance(event, makai.AgentEndEvent) for event in events)
