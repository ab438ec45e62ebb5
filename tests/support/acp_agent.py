"""A scripted agent that speaks the Agent Client Protocol, well or badly: in memory, or as a program of its own.

Each line of a prompt is a step: `say Hello`, `think Hm`, `tool ID KIND`, `ask ID KIND` (several with ` + `
between them), `update JSON`, `call METHOD JSON`, `echo`, `junk N`, `raw LINE`, `stderr N`, `wait` (for session/cancel),
`stuck` (ignores it), `steer`, `spawn` (a child), `env`, `die N`, `late TEXT` (after the answer), `stop REASON`, `fail
CODE MESSAGE` (may end with ` data=JSON`). Settings say what it offers and how it misbehaves before the first prompt.
Run as a program, it takes the settings as JSON in its first argument.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from makai.aio.child_process import OversizedLine
from makai.aio.json_rpc_calls import JsonRpcCalls
from makai.core.errors import ChannelClosed
from makai.wire.json_rpc_errors import RpcError

AGENT_COMMAND = f"acp:{shlex.join([sys.executable, '-P', __file__])}"
"""The id of the harness that starts it as a program."""
OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
]


TRANSCRIPT = "This is the transcript of the conversation so far"
"""How a prompt begins that tells what was said before; its steps were done already."""


class Settings(msgspec.Struct, kw_only=True):
    version: int = 1
    offers: dict[str, Any] = {}
    """agentCapabilities."""
    session: dict[str, Any] = {}
    """Further members of the answer to session/new, load and resume."""
    set_answer: Any = {}
    """The answer to session/set_mode, set_model and set_config_option."""
    steers: bool = False
    login: str = ""
    """The login method that is needed before there are sessions."""
    silent: tuple[str, ...] = ()
    """Methods that are never answered."""
    early: list[dict[str, Any]] = []
    """Updates before the answer to session/new."""
    replay: list[dict[str, Any]] = []
    """Updates before the answer to session/load."""
    junk: int = 0
    """Lines on standard output before the first message."""
    memory: str = ""
    """A file with the ids of the sessions that it knows."""


class ScriptedAcpAgent:
    """`aio.json_rpc_calls.RpcHandler` for the agent's side."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        settings: Settings,
        *,
        say_error: Callable[[str], None] = lambda text: None,
        exit: Callable[[int], None] = lambda code: None,
    ) -> None:
        self.calls = JsonRpcCalls(write, self)
        self.heard: list[tuple[str, Any]] = []
        """Every request and notification of the client."""
        self.chosen: list[str] = []
        """The answer to each of its questions: an option, or "cancelled"."""
        self._write = write
        self._settings = settings
        self._say_error = say_error
        self._exit = exit
        self._is_logged_in = not settings.login
        self._cancelled = asyncio.Event()
        self._steered: asyncio.Queue[str] = asyncio.Queue()
        self._late: list[str] = []
        self._session_id = ""

    def begin(self) -> None:
        for number in range(self._settings.junk):
            self._write(f"starting up, line {number}\n".encode())

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
        given = json.loads(bytes(params or b"{}"))
        self.heard.append((method, given))
        if method in self._settings.silent:
            await asyncio.Event().wait()
        handler = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._load,
            "session/prompt": self._prompt,
            "session/set_mode": self._set,
            "session/set_model": self._set,
            "session/set_config_option": self._set,
            "_session/steering": self._steer,
        }.get(method)
        if handler is None:
            raise RpcError(-32601, f"no {method}")
        return await handler(given)

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        self.heard.append((method, json.loads(bytes(params or b"{}"))))
        if method == "session/cancel":
            self._cancelled.set()

    async def _initialize(self, given: Any) -> Any:
        methods = [{"id": self._settings.login, "name": "Key"}] if self._settings.login else []
        return {
            "protocolVersion": self._settings.version,
            "agentCapabilities": self._settings.offers,
            "agentInfo": {"name": "scripted", "version": "7"},
            "authMethods": methods,
            "_meta": {"steering": {"supported": self._settings.steers}},
        }

    async def _authenticate(self, given: Any) -> Any:
        self._is_logged_in = given["methodId"] == self._settings.login
        return {}

    async def _new(self, given: Any) -> Any:
        if not self._is_logged_in:
            raise RpcError(-32000, "API key is missing")
        self._session_id = f"own-{os.urandom(4).hex()}"
        self._remember(self._session_id)
        for update in self._settings.early:
            self._update(update)
        return {"sessionId": self._session_id, **self._settings.session}

    async def _load(self, given: Any) -> Any:
        if given["sessionId"] not in self._remember():
            raise RpcError(-32002, "session not found")
        self._session_id = given["sessionId"]
        for update in self._settings.replay:
            self._update(update)
        return self._settings.session or None

    def _remember(self, *session_ids: str) -> list[str]:
        """Add to what is known after a restart; all of it."""
        memory = Path(self._settings.memory)
        if not memory.name or memory.parent == Path("/"):
            return []
        known = [*(memory.read_text(encoding="utf-8").split() if memory.exists() else ()), *session_ids]
        memory.write_text("\n".join(known), encoding="utf-8")
        return known

    async def _set(self, given: Any) -> Any:
        return self._settings.set_answer

    async def _steer(self, given: Any) -> Any:
        self._steered.put_nowait(given["prompt"][0]["text"])
        return {"outcome": "injected"}

    async def _prompt(self, given: Any) -> Any:
        self._cancelled.clear()
        blocks = given["prompt"][1 if given["prompt"][0].get("text", "").startswith(TRANSCRIPT) else 0 :]
        steps = [step for block in blocks for step in block.get("text", "").splitlines() if step]
        answer: dict[str, Any] = {"stopReason": "end_turn"}
        for step in steps:
            word, _, rest = step.partition(" ")
            if word == "echo":
                self._say(json.dumps(given["prompt"], sort_keys=True))
                break
            if word == "stop":
                answer["stopReason"] = rest
            elif word == "usage":
                answer["usage"] = json.loads(rest)
            elif await self._step(word, rest):
                return {"stopReason": "cancelled"}
        asyncio.get_running_loop().call_soon(self._say_late)
        return answer

    async def _step(self, word: str, rest: str) -> bool:  # noqa: C901
        """Do one step; whether the prompt was cancelled meanwhile."""
        match word:
            case "say":
                self._say(rest)
            case "think":
                self._update({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": rest}})
            case "update":
                self._update(json.loads(rest))
            case "tool":
                self._tool(*rest.split())
            case "ask":
                asking = [self._ask(*question.split()) for question in rest.split(" + ")]
                return any(await asyncio.gather(*asking))
            case "call":
                method, _, params = rest.partition(" ")
                await self._call(method, json.loads(params))
            case "junk":
                for number in range(int(rest)):
                    self._write(f"progress {number}\n".encode())
            case "raw":
                self._write(rest.encode() + b"\n")
            case "stderr":
                self._say_error("x" * int(rest) + "\nlast words\n")
            case "late":
                self._late.append(rest)
            case "steer":
                self._say(f"steered: {await self._steered.get()}")
            case "wait":
                await self._cancelled.wait()
                return True
            case "stuck":
                await asyncio.Event().wait()
            case "die":
                self._say_error("it broke\n")
                self._exit(int(rest))
                await asyncio.Event().wait()
            case "fail":
                said, _, data = rest.partition(" data=")
                code, _, message = said.partition(" ")
                raise RpcError(int(code), message, json.loads(data) if data else None)
            case "spawn":  # a child in a group of its own, which ignores the end of its input
                argv = [sys.executable, "-c", "import time; time.sleep(600)", self._settings.memory]
                await asyncio.create_subprocess_exec(*argv, start_new_session=True)
            case "env":
                self._say(json.dumps(sorted(os.environ)))
            case _:
                self._say(f"{word} {rest}".strip())
        return False

    def _tool(self, call_id: str, kind: str = "read") -> None:
        self._update({"sessionUpdate": "tool_call", "toolCallId": call_id, "title": f"Do {call_id}", "kind": kind})
        for status in ("in_progress", "completed"):
            content = [{"type": "content", "content": {"type": "text", "text": f"{call_id} done"}}]
            said = {"toolCallId": call_id, "status": status, "rawInput": {"id": call_id}}
            self._update({"sessionUpdate": "tool_call_update", **said, "content": content})

    async def _ask(self, call_id: str, kind: str = "execute", path: str = "") -> bool:
        call: dict[str, Any] = {"toolCallId": call_id, "title": f"Do {call_id}", "kind": kind}
        call |= {"rawInput": {"command": call_id}, "status": "pending"}
        if path:
            call["content"] = [{"type": "diff", "path": path, "oldText": "a\n", "newText": "b\n"}]
        self._update({"sessionUpdate": "tool_call", **call})
        params = {"sessionId": self._session_id, "toolCall": call, "options": OPTIONS}
        outcome = json.loads(bytes(await self.calls.request("session/request_permission", params)))["outcome"]
        chosen = outcome.get("optionId", outcome["outcome"])
        self.chosen.append(chosen)
        is_allowed = chosen in ("yes", "always")
        status = "completed" if is_allowed else "failed"
        self._update({"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status})
        self._say(f"chose {chosen}")
        return bool(chosen == "cancelled" and self._cancelled.is_set())

    async def _call(self, method: str, params: dict[str, Any]) -> None:
        try:
            result = await self.calls.request(method, {"sessionId": self._session_id, **params})
            self._say(json.dumps(json.loads(bytes(result)), sort_keys=True))
        except RpcError as error:
            self._say(f"{error.rpc_code} {error.message}")

    def _say(self, text: str) -> None:
        self._update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})

    def _say_late(self) -> None:
        late, self._late = self._late, []
        for text in late:
            self._update({"sessionUpdate": "session_info_update", "title": text})

    def _update(self, update: dict[str, Any]) -> None:
        self.calls.notify("session/update", {"sessionId": self._session_id, "update": update})


class MemoryTransport:
    """`harness.acp.connection.AgentTransport` with an agent in this process at its other end."""

    def __init__(self, settings: Settings) -> None:
        self.exit_code: int | None = None
        self.stderr_tail = ""
        self.stopped = False
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.agent = ScriptedAcpAgent(self._lines.put_nowait, settings, say_error=self._say_error, exit=self._ended)
        self.agent.begin()

    async def lines(self, max_bytes: int) -> AsyncIterator[bytes | OversizedLine]:
        while (line := await self._lines.get()) is not None:
            if len(line) > max_bytes:
                yield OversizedLine(len(line), line[:100], line[-100:])
            else:
                yield line.rstrip(b"\n")

    def note(self, line: bytes) -> None:
        self._say_error(line.decode("utf-8", "replace") + "\n")

    async def write(self, data: bytes) -> None:
        if self.exit_code is not None:
            raise ChannelClosed("It has ended.")
        self.agent.calls.receive(data)

    async def wait_for_errors(self, seconds: float) -> None:
        pass

    async def stop(self, *, grace_s: float = 0.0, term_grace_s: float = 0.0) -> int:
        self.stopped = True
        self._ended(0)
        await self.agent.calls.close()
        return self.exit_code or 0

    def _say_error(self, text: str) -> None:
        self.stderr_tail = (self.stderr_tail + text)[-8192:]

    def _ended(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code
            self._lines.put_nowait(None)


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    def write(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    def say_error(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    agent = ScriptedAcpAgent(write, settings, say_error=say_error, exit=os._exit)
    agent.begin()
    while line := await reader.readline():
        agent.calls.receive(line)
    await agent.calls.close()


if __name__ == "__main__":
    asyncio.run(_serve(msgspec.json.decode(sys.argv[1] if len(sys.argv) > 1 else "{}", type=Settings)))
