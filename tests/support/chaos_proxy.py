"""A TCP proxy that behaves like a bad network: it delays, splits, throttles, half-closes and cuts connections.

Bytes of one direction are never reordered, changed or dropped while the connection lives, as TCP promises. Each
connection draws its faults from a seeded generator; while `is_calm` is set, new connections pass undisturbed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

import msgspec

CHUNK_BYTES = 64 * 1024
HALF_CLOSED_S = 0.2
"""How long a half-closed connection lives before it is cut: some networks never tell the other side."""
CONNECT_S = 30.0

End = Literal["cut", "half_close"]


class Faults(msgspec.Struct, frozen=True):
    """What one direction of a connection suffers from."""

    delay_s: float = 0.0
    """Before each chunk."""
    split_bytes: int = CHUNK_BYTES
    """No chunk is larger."""
    bytes_per_s: float = 0.0
    """0 is unlimited."""
    end: End | None = None
    end_after: int = 0
    """Bytes that still pass; the end may come in the middle of a frame or of a header."""


class ChaosReport(msgspec.Struct, frozen=True):
    """What the proxy has done so far."""

    connections: int
    cuts: int
    half_closes: int
    delayed: int
    split: int
    throttled: int


def random_faults(chance: random.Random) -> Faults:
    """One direction of a connection that ends after anything from a part of its head to some hundred frames."""
    kind = chance.random()
    return Faults(
        delay_s=chance.choice((0.001, 0.005, 0.02)) if kind < 0.2 else 0.0,
        split_bytes=chance.randint(1, 64) if 0.2 <= kind < 0.4 else CHUNK_BYTES,
        bytes_per_s=chance.choice((20_000.0, 200_000.0)) if 0.4 <= kind < 0.5 else 0.0,
        end="half_close" if chance.random() < 0.2 else "cut",
        end_after=int(chance.choice((100, 2_000, 20_000, 60_000)) * chance.random()),
    )


class ChaosProxy:
    """Listens on `port`; set `target` to the port of the server, also later, when a server has restarted elsewhere."""

    def __init__(self, seed: int) -> None:
        self.target = 0
        self.is_calm = False
        self._chance = random.Random(seed)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._counts = dict.fromkeys(ChaosReport.__struct_fields__, 0)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def report(self) -> ChaosReport:
        return msgspec.convert(self._counts, ChaosReport)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK_BYTES)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            pass  # by `close`, which waits for this task
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._counts["connections"] += 1
        try:
            async with asyncio.timeout(CONNECT_S):
                to_server = await asyncio.open_connection("127.0.0.1", self.target, limit=CHUNK_BYTES)
        except OSError:
            return
        faults = (Faults(), Faults()) if self.is_calm else self._drawn()
        directions = {
            asyncio.create_task(self._pump(reader, to_server[1], faults[0])),
            asyncio.create_task(self._pump(to_server[0], writer, faults[1])),
        }
        try:
            # An end of either direction ends the connection: at once when it is cut, else after a moment in which only
            # the other direction is open.
            ended, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            if not any(direction.result() for direction in ended):
                await asyncio.wait(directions, timeout=HALF_CLOSED_S)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            to_server[1].transport.abort()

    def _drawn(self) -> tuple[Faults, Faults]:
        """Faults in one direction or in both; at least one of them ends the connection."""
        drawn = random_faults(self._chance)
        other = random_faults(self._chance) if self._chance.random() < 0.5 else Faults()
        for faults in (drawn, other):
            self._counts["delayed"] += faults.delay_s > 0
            self._counts["split"] += faults.split_bytes < CHUNK_BYTES
            self._counts["throttled"] += faults.bytes_per_s > 0
        return (drawn, other) if self._chance.random() < 0.3 else (other, drawn)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, faults: Faults) -> bool:
        """Copy one direction until its end, or until its faults end it. Return whether the connection is cut."""
        left = faults.end_after if faults.end is not None else None
        with suppress(ConnectionError):
            while data := await reader.read(min(CHUNK_BYTES, faults.split_bytes)):
                if faults.delay_s:
                    await asyncio.sleep(faults.delay_s)
                if faults.bytes_per_s:
                    await asyncio.sleep(len(data) / faults.bytes_per_s)
                passed = data if left is None else data[:left]
                writer.write(passed)
                await writer.drain()
                if left is not None and (left := left - len(data)) <= 0:
                    break
            if left is not None and left <= 0 and faults.end == "cut":
                self._counts["cuts"] += 1
                return True
            self._counts["half_closes"] += left is not None and left <= 0
            writer.write_eof()
        return False


@asynccontextmanager
async def chaos_proxy(seed: int) -> AsyncIterator[ChaosProxy]:
    proxy = ChaosProxy(seed)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
