"""Nodes that are killed or ended at random points while clients of another node work with their sessions.

The node that goes is a `makai serve` process; the other one is in this process, and its clients compare what they saw
and what was acknowledged with the log."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from makai.core import session_events as ev
from makai.server.cluster_sessions import ClusterSessions
from support.cluster import Cluster, serving_nodes
from support.live_sessions import Desk, whole_log
from support.serve_process import ServeProcess

End: TypeAlias = Literal["kill", "drain"]
SLOW: Final = "pace: 4ms\nrepeat: 150 word"
LEASE_S: Final = 3.0
LATEST_S: Final = 0.8
"""A node ends at most so long after its session was asked."""
ROUND_S: Final = 120.0


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    rounds: int
    acknowledged: int
    """Inputs, and events that a client saw before the owner went."""
    lost: int
    repeated: int
    unlike_the_log: int
    """Clients whose events are not those of the log, from the first to the last."""
    taken_over_by_others: int
    """Sessions whose owner is not the node that stayed."""
    resumed: int
    interrupted: int
    slowest_s: float
    """From the end of the owner until the next input was acknowledged."""


class _Round(msgspec.Struct, frozen=True):
    acknowledged: int
    lost: int
    repeated: int
    is_like_the_log: bool
    is_here: bool
    was_interrupted: bool
    takeover_s: float


@asynccontextmanager
async def _two_nodes(folder: Path, database: str) -> AsyncIterator[tuple[ServeProcess, ClusterSessions]]:
    async with AsyncExitStack() as stack:
        (owner,) = await stack.enter_async_context(serving_nodes(folder, database, SLOW, "owner", lease_s=LEASE_S))
        nodes = Cluster(folder, database, SLOW)
        stack.push_async_callback(nodes.close)
        yield owner, await nodes.start("other")


async def ended_owners(folder: Path, database: str, rounds: int, end: End, seed: int) -> CrashReport:
    chance = random.Random(seed)
    work = folder / "work"
    work.mkdir(parents=True)
    found: list[_Round] = []
    async with _two_nodes(folder, database) as (owner, other):
        for number in range(rounds):
            async with asyncio.timeout(ROUND_S):
                found.append(await _round(owner, other, work, chance.uniform(0, LATEST_S), end))
                if number + 1 < rounds:
                    await owner.start()
    return CrashReport(
        rounds=rounds,
        acknowledged=sum(one.acknowledged for one in found),
        lost=sum(one.lost for one in found),
        repeated=sum(one.repeated for one in found),
        unlike_the_log=sum(not one.is_like_the_log for one in found),
        taken_over_by_others=sum(not one.is_here for one in found),
        resumed=sum(not one.was_interrupted for one in found),
        interrupted=sum(one.was_interrupted for one in found),
        slowest_s=max(one.takeover_s for one in found),
    )


async def _round(owner: ServeProcess, other: ClusterSessions, work: Path, after_s: float, end: End) -> _Round:
    client = Desk(other, await owner.session(work, mode="never_ask"))
    await client.send("first", client_msg_id="first", delivery="queue")
    sent, news = ["first"], asyncio.Event()
    sending = asyncio.create_task(_keep_sending(client, sent, news))
    reading = asyncio.create_task(_read(client, sending))
    await asyncio.sleep(after_s)
    seen = len(client.seen)
    await (owner.kill() if end == "kill" else terminated(owner))
    ended_at = time.monotonic()
    news.clear()
    await news.wait()
    takeover_s = time.monotonic() - ended_at
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await reading
    log = await whole_log(other, client.session_id)
    read = Counter(logged.event.content for logged in log if isinstance(logged.event, ev.UserInput))
    queued = Counter(logged.event.content for logged in log if isinstance(logged.event, ev.InputAccepted))
    owned_by = await other.store.owner(client.session_id)
    return _Round(
        acknowledged=len(sent) + seen,
        lost=sum(read[name] + queued[name] == 0 for name in sent),
        repeated=sum(count > 1 for count in (*read.values(), *queued.values())),
        is_like_the_log=client.seen == log[: len(client.seen)] and len(client.seen) >= seen,
        is_here=owned_by is not None and owned_by.node_id == other.store.node.node_id,
        was_interrupted=any(isinstance(logged.event, ev.RunFailed) for logged in log),
        takeover_s=takeover_s,
    )


async def _keep_sending(client: Desk, sent: list[str], news: asyncio.Event) -> None:
    """Inputs one after the other; `sent` has those that were acknowledged, and `news` is set for each."""
    for number in range(1, 1000):
        name = f"input {number}"
        await client.send(name, client_msg_id=name, delivery="queue")
        sent.append(name)
        news.set()
        await asyncio.sleep(0.3)


async def _read(client: Desk, sending: asyncio.Task[None]) -> None:
    """Read until the first run has ended and nothing more is sent."""
    await client.until_settled()
    while not sending.done():
        await client.until(lambda logged: True)


async def terminated(node: ServeProcess) -> None:
    """SIGTERM, and its end."""
    os.kill(node.pid, signal.SIGTERM)
    await node.ended()
