"""A channel inside one process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from makai.aio.pipes import wake
from makai.core.errors import ChannelClosed
from makai.transports.channel import MAX_FRAME_BYTES, Channel, Oversized
from makai.wire.ndjson import START_BYTES

BOUND_BYTES: Final = 1024 * 1024
_FRAME_OVERHEAD: Final = 64
"""What a frame costs beside its bytes, so that a million empty frames do not count as nothing."""


def memory_pair(bound: int = BOUND_BYTES, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> tuple[Channel, Channel]:
    """Two channels, each the other's peer; a sender waits while more than `bound` bytes are unread."""
    there, back = _Pipe(bound), _Pipe(bound)
    return _MemoryChannel(back, there, max_frame_bytes), _MemoryChannel(there, back, max_frame_bytes)


class _MemoryChannel:
    def __init__(self, inbound: _Pipe, outbound: _Pipe, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._inbound = inbound
        self._outbound = outbound

    async def receive(self) -> bytes | Oversized | None:
        frame = await self._inbound.get()
        if frame is not None and len(frame) > self.max_frame_bytes:
            return Oversized(self.max_frame_bytes, frame[:START_BYTES])
        return frame

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._outbound.put(frames)

    async def close(self, reason: str = "") -> None:
        self._outbound.end()
        self._inbound.abandon()


class _Pipe:
    """One direction: a queue of frames that is bounded in bytes."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._frames: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._abandoned = False
        self._turn = asyncio.Lock()  # blocked senders continue in the order in which they came
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    async def put(self, frames: Sequence[bytes]) -> None:
        async with self._turn:
            if self._ended or self._abandoned:
                raise ChannelClosed("The channel is closed.")
            self._frames.extend(frames)
            self._held += sum(map(_cost, frames))
            wake(self._reader)
            while self._held > self._bound and not self._ended and not self._abandoned:
                self._writer = asyncio.get_running_loop().create_future()
                await self._writer
            if self._abandoned:
                raise ChannelClosed("The peer closed the channel before it read everything.")

    async def get(self) -> bytes | None:
        while not self._frames:
            if self._ended or self._abandoned:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        frame = self._frames.popleft()
        self._held -= _cost(frame)
        if self._held <= self._bound:
            wake(self._writer)
        return frame

    def end(self) -> None:
        """The writer has finished; what it wrote can still be read."""
        self._ended = True
        wake(self._reader)
        wake(self._writer)

    def abandon(self) -> None:
        """The reader has left; what it did not read is dropped."""
        self._abandoned = True
        self._frames.clear()
        self._held = 0
        wake(self._reader)
        wake(self._writer)


def _cost(frame: bytes) -> int:
    return len(frame) + _FRAME_OVERHEAD
