"""One client in one process: reads streams, reports what that cost as one line of JSON.

In: arguments of the command line. Out: `Measured` as JSON on stdout; a failure as a traceback and exit code 1.
CPU is user plus system time of this process alone, from just before the streams start until the last one has ended;
warm-up streams come beforehand, so that imports, caches and lazy set-up are not counted.

Run as `python -m stream.child <client> <loop> <base-url> <concurrency> <rounds> <repeats> <warm-up streams>`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from stream.clients import CLIENTS, ReadOne, Seen
from stream.cores import take_core


@dataclass(frozen=True)
class Repeat:
    """One pass over all streams."""

    cpu_s: float
    wall_s: float
    deltas: int
    first_delta_ms: list[float]
    text_length: int | None


@dataclass(frozen=True)
class Measured:
    """What a child reports. Sizes are in MB of 2**20 bytes."""

    repeats: list[Repeat]
    ready_rss_mb: float
    """Resident memory when the library was imported and its client made, before any stream."""
    peak_rss_mb: float


def peak_rss_mb() -> float:
    """Peak resident memory of this process.

    `VmHWM` where there is a /proc: `ru_maxrss` of a fresh process starts at what its parent had.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def cpu_seconds() -> float:
    """User and system time of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def one_pass(read_one: ReadOne, concurrency: int, rounds: int) -> Repeat:
    """`rounds` times: `concurrency` streams at once."""
    seen: list[Seen] = []
    cpu, wall = cpu_seconds(), time.perf_counter()
    for _ in range(rounds):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_as_coroutine(read_one)) for _ in range(concurrency)]
        seen.extend(task.result() for task in tasks)
    return Repeat(
        cpu_s=cpu_seconds() - cpu,
        wall_s=time.perf_counter() - wall,
        deltas=sum(one.deltas for one in seen),
        first_delta_ms=[one.first_delta_ns / 1e6 for one in seen],
        text_length=seen[-1].text_length,
    )


async def _as_coroutine(read_one: ReadOne) -> Seen:
    return await read_one()


async def measure(client: str, base_url: str, concurrency: int, rounds: int, repeats: int, warm_up: int) -> Measured:
    """Open the client, warm it up, then measure."""
    async with CLIENTS[client](base_url) as read_one:
        ready = peak_rss_mb()
        for _ in range(warm_up):
            await read_one()
        passes = [await one_pass(read_one, concurrency, rounds) for _ in range(repeats)]
        return Measured(repeats=passes, ready_rss_mb=ready, peak_rss_mb=peak_rss_mb())


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """How to make the event loop of that name."""
    if name == "asyncio":
        return None
    import uvloop

    return uvloop.new_event_loop


def main() -> None:
    """Measure what the command line says."""
    take_core("client")
    client, loop, base_url, *numbers = sys.argv[1:]
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        measured = runner.run(measure(client, base_url, *map(int, numbers)))
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
