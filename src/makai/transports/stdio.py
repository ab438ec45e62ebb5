"""Frames over standard input and output: newline-delimited JSON on two descriptors of any kind. Everything happens on
the event loop, without threads. Only pipes and sockets are switched to non-blocking, and only for writing: the switch
also counts for every process that shares the descriptor, such as the shell behind a terminal. uvloop switches whatever
it watches. All get their mode back at the end."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from makai.aio.pipes import BOUND_BYTES, PipeWriter, wake
from makai.core.errors import ParseError, TransportError
from makai.transports.channel import MAX_FRAME_BYTES, Oversized
from makai.wire.ndjson import NDJSONDecoder

READY: Final = b'{"type":"ready","protocol_version":"1"}'
"""The first frame a stdio server sends, once it can answer."""

_CHUNK_BYTES: Final = 64 * 1024


def claim_stdio() -> tuple[int, int]:
    """Take standard input and output for the protocol alone; call it before anything can print or read. Afterwards
    descriptor 1 and `sys.stdout` lead to standard error and descriptor 0 is empty, so that no print, no C library and
    no child process can write into the protocol stream or steal from it (MK-TRANS-003)."""
    try:
        claimed = os.dup(0), os.dup(1)
    except OSError:
        raise TransportError("Standard input or output is closed.") from None
    if sys.stdout is not None:
        sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed too
        os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return claimed


def as_lines(frames: Sequence[bytes]) -> bytes:
    """The frames as newline-delimited JSON."""
    lines = b"\n".join(frames) + b"\n"
    if lines.count(b"\n") > len(frames):
        # Outside of strings JSON may be laid out over several lines; inside of them it cannot contain a newline.
        lines = b"".join(frame.replace(b"\n", b" ") + b"\n" for frame in frames)
    return lines


class StdioChannel:
    """A channel over two descriptors, which it owns and closes. Create it on a running event loop."""

    def __init__(
        self,
        input: int,
        output: int,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        already_read: bytes = b"",
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`already_read` is the beginning of the input, if another reader took it. `on_end` is called once the peer has
        closed the input, also while frames wait to be received."""
        self.max_frame_bytes = max_frame_bytes
        # Both may be one terminal or socket. The first to come is the last to give its mode back.
        self._writer = PipeWriter(output)
        self._reader = _LineReader(input, max_frame_bytes, already_read, on_end)

    async def receive(self) -> bytes | Oversized | None:
        return await self._reader.receive()

    async def send(self, frames: Sequence[bytes]) -> None:
        if frames:
            await self._writer.write(as_lines(frames))

    async def close(self, reason: str = "") -> None:
        self._reader.close()
        await self._writer.close()


class _LineReader:
    """Reads when the descriptor is readable, and pauses while too much is waiting to be received. When the peer closes
    its end meanwhile, the rest is read, which is no more than a pipe holds."""

    def __init__(self, descriptor: int, max_line_bytes: int, already_read: bytes, on_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_end = on_end
        self._limit = max_line_bytes
        self._decoder = NDJSONDecoder(max_line_bytes)
        self._lines: deque[bytes | Oversized] = deque()
        self._held = 0
        self._ended = False
        self._closed = False
        self._reading = False
        self._hang_up_watch: select.epoll | None = None
        """While reading pauses: readable when the peer has closed its end."""
        self._hung_up = False
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._was_blocking = os.get_blocking(descriptor)
        self._keep(self._decoder.feed(already_read))
        self._pollable = not stat.S_ISREG(os.fstat(descriptor).st_mode) and self._resume()

    async def receive(self) -> bytes | Oversized | None:
        while not self._lines:
            if self._ended:
                return None
            if self._pollable:
                self._waiter = self._loop.create_future()
                await self._waiter
            else:
                self._read()
                await asyncio.sleep(0)
        line = self._lines.popleft()
        if isinstance(line, bytes):
            self._held -= len(line)
        if self._pollable and not self._reading and not self._ended and self._held <= BOUND_BYTES:
            self._resume()
        return line

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._lines.clear()
            self._end()
            os.set_blocking(self._descriptor, self._was_blocking)
            os.close(self._descriptor)

    def _resume(self) -> bool:
        """Whether the loop can watch the descriptor. It cannot watch what is always readable, such as /dev/null."""
        try:
            self._loop.add_reader(self._descriptor, self._read)
        except OSError:
            return False
        self._ignore_hang_up()
        self._reading = True
        return True

    def _pause(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._descriptor)
            self._reading = False

    def _watch_hang_up(self) -> None:
        if sys.platform == "linux":
            self._hang_up_watch = select.epoll()
            self._hang_up_watch.register(self._descriptor, select.EPOLLRDHUP)  # EPOLLHUP is always reported
            self._loop.add_reader(self._hang_up_watch.fileno(), self._on_hang_up)

    def _ignore_hang_up(self) -> None:
        if self._hang_up_watch is not None:
            self._loop.remove_reader(self._hang_up_watch.fileno())
            self._hang_up_watch.close()
            self._hang_up_watch = None

    def _on_hang_up(self) -> None:
        self._hung_up = True
        self._resume()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # a terminal that went away
            data = b""
        self._keep(self._decoder.feed(data) if data else self._decoder.close())
        if not data:
            self._end()
            self._on_end()
        elif self._reading and self._held > BOUND_BYTES and not self._hung_up:
            self._pause()
            self._watch_hang_up()
        if self._lines:
            wake(self._waiter)

    def _keep(self, lines: Sequence[bytes | ParseError]) -> None:
        for line in lines:
            if isinstance(line, ParseError):
                self._lines.append(Oversized(self._limit, self._decoder.skipped_start))
            else:
                self._lines.append(line)
                self._held += len(line)

    def _end(self) -> None:
        self._pause()
        self._ignore_hang_up()
        self._ended = True
        wake(self._waiter)
