"""A scripted Claude Code, as a program of its own or for a transport in memory.

Each line of a prompt is a step: `say TEXT`, `think TEXT`, `call ID NAME JSON` (a tool without a question), `ask ID NAME
JSON`, `raw LINE`, `result JSON` (instead of the usual one), `junk N`, `wait` (for an interrupt), `deaf` (ignores it),
`queue` (for further input), `withdraw` (the next question), `stderr TEXT`, `env`, `argv`, `half`, `die N`, `huge N`.
Run as a program, it takes the settings as JSON in its first argument.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

SESSION = "11111111-1111-4111-8111-111111111111"
VERSION = "2.1.325 (Claude Code)"


class ClaudeSettings(msgspec.Struct, kw_only=True):
    version: str = VERSION
    states: bool = True
    """Whether it says when it is idle."""
    lifecycle: bool = True
    """Whether it says what becomes of input."""
    known: tuple[str, ...] = ()
    """Sessions that it finds again."""
    lines: tuple[str, ...] | None = None
    """What the first prompt is answered with, before it ends: nothing else then."""
    start: tuple[str, ...] = ()
    """Lines before it has read anything."""
    dies_at_once: bool = False
    silent: bool = False
    """Whether it leaves control requests unanswered."""


class ScriptedClaude:
    def __init__(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        settings: ClaudeSettings,
        write: Callable[[bytes], None],
        say_error: Callable[[str], None],
        exit: Callable[[int], None],
    ) -> None:
        self.argv, self.env = list(argv), env
        self.heard: list[Any] = []
        """Every line that it was sent."""
        self._settings, self._say_error, self._exit = settings, say_error, exit
        self._write_bytes = write
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._inputs: asyncio.Queue[Any] = asyncio.Queue()
        self._interrupted = asyncio.Event()
        self._queued = asyncio.Event()
        self._result: dict[str, Any] = {}
        self._cost = 0.0
        self._count = 0
        self._withdraws = False
        options = dict(word.split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        self.session_id = options.get("--resume") or options.get("--session-id") or SESSION
        self._is_unknown = "--resume" in options and options["--resume"] not in settings.known
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        if "--version" in self.argv:
            self._write_bytes(self._settings.version.encode() + b"\n")
            self._exit(0)
        elif self._settings.dies_at_once:
            self._say_error("it broke\n")
            self._exit(3)
        elif self._is_unknown:
            words = f"No conversation found with session ID: {self.session_id}"
            self._say_error(words + "\n")
            self.write(type="result", subtype="error_during_execution", is_error=True, errors=[words])
            self._exit(1)
        else:
            for line in self._settings.start:
                self._write_bytes(line.encode() + b"\n")
            self._spawn(self._run())

    def receive(self, data: bytes) -> None:
        for line in data.splitlines():
            message = json.loads(line)
            self.heard.append(message)
            match message["type"]:
                case "user":
                    self._state(message["uuid"], "queued")
                    self._inputs.put_nowait(message)
                    self._queued.set()
                case "control_response":
                    answer = message["response"]
                    self._answers.pop(answer["request_id"]).set_result(answer)
                case "control_request" if not self._settings.silent:
                    self._control(message["request_id"], message["request"])

    def write(self, **line: Any) -> None:
        self._write_bytes(json.dumps({"session_id": self.session_id, **line}).encode() + b"\n")

    def _control(self, request_id: str, request: Any) -> None:
        response: Any = {}
        match request["subtype"]:
            case "initialize":
                response = {
                    "commands": [{"name": "compact", "description": "Sum up"}],
                    "models": [{"value": "default", "displayName": "Default"}, {"value": "haiku"}],
                    "current_permission_mode": "default",
                }
            case "interrupt":
                self._interrupted.set()
            case "set_permission_mode" if request["mode"] == "bad":
                error = {"subtype": "error", "request_id": request_id, "error": "no such mode"}
                self.write(type="control_response", response=error)
                return
        answer = {"subtype": "success", "request_id": request_id, "response": response}
        self.write(type="control_response", response=answer)

    async def _run(self) -> None:
        while True:
            message = await self._inputs.get()
            if self._settings.lines is not None:
                for line in self._settings.lines:
                    self._write_bytes(line.encode("utf-8", "surrogateescape") + b"\n")
                self._exit(0)
                return
            self._idle("running")
            while message is not None:
                await self._turn(message)
                message = None if self._inputs.empty() else self._inputs.get_nowait()
            self._idle("idle")

    async def _turn(self, message: Any) -> None:
        content = message["message"]["content"]
        # The steps are the last text: one before it is what was said in the session before.
        words = content if isinstance(content, str) else [one["text"] for one in content if "text" in one][-1]
        self._state(message["uuid"], "started")
        self.write(type="system", subtype="init", permissionMode="default", mcp_servers=[])
        self._result, is_interrupted = {}, False
        self._interrupted.clear()
        for step in words.splitlines():
            name, _, rest = step.partition(" ")
            await self._steps()[name](rest)
            if is_interrupted := self._interrupted.is_set():
                break
        self._cost += 0.25
        usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 2}
        ending = {"subtype": "success", "is_error": False, "stop_reason": "end_turn"}
        if is_interrupted:
            ending = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"}
        models = {"m": {"contextWindow": 1000, "costUSD": 0.25}}
        costs = {"total_cost_usd": self._cost, "modelUsage": models, "model_usage_since_last_result": models}
        self.write(**{"type": "result", "usage": usage, **costs, **ending, **self._result})
        self._state(message["uuid"], "completed")

    def _steps(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "say": self._say, "think": self._think, "call": self._call, "ask": self._ask, "raw": self._raw,
            "result": self._set_result, "junk": self._junk, "wait": self._wait, "deaf": self._deaf,
            "queue": self._queue, "withdraw": self._withdraw, "stderr": self._stderr, "env": self._env,
            "argv": self._argv, "half": self._half, "die": self._die, "huge": self._huge,
        }  # fmt: skip

    async def _say(self, text: str) -> None:
        self._text("text", text)

    async def _think(self, text: str) -> None:
        self._text("thinking", text)

    def _text(self, kind: str, text: str) -> None:
        """As the program does it: in pieces, then whole."""
        self._count += 1
        message_id = f"msg_{self._count}"
        self._event(type="message_start", message={"id": message_id})
        self._event(type="content_block_start", index=0, content_block={"type": kind, kind: ""})
        for piece in (text[:2], text[2:]):
            self._event(type="content_block_delta", index=0, delta={"type": f"{kind}_delta", kind: piece})
        block = {"type": kind, kind: text}
        self.write(type="assistant", message={"id": message_id, "content": [block], "usage": {"input_tokens": 7}})
        self._event(type="content_block_stop", index=0)
        self._event(type="message_stop")

    def _event(self, **event: Any) -> None:
        self.write(type="stream_event", event=event, parent_tool_use_id=None)

    async def _call(self, rest: str, *, result: str = "ran", is_error: bool = False) -> None:
        call_id, name, arguments = rest.split(" ", 2)
        block = {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
        self.write(type="assistant", message={"id": f"msg_{call_id}", "content": [block]})
        self._finish(call_id, result, is_error=is_error)

    def _finish(self, call_id: str, result: str, *, is_error: bool) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": result, "is_error": is_error}
        self.write(type="user", message={"role": "user", "content": [block]})

    async def _ask(self, rest: str) -> None:
        call_id, name, text = rest.split(" ", 2)
        arguments = json.loads(text)
        block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        self.write(type="assistant", message={"id": f"msg_{call_id}", "content": [block]})
        rule = {"toolName": name, "ruleContent": "x"}
        suggestions = [
            {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"},
            {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
        ]
        request = {
            "subtype": "can_use_tool", "tool_name": name, "input": arguments, "tool_use_id": call_id,
            "permission_suggestions": suggestions,
        }  # fmt: skip
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[f"ask-{call_id}"] = answer
        self.write(type="control_request", request_id=f"ask-{call_id}", request=request)
        if self._withdraws:
            self.write(type="control_cancel_request", request_id=f"ask-{call_id}")
            self._finish(call_id, "withdrawn", is_error=True)
            return
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        await asyncio.wait({answer, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if answer.done():
            given = answer.result()["response"]
            if given.get("interrupt"):
                self._interrupted.set()
            self._finish(call_id, json.dumps(given), is_error=given.get("behavior") != "allow")

    async def _raw(self, line: str) -> None:
        self._write_bytes(line.encode() + b"\n")

    async def _set_result(self, text: str) -> None:
        self._result = json.loads(text)

    async def _junk(self, number: str) -> None:
        for count in range(int(number)):
            self._write_bytes(b"some prose, line %d\n" % count)

    async def _wait(self, rest: str) -> None:
        await self._interrupted.wait()

    async def _deaf(self, rest: str) -> None:
        await asyncio.Event().wait()

    async def _queue(self, rest: str) -> None:
        self._queued.clear()
        await self._queued.wait()

    async def _withdraw(self, rest: str) -> None:
        self._withdraws = True

    async def _stderr(self, text: str) -> None:
        self._say_error(text + "\n")

    async def _env(self, rest: str) -> None:
        self._text("text", json.dumps(self.env))

    async def _argv(self, rest: str) -> None:
        self._text("text", json.dumps(self.argv))

    async def _half(self, rest: str) -> None:
        self._write_bytes(b'{"type":"result","subtype":"succ')
        self._exit(0)
        await asyncio.Event().wait()

    async def _die(self, code: str) -> None:
        self._say_error("last words\n")
        self._exit(int(code))
        await asyncio.Event().wait()

    async def _huge(self, number: str) -> None:
        self._write_bytes(b'{"type":"assistant","message":{"content":"' + b"x" * int(number) + b'"}}\n')

    def _idle(self, state: str) -> None:
        if self._settings.states:
            self.write(type="system", subtype="session_state_changed", state=state)

    def _state(self, uuid: str, state: str) -> None:
        if self._settings.lifecycle:
            self.write(type="command_lifecycle", command_uuid=uuid, state=state)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


async def _serve(settings: ClaudeSettings) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def say_error(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    program = ScriptedClaude(sys.argv[2:], dict(os.environ), settings, write, say_error, os._exit)
    program.begin()
    while line := await reader.readline():
        program.receive(line)


if __name__ == "__main__":
    asyncio.run(_serve(msgspec.json.decode(sys.argv[1], type=ClaudeSettings)))
