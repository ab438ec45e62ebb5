"""The shell of every connection: one place that writes an outbox to a channel, and one task that reads the channel.
`FrameWriter` is for servers, which read in the task that serves the connection; `ConnectionShell` adds the reader, for
the side that connected. `wake` never waits for the peer; producers that await `room` keep the outbox within its bound.
`serve_to_the_end` runs the server of a connection inside the HTTP request that carries it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar, runtime_checkable

from makai.aio.cancellation import RunOnce
from makai.core.errors import ChannelClosed, MakaiError, ParseError, TransportError
from makai.transports.channel import Channel, Oversized

MAX_PENDING_BYTES: Final = 1024 * 1024
"""How much may wait for a slow reader before `room` waits too."""
END_DEADLINE_S: Final = 5.0
"""How long a server may take to end by itself once its peer is gone."""
_FRAMES_IN_A_ROW: Final = 64
"""A transport that always has a frame ready must not keep other tasks from running."""


class FrameSource(Protocol):
    """What a `FrameWriter` empties: the outbox of a sans-IO protocol, or an `Outbox`."""

    @property
    def pending_bytes(self) -> int:
        """How much waits to be written."""

    def take(self) -> list[bytes]:
        """The frames to write now, in order."""


class Outbox:
    def __init__(self) -> None:
        self.pending_bytes = 0
        self._frames: list[bytes] = []

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.pending_bytes += len(frame)

    def take(self) -> list[bytes]:
        frames, self._frames = self._frames, []
        self.pending_bytes = 0
        return frames


@runtime_checkable
class ImmediateChannel(Channel, Protocol):
    """A channel that can write without waiting."""

    def send_at_once(self, frames: Sequence[bytes]) -> bool:
        """Write all `frames` now; False, and nothing is written, where `send` would wait. Raises `ChannelClosed`."""


class FrameWriter:
    """Writes what an outbox holds, in order. Make it inside a running event loop. Where the transport takes frames at
    once they leave from a callback of the event loop, together with everything that was put into the outbox in the same
    turn of the loop: to wake a task for every delta would cost more than to encode it. Only while the peer is slow, or
    on a transport that has to wait, a task writes."""

    def __init__(
        self,
        channel: Channel,
        outbox: FrameSource,
        on_failure: Callable[[TransportError], None],
        *,
        on_written: Callable[[], None] | None = None,
        name: str = "makai-writer",
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> None:
        self._channel = channel
        self._send_at_once = channel.send_at_once if isinstance(channel, ImmediateChannel) else None
        self._outbox = outbox
        self._on_failure = on_failure
        self._on_written = on_written
        self._name = name
        self._max_pending_bytes = max_pending_bytes
        self._loop = asyncio.get_running_loop()
        self._flush_scheduled = False
        self._writing: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        self._ended = False

    def wake(self) -> None:
        if not self._flush_scheduled and self._writing is None and not self._ended:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    async def room(self) -> None:
        """Wait until the outbox holds at most its bound. Raises `ChannelClosed` when nothing is written any more."""
        while self._outbox.pending_bytes > self._max_pending_bytes:
            if self._ended:
                raise ChannelClosed("The connection has ended.")
            self._progress.clear()
            await self._progress.wait()

    async def drained(self) -> None:
        """Wait while the peer does not take what it was sent."""
        while self._writing is not None and not self._ended:
            self._progress.clear()
            await self._progress.wait()

    async def close(self, flush_s: float) -> None:
        """Write what is left for at most `flush_s`, then nothing any more; may be repeated."""
        if self._flush_scheduled:
            self._flush()
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=flush_s)
        self._end()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._ended or self._writing is not None:
            return
        frames = self._outbox.take()
        try:
            if frames and (self._send_at_once is None or not self._send_at_once(frames)):
                self._writing = self._loop.create_task(self._write(frames), name=self._name)
                return
        except TransportError as error:
            self._fail(error)
        else:
            self._note_written()

    async def _write(self, frames: list[bytes]) -> None:
        failure: TransportError | None = None
        try:
            while frames:
                self._progress.set()
                await self._channel.send(frames)
                frames = self._outbox.take()
        except TransportError as error:
            failure = error
        finally:
            self._writing = None
        if failure is not None:
            self._fail(failure)
        else:
            self._note_written()

    def _note_written(self) -> None:
        self._progress.set()
        if self._on_written is not None:
            self._on_written()

    def _fail(self, error: TransportError) -> None:
        if not self._ended:
            self._end()
            self._on_failure(error)

    def _end(self) -> None:
        self._ended = True
        self._progress.set()


class ConnectionShell:
    """A channel that this side opened: its reader, its writer and the first reason why it ended. `on_frame` may neither
    wait nor raise anything but a `MakaiError`. `on_lost` is called once, with the error that ended the connection, or
    None when the peer ended it or `lose` was called without a reason."""

    def __init__(
        self,
        channel: Channel,
        outbox: FrameSource,
        on_frame: Callable[[bytes], None],
        on_lost: Callable[[MakaiError | None], None],
        *,
        name: str,
    ) -> None:
        self._channel = channel
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._writer = FrameWriter(channel, outbox, self.lose, name=f"{name}-writer")
        self._reader = asyncio.create_task(self._read(), name=f"{name}-reader")
        self._close_once = RunOnce(self._close, f"{name}-close")
        self.wake = self._writer.wake
        self.drained = self._writer.drained
        self.is_lost = False

    def lose(self, error: MakaiError | None = None) -> None:
        """Say that nothing arrives any more. Only the first reason counts."""
        if not self.is_lost:
            self.is_lost = True
            self._on_lost(error)

    async def close(self, flush_s: float) -> None:
        """Write what is left for at most `flush_s` and close the channel; may be repeated. A caller that is cancelled
        leaves no task and no child process behind."""
        self.lose()
        await self._close_once(flush_s)

    async def _close(self, flush_s: float) -> None:
        await self._writer.close(flush_s)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def _read(self) -> None:
        failure: MakaiError | None = None
        in_a_row = 0
        try:
            while (frame := await self._channel.receive()) is not None:
                if isinstance(frame, Oversized):
                    raise ParseError(f"a frame exceeds {frame.limit} bytes")
                self._on_frame(frame)
                in_a_row += 1
                if in_a_row == _FRAMES_IN_A_ROW:
                    in_a_row = 0
                    await asyncio.sleep(0)
        except MakaiError as error:
            failure = error
        finally:
            self.lose(failure)


class LosableChannel(Channel, Protocol):
    """A channel that can be told that its peer is gone."""

    def lose(self) -> None:
        """From now on `receive` returns `None` and `send` raises `ChannelClosed`."""


LosableT = TypeVar("LosableT", bound=LosableChannel)


async def serve_to_the_end(serve: Callable[[LosableT], Awaitable[None]], channel: LosableT) -> None:
    """Run `serve(channel)`, then close the channel. Libraries report a peer that hung up by cancelling the request. A
    cancellation can hit any await, so it does not reach `serve`: that sees a channel whose peer is gone, and is
    cancelled only if it does not end in time."""
    serving = asyncio.ensure_future(serve(channel))
    try:
        await asyncio.shield(serving)
    except ChannelClosed:
        pass  # the server found out by sending that its peer is gone
    except asyncio.CancelledError:
        channel.lose()
        await asyncio.wait({serving}, timeout=END_DEADLINE_S)
        raise
    finally:
        if not serving.done():
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        await channel.close()
