"""One measurement of the session layer in one process, without any network.

In: arguments of the command line. Out: what was measured as JSON on stdout; a failure as a traceback and exit code 1.
Throughput is measured on one core: everything a session does, its writing thread and all followers included, shares it.

Run as `python -m sessions.child <measurement> <home> <numbers...>`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from sessions.desk import Read, checksum_of, new_session, owned, read_run, say
from sessions.model import STAMP, Wish
from stream.child import cpu_seconds

from makai.core.session_events import AssistantTextDelta, Logged, RunStarted
from makai.protocols.minicodex.projection import NamedCapabilities
from makai.server.session_views import SessionViews
from makai.sessions.log.base import NEWEST, Record, replay
from makai.sessions.log.schema import FILE_NAME
from makai.sessions.log.sqlite import SqliteLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import GetState, ListSessions, ReadEvents
from makai.sessions.service import Sessions
from makai.sessions.state import SessionState, evolve

FOLLOWERS = 10
FIRST_EVENTS = 1_000
EVENTS_PER_RUN = 10_000
SETTLING_S = 0.5
PAGE = NamedCapabilities(streaming=True, makai=True)

Measured = dict[str, Any]


# ---------------------------------------------------------------- append and fan-out


async def fan_out(home: Path, events: int, passes: int) -> Measured:
    """One run at full speed to ten followers."""
    measured = []
    async with owned(home) as sessions:
        session_id = await new_session(sessions)
        for _ in range(passes):
            after = (await sessions.dispatch(GetState(session_id))).last_event_id
            readers = [
                asyncio.ensure_future(read_run(sessions, session_id, after, checked=number == 0))
                for number in range(FOLLOWERS)
            ]
            await asyncio.sleep(SETTLING_S)
            cpu, wall = cpu_seconds(), time.perf_counter()
            await say(sessions, session_id, Wish(events))
            reads = await asyncio.gather(*readers)
            cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
            logged = await read_all(sessions, session_id, after)
            if any(read.events != logged.events for read in reads) or reads[0].checksum != logged.checksum:
                raise RuntimeError("a follower got something else than the log has")
            measured.append({"events": logged.events, "per_second": logged.events / wall, "cpu_us": cpu / events * 1e6})
    return {"passes": measured}


async def read_all(sessions: Sessions, session_id: str, after: int) -> Read:
    """What the log has above a number."""
    read = Read(after)
    while records := await sessions.dispatch(ReadEvents(session_id, read.cursor)):
        read.take(records)
    return read


async def deltas_of_runs(home: Path) -> Measured:
    """How many deltas each run of the newest session has, and the checksum of their numbers and words."""
    runs = await read_deltas(home)
    return {"runs": [(len(deltas), checksum_of(deltas)) for deltas in runs]}


async def delta_ids(home: Path) -> Measured:
    """The numbers of all deltas of the newest session, run by run."""
    return {"runs": [[event_id for event_id, _ in run] for run in await read_deltas(home)]}


async def read_deltas(home: Path) -> list[list[tuple[int, str]]]:
    """Run by run."""
    log = await SqliteLog.open(home)
    session_id = (await log.sessions(NEWEST))[0].session_id
    runs: list[list[tuple[int, str]]] = []
    async for logged in replay(log, session_id):
        event = logged.event if isinstance(logged, Logged) else None
        if isinstance(event, RunStarted):
            runs.append([])
        elif isinstance(event, AssistantTextDelta):
            runs[-1].append((logged.event_id, event.delta))
    await log.close()
    return runs


# ---------------------------------------------------------------- from delta to subscriber


async def pace(home: Path, count: int, per_second: int, seconds: int) -> Measured:
    """Many sessions at the pace of a chat, a follower each: how old deltas are when they arrive."""
    ages: list[float] = []

    def note(records: list[Record]) -> None:
        now = time.monotonic_ns()
        for record in records:
            event = msgspec.json.decode(record.line, type=Logged).event
            if isinstance(event, AssistantTextDelta):
                ages.extend((now - int(stamp)) / 1e6 for stamp in event.delta.split(STAMP) if stamp)

    async with owned(home) as sessions:
        ids = [await new_session(sessions) for _ in range(count)]
        readers = [asyncio.ensure_future(read_run(sessions, one, 1, on_records=note, checked=False)) for one in ids]
        await asyncio.sleep(SETTLING_S)
        cpu = cpu_seconds()
        for number, one in enumerate(ids):
            # Their turns are spread over the time between two deltas, as those of independent models are.
            await say(
                sessions, one, Wish(per_second * seconds, per_second, first_after_s=1 + number / count / per_second)
            )
        await asyncio.gather(*readers)
        cpu = cpu_seconds() - cpu
    if len(ages) != count * per_second * seconds:
        raise RuntimeError(f"{len(ages)} of {count * per_second * seconds} deltas arrived")
    percentiles = statistics.quantiles(ages, n=100)
    return {
        "deltas": len(ages),
        "median_ms": percentiles[49],
        "p99_ms": percentiles[98],
        "max_ms": max(ages),
        "cpu_us": cpu / len(ages) * 1e6,
    }


# ---------------------------------------------------------------- growth


async def growth(home: Path, total: int) -> Measured:
    """A session that grows to `total` events with a follower: what an event costs on the way, run by run."""
    runs = []
    async with owned(home) as sessions:
        session_id = await new_session(sessions)
        last = 1
        while last < total:
            wanted = FIRST_EVENTS if last == 1 else min(EVENTS_PER_RUN, total - last)
            reader = asyncio.ensure_future(read_run(sessions, session_id, last, checked=False))
            await asyncio.sleep(0)
            cpu, wall = cpu_seconds(), time.perf_counter()
            await say(sessions, session_id, Wish(wanted))
            read = await reader
            cost = (cpu_seconds() - cpu) / read.events * 1e6
            runs.append({"after": last, "cpu_us": cost, "per_second": read.events / (time.perf_counter() - wall)})
            last = read.cursor
    return {"events": last, "runs": runs, "bytes_per_event": stored_bytes(home) / last}


def stored_bytes(home: Path) -> int:
    """Of the log on the disk."""
    return sum(file.stat().st_size for file in home.iterdir() if file.name.startswith(FILE_NAME))


# ---------------------------------------------------------------- reading


async def replaying(home: Path) -> Measured:
    """Read, verify, decode and fold every event of the newest session."""
    log = await SqliteLog.open(home)
    session_id = (await log.sessions(NEWEST))[0].session_id
    began = time.perf_counter()
    events, state = 0, SessionState()
    async for logged in replay(log, session_id):
        events += 1
        state = evolve(state, logged)
    folded = time.perf_counter() - began
    began = time.perf_counter()
    async for _ in replay(log, session_id):
        pass
    decoded = time.perf_counter() - began
    began = time.perf_counter()
    cursor = 0
    while records := await log.read_raw(session_id, cursor):
        cursor = records[-1].event_id
    raw = time.perf_counter() - began
    await log.close()
    return {
        "events": events,
        "per_second": events / decoded,
        "folded_per_second": events / folded,
        "raw_per_second": events / raw,
    }


async def opening(home: Path, with_checkpoint: int) -> Measured:
    """From nothing to the first screen of a browser: the log, the engine's state, the view, its snapshot."""
    if not with_checkpoint:
        with sqlite3.connect(home / FILE_NAME) as connection:
            connection.execute("DELETE FROM checkpoint")
        connection.close()
    began = time.perf_counter()
    async with owned(home) as sessions:
        session_id = (await sessions.dispatch(ListSessions()))[0].session_id
        opened = time.perf_counter()
        state = await sessions.dispatch(GetState(session_id))
        stated = time.perf_counter()

        async def service() -> OwnedSessions:
            return sessions

        views = SessionViews(service)
        shared = await views.enter(session_id, lambda: None)
        viewed = time.perf_counter()
        snapshot = shared.view.snapshot(PAGE, with_window=True)
        done = time.perf_counter()
        await views.leave(shared, lambda: None)
        await shared.close()
    return {
        "events": state.last_event_id,
        "log_ms": (opened - began) * 1000,
        "state_ms": (stated - opened) * 1000,
        "view_ms": (viewed - stated) * 1000,
        "snapshot_ms": (done - viewed) * 1000,
        "total_ms": (done - began) * 1000,
        "snapshot_bytes": len(snapshot),
    }


# ---------------------------------------------------------------- memory


async def idling(home: Path, count: int, deltas: int) -> Measured:
    """Sessions that had a run each and are looked at by one browser each, while nothing happens."""
    async with owned(home) as sessions:

        async def service() -> OwnedSessions:
            return sessions

        views = SessionViews(service)
        kept = []

        async def one() -> None:
            session_id = await new_session(sessions)
            await say(sessions, session_id, Wish(deltas))
            await read_run(sessions, session_id, 1, checked=False)
            kept.append(await views.enter(session_id, lambda: None))

        await one()
        before = resident_mb()
        for _ in range(count):
            await one()
        after = resident_mb()
        for shared in kept:
            await shared.close()
    return {"sessions": count, "deltas": deltas, "mb_each": (after - before) / count, "rss_mb": after}


def resident_mb() -> float:
    """Memory of this process now."""
    gc.collect()
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


MEASUREMENTS: dict[str, Callable[..., Awaitable[Measured]]] = {
    "fan_out": fan_out,
    "deltas_of_runs": deltas_of_runs,
    "delta_ids": delta_ids,
    "pace": pace,
    "growth": growth,
    "replaying": replaying,
    "opening": opening,
    "idling": idling,
}


ON_ONE_CORE = frozenset({"fan_out", "growth", "replaying"})


def main() -> None:
    """Measure what the command line says."""
    name, home, *numbers = sys.argv[1:]
    if name in ON_ONE_CORE:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    async def measure() -> Measured:
        return await MEASUREMENTS[name](Path(home), *map(int, numbers))

    print(json.dumps(uvloop.run(measure())))


if __name__ == "__main__":
    main()
