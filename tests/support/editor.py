"""A scripted editor: the client side of the Agent Client Protocol as far as tools use it, and ways to connect it.

Text is that of its buffers, else that of the disk. A terminal says what its script says, and ends when it says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from makai.aio.json_rpc_calls import JsonRpcCalls
from makai.core import session_events as ev
from makai.harness.base import RunPort
from makai.harness.client_tools import ToolExecutors
from makai.harness.editor_calls import McpServerValues
from makai.harness.native.editor import RunEditor
from makai.server.acp_client_calls import ClientCalls
from makai.wire.acp.connecting import AcpClientCapabilities, FileSystemCapabilities
from makai.wire.json_rpc_errors import RpcError

EVERYTHING = AcpClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True)
ALL_TERMS = ev.ClientCapabilities(read_files=True, write_files=True, terminals=True)
NOT_FOUND = -32002
WAIT_S = 30.0


class ScriptedTerminal:
    """It has written `output` and ended with `code`; None: it runs until it is killed."""

    def __init__(self, output: str = "", code: int | None = 0) -> None:
        self.output = output
        self.limit = 2**60
        self.status: dict[str, Any] | None = None
        self.ended = asyncio.Event()
        if code is not None:
            self.end(exitCode=code)

    def end(self, **status: Any) -> None:
        if self.status is None:
            self.status = status
            self.ended.set()

    def answer(self) -> dict[str, Any]:
        kept = self.output.encode()[-self.limit :].decode("utf-8", "ignore")
        answer: dict[str, Any] = {"output": kept, "truncated": kept != self.output}
        return answer if self.status is None else {**answer, "exitStatus": self.status}


class ScriptedEditor:
    """The handler of the editor's side of a connection."""

    def __init__(
        self, buffers: Mapping[str, str] | None = None, *, saves: bool = True, terminal: Any = ScriptedTerminal
    ) -> None:
        """`saves`: what is written is also saved. `terminal` makes the next terminal out of nothing."""
        self.buffers = dict(buffers or {})
        self.saves = saves
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        """What is answered instead, by method; it may raise, or return `...` for no answer at all."""
        self.terminals: dict[str, ScriptedTerminal] = {}
        self.released: list[str] = []
        self.cancelled: list[str] = []
        self._terminal = terminal
        self._news = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what holds after some request."""
        async with asyncio.timeout(WAIT_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    def asked(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.requests if name == method]

    @property
    def methods(self) -> list[str]:
        return [name for name, _ in self.requests]

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        pass

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
        given: dict[str, Any] = msgspec.json.decode(params or b"{}")
        self.requests.append((method, given))
        self._news.set()
        try:
            if method in self.answers:
                answer = self.answers[method](given)
                return await asyncio.Event().wait() if answer is ... else answer
            return await self._answer(method, given)
        except asyncio.CancelledError:
            self.cancelled.append(method)
            raise
        finally:
            self._news.set()

    async def _answer(self, method: str, given: dict[str, Any]) -> Any:
        match method:
            case "fs/read_text_file":
                return {"content": self._text(given["path"])}
            case "fs/write_text_file":
                return self._write(given["path"], given["content"])
            case "terminal/create":
                terminal_id = f"term-{len(self.terminals) + 1}"
                terminal = self.terminals[terminal_id] = self._terminal()
                terminal.limit = given.get("outputByteLimit", terminal.limit)
                return {"terminalId": terminal_id}
        terminal = self.terminals[given["terminalId"]]
        if given["terminalId"] in self.released:
            raise RpcError(NOT_FOUND, "no such terminal")
        match method:
            case "terminal/output":
                return terminal.answer()
            case "terminal/wait_for_exit":
                await terminal.ended.wait()
                return terminal.status
            case "terminal/kill":
                terminal.end(signal="SIGKILL")
                return {}
            case "terminal/release":
                terminal.end(signal="SIGKILL")
                self.released.append(given["terminalId"])
                return None
        raise RpcError(-32601, f"no method {method}")

    def _write(self, path: str, text: str) -> dict[str, Any]:
        self.buffers[path] = text
        if self.saves:
            Path(path).write_text(text)
        return {}

    def _text(self, path: str) -> str:
        if path in self.buffers:
            return self.buffers[path]
        if not Path(path).is_file():
            raise RpcError(NOT_FOUND, "Resource not found")
        return Path(path).read_text()


def connected(
    editor: ScriptedEditor,
    offered: AcpClientCapabilities = EVERYTHING,
    *,
    session_id: str = "acp-1",
    mcp_values: Mapping[str, McpServerValues] | None = None,
) -> ClientCalls:
    """Calls of an editor over a connection inside this process; lines arrive one turn of the loop later."""
    loop = asyncio.get_running_loop()

    class Agent:
        async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
            raise RpcError(-32601, method)

        def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
            pass

    ours = JsonRpcCalls(lambda line: cast(None, loop.call_soon(theirs.receive, line)), Agent())
    theirs = JsonRpcCalls(lambda line: cast(None, loop.call_soon(ours.receive, line)), editor)
    return ClientCalls(ours, session_id, offered, mcp_values)


class EditorRun:
    """A run whose session has these editors, the newest last; `facts` are what it logged."""

    def __init__(self, *editors: ClientCalls, client: ev.ClientCapabilities = ALL_TERMS) -> None:
        executors = ToolExecutors()
        self._editors = editors
        self.registrations = [executors.add(editor.execute) for editor in editors]
        self.facts: list[ev.SessionEvent] = []
        session = SimpleNamespace(terms=ev.SessionTerms(client=client))
        port = SimpleNamespace(
            session_id="s1", run_id="r1", session=session, execute=executors.execute, emit=self._emit
        )
        self.editor = RunEditor(cast(RunPort, port))

    async def _emit(self, event: ev.SessionEvent) -> None:
        await asyncio.sleep(0)
        self.facts.append(event)
        if isinstance(event, ev.ToolUpdated) and event.terminal_id is not None:
            for editor in self._editors:
                editor.on_shown(event.terminal_id)
