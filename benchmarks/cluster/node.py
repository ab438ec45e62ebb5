"""One node of the cluster benchmark in one process: a log, and what is done with it.

In: `python -m cluster.node <measurement> <store> <name> <numbers...>`, where the store is an address of PostgreSQL or a
folder for SQLite. It prints "ready" when it is prepared, begins with the next line of its standard input, prints what
it measured as one line of JSON, and ends with the line after that: until then its connections are open, so that the
CPU time of the database's side can be read.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from makai.core.session_events import RunStarted, SessionCreated, SessionEvent, ToolProgress
from makai.sessions.log.base import EventLog, Pending
from makai.sessions.log.nodes import ClusterPart

LINE_TEXT = "x" * 190
"""Makes the line of an event about 300 bytes long."""
AT_ONCE = 64
LEASE_S = 15.0
NOW_MS = 1_700_000_000_000

Measured = dict[str, Any]


async def open_store(store: str, name: str) -> EventLog:
    """The log of one node."""
    if not store.startswith("postgres"):
        from makai.sessions.log.sqlite import SqliteLog

        return await SqliteLog.open(Path(store))
    from makai.sessions.log.postgres.log import PostgresLog
    from makai.sessions.log.postgres.membership import NodeSettings

    return await PostgresLog.open(store, NodeSettings(name=name, lease_s=LEASE_S))


async def wait_for_line() -> None:
    """The parent says when to continue."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def pending(*events: SessionEvent) -> list[Pending]:
    return [Pending(NOW_MS, "run-1", event) for event in events]


def lines(count: int) -> list[Pending]:
    return pending(*(ToolProgress(call_id="call-1", text=LINE_TEXT) for _ in range(count)))


async def in_portions(steps: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    """All of them, a bounded number at once."""
    free = asyncio.Semaphore(AT_ONCE)

    async def run(step: Callable[[], Awaitable[Any]]) -> None:
        async with free:
            await step()

    await asyncio.gather(*map(run, steps))


# ---------------------------------------------------------------- append and follow


async def appending(log: EventLog, name: str, sessions: int, batch: int, events: int) -> Measured:
    """Sessions that append batch after batch, one at a time each, and a reader for each."""
    ids = [f"{name}-{number}" for number in range(sessions)]
    generations: dict[str, int] = {}

    async def make(session_id: str) -> None:
        generations[session_id] = (await log.claim(session_id)).generation
        await log.append(session_id, lines(1), 0, generations[session_id])

    await in_portions([lambda one=one: make(one) for one in ids])
    appends = max(1, events // (sessions * batch))
    prepared = lines(batch)

    async def write(session_id: str) -> None:
        last = 1
        for _ in range(appends):
            _, last = await log.append(session_id, prepared, last, generations[session_id])

    return await timed(
        [lambda one=one: write(one) for one in ids],
        [lambda one=one: follow(log, one, 1, 1 + appends * batch) for one in ids],
        sessions * appends * batch,
    )


async def reading(log: EventLog, name: str, readers: int, batch: int, events: int) -> Measured:
    """One session with many readers on this node."""
    session_id = f"{name}-read-by-{readers}"
    generation = (await log.claim(session_id)).generation
    prepared = lines(batch)

    async def write() -> None:
        last = 0
        for _ in range(events // batch):
            _, last = await log.append(session_id, prepared, last, generation)

    reads = [lambda: follow(log, session_id, 0, events // batch * batch)] * readers
    return await timed([write], reads, events // batch * batch)


async def timed(
    writes: Sequence[Callable[[], Awaitable[None]]], reads: Sequence[Callable[[], Awaitable[None]]], events: int
) -> Measured:
    """Wait for the parent, then do everything at once."""
    print("ready", flush=True)
    await wait_for_line()
    cpu, began = time.process_time(), time.monotonic()
    await asyncio.gather(*(one() for one in (*reads, *writes)))
    ended = time.monotonic()
    return {"events": events, "began": began, "ended": ended, "cpu_s": time.process_time() - cpu}


async def follow(log: EventLog, session_id: str, cursor: int, until: int) -> None:
    """Read every event of a session after the cursor as it is stored."""
    changed = asyncio.Event()
    stop_watching = log.watch(session_id, changed.set)
    try:
        while cursor < until:
            changed.clear()
            records = await log.read_raw(session_id, cursor)
            if not records:
                await changed.wait()
                continue
            if records[0].event_id != cursor + 1 or records[-1].event_id - cursor != len(records):
                raise RuntimeError(f"event {cursor} of {session_id} is followed by event {records[0].event_id}")
            cursor = records[-1].event_id
    finally:
        stop_watching()


# ---------------------------------------------------------------- takeover


async def owning(log: EventLog, name: str, sessions: int) -> Measured:
    """Sessions with an active run each; the parent kills this process."""
    started = pending(SessionCreated(model_ref="bench"), RunStarted(run_number=1, model_ref="bench"))

    async def make(session_id: str) -> None:
        generation = (await log.claim(session_id)).generation
        await log.append(session_id, started, 0, generation)

    await in_portions([lambda one=one: make(f"{name}-{one}") for one in range(sessions)])
    print("ready", flush=True)
    await wait_for_line()
    return {}


async def taking_over(log: ClusterPart, name: str, sessions: int, portion: int) -> Measured:
    """Wait until the leases of other nodes have expired, then own all of their sessions."""
    print("ready", flush=True)
    await wait_for_line()
    began = time.monotonic()
    while (freed := await log.free_abandoned()) == 0:  # noqa: ASYNC110  (the end of a lease sends no event)
        await asyncio.sleep(0.05)
    expired = time.monotonic()
    claimed = 0
    while found := await log.claim_abandoned(portion):
        claimed += len(found)
    ended = time.monotonic()
    if (freed, claimed) != (sessions, sessions):
        raise RuntimeError(f"{freed} sessions were freed and {claimed} claimed, not {sessions}")
    return {"freed": freed, "claimed": claimed, "waited_s": expired - began, "claiming_s": ended - expired}


MEASUREMENTS: dict[str, Callable[..., Awaitable[Measured]]] = {
    measure.__name__: measure for measure in (appending, reading, owning, taking_over)
}


async def main(measurement: str, store: str, name: str, *numbers: str) -> None:
    log = await open_store(store, name)
    print(json.dumps(await MEASUREMENTS[measurement](log, name, *map(int, numbers))), flush=True)
    await wait_for_line()
    await log.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
