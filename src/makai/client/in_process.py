"""A server inside the caller's own process: no socket and no child.

Model calls go to its `backend` directly (`model_calls.DirectCalls`); everything else is the protocol over a channel in
memory. The sessions of MAKAI_HOME are opened with the first request about one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from makai.server.backend import Backend
from makai.server.makai_connection import MakaiServer
from makai.server.session_source import SessionSource
from makai.transports.channel import Channel, Oversized
from makai.transports.memory import memory_pair


def start_in_process(environ: Mapping[str, str] | None, backend: Backend | None) -> InProcessServer:
    """Serve one client from this event loop. A backend that was given stays open; one made here is closed."""
    from makai.providers.runtime import ModelRuntime

    if backend is not None:
        home = backend.home if isinstance(backend, ModelRuntime) else None
        return InProcessServer(backend, SessionSource(backend, home), owned=False)
    runtime = ModelRuntime(environ)
    return InProcessServer(runtime, SessionSource(runtime, runtime.home), owned=True)


class InProcessServer:
    """The client's end of a memory channel, and the server at its other end."""

    def __init__(self, backend: Backend, sessions: SessionSource, *, owned: bool) -> None:
        self._channel, theirs = memory_pair()
        self.max_frame_bytes = self._channel.max_frame_bytes
        self.backend = backend
        self._sessions = sessions
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
            await MakaiServer(self.backend, sessions=self._sessions.get).serve(channel)
        finally:
            await self._sessions.close()
            if self._owned:
                await self.backend.close()
