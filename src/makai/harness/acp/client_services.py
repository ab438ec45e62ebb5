"""What makai does for a driven agent beside permissions: files and terminals, from the session's own confined tools.

They are offered where the session has built-in tools (ACP-CLIENT-001), and belong to the session's workbench. When that
was replaced between two runs, so are they.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec

from makai.agent.workbench import Workbench
from makai.core import session_events as ev
from makai.harness.acp.files import AgentFiles
from makai.harness.acp.served_calls import ServedCalls
from makai.harness.acp.terminals import AgentTerminals
from makai.harness.base import RunPort
from makai.wire import json_rpc
from makai.wire.acp import connecting
from makai.wire.acp.common import Empty
from makai.wire.acp.methods import CLIENT_REQUESTS
from makai.wire.json_rpc_errors import RpcError, decoded_params

SESSION_CAPABILITIES: Final = connecting.ClientSessionCapabilities(compaction=Empty(), notices=Empty())
"""What every session of makai understands."""


class ClientServices(Protocol):
    def capabilities(self) -> connecting.AcpClientCapabilities: ...
    async def serve(self, method: str, params: msgspec.Raw | None, session_id: str | None) -> Any:
        """The answer to a request about `session_id`; `RpcError` -32601 for a method that was not declared."""

    async def begin(self, port: RunPort, bench: Workbench | None) -> None:
        """A run starts: what needs a person's consent is asked through its port."""

    def end(self) -> None: ...
    def terminal_text(self, terminal_id: str) -> str:
        """What a terminal has shown so far; empty for one that makai does not run."""

    def approved(self, call: ev.ToolCalled, diffs: tuple[ev.FileDiff, ...]) -> None:
        """A person approved this call when the agent asked for permission."""

    async def close(self) -> None: ...


class NoServices:
    """A client without files and terminals."""

    def capabilities(self) -> connecting.AcpClientCapabilities:
        return connecting.AcpClientCapabilities(session=SESSION_CAPABILITIES)

    async def serve(self, method: str, params: msgspec.Raw | None, session_id: str | None) -> Any:
        raise RpcError(json_rpc.METHOD_NOT_FOUND, f"This client does not offer {method[:100]}.")

    async def begin(self, port: RunPort, bench: Workbench | None) -> None:
        pass

    def end(self) -> None:
        pass

    def terminal_text(self, terminal_id: str) -> str:
        return ""

    def approved(self, call: ev.ToolCalled, diffs: tuple[ev.FileDiff, ...]) -> None:
        pass

    async def close(self) -> None:
        pass


class BenchServices:
    """Files and terminals of the session's workbench."""

    def __init__(self, sandbox: str = "") -> None:
        """`sandbox` is the one of all commands that are run in terminals; empty without one."""
        self._sandbox = sandbox
        self._bench: Workbench | None = None
        self._calls: ServedCalls | None = None
        self._files: AgentFiles | None = None
        self._terminals: AgentTerminals | None = None

    def capabilities(self) -> connecting.AcpClientCapabilities:
        files = connecting.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        meta = {connecting.TERMINAL_SANDBOX: self._sandbox} if self._sandbox else None
        return connecting.AcpClientCapabilities(fs=files, terminal=True, session=SESSION_CAPABILITIES, meta=meta)

    async def begin(self, port: RunPort, bench: Workbench | None) -> None:
        assert bench is not None, "these services were declared for a session with a workbench"
        rules = bench.rules(port.run.terms.allow, port.run.terms.deny)
        if bench is not self._bench or self._calls is None:
            await self.close()
            self._bench = bench
            self._calls = ServedCalls(rules, bench.looking)
            self._files = AgentFiles(bench.files, self._calls)
            self._terminals = AgentTerminals(bench.shell_tool(), self._calls)
        self._calls.begin(port, rules)

    def end(self) -> None:
        if self._calls is not None:
            self._calls.end()

    async def serve(self, method: str, params: msgspec.Raw | None, session_id: str | None) -> Any:
        files, terminals = self._files, self._terminals
        if files is None or terminals is None:
            raise RpcError(json_rpc.INTERNAL_ERROR, "There is no session yet.")
        handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "fs/read_text_file": files.read_text_file,
            "fs/write_text_file": files.write_text_file,
            "terminal/create": terminals.create,
            "terminal/output": terminals.output,
            "terminal/wait_for_exit": terminals.wait_for_exit,
            "terminal/kill": terminals.kill,
            "terminal/release": terminals.release,
        }
        handler = handlers.get(method)
        if handler is None:
            raise RpcError(json_rpc.METHOD_NOT_FOUND, f"This client does not offer {method[:100]}.")
        request: Any = decoded_params(msgspec.json.Decoder(CLIENT_REQUESTS[method]), params)
        if request.session_id != session_id:
            raise RpcError(json_rpc.INVALID_PARAMS, "There is no such session.")
        return await handler(request)

    def terminal_text(self, terminal_id: str) -> str:
        shown = None if self._terminals is None else self._terminals.shown(terminal_id)
        return "" if shown is None else shown.output

    def approved(self, call: ev.ToolCalled, diffs: tuple[ev.FileDiff, ...]) -> None:
        if self._files is None or self._terminals is None:
            return
        self._files.expect(diffs)
        arguments = msgspec.json.decode(call.arguments_json)
        if isinstance(command := arguments.get("command"), str):
            self._terminals.expect(command)

    async def close(self) -> None:
        if self._terminals is not None:
            await self._terminals.close()
