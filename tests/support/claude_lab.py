"""Sessions that run a scripted Claude Code, in memory, and recorded lines of the real one."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from makai.aio.child_process import OversizedLine
from makai.aio.tasks import BackgroundTasks
from makai.core import session_events as ev
from makai.core.errors import ChannelClosed
from makai.harness.acp.connection import AgentTransport
from makai.harness.acp.driver import AcpAgents
from makai.harness.base import ToolAnswer, ToolRequest
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession
from makai.wire.acp import client_calls, updates
from support import scripted_claude
from support.fixtures import FIXTURES
from support.live_sessions import Desk, owned_sessions
from support.scripted_claude import ClaudeSettings, ScriptedClaude


class MemoryClaude:
    """`harness.acp.connection.AgentTransport` with the program in this process at its other end."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], settings: ClaudeSettings) -> None:
        self.exit_code: int | None = None
        self.stderr_tail = ""
        self.stopped = False
        self._rest = b""
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.program = ScriptedClaude(argv, env, settings, self._write, self._say_error, self._ended)
        self.program.begin()

    def _write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line)

    async def lines(self, max_bytes: int) -> AsyncIterator[bytes | OversizedLine]:
        while (line := await self._lines.get()) is not None:
            if line:
                yield OversizedLine(len(line), line[:100], line[-100:]) if len(line) > max_bytes else line

    def note(self, line: bytes) -> None:
        self._say_error(line.decode("utf-8", "replace") + "\n")

    async def write(self, data: bytes) -> None:
        if self.exit_code is not None:
            raise ChannelClosed("It has ended.")
        self.program.receive(data)

    async def wait_for_errors(self, seconds: float) -> None:
        pass

    async def stop(self, *, grace_s: float = 0.0, term_grace_s: float = 0.0) -> int:
        self.stopped = True
        self._ended(0)
        self.program.stop()
        return self.exit_code or 0

    def _say_error(self, text: str) -> None:
        self.stderr_tail = (self.stderr_tail + text)[-8192:]

    def _ended(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code
            self._lines.put_nowait(None)


class SilentClient:
    """`peer.AgentClient` that rejects everything it is asked."""

    def __init__(self) -> None:
        self.updates: list[updates.SessionUpdate] = []

    def on_process(self, process: AgentTransport) -> None:
        pass

    def on_session_update(self, session_id: str, update: updates.SessionUpdate) -> None:
        self.updates.append(update)

    async def on_permission(
        self, request: client_calls.RequestPermissionRequest
    ) -> client_calls.RequestPermissionResponse:
        outcome = client_calls.SelectedOutcome(option_id=request.options[-1].option_id)
        return client_calls.RequestPermissionResponse(outcome=outcome)

    async def room(self) -> None:
        pass


def recorded(name: str) -> list[bytes]:
    """The lines that the real program wrote, of one capture."""
    found: list[bytes] = []
    for line in (FIXTURES / "claude" / f"{name}.jsonl").read_bytes().splitlines():
        message = json.loads(line)
        if "dir" not in message:
            found.append(line)
        elif message["dir"] == "out":
            found.append(json.dumps(message["msg"], separators=(",", ":"), ensure_ascii=False).encode())
    return found


CAPTURES = sorted(path.stem for path in (FIXTURES / "claude").glob("*.jsonl"))


class ClaudeLab:
    """The program, a log, and sessions over both that can be closed and opened again."""

    def __init__(self, folder: Path, environ: dict[str, str] | None = None, **settings: Any) -> None:
        self.folder = folder
        self.settings = ClaudeSettings(**settings)
        self.log = MemoryLog()
        self.processes: list[MemoryClaude] = []
        """Every process but those that only said their version, the newest last."""
        self.work, self._home, programs = folder / "work", folder / "makai-home", folder / "bin"
        for made in (self.work, self._home, programs):
            made.mkdir(exist_ok=True)
        (programs / "claude").write_text("#!/bin/sh\n")
        (programs / "claude").chmod(0o755)
        self._environ = {"PATH": f"{programs}:/usr/bin:/bin", **(environ or {})}

    async def _start(self, argv: Sequence[str], env: dict[str, str], cwd: str) -> MemoryClaude:
        process = MemoryClaude(argv, env, self.settings)
        self.processes += [] if "--version" in argv else [process]
        return process

    @property
    def heard(self) -> list[Any]:
        """The lines that all processes were sent."""
        return [line for process in self.processes for line in process.program.heard]

    def controls(self, subtype: str) -> list[Any]:
        requests = (line["request"] for line in self.heard if line["type"] == "control_request")
        return [request for request in requests if request["subtype"] == subtype]

    @asynccontextmanager
    async def session(
        self, *, mode: ev.PermissionMode = "ask", terms: ev.SessionTerms | None = None, model: str = ""
    ) -> AsyncIterator[tuple[OwnedSessions, Desk]]:
        tasks = BackgroundTasks()
        benches = WorkbenchPool(self._home, tasks, _untrusted, _without_client)
        agents = AcpAgents(self._home, tasks, benches, environ=self._environ, start=self._start)
        try:
            harnesses = [agents.get("claude-code")]
            async with owned_sessions(self.folder, "say: Hi", self.log, harnesses=harnesses) as sessions:
                wanted = CreateSession(
                    model_ref=model,
                    harness="claude-code",
                    cwd=str(self.work),
                    mode=mode,
                    terms=terms or ev.SessionTerms(),
                )
                yield sessions, Desk(sessions, await sessions.dispatch(wanted))
        finally:
            await tasks.close(10.0)


async def _without_client(request: ToolRequest) -> ToolAnswer | None:
    return None


async def _untrusted(folder: str) -> tuple[bool, dict[str, str]]:
    return False, {}


def claude_program(folder: Path, settings: ClaudeSettings) -> Path:
    """A folder for PATH in which `claude` is this module as a program."""
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-P", scripted_claude.__file__, msgspec.json.encode(settings).decode()]
    (folder / "claude").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    (folder / "claude").chmod(0o755)
    return folder
