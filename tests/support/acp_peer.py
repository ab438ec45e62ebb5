"""The client's end of a connection to an ACP agent, for tests about the protocol itself.

It sends whole requests or raw lines, answers requests of the agent by `answers`, keeps every frame in the order in
which it came, and holds each to the schema (`acp_schema`): leaving the peer fails when one broke it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

from makai.providers.scripted import SCENARIO_VARIABLE
from support.acp_schema import JSON, FrameChecker, SchemaViolation
from support.cli import NOTHING, SOURCES
from support.live_sessions import SCENARIO_MODEL

WAIT_S = 60.0
EVERYTHING: JSON = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "auth": {"terminal": True},
    "elicitation": {"form": {}, "url": {}},
    "session": {"compaction": {}, "notices": {}, "configOptions": {"boolean": {}}},
}
"""A client that offers all there is."""
_MAX_LINE_BYTES = 128 * 1024 * 1024

Answer: TypeAlias = Callable[[JSON], Any]
"""The result of a request of the agent, given its parameters; may be a coroutine, may raise `Refusal`."""


class Refusal(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Lines(Protocol):
    """What carries the lines of both sides."""

    async def receive(self) -> Any: ...
    async def send(self, frames: Sequence[bytes]) -> None: ...


class AcpPeer:
    def __init__(self, lines: Lines, *, unstable: bool = False) -> None:
        self.frames: list[JSON] = []
        """Everything the agent sent, in order."""
        self.violations: list[SchemaViolation] = []
        self.answers: dict[str, Answer] = {}
        self.checker = FrameChecker("agent", unstable=unstable)
        self.ended = False
        self._lines = lines
        self._ids = itertools.count(1)
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reader = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        assert self._reader is not None
        for task in (self._reader, *self._tasks):
            task.cancel()
        await asyncio.wait([self._reader, *self._tasks])
        if kind is None:
            assert self.violations == []

    async def send_line(self, line: bytes) -> None:
        self.checker.received(line)
        await self._lines.send([line])

    async def send(self, frame: Mapping[str, Any]) -> None:
        await self.send_line(json.dumps({"jsonrpc": "2.0", **frame}, ensure_ascii=False).encode())

    async def ask(self, method: str, params: JSON | None = None, *, request_id: int | str | None = None) -> int | str:
        """Send a request and do not wait; its id."""
        request_id = f"r{next(self._ids)}" if request_id is None else request_id
        await self.send({"id": request_id, "method": method, "params": {} if params is None else params})
        return request_id

    async def answer_to(self, request_id: int | str) -> JSON:
        """The whole frame that answers a request."""
        return await self.until(lambda frame: "method" not in frame and frame["id"] == request_id)

    async def request(self, method: str, params: JSON | None = None) -> JSON:
        return await self.answer_to(await self.ask(method, params))

    async def call(self, method: str, params: JSON | None = None) -> JSON:
        """The result of a request that must succeed."""
        answer = await self.request(method, params)
        assert "result" in answer, answer
        result: JSON = answer["result"]
        return result

    async def refused(self, method: str, params: JSON | None = None) -> int:
        """The code with which a request is refused; its message is one line for people."""
        answer = await self.request(method, params)
        assert "error" in answer, answer
        message = answer["error"]["message"]
        assert message.strip() == message != ""
        assert "\n" not in message
        return int(answer["error"]["code"])

    async def notify(self, method: str, params: JSON) -> None:
        await self.send({"method": method, "params": params})

    async def until(self, wanted: Callable[[JSON], bool]) -> JSON:
        """The first frame like this, which may have come before."""
        async with asyncio.timeout(WAIT_S), self._news:
            seen = 0
            while True:
                for frame in itertools.islice(self.frames, seen, None):
                    if wanted(frame):
                        return frame
                seen = len(self.frames)
                assert not self.ended, f"the agent is gone; it said {self.frames[-3:]}"
                await self._news.wait()

    async def until_gone(self) -> None:
        """Everything that the agent sent before it went away has been taken."""
        async with asyncio.timeout(WAIT_S), self._news:
            await self._news.wait_for(lambda: self.ended)

    async def until_update(self, kind: str, session_id: str | None = None) -> JSON:
        """The first update of this kind."""
        frame = await self.until(
            lambda frame: (
                frame.get("method") == "session/update"
                and frame["params"]["update"]["sessionUpdate"] == kind
                and session_id in (None, frame["params"]["sessionId"])
            )
        )
        update: JSON = frame["params"]["update"]
        return update

    async def initialize(self, capabilities: JSON | None = None, **params: Any) -> JSON:
        return await self.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities or {}, **params})

    async def new_session(self, cwd: Path, **params: Any) -> JSON:
        return await self.call("session/new", {"cwd": str(cwd), "mcpServers": [], **params})

    async def prompt(self, session_id: str, *content: str | JSON, **params: Any) -> JSON:
        """Everything up to the answer; its result."""
        return await self.call("session/prompt", self.prompt_params(session_id, *content, **params))

    @staticmethod
    def prompt_params(session_id: str, *content: str | JSON, **params: Any) -> JSON:
        blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
        return {"sessionId": session_id, "prompt": blocks, **params}

    def updates(self, session_id: str | None = None, *, after: int = 0, before: int | None = None) -> list[JSON]:
        """The updates so far, of one session or of all, among the frames from `after` to `before`."""
        return [
            frame["params"]["update"]
            for frame in self.frames[after:before]
            if frame.get("method") == "session/update" and session_id in (None, frame["params"]["sessionId"])
        ]

    def called(self) -> set[str]:
        """The methods that the agent called, notifications too."""
        return {frame["method"] for frame in self.frames if "method" in frame}

    def position_of(self, frame: JSON) -> int:
        return next(position for position, each in enumerate(self.frames) if each is frame)

    async def _read(self) -> None:
        while isinstance(line := await self._lines.receive(), bytes):
            try:
                frame: JSON | None = self.checker.sent(line)
            except SchemaViolation as violation:
                self.violations.append(violation)
                frame = _frame_of(line)
            async with self._news:
                if frame is not None:
                    self.frames.append(frame)
                self._news.notify_all()
            if frame is not None and "method" in frame and "id" in frame:
                task = asyncio.get_running_loop().create_task(self._answer(frame))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        async with self._news:
            self.ended = True
            self._news.notify_all()

    async def _answer(self, frame: JSON) -> None:
        answer = self.answers.get(frame["method"])
        try:
            if answer is None:
                raise Refusal(-32601, f"{frame['method']} is not served by this client")
            result = answer(frame["params"])
            outcome = {"result": await result if isinstance(result, Awaitable) else result}
        except Refusal as refusal:
            outcome = {"error": {"code": refusal.code, "message": str(refusal)}}
        await self.send({"id": frame["id"], **outcome})


def _frame_of(line: bytes) -> JSON | None:
    try:
        frame = json.loads(line)
    except ValueError:
        return None
    return frame if isinstance(frame, dict) else None


def choosing(kind: str) -> Answer:
    """A person who always picks the option of this kind; "cancelled" closes the question."""

    def choose(params: JSON) -> JSON:
        if kind == "cancelled":
            return {"outcome": {"outcome": "cancelled"}}
        option = next(option["optionId"] for option in params["options"] if option["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": option}}

    return choose


def text_of(updates: Sequence[JSON], kind: str = "agent_message_chunk") -> str:
    return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)


def chosen_values(options: Sequence[JSON]) -> dict[str, Any]:
    """The current values of configuration options by their ids."""
    return {option["id"]: option["currentValue"] for option in options}


def offered_values(option: JSON) -> Iterator[str]:
    """The values of a select option, in groups or not."""
    for each in option["options"]:
        if "group" in each:
            yield from offered_values(each)
        else:
            yield each["value"]


class AcpProcess:
    """`makai acp` as a child process; its lines are those of its pipes."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self.process = process
        self._errors = errors

    async def receive(self) -> bytes | None:
        assert self.process.stdout is not None
        return await self.process.stdout.readline() or None

    async def send(self, frames: Sequence[bytes]) -> None:
        assert self.process.stdin is not None
        for frame in frames:
            self.process.stdin.write(frame + b"\n")
        await self.process.stdin.drain()

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()

    def said(self) -> str:
        """What it wrote to its standard error."""
        return self._errors.read_text(encoding="utf-8", errors="replace")


def acp_command(*options: str) -> list[str]:
    return [sys.executable, "-m", "makai", "acp", "-m", SCENARIO_MODEL, *options]


def acp_environment(folder: Path, environ: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """The environment of `makai acp` in tests: a home of its own, and the scenario `folder/scenario.txt`."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCES),
        "HOME": str(folder),
        "MAKAI_HOME": str(folder / "makai-home"),
        "LC_ALL": "C.UTF-8",
        SCENARIO_VARIABLE: str(folder / "scenario.txt"),
        **environ,
    }


@asynccontextmanager
async def acp_process(
    folder: Path, scenario: str, *options: str, environ: Mapping[str, str] = NOTHING
) -> AsyncIterator[AcpProcess]:
    """A running `makai acp` on a scripted model. It is killed if the test leaves it running."""
    (folder / "scenario.txt").write_text(scenario, encoding="utf-8")
    (folder / "makai-home").mkdir(mode=0o700, exist_ok=True)
    errors = folder / "acp-stderr.txt"
    with errors.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *acp_command(*options),
            env=acp_environment(folder, environ),
            cwd=folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            limit=_MAX_LINE_BYTES,
        )
    try:
        yield AcpProcess(process, errors)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
