"""A thousand WebSocket clients in one process that do nothing but read.

In: a server's address as JSON, what to measure and numbers. Out: what was measured, as JSON on stdout. A delta is
recognised by how its message begins; of a paced one the age is taken. The server's CPU time is read from /proc.

Run as `python -m fanout.drain <address> cost <clients> <live deltas> <flat deltas>`
or `python -m fanout.drain <address> stall <clients> <deltas> <rounds>`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
import uvloop
from gateway.process import cpu_seconds, peak_rss_mb
from sessions.load import CAPABILITIES, DECODER, DELTA, ENDS, LAST, READY
from sessions.model import STAMP, Wish
from sessions.server import Address, allow_many_sockets
from sessions.websocket import Connection, connect
from stream.cores import take_core

PER_SECOND = 25
PADDING = 800
"""So that what a stalled client's buffers hold is not more than a few seconds."""
SMALL_BUFFER = 4_096
WARM_UP = 20
TIDY_UP_S = 0.3
DEADLINE_S = 120.0
CLOSE_S = 15.0
_MARK = STAMP.encode()


class Crowd:
    """All clients of one session, and what they got."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.messages = 0
        self.bytes = 0
        self.ages = array("q")
        self.runs = 0
        self._members: list[Connection] = []
        self._ready = 0
        self._over = 0
        self._changed = asyncio.Event()

    async def join(self, count: int) -> None:
        """So many clients."""
        for _ in range(count):
            connection = await self.dial(self.take)
            connection.say("hello", v="1.0.0", client_capabilities=CAPABILITIES)
            self._members.append(connection)
        await self._until(lambda: self._ready >= count)

    async def dial(self, on_messages: Any, receive_buffer: int | None = None) -> Connection:
        """One connection more."""
        path = f"/ws?session_id={self.address.session_id}"
        return await connect(self.address.port, self.address.token, path, on_messages, receive_buffer)

    async def run(self, wish: Wish) -> None:
        """Have the session say something, and wait until everyone has it."""
        self.messages, self.bytes, self._over = 0, 0, 0
        self.ages = array("q")
        self.runs += 1
        self._members[0].say("send", text=wish.text())
        await self._until(lambda: self._over >= len(self._members))

    def take(self, messages: list[bytes]) -> None:
        now = time.monotonic_ns()
        self.messages += len(messages)
        for message in messages:
            if message.startswith(DELTA):
                self.bytes += len(message)
                start = message.find(_MARK)
                if start >= 0:
                    self.ages.append(now - int(message[start + 1 : message.index(_MARK, start + 1)]))
            elif message.startswith(READY):
                self._ready += 1
                self._changed.set()
        if any(message.startswith(ENDS) for message in messages[-LAST:]):
            self._over += 1
            self._changed.set()

    async def _until(self, holds: Any) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


def percentiles(runs: Sequence[array[int]]) -> dict[str, float]:
    """How old the deltas of these runs were, in milliseconds."""
    ages = [age for run in runs for age in run]
    found = statistics.quantiles(ages, n=100)
    return {"median_ms": found[49] / 1e6, "p99_ms": found[98] / 1e6, "deltas": len(ages)}


# ---------------------------------------------------------------- what a message costs


async def cost(address: Address, count: int, live: int, flat: int) -> dict[str, Any]:
    """Server CPU per delivered message, at the pace of a fast model and as fast as it goes."""
    crowd = Crowd(address)
    await crowd.join(count)
    await crowd.run(Wish(WARM_UP, PER_SECOND))
    shapes = {}
    for name, wish in (("live", Wish(live, PER_SECOND)), ("flat", Wish(flat))):
        await asyncio.sleep(TIDY_UP_S)
        cpu, wall = cpu_seconds(address.pid), time.perf_counter()
        await crowd.run(wish)
        wall = time.perf_counter() - wall
        await asyncio.sleep(TIDY_UP_S)
        cpu = cpu_seconds(address.pid) - cpu
        if crowd.messages < count * wish.deltas:
            raise RuntimeError(f"{crowd.messages} of {count * wish.deltas} messages arrived")
        shapes[name] = {
            "cpu_us": cpu / crowd.messages * 1e6,
            "messages": crowd.messages,
            "per_second": crowd.messages / wall,
            "bytes_each": crowd.bytes / (count * wish.deltas),
            **(percentiles([crowd.ages]) if crowd.ages else {}),
        }
    return {"shapes": shapes, "peak_rss_mb": peak_rss_mb(address.pid)}


# ---------------------------------------------------------------- one that does not read


class Sleeper:
    """A client that stops reading, is dropped, and comes back with the number of the last event it read."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._events: list[int] = []
        self._is_over = asyncio.Event()
        self._is_ready = asyncio.Event()

    async def arrive(self) -> None:
        """Connect, see the session, fall asleep."""
        self._connection = await self._crowd.dial(self._take, SMALL_BUFFER)
        self._connection.say("hello", v="1.0.0", client_capabilities=CAPABILITIES)
        await asyncio.wait_for(self._is_ready.wait(), DEADLINE_S)
        self._connection.pause()

    async def return_(self) -> dict[str, Any]:
        """Wake up to find the connection gone, resume, and read to the end of the run."""
        was_dropped = True
        self._connection.go_on()
        try:
            await asyncio.wait_for(self._connection.closed, CLOSE_S)
        except TimeoutError:
            was_dropped = False
            self._connection.hang_up()
        read_before = len(self._events)
        connection = await self._crowd.dial(self._take)
        cursor = self._events[-1] if self._events else self._shown
        connection.say("resume", last_seen_event_id=cursor, client_capabilities=CAPABILITIES)
        await asyncio.wait_for(self._is_over.wait(), DEADLINE_S)
        connection.hang_up()
        return {"was_dropped": was_dropped, "read_before": read_before, "events": self._events}

    def _take(self, messages: list[bytes]) -> None:
        for message in messages:
            if message.startswith(DELTA):
                self._events.append(DECODER.decode(message).event_id)
            elif message.startswith(b'{"type":"snapshot"'):
                self._shown = json.loads(message)["session_state"]["last_event_id"]
            elif message.startswith(READY):
                self._is_ready.set()
            elif message.startswith(ENDS):
                self._is_over.set()


async def stall(address: Address, count: int, deltas: int, rounds: int) -> dict[str, Any]:
    """The others' delivery without and with a client that does not read: in turns, each as often the first of a round.

    All rounds together make the percentiles, because those of a single one depend on a few slow moments of the machine.
    How far the two halves of the rounds without such a client differ tells how much of a difference means nothing.
    """
    crowd = Crowd(address)
    await crowd.join(count - 1)
    wish = Wish(deltas, PER_SECOND, PADDING)
    await crowd.run(Wish(WARM_UP, PER_SECOND, PADDING))
    calm: list[array[int]] = []
    stalled: list[array[int]] = []
    returns = []
    for number in range(rounds):
        for with_sleeper in (number % 2 == 1, number % 2 == 0):
            if with_sleeper:
                sleeper = Sleeper(crowd)
                await sleeper.arrive()
                await crowd.run(wish)
                stalled.append(crowd.ages)
                returns.append({"run": crowd.runs - 1, **await sleeper.return_()})
            else:
                await crowd.run(wish)
                calm.append(crowd.ages)
            gc.collect()
    return {
        "calm": percentiles(calm),
        "stalled": percentiles(stalled),
        "calm_halves": [percentiles(calm[0::2]), percentiles(calm[1::2])] if rounds > 1 else [],
        "calm_rounds": [percentiles([one]) for one in calm],
        "stalled_rounds": [percentiles([one]) for one in stalled],
        "returns": returns,
    }


def main() -> None:
    """Measure what the command line says."""
    take_core("upstream")
    allow_many_sockets()
    gc.disable()  # a pause of this process would look like one of the server
    address, what, *numbers = sys.argv[1:]
    measure = {"cost": cost, "stall": stall}[what]
    print(json.dumps(uvloop.run(measure(msgspec.json.decode(address, type=Address), *map(int, numbers)))))


if __name__ == "__main__":
    main()
