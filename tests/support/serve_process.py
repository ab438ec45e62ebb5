"""`makai serve` as a process that can be killed and started again over the same MAKAI_HOME."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from makai.providers.scripted import SCENARIO_VARIABLE
from support.cli import NOTHING, SOURCES
from support.live_sessions import SCENARIO_MODEL
from support.minicodex_client import MinicodexClient
from support.serving import connected, http_session

START_S = 60.0
_ADDRESS = re.compile(rb"listening on (http://\S+)")


class ServeProcess:
    def __init__(
        self,
        folder: Path,
        http: aiohttp.ClientSession,
        port: int,
        environ: Mapping[str, str],
        before: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.home = folder / "makai-home"
        self.scenario = folder / "scenario.txt"
        self.url = ""
        self.port = port
        self.http = http
        self._environ = environ
        self._before = before
        self._options = options
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def token(self) -> str:
        return (self.home / "server-token").read_text(encoding="ascii").strip()

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def start(self) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SOURCES),
            "HOME": str(self.folder),
            "MAKAI_HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            SCENARIO_VARIABLE: str(self.scenario),
            **self._environ,
        }
        workplace = self.folder / "work"  # where sessions work that name no folder
        workplace.mkdir(exist_ok=True)
        with (self.folder / "serve.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._before, sys.executable, "-m", "makai", "serve", "--port", str(self.port), *self._options),
                env=environ,
                cwd=workplace,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            while (found := _ADDRESS.search(line := await self._process.stdout.readline())) is None:
                assert line, f"the server ended: {self.said()}"
        self.url = found[1].decode()

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    async def ended(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        await self._process.communicate()

    async def stop(self) -> None:
        """End it in an orderly way, as a service manager does."""
        assert self._process is not None
        self._process.terminate()
        await self._process.communicate()

    def said(self) -> str:
        return (self.folder / "serve.log").read_text(encoding="utf-8", errors="replace")

    async def session(self, cwd: Path, mode: str = "ask") -> str:
        body = {"model_ref": SCENARIO_MODEL, "mode": mode, "cwd": str(cwd)}
        async with self.http.post(f"{self.url}/api/sessions", json=body, headers=dict(self.headers)) as response:
            assert response.status == 201, await response.text()
            return str((await response.json())["session_id"])

    async def connect(self, session_id: str, *capabilities: str) -> MinicodexClient:
        return await connected(self.http, self.url, session_id, *capabilities, headers=self.headers)


@asynccontextmanager
async def serve_process(
    folder: Path, scenario: str, *, port: int = 0, environ: Mapping[str, str] = NOTHING, before: Sequence[str] = ()
) -> AsyncIterator[ServeProcess]:
    """A running server, on any free port unless one is named; at the end it is killed. `before` is a command that
    replaces itself by the server, such as `prlimit`."""
    async with http_session() as http:
        server = ServeProcess(folder, http, port, environ, before)
        server.home.mkdir(mode=0o700, exist_ok=True)
        server.scenario.write_text(scenario, encoding="utf-8")
        await server.start()
        try:
            yield server
        finally:
            await server.kill()
