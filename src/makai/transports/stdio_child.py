"""The client side of stdio: starts `makai stdio` as a child and gives a channel to it, once it has said `ready`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from makai.aio.cancellation import RunOnce
from makai.aio.child_process import ChildProcess
from makai.core.errors import ParseError, TransportError
from makai.transports.channel import MAX_FRAME_BYTES, Channel, Oversized
from makai.transports.stdio import READY, StdioChannel
from makai.wire import strict_json

READY_DEADLINE_S: Final = 15.0
EXIT_GRACE_S: Final = 2.0
"""How long the child may take to end by itself after its input has ended, and again after SIGTERM."""

_LINES_SHOWN: Final = 20


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
    """Start `command` and wait for its `ready` line, which is consumed. `env` is the child's whole environment, by
    default that of this process."""
    try:
        child = await ChildProcess.start(command, env=env)
    except OSError as error:
        raise TransportError(f"{command[0]} could not be started: {error.strerror}.") from None
    channel = _ChildChannel(child, max_frame_bytes)
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
        said = "\n".join(line.rstrip() for line in child.stderr_tail.splitlines()[-_LINES_SHOWN:])
        raise TransportError(f"The server process {problem}." + (f" It said:\n{said}" if said else ""))
    return channel


class _ChildChannel(StdioChannel):
    """A channel over the pipes of a child, which it stops when it is closed."""

    def __init__(self, child: ChildProcess, max_frame_bytes: int) -> None:
        super().__init__(*child.take_pipes(), max_frame_bytes=max_frame_bytes)
        self._child = child
        self._stop_once = RunOnce(self._stop, "makai-stdio-child-close")

    async def close(self, reason: str = "") -> None:
        await self._stop_once()

    async def _stop(self) -> None:
        await super().close()  # the end of its input tells a stdio server to end
        await self._child.stop(grace_s=EXIT_GRACE_S, term_grace_s=EXIT_GRACE_S)

    async def problem_with_ready(self) -> str | None:
        """What is wrong with the child's first line, if anything."""
        frame = await self.receive()
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
