"""A server inside the caller's own process: no socket, no child, and the same protocol all the way.

In: a backend, or the environment to make one from. Out: a channel whose peer is that server and which owns it. It must
not know clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from makai.server.backend import Backend
from makai.server.makai_connection import MakaiServer
from makai.transports.channel import Channel, Oversized
from makai.transports.memory import memory_pair


def start_in_process(environ: Mapping[str, str] | None, backend: Backend | None) -> InProcessServer:
    """Serve one client from this event loop. A backend that was given stays open; one made here is closed."""
    if backend is not None:
        return InProcessServer(backend, owned=False)
    from makai.providers.runtime import ModelRuntime

    return InProcessServer(ModelRuntime(environ), owned=True)


class InProcessServer:
    """The client's end of a memory channel, and the server at its other end."""

    def __init__(self, backend: Backend, *, owned: bool) -> None:
        self._channel, theirs = memory_pair()
        self.max_frame_bytes = self._channel.max_frame_bytes
        self._backend = backend
        self._owned = owned
        self._serving = asyncio.create_task(self._serve(theirs), name="makai-in-process-server")

    async def receive(self) -> bytes | Oversized | None:
        return await self._channel.receive()

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._channel.send(frames)

    async def close(self, reason: str = "") -> None:
        await self._channel.close(reason)
        await self._serving

    async def _serve(self, channel: Channel) -> None:
        try:
            await MakaiServer(self._backend).serve(channel)
        finally:
            if self._owned:
                await self._backend.close()
