"""WebSocket clients of one session: what they get, how fast, and whether it is what the log has.

In: a server's address as JSON, how many clients, how many events, how many passes. Out: what was measured, as JSON on
stdout. Nothing is decoded while the clock runs.

Run as `python -m sessions.load <address> <clients> <events> <passes>`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import msgspec
import uvloop
from gateway.process import cpu_seconds
from sessions.desk import checksum_of
from sessions.model import Wish
from sessions.server import Address
from sessions.websocket import Connection, connect
from stream.cores import take_core

CAPABILITIES = ["streaming", "makai.1"]
READY = b'{"type":"session_details"'
DELTA = b'{"type":"assistant_text_delta"'
ENDS = (b'{"type":"turn_done"', b'{"type":"run_ended"')
LAST = 3
"""The end of a run may be followed by a `backpressure` frame."""
DEADLINE_S = 60.0


class DeltaFrame(msgspec.Struct, frozen=True):
    """What is compared with the log."""

    event_id: int
    text: str


DECODER = msgspec.json.Decoder(DeltaFrame)


class Client:
    """One client; keeps every message it gets."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.ready = asyncio.Event()
        self.over = asyncio.Event()
        self.connection: Connection | None = None

    async def open(self, address: Address) -> None:
        """Connect, and wait until the session is shown."""
        path = f"/ws?session_id={address.session_id}"
        self.connection = await connect(address.port, address.token, path, self._take)
        self.connection.say("hello", v="1.0.0", client_capabilities=CAPABILITIES)
        async with asyncio.timeout(DEADLINE_S):
            await self.ready.wait()

    def _take(self, messages: list[bytes]) -> None:
        self.messages += messages
        if any(message.startswith(ENDS) for message in messages[-LAST:]):
            self.over.set()
        elif not self.ready.is_set() and any(message.startswith(READY) for message in messages):
            self.ready.set()

    def begin(self) -> None:
        """Forget what was said so far."""
        self.messages.clear()
        self.over.clear()

    def deltas(self) -> tuple[int, int]:
        """How many there were, and the checksum of their numbers and words."""
        frames = [DECODER.decode(message) for message in self.messages if message.startswith(DELTA)]
        return len(frames), checksum_of((frame.event_id, frame.text) for frame in frames)


async def one_pass(clients: list[Client], pid: int, events: int) -> dict[str, Any]:
    """One run at full speed."""
    for client in clients:
        client.begin()
    asker = clients[0].connection
    assert asker is not None
    cpu, wall = cpu_seconds(pid), time.perf_counter()
    asker.say("send", text=Wish(events).text())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(client.over.wait() for client in clients))
    wall = time.perf_counter() - wall
    cpu = cpu_seconds(pid) - cpu
    got = [client.deltas() for client in clients]
    return {"events": got[0][0], "got": got, "per_second": events / wall, "cpu_us": cpu / events * 1e6}


async def measure(address: Address, count: int, events: int, passes: int) -> dict[str, Any]:
    """Connect everyone, then measure."""
    clients = [Client() for _ in range(count)]
    for client in clients:
        await client.open(address)
    return {"passes": [await one_pass(clients, address.pid, events) for _ in range(passes)]}


def main() -> None:
    """Measure what the command line says."""
    take_core("upstream")
    address, *numbers = sys.argv[1:]
    measured = uvloop.run(measure(msgspec.json.decode(address, type=Address), *map(int, numbers)))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
