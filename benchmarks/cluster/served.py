"""One whole node of a cluster in one process: sessions with their agent loop, and links to the other nodes.

In: `python -m cluster.served owning <url> <folder> <name> <sessions> <deltas> <per second> <0 or 1: read them here>`
makes sessions, prints their ids as its "ready" line, and begins a run in each when it is told to. `following <url>
<folder> <name> <ids> <0 or 1: paced>` reads sessions of other nodes to the end of the run. `exchanging <url> <folder>
<name> <sessions> <deltas>` does both: it prints the ids of its sessions, reads a line with those of the other node,
follows these, and is ready. All print one line of JSON and end as `cluster.node` does. A rate of 0 is as fast as it is
taken; deltas with a rate say when they were made.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from cluster.node import LEASE_S, wait_for_line
from sessions.desk import new_session, read_run, say
from sessions.model import STAMP, BenchModels, Wish

from makai.auth.cluster_key import KEY_VARIABLE
from makai.core.config import ClusterConfig, Config, StoreConfig
from makai.core.session_events import AssistantTextDelta, Logged
from makai.server.cluster_opening import own_sessions
from makai.sessions.log.base import Record
from makai.sessions.service import Sessions

KEY = "the key of a benchmark, which guards nothing"
Measured = dict[str, Any]


class Ages:
    """How old deltas were when a reader got them."""

    def __init__(self) -> None:
        self._ms: list[float] = []

    def note(self, records: list[Record]) -> None:
        now = time.monotonic_ns()
        for record in records:
            event = msgspec.json.decode(record.line, type=Logged).event
            if isinstance(event, AssistantTextDelta):
                self._ms += [(now - int(stamp)) / 1e6 for stamp in event.delta.split(STAMP) if stamp]

    def measured(self) -> Measured:
        cuts = statistics.quantiles(self._ms, n=100)
        return {"deltas": len(self._ms), "median_ms": cuts[49], "p99_ms": cuts[98]}


@asynccontextmanager
async def node(url: str, folder: str, name: str) -> AsyncIterator[Sessions]:
    """A node with links to the others."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    cluster = ClusterConfig(name=name, listen=address, labels=("bench",), lease_seconds=LEASE_S)
    config = Config(store=StoreConfig(url=url), cluster=cluster)
    home = Path(folder) / name
    home.mkdir(mode=0o700)
    sessions = await own_sessions(home, BenchModels(), config=config, environ={KEY_VARIABLE: KEY})
    try:
        yield sessions
    finally:
        await sessions.close()


async def owning(sessions: Sessions, count: str, deltas: str, per_second: str, read: str) -> Measured:
    """Runs in sessions of this node; with `read` they are also followed here."""
    ids = [await new_session(sessions) for _ in range(int(count))]
    ages = Ages()
    rate = float(per_second)
    readers = [
        asyncio.ensure_future(read_run(sessions, one, 1, on_records=ages.note if rate else None, checked=False))
        for one in ids
        if int(read)
    ]
    print(",".join(ids), flush=True)
    await wait_for_line()
    cpu, began = time.process_time(), time.monotonic()
    for number, one in enumerate(ids):
        # Their turns are spread over the time between two deltas, as those of independent models are.
        first_after_s = 1 + number / len(ids) / rate if rate else 0.0
        await say(sessions, one, Wish(int(deltas), rate, first_after_s=first_after_s))
    events = sum(read.events for read in await asyncio.gather(*readers))
    measured = {"events": events, "began": began, "ended": time.monotonic(), "cpu_s": time.process_time() - cpu}
    return {**measured, **(ages.measured() if rate and readers else {})}


async def exchanging(sessions: Sessions, count: str, deltas: str) -> Measured:
    """Runs in sessions of this node, as fast as they go, while those of another one are followed here."""
    ids = [await new_session(sessions) for _ in range(int(count))]
    print(",".join(ids), flush=True)
    others = (await asyncio.to_thread(sys.stdin.readline)).strip().split(",")
    readers = [asyncio.ensure_future(read_run(sessions, one, 1, checked=False)) for one in others]
    await asyncio.sleep(1)  # the links are up
    print("ready", flush=True)
    await wait_for_line()
    cpu, began = time.process_time(), time.monotonic()
    for one in ids:
        await say(sessions, one, Wish(int(deltas)))
    events = sum(read.events for read in await asyncio.gather(*readers))
    return {"events": events, "began": began, "ended": time.monotonic(), "cpu_s": time.process_time() - cpu}


async def following(sessions: Sessions, ids: str, paced: str) -> Measured:
    """Sessions that another node owns."""
    ages = Ages()
    note = ages.note if int(paced) else None
    readers = [
        asyncio.ensure_future(read_run(sessions, one, 1, on_records=note, checked=False)) for one in ids.split(",")
    ]
    await asyncio.sleep(1)  # the links are up
    print("ready", flush=True)
    await wait_for_line()
    cpu, began = time.process_time(), time.monotonic()
    events = sum(read.events for read in await asyncio.gather(*readers))
    measured = {"events": events, "began": began, "ended": time.monotonic(), "cpu_s": time.process_time() - cpu}
    return {**measured, **(ages.measured() if int(paced) else {})}


MEASUREMENTS: dict[str, Callable[..., Awaitable[Measured]]] = {
    measure.__name__: measure for measure in (owning, exchanging, following)
}


async def main(what: str, url: str, folder: str, name: str, *rest: str) -> None:
    async with node(url, folder, name) as sessions:
        measured = await MEASUREMENTS[what](sessions, *rest)
        print(json.dumps(measured), flush=True)
        await wait_for_line()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
