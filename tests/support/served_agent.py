"""A driven agent without its process: the files and terminals that makai serves to it, in a real session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from makai.agent.workbench import Workbench, WorkbenchSpec
from makai.core import session_events as ev
from makai.harness.acp.files import AgentFiles
from makai.harness.acp.served_calls import ServedCalls
from makai.harness.acp.terminals import AgentTerminals
from makai.harness.base import RunPort, RunStart, Settlement
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession
from makai.wire.acp.client_calls import (
    CreateTerminalRequest,
    ReadTextFileRequest,
    TerminalExit,
    TerminalOutput,
    TerminalRequest,
    WriteTextFileRequest,
)
from makai.wire.acp.common import NameValue
from makai.wire.json_rpc_errors import RpcError
from support.live_sessions import Desk, owned_sessions


class ServedAgent:
    """A harness whose run does nothing by itself: the test plays the agent."""

    id = "served"
    capabilities = ev.HarnessCapabilities(has_turns=False, needs_model=False, own_approvals=True)

    def __init__(self, home: Path, sandbox: ev.SandboxLevel) -> None:
        self._home = home
        self._sandbox = sandbox
        self.ready = asyncio.Event()
        self.finished = asyncio.Event()

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> None:
        pass

    async def forget(self, session_id: str) -> None:
        pass

    async def run(self, port: RunPort, start: RunStart) -> Settlement:
        spec = WorkbenchSpec(
            session_id=port.session_id,
            cwd=port.session.cwd or "",
            makai_home=self._home,
            sandbox=self._sandbox,
            environ={"PATH": os.environ["PATH"], "HOME": str(self._home.parent)},
        )
        async with Workbench(spec) as bench:
            self.calls = ServedCalls(bench.rules(), bench.looking)
            self.calls.begin(port, bench.rules())
            self.files = AgentFiles(bench.files, self.calls)
            self.terminals = AgentTerminals(bench.shell_tool(), self.calls)
            self.ready.set()
            try:
                await self.finished.wait()
            finally:
                await self.terminals.close()
        return ev.RunFinished(stop_reason="end_turn")


class Served:
    """What the agent asks of makai, and the person who watches."""

    def __init__(self, agent: ServedAgent, desk: Desk, folder: Path) -> None:
        self.agent = agent
        self.desk = desk
        self.folder = folder

    async def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        request = ReadTextFileRequest(session_id="s", path=self._absolute(path), line=line, limit=limit)
        return (await self.agent.files.read_text_file(request)).content

    async def write(self, path: str, content: str) -> None:
        request = WriteTextFileRequest(session_id="s", path=self._absolute(path), content=content)
        await self.agent.files.write_text_file(request)

    async def start(
        self,
        command: str,
        *args: str,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
    ) -> str:
        variables = tuple(NameValue(name=name, value=value) for name, value in (env or {}).items())
        request = CreateTerminalRequest(
            session_id="s", command=command, args=args, env=variables, cwd=cwd, output_byte_limit=output_byte_limit
        )
        return (await self.agent.terminals.create(request)).terminal_id

    async def output(self, terminal_id: str) -> TerminalOutput:
        return await self.agent.terminals.output(TerminalRequest(session_id="s", terminal_id=terminal_id))

    async def wait(self, terminal_id: str) -> TerminalExit:
        async with asyncio.timeout(30):
            return await self.agent.terminals.wait_for_exit(TerminalRequest(session_id="s", terminal_id=terminal_id))

    async def kill(self, terminal_id: str) -> None:
        await self.agent.terminals.kill(TerminalRequest(session_id="s", terminal_id=terminal_id))

    async def release(self, terminal_id: str) -> None:
        await self.agent.terminals.release(TerminalRequest(session_id="s", terminal_id=terminal_id))

    async def result_of(self, *words: str) -> tuple[str, TerminalExit]:
        """The output and the exit status of a command."""
        terminal_id = await self.start(*words)
        status = await self.wait(terminal_id)
        return (await self.output(terminal_id)).output, status

    def _absolute(self, path: str) -> str:
        return path if path.startswith(("/", "./")) else str(self.folder / path)


@asynccontextmanager
async def served_agent(
    folder: Path,
    mode: ev.PermissionMode = "ask",
    *,
    permissions: str = "",
    sandbox: ev.SandboxLevel = "workspace-write",
) -> AsyncIterator[Served]:
    """An agent in a run that lasts as long as the block. `permissions` are lines of `[permissions]`."""
    home, project = folder / "makai-home", folder / "project"
    home.mkdir()
    project.mkdir(exist_ok=True)
    if permissions:
        (home / "config.toml").write_text(f"[permissions]\n{permissions}\n")
    agent = ServedAgent(home, sandbox)
    async with owned_sessions(folder, "say: Hi", MemoryLog(), harnesses=[agent]) as sessions:
        wanted = CreateSession(model_ref="", harness="served", cwd=str(project), mode=mode)
        desk = Desk(sessions, await sessions.dispatch(wanted))
        await desk.send("go")
        async with asyncio.timeout(30):
            await agent.ready.wait()
        yield Served(agent, desk, project)
        agent.finished.set()
        await desk.until_settled()


@contextmanager
def rpc_refused(code: int, match: str) -> Iterator[None]:
    with pytest.raises(RpcError, match=match) as caught:
        yield
    assert caught.value.rpc_code == code
