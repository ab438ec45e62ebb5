"""Sessions that run a scripted agent over the Agent Client Protocol, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from makai.aio.tasks import BackgroundTasks
from makai.core import session_events as ev
from makai.harness.acp.driver import AcpAgents
from makai.harness.base import ToolAnswer, ToolRequest
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession
from support.acp_agent import MemoryTransport, Settings
from support.live_sessions import Desk, owned_sessions

HARNESS = "acp:scripted"


class AcpLab:
    """An agent, its log, and sessions over both that can be closed and opened again."""

    def __init__(self, folder: Path, environ: dict[str, str] | None = None, **settings: Any) -> None:
        self.folder = folder
        self.settings = Settings(memory=str(folder / "agent-memory"), **settings)
        self.log = MemoryLog()
        self.transports: list[MemoryTransport] = []
        """Every process of the agent, the newest last."""
        self.commands: list[list[str]] = []
        """How each process was started."""
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        self._environ = {"PATH": "/usr/bin:/bin", **(environ or {})}
        home = folder / "makai-home"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(
            '[agents.scripted]\ntitle = "Scripted"\ncommand = ["true"]\nenv = ["KEY"]\nauth.KEY = "key"\n'
        )

    async def _start(self, argv: Sequence[str], env: dict[str, str], cwd: str) -> MemoryTransport:
        self.commands.append(list(argv))
        self.transports.append(MemoryTransport(self.settings))
        return self.transports[-1]

    @property
    def heard(self) -> list[tuple[str, Any]]:
        return self.transports[-1].agent.heard

    def heard_of(self, method: str) -> list[Any]:
        return [params for transport in self.transports for name, params in transport.agent.heard if name == method]

    @asynccontextmanager
    async def open(self, harness: str = HARNESS) -> AsyncIterator[OwnedSessions]:
        tasks, home = BackgroundTasks(), self.folder / "makai-home"
        benches = WorkbenchPool(home, tasks, _untrusted, _without_client)
        agents = AcpAgents(home, tasks, benches, environ=self._environ, start=self._start)
        try:
            harnesses = [agents.get(harness)]
            async with owned_sessions(self.folder, "say: Hi", self.log, harnesses=harnesses) as sessions:
                yield sessions
        finally:
            await tasks.close(10.0)

    @asynccontextmanager
    async def session(
        self,
        *,
        mode: ev.PermissionMode = "ask",
        terms: ev.SessionTerms | None = None,
        harness: str = HARNESS,
        model_ref: str = "",
    ) -> AsyncIterator[tuple[OwnedSessions, Desk]]:
        async with self.open(harness) as sessions:
            wanted = CreateSession(
                model_ref=model_ref, harness=harness, cwd=str(self.work), mode=mode, terms=terms or ev.SessionTerms()
            )
            yield sessions, Desk(sessions, await sessions.dispatch(wanted))


async def _without_client(request: ToolRequest) -> ToolAnswer | None:
    return None


async def _untrusted(folder: str) -> tuple[bool, dict[str, str]]:
    return False, {}
