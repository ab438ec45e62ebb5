"""The load generator: one process that opens streams on a gateway, counts deltas and reads the gateway's CPU time.

In: arguments of the command line. Out: `Measured` as JSON on stdout; a failure as a traceback and exit code 1. The
gateway's CPU is read before the streams start and a moment after the last has ended, when it has tidied up.

Run as `python -m gateway.load <client> <port> <key> <pid> <concurrency> <rounds> <passes> <streams per connection>`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

import uvloop
from gateway.process import cpu_seconds, peak_rss_mb
from gateway.readers import HttpReader, Stream, WebSocketReader
from stream.cores import take_core

WARM_UP_STREAMS = 3
TIDY_UP_S = 0.3
STREAMS_DEADLINE_S = 200.0

Read = Callable[[int], Awaitable[list[Stream]]]
"""So many answers at once, read to their ends."""


@dataclass(frozen=True)
class Pass:
    """All streams of one pass."""

    cpu_s: float
    wall_s: float
    stream_deltas: list[int]
    first_delta_ms: list[float]


@dataclass(frozen=True)
class Measured:
    """What the generator reports. Sizes are in MB of 2**20 bytes."""

    passes: list[Pass]
    ready_rss_mb: float
    """Peak memory of the gateway after a few streams."""
    peak_rss_mb: float


async def read_over_websockets(port: int, key: str, streams: int, streams_per_connection: int) -> list[Stream]:
    """`streams` answers over as few new connections as may be."""
    loop = asyncio.get_running_loop()
    readers = []
    for _ in range(0, streams, streams_per_connection):
        _, reader = await loop.create_connection(lambda: WebSocketReader(port, key), "127.0.0.1", port)
        await reader.upgraded
        readers.append(reader)
    opened = [readers[number // streams_per_connection].open_stream() for number in range(streams)]
    await asyncio.gather(*(stream.ended for stream in opened))
    for reader in readers:
        reader.close()
    return opened


async def read_over_http(port: int, key: str, streams: int, *, makai: bool) -> list[Stream]:
    """`streams` answers, each over a connection of its own."""
    loop = asyncio.get_running_loop()

    async def read_one() -> Stream:
        _, reader = await loop.create_connection(lambda: HttpReader(port, key, makai=makai), "127.0.0.1", port)
        await reader.stream.ended
        return reader.stream

    return await asyncio.gather(*(read_one() for _ in range(streams)))


async def one_pass(read: Read, pid: int, concurrency: int, rounds: int) -> Pass:
    """`rounds` times: `concurrency` streams at once."""
    seen: list[Stream] = []
    cpu, wall = cpu_seconds(pid), time.perf_counter()
    for _ in range(rounds):
        async with asyncio.timeout(STREAMS_DEADLINE_S):
            seen += await read(concurrency)
    wall = time.perf_counter() - wall
    await asyncio.sleep(TIDY_UP_S)
    return Pass(
        cpu_s=cpu_seconds(pid) - cpu,
        wall_s=wall,
        stream_deltas=[stream.deltas for stream in seen],
        first_delta_ms=[stream.first_delta_ns / 1e6 for stream in seen],
    )


async def measure(
    client: str, port: int, key: str, pid: int, concurrency: int, rounds: int, passes: int, streams_per_connection: int
) -> Measured:
    """Warm the gateway up, then measure."""

    async def read(streams: int) -> list[Stream]:
        if client == "websocket":
            return await read_over_websockets(port, key, streams, streams_per_connection)
        return await read_over_http(port, key, streams, makai=client == "sse")

    async with asyncio.timeout(STREAMS_DEADLINE_S):
        await read(WARM_UP_STREAMS)
    await asyncio.sleep(TIDY_UP_S)
    ready = peak_rss_mb(pid)
    done = [await one_pass(read, pid, concurrency, rounds) for _ in range(passes)]
    return Measured(passes=done, ready_rss_mb=ready, peak_rss_mb=peak_rss_mb(pid))


def main() -> None:
    """Measure what the command line says."""
    take_core("upstream")  # the gateway has the other cores
    client, port, key, *numbers = sys.argv[1:]
    pid, *plan = map(int, numbers)
    measured = uvloop.run(measure(client, int(port), key, pid, *plan))
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
