"""The sessions of this MAKAI_HOME, opened on first use and shared by all connections of this process. Nothing of
sessions is imported before: `makai stdio` answers a ping without them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from makai.core.errors import ChannelClosed
from makai.server.backend import Backend

if TYPE_CHECKING:
    from pathlib import Path

    from makai.core.session_events import SandboxLevel
    from makai.sessions.service import Sessions


class SessionSource:
    """`get` is what `MakaiServer` takes as `sessions`. Without a folder it is the user's `MAKAI_HOME`."""

    def __init__(self, backend: Backend, home: Path | None = None, *, durable: bool = False) -> None:
        """A `durable` owner resumes the runs of dead owners at once, others when a session is first used."""
        self._backend = backend
        self._home = home
        self._durable = durable
        self._opening = asyncio.Lock()
        self._sessions: Sessions | None = None
        self._closed = False

    async def get(self) -> Sessions:
        async with self._opening:
            if self._closed:
                raise ChannelClosed("The server is closing.")
            if self._sessions is None:
                self._sessions = await self._open()
            return self._sessions

    def default_sandbox(self) -> SandboxLevel:
        """The user's choice for sessions whose creator names no sandbox."""
        from makai.core.home import home_directory
        from makai.providers.logins import configured_sandbox

        return configured_sandbox(self._home or home_directory(os.environ))

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self._sessions is not None:
                await self._sessions.close()

    async def _open(self) -> Sessions:
        from makai.core.home import home_directory
        from makai.server.session_router import SessionRouter
        from makai.sessions.owner import OwnedSessions

        home = self._home or home_directory(os.environ)

        async def own() -> Sessions:
            return await OwnedSessions.open(home, self._backend, recover_all=self._durable)

        return await SessionRouter.open(home, own)
