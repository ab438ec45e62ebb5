"""Reading and writing file descriptors on the event loop, without threads and with bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections import deque
from typing import Final

from makai.core.errors import ChannelClosed

BOUND_BYTES: Final = 256 * 1024
"""More than this unread or unwritten, and the producing side waits."""
CLOSE_DEADLINE_S: Final = 5.0
"""How long a closing writer waits for its peer to read the rest."""


class PipeReader:
    """The reading end of a pipe or a terminal, which it owns. Nothing is read ahead: a slow reader slows the writer."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._loop = asyncio.get_running_loop()
        self._readable = asyncio.Event()

    async def read(self, max_bytes: int = BOUND_BYTES) -> bytes:
        """The next bytes; b"" at the end and after `close`."""
        while self._descriptor is not None:
            try:
                return os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                self._readable.clear()
                self._loop.add_reader(self._descriptor, self._wake)
                await self._readable.wait()
            except OSError as error:
                if error.errno != errno.EIO:  # how a terminal says that its other side is closed
                    raise
                return b""
        return b""

    def close(self) -> None:
        if self._descriptor is not None:
            self._wake()
            os.close(self._descriptor)
            self._descriptor = None

    def _wake(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
        self._readable.set()


class PipeWriter:
    """Writes at once what the descriptor takes and keeps the rest, so that a cancelled sender leaves no half line.

    It owns the descriptor, which may be of any kind. Only pipes and sockets are switched to non-blocking: the switch
    also counts for every process that shares the descriptor. They get their mode back when the writer is closed.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unwritten: deque[bytes | memoryview] = deque()
        self._held = 0
        self._waiting = False  # the loop calls `_flush` when the descriptor takes more
        self._broken = False
        self._closed = False
        self._turn = asyncio.Lock()
        self._drained: asyncio.Future[None] | None = None
        self._drain_below = 0
        self._loop = asyncio.get_running_loop()
        mode = os.fstat(descriptor).st_mode
        self._was_blocking = os.get_blocking(descriptor)
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            os.set_blocking(descriptor, False)

    async def write(self, data: bytes) -> None:
        """Write all of `data`; returns once less than `BOUND_BYTES` wait. `ChannelClosed` when the peer is gone."""
        async with self._turn:
            if self._closed or self._broken:
                raise ChannelClosed("The channel is closed.")
            self._unwritten.append(data)
            self._held += len(data)
            if not self._waiting:
                self._flush()
            await self._drain(BOUND_BYTES)

    async def close(self, *, deadline_s: float = CLOSE_DEADLINE_S) -> None:
        """Close the descriptor; what was accepted is still written if the peer reads it before the deadline."""
        if self._closed:
            return
        self._closed = True
        try:
            with contextlib.suppress(TimeoutError, ChannelClosed):
                async with asyncio.timeout(deadline_s), self._turn:
                    await self._drain(0)
        finally:
            self._stop_waiting()
            self._break()
            os.set_blocking(self._descriptor, self._was_blocking)
            os.close(self._descriptor)

    async def _drain(self, bound: int) -> None:
        while self._held > bound and not self._broken:
            self._drain_below = bound
            self._drained = self._loop.create_future()
            await self._drained
        if self._broken:
            raise ChannelClosed("The peer no longer reads.")

    def _flush(self) -> None:
        try:
            while self._unwritten:
                self._write_some()
        except (BlockingIOError, InterruptedError):
            if not self._waiting:
                self._waiting = True
                self._loop.add_writer(self._descriptor, self._flush)
        except OSError:
            self._break()
        if not self._unwritten:
            self._stop_waiting()
        if self._held <= self._drain_below:
            wake(self._drained)

    def _write_some(self) -> None:
        data = self._unwritten[0]
        written = os.write(self._descriptor, data)
        self._held -= written
        if written == len(data):
            self._unwritten.popleft()
        else:
            self._unwritten[0] = memoryview(data)[written:]

    def _break(self) -> None:
        self._broken = True
        self._unwritten.clear()
        self._held = 0
        wake(self._drained)

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._descriptor)


def wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
