"""A server inside the caller's own process. Model calls go to its `backend` directly (`model_calls.DirectCalls`);
everything else is the protocol over a channel in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from makai.server.backend import Backend
from makai.server.makai_connection import MakaiServer
from makai.server.session_source import SessionSource
from makai.transports.channel import Channel
from makai.transports.memory import memory_pair


class InProcessServer:
    """The client's end of a memory channel, and the server at its other end, on this event loop."""

    def __init__(self, environ: Mapping[str, str] | None, backend: Backend | None) -> None:
        """A backend that was given stays open; one made here is closed."""
        from makai.providers.runtime import ModelRuntime

        self.backend: Backend = backend if backend is not None else ModelRuntime(environ)
        home = self.backend.home if isinstance(self.backend, ModelRuntime) else None
        self._sessions = SessionSource(self.backend, home, environ=environ)
        self._owns_backend = backend is None
        self._server = MakaiServer(self.backend, sessions=self._sessions.get, settings=self._sessions.settings)
        self._channel, theirs = memory_pair()
        self.max_frame_bytes = self._channel.max_frame_bytes
        self.receive, self.send = self._channel.receive, self._channel.send
        self._serving = asyncio.create_task(self._serve(theirs), name="makai-in-process-server")

    async def close(self, reason: str = "") -> None:
        await self._channel.close(reason)
        await self._serving

    async def _serve(self, channel: Channel) -> None:
        try:
            await self._server.serve(channel)
        finally:
            await self._sessions.close()
            if self._owns_backend:
                await self.backend.close()
