"""The client side of stdio: start `makai stdio` as a child and talk to it.

In: a command. Out: a channel whose peer is that child. It must not know what is said after the `ready` line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from makai.core.errors import ParseError, TransportError
from makai.providers.local.processes import end_group
from makai.transports.channel import MAX_FRAME_BYTES, Channel, Oversized
from makai.transports.stdio import READY, StdioChannel
from makai.wire import strict_json

READY_DEADLINE_S: Final = 15.0
EXIT_GRACE_S: Final = 2.0
"""How long the child may take to end by itself after its input has ended, and again after SIGTERM."""

_LAST_LINES: Final = 20
_MAX_LINE_BYTES: Final = 64 * 1024


class _Ready(msgspec.Struct):
    type: str
    protocol_version: str


_READY_DECODER: Final = msgspec.json.Decoder(_Ready)
_EXPECTED: Final = _READY_DECODER.decode(READY)


async def spawn_stdio(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    ready_deadline_s: float = READY_DEADLINE_S,
) -> Channel:
    """Start `command` in its own process group and wait for its `ready` line, which is consumed.

    `env` is the child's whole environment; without it the child gets ours.
    """
    child_input, our_output = os.pipe()
    our_input, child_output = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=env,
            stdin=child_input,
            stdout=child_output,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
            start_new_session=True,
        )
    except BaseException as error:
        os.close(our_input)
        os.close(our_output)
        if isinstance(error, OSError):
            raise TransportError(f"{command[0]} could not be started: {error.strerror}.") from None
        raise
    finally:
        os.close(child_input)
        os.close(child_output)
    channel = _ChildChannel(StdioChannel(our_input, our_output, max_frame_bytes=max_frame_bytes), process)
    problem: str | None
    try:
        async with asyncio.timeout(ready_deadline_s):
            problem = await channel.problem_with_ready()
    except TimeoutError:
        problem = f"sent no ready line within {ready_deadline_s:g} s"
    except BaseException:
        await channel.close()
        raise
    if problem:
        await channel.close()
        raise channel.failure(problem)
    return channel


class _ChildChannel:
    """The descriptors to a child, the child itself and the last it said on standard error."""

    def __init__(self, channel: StdioChannel, process: asyncio.subprocess.Process) -> None:
        self.max_frame_bytes = channel.max_frame_bytes
        self._channel = channel
        self._process = process
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._listening = asyncio.create_task(self._listen())
        self._ending: asyncio.Task[None] | None = None

    async def receive(self) -> bytes | Oversized | None:
        return await self._channel.receive()

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._channel.send(frames)

    async def close(self, reason: str = "") -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        # A cancelled closer must not leave the child behind.
        await asyncio.shield(self._ending)

    async def problem_with_ready(self) -> str | None:
        """What is wrong with the child's first line, if anything."""
        frame = await self._channel.receive()
        if frame is None:
            return "ended before its ready line"
        if isinstance(frame, Oversized):
            return "sent no ready line first"
        try:
            ready = strict_json.decode_with(_READY_DECODER, frame)
        except ParseError:
            return f"sent {frame[:200]!r} instead of its ready line"
        if ready != _EXPECTED:
            return f"speaks protocol version {ready.protocol_version!r}, not {_EXPECTED.protocol_version!r}"
        return None

    def failure(self, what: str) -> TransportError:
        """An error that says what the child did and what it last wrote to standard error."""
        said = "\n".join(self._last_lines)
        return TransportError(f"The server process {what}." + (f" It said:\n{said}" if said else ""))

    async def _end(self) -> None:
        await self._channel.close()  # the end of its input is how a stdio server is told to go
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), EXIT_GRACE_S)
        await end_group(self._process, grace_s=EXIT_GRACE_S)
        # A descendant that left the group may still hold standard error open.
        await asyncio.wait({self._listening}, timeout=EXIT_GRACE_S)
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while True:
            try:
                line = await stderr.readline()
            except ValueError:  # longer than the limit: asyncio has dropped it
                continue
            if not line:
                return
            self._last_lines.append(line.decode("utf-8", "replace").rstrip())
