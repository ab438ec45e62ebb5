"""`makai acp` without a process: the agent's side on memory channels, with real sessions and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from makai.server.acp_connection import AcpServer
from makai.server.acp_handshake import BUILTIN_LOGINS
from makai.sessions.log.base import EventLog
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.service import Sessions
from makai.transports.memory import memory_pair
from support.acp_peer import AcpPeer
from support.live_sessions import SCENARIO_MODEL, scripted_models


class AcpHouse:
    def __init__(self, sessions: OwnedSessions, server: AcpServer, group: asyncio.TaskGroup, *, unstable: bool) -> None:
        self.sessions = sessions
        self._server = server
        self._group = group
        self._unstable = unstable

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AcpPeer]:
        """A client that has said nothing yet."""
        ours, theirs = memory_pair()
        serving = self._group.create_task(self._server.serve(theirs))
        try:
            async with AcpPeer(ours, unstable=self._unstable) as peer:
                yield peer
        finally:
            await ours.close()
            await serving


@asynccontextmanager
async def acp_house(
    folder: Path, scenario: str, log: EventLog | None = None, *, unstable: bool = False
) -> AsyncIterator[AcpHouse]:
    """An agent with sessions in memory, or in the log that is given; its model follows the scenario."""
    home = folder / "makai-home"
    home.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(scripted_models(folder, scenario))
        sessions = await OwnedSessions.open(home, models, log=log or MemoryLog())
        stack.push_async_callback(sessions.close)

        async def get() -> Sessions:
            return sessions

        server = AcpServer(get, models, logins=lambda: BUILTIN_LOGINS, unstable=unstable, model=SCENARIO_MODEL)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        yield AcpHouse(sessions, server, group, unstable=unstable)
