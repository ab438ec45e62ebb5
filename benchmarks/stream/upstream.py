"""The model API every client talks to: one process, raw asyncio, bytes that were encoded beforehand.

In: HTTP POSTs to `/<shape>/<deltas>/...`; a path that ends in `/messages` is answered as Anthropic Messages, any other
as OpenAI chat completions. Out: an event stream of that many deltas. It reads no JSON and checks nothing.

Shapes: `flat` writes eight deltas at a time as fast as the client reads. `live` writes one delta per write, 50 a second
for each stream; streams take turns (one every 0.4 ms), so that every delta wakes the client up on its own.

Run as `python -m stream.upstream`; the first line on stdout is the port.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvloop
from stream.cores import take_core
from stream.traffic import HEAD, NOT_FOUND, Traffic, chunk, traffic

FLAT_EVENTS_PER_WRITE = 8
LIVE_DELTAS_PER_SECOND = 50
LIVE_SLOTS = 50
THINKING_S = 0.005
"""Between the head of an answer and its first delta, as a model reads before it writes."""


class LivePace:
    """Gives each live stream its turn, `LIVE_DELTAS_PER_SECOND` times a second.

    A thread, because event loop timers are rounded to milliseconds: streams would bunch up and share wake-ups.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: list[set[Upstream]] = [set() for _ in range(LIVE_SLOTS)]
        self._next_slot = 0
        self._busy = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def join(self, stream: Upstream) -> set[Upstream]:
        """Add a stream; it leaves by discarding itself from the slot it gets, before its last write."""
        slot = self._slots[self._next_slot]
        self._next_slot = (self._next_slot + 1) % LIVE_SLOTS
        slot.add(stream)
        self._busy.set()
        return slot

    def _run(self) -> None:
        step = 1 / (LIVE_DELTAS_PER_SECOND * LIVE_SLOTS)
        while True:
            self._busy.wait()
            due = time.monotonic()
            turn = 0
            while any(self._slots):
                due += step
                time.sleep(max(0.0, due - time.monotonic()))
                if self._slots[turn]:
                    self._loop.call_soon_threadsafe(self._turn, self._slots[turn])
                turn = (turn + 1) % LIVE_SLOTS
            self._busy.clear()

    def _turn(self, slot: set[Upstream]) -> None:
        for stream in tuple(slot):
            stream.write_more()


class Upstream(asyncio.Protocol):
    """One connection; answers one request after the other."""

    def __init__(self, pace: LivePace, shapes: dict[tuple[str, str], Traffic]) -> None:
        self._pace = pace
        self._shapes = shapes
        self._received = bytearray()
        self._paused = False
        self._live_slot: set[Upstream] = set()
        self._writes: Iterator[bytes] = iter(())

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._live_slot.discard(self)
        self._writes = iter(())

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self not in self._live_slot:
            self._write_flat()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self._received[:head_end]).lower()
        if b"content-length:" not in head:  # LiteLLM's proxy also asks for a list of models
            self._received.clear()
            self._transport.write(NOT_FOUND)
            return
        body_length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        if len(self._received) < head_end + 4 + body_length:
            return
        self._received.clear()
        self._answer(head.split(b" ")[1].decode())

    def _answer(self, path: str) -> None:
        _, shape, deltas, *rest = path.split("/")
        source = self._shapes[shape, "anthropic" if rest[-1].startswith("messages") else "openai"]
        self._transport.write(HEAD + source.opening)
        self._writes = self._answer_writes(source, int(deltas))
        asyncio.get_running_loop().call_later(THINKING_S, self._begin, shape)

    def _begin(self, shape: str) -> None:
        if shape == "live":
            self._live_slot = self._pace.join(self)
        else:
            self._write_flat()

    def _answer_writes(self, source: Traffic, deltas: int) -> Iterator[bytes]:
        """Every write of an answer after its head. The first delta is stamped when its turn has come."""
        first_write = min(source.events_per_write, deltas)
        others = b"".join(source.deltas[1:first_write])
        yield chunk(source.stamped(time.monotonic_ns()) + others)
        full, remainder = divmod(deltas - first_write, source.events_per_write)
        for number in range(1, full + 1):
            yield source.writes[number % len(source.writes)]
        self._live_slot.discard(self)
        yield (chunk(b"".join(source.deltas[:remainder])) if remainder else b"") + source.closing

    def write_more(self) -> None:
        """The next write of a live stream."""
        self._transport.write(next(self._writes))

    def _write_flat(self) -> None:
        while not self._paused and (piece := next(self._writes, None)) is not None:
            self._transport.write(piece)


async def serve() -> None:
    """Listen on a free loopback port until killed."""
    loop = asyncio.get_running_loop()
    pace = LivePace(loop)
    shapes = {
        (shape, api): traffic(api, per_write)
        for shape, per_write in (("flat", FLAT_EVENTS_PER_WRITE), ("live", 1))
        for api in ("openai", "anthropic")
    }
    server = await loop.create_server(lambda: Upstream(pace, shapes), "127.0.0.1", 0, backlog=2_048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    take_core("upstream")
    uvloop.run(serve())
