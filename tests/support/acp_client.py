"""A client of the Agent Client Protocol that speaks in plain dicts and keeps everything it is told.

`connected` gives one over memory to a server in this process, `child` one to a real `makai acp`. Requests of the agent
are answered by `answers`, or wait in `asked` until the test answers them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core.access import LOCAL, Caller
from makai.server.acp_connection import AcpServer
from makai.sessions.owner import OwnedSessions
from makai.sessions.service import Sessions
from makai.transports.channel import Channel
from makai.transports.memory import memory_pair
from makai.transports.stdio import StdioChannel
from support.acp_schema import FrameChecker, SchemaViolation
from support.live_sessions import SCENARIO_MODEL, scripted_models

JSON: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[JSON], Awaitable[JSON] | JSON]

DEADLINE_S = 60.0
SOURCES = Path(__file__).resolve().parents[2] / "src"


class RpcFailed(Exception):
    """The agent answered with an error."""

    def __init__(self, error: JSON) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class AcpClient:
    """Make it inside a running event loop; `close` ends it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.frames: list[JSON] = []
        """Everything the agent sent, in order; each frame is held to the official schema."""
        self.answers: dict[str, Answer] = {}
        """How requests of the agent are answered, by method."""
        self.asked: list[JSON] = []
        """Requests of the agent that were not answered yet."""
        self._checker = FrameChecker("agent", unstable=True)
        self._violation: SchemaViolation | None = None
        self._ids = count(1)
        self._waiting: dict[object, asyncio.Future[JSON]] = {}
        self._news = asyncio.Event()
        self._ended = False
        self._reader = asyncio.create_task(self._read(), name="acp-client")

    async def _read(self) -> None:
        while isinstance(line := await self.channel.receive(), bytes):
            try:
                frame = self._checker.sent(line)
            except SchemaViolation as violation:
                self._violation = violation
                break
            self.frames.append(frame)
            if "method" not in frame:
                waiting = self._waiting.pop(frame["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
            elif "id" in frame:
                self.asked.append(frame)
                if (answer := self.answers.get(frame["method"])) is not None:
                    result = answer(frame["params"])
                    await self.answer(frame, await result if isinstance(result, Awaitable) else result)
            self._news.set()
        self._ended = True
        self._news.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._violation or EOFError("the agent hung up"))

    async def say(self, *frames: JSON) -> None:
        await self.say_raw(*(msgspec.json.encode({"jsonrpc": "2.0", **frame}) for frame in frames))

    async def say_raw(self, *lines: bytes) -> None:
        for line in lines:
            self._checker.received(line)
        async with asyncio.timeout(DEADLINE_S):
            await self.channel.send(list(lines))

    def begin(self, method: str, params: JSON | None = None) -> asyncio.Task[JSON]:
        """Send a request; its answer is awaited elsewhere."""
        return asyncio.create_task(self.ask(method, params))

    async def ask(self, method: str, params: JSON | None = None, *, request_id: int | str | None = None) -> JSON:
        """The result of a request; raises `RpcFailed`."""
        number = next(self._ids) if request_id is None else request_id
        answer: asyncio.Future[JSON] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        await self.say({"id": number, "method": method, **({} if params is None else {"params": params})})
        async with asyncio.timeout(DEADLINE_S):
            frame = await answer
        if "error" in frame:
            raise RpcFailed(frame["error"])
        result: JSON = frame["result"]
        return result

    async def notify(self, method: str, params: JSON) -> None:
        await self.say({"method": method, "params": params})

    async def answer(self, request: JSON, result: JSON) -> None:
        if request in self.asked:
            self.asked.remove(request)
        await self.say({"id": request["id"], "result": result})

    async def until(self, wanted: Callable[[], Any]) -> Any:
        """Wait until the test of what was received holds; its value."""
        async with asyncio.timeout(DEADLINE_S):
            while not (value := wanted()):
                assert not self._ended, self._violation or "the agent hung up"
                self._news.clear()
                await self._news.wait()
        return value

    async def until_asked(self, method: str) -> JSON:
        """The next request of the agent for a method, which waits for `answer`."""
        found: JSON = await self.until(lambda: next((one for one in self.asked if one["method"] == method), None))
        return found

    async def until_update(self, kind: str, session_id: str | None = None) -> JSON:
        found: JSON = await self.until(lambda: next(iter(self.updates(session_id, kind)), None))
        return found

    def updates(self, session_id: str | None = None, kind: str | None = None) -> list[JSON]:
        """The updates so far, of one session and of one kind."""
        sent = [frame["params"] for frame in self.frames if frame.get("method") == "session/update"]
        return [
            one["update"]
            for one in sent
            if session_id in (None, one["sessionId"]) and kind in (None, one["update"]["sessionUpdate"])
        ]

    def text(self, session_id: str | None = None, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.updates(session_id, kind))

    def has_said(self, text: str) -> bool:
        return self.text() == text

    def notifications(self, method: str) -> list[JSON]:
        return [frame["params"] for frame in self.frames if frame.get("method") == method and "id" not in frame]

    async def initialize(self, capabilities: JSON | None = None, **fields: Any) -> JSON:
        wanted = {"protocolVersion": 1, "clientCapabilities": capabilities or {}, **fields}
        return await self.ask("initialize", wanted)

    async def new_session(self, cwd: Path | str, servers: Sequence[JSON] = (), **fields: Any) -> str:
        made = await self.ask("session/new", {"cwd": str(cwd), "mcpServers": list(servers), **fields})
        session_id: str = made["sessionId"]
        return session_id

    def prompt(self, session_id: str, text: str) -> asyncio.Task[JSON]:
        return self.begin("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]})

    async def run(self, session_id: str, text: str) -> str:
        """Prompt and wait for the end of the turn; its stop reason."""
        return str((await self.prompt(session_id, text))["stopReason"])

    async def close(self) -> None:
        await self.channel.close()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


@asynccontextmanager
async def connected(server: AcpServer, caller: Caller = LOCAL, **sizes: int) -> AsyncIterator[AcpClient]:
    """A client of a server in this process that has said nothing yet."""
    here, there = memory_pair(**sizes)
    serving = asyncio.create_task(server.serve(there, caller))
    client = AcpClient(here)
    try:
        yield client
    finally:
        await client.close()
        async with asyncio.timeout(DEADLINE_S):
            await serving


class Place:
    """Sessions of one MAKAI_HOME with a scripted model, and their ACP server."""

    def __init__(self, sessions: Sessions, server: AcpServer, folder: Path) -> None:
        self.sessions = sessions
        self.server = server
        self.folder = folder
        """Where sessions of tests work."""


@asynccontextmanager
async def acp_place(folder: Path, scenario: str, **options: Any) -> AsyncIterator[Place]:
    home, work = folder / "makai-home", folder / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    async with scripted_models(folder, scenario) as models:
        sessions = await OwnedSessions.open(home, models)

        async def get() -> Sessions:
            return sessions

        try:
            yield Place(sessions, AcpServer(get, models, **{"model": SCENARIO_MODEL, **options}), work)
        finally:
            await sessions.close()


@asynccontextmanager
async def acp_client(folder: Path, scenario: str, capabilities: JSON | None = None) -> AsyncIterator[AcpClient]:
    """A client that has shaken hands with a server whose model follows a script."""
    async with acp_place(folder, scenario) as place, connected(place.server) as client:
        await client.initialize(capabilities)
        yield client


class ChildAgent(AcpClient):
    """A client of a child process."""

    def __init__(self, process: ChildProcess) -> None:
        super().__init__(StdioChannel(*process.take_pipes()))
        self.process = process


@asynccontextmanager
async def child(home: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> AsyncIterator[ChildAgent]:
    """`makai acp` with a home of its own, and nothing of the developer's environment but where Python is."""
    base = {"PATH": os.environ["PATH"], "HOME": str(home), "MAKAI_HOME": str(home / "makai-home")}
    command = [sys.executable, "-m", "makai", "acp", *arguments]
    process = await ChildProcess.start(command, env={**base, "PYTHONPATH": str(SOURCES), **(environ or {})})
    agent = ChildAgent(process)
    try:
        yield agent
    finally:
        await agent.close()
        await process.stop(grace_s=2.0, term_grace_s=2.0)
