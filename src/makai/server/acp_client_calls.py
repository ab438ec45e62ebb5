"""Carries calls of a session to its editor, over their ACP connection: `ClientCalls.execute` is registered as executor.

It sends only what the editor declared (ACP-FS-001, ACP-TERM-001), with a deadline each, and turns errors of the editor
into answers that fail the call and nothing else (ACP-FS-004). Terminals have names here that no other connection uses,
since several editors may follow one session. Every terminal is released, whatever becomes of the call that made it
(ACP-TERM-008): the owner calls `close` when the editor is done with the session.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from makai.aio.cancellation import consume_exception
from makai.aio.json_rpc_calls import JsonRpcCalls
from makai.aio.tasks import BackgroundTasks
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import InvalidRequest, NotSupported, TransportError
from makai.harness import editor_calls as calls
from makai.harness.base import ToolAnswer, ToolRequest
from makai.harness.editor_calls import EditorCall, McpServerValues
from makai.wire.acp import client_calls as acp
from makai.wire.acp import connecting, sessions
from makai.wire.acp.common import Empty
from makai.wire.json_rpc_errors import RpcError, decoded_result

log = logging.getLogger(__name__)

_FORWARDED: Final[dict[str, EditorCall[Any, Any]]] = {
    call.name: call
    for call in (
        calls.READ_TEXT_FILE,
        calls.WRITE_TEXT_FILE,
        calls.TERMINAL_CREATE,
        calls.TERMINAL_OUTPUT,
        calls.TERMINAL_WAIT,
        calls.TERMINAL_KILL,
        calls.TERMINAL_RELEASE,
    )
}
_RELEASE_S: Final = 5.0
EMBED_S: Final = 1.0
"""How long the release of a terminal waits until a call has shown it: an editor keeps showing only such a terminal."""
MAX_TERMINAL_ID: Final = 256
"""It is in the log."""


class _Terminal(msgspec.Struct, frozen=True):
    terminal_id: str
    """As the editor names it."""
    call_id: str


class ClientCalls:
    def __init__(
        self,
        rpc: JsonRpcCalls,
        session_id: str,
        capabilities: connecting.AcpClientCapabilities,
        mcp_values: Mapping[str, McpServerValues] | None = None,
    ) -> None:
        """`session_id` is that of the editor; `mcp_values` are what `described_servers` took out of its servers."""
        self._rpc = rpc
        self._session_id = session_id
        self._offered = offered_by(capabilities)
        self._mcp_values = mcp_values or {}
        self._tasks = BackgroundTasks()
        self._connection_name = secrets.token_hex(4)
        self._terminals: dict[str, _Terminal] = {}
        """Those that are not released yet, by their names in the log."""
        self._unshown: dict[str, asyncio.Event] = {}
        """Those that no update has shown yet, by the same names. Set when one does, or when none will."""

    async def execute(self, request: ToolRequest) -> ToolAnswer:
        if request.name == calls.CAPABILITIES.name:
            return _answer(self._offered)
        if request.name == calls.MCP_VALUES.name:
            return self._values(_params(calls.MCP_VALUES, request).servers)
        call = _FORWARDED.get(request.name)
        if call is None or not self._offers(call):
            raise NotSupported(f"The editor does not offer {request.name}.")
        params = _params(call, request)
        try:
            if isinstance(params, acp.CreateTerminalRequest):
                return await self._create_terminal(params, request.call_id)
            if isinstance(params, acp.TerminalRequest):
                return await self._use_terminal(call, params.terminal_id)
            return _answer(await self._request(call, params))
        except (RpcError, TransportError) as error:
            return _refusal(error.message)

    def terminal_id(self, name: str) -> str | None:
        """The editor's own id of a terminal in the log, also after its release; None when it is another editor's."""
        connection, _, terminal_id = name.partition("/")
        return terminal_id if connection == self._connection_name else None

    def on_shown(self, name: str) -> None:
        """An update with this terminal was sent, or none will be: it may be released now (ACP-TERM-009)."""
        if (shown := self._unshown.pop(name, None)) is not None:
            shown.set()

    async def close(self) -> None:
        """Release what is left. Needs the connection, and takes a bounded time."""
        for name in tuple(self._unshown):
            self.on_shown(name)
        for name in tuple(self._terminals):
            self._release_later(name)
        await self._tasks.close(_RELEASE_S)

    def _values(self, servers: Sequence[str]) -> ToolAnswer:
        known = {name: self._mcp_values[name] for name in servers if name in self._mcp_values}
        if not known:
            raise NotSupported("The editor did not give these MCP servers.")
        return _answer(calls.McpValues(servers=known))

    def _offers(self, call: EditorCall[Any, Any]) -> bool:
        if call is calls.READ_TEXT_FILE:
            return self._offered.read_files
        return self._offered.write_files if call is calls.WRITE_TEXT_FILE else self._offered.terminals

    async def _request(self, call: EditorCall[Any, Any], params: msgspec.Struct) -> Any:
        params = msgspec.structs.replace(params, session_id=self._session_id)
        raw = await self._rpc.request(call.method, params, seconds=call.seconds)
        if call.result is Empty:
            return Empty()  # some editors answer null
        result = decoded_result(msgspec.json.Decoder(call.result), raw, call.method)
        if isinstance(result, acp.ReadTextFileResponse) and len(result.content) > calls.MAX_TEXT:
            raise TransportError(f"The editor's text has more than {calls.MAX_TEXT:,} characters.")
        if isinstance(result, acp.TerminalOutput) and len(result.output) > calls.MAX_TEXT:
            return msgspec.structs.replace(result, output=result.output[-calls.MAX_TEXT :], truncated=True)
        return result

    async def _create_terminal(self, params: acp.CreateTerminalRequest, call_id: str) -> ToolAnswer:
        # Commands run one after the other: what another call left behind is over, as after a crash of its process.
        for name in [name for name, known in self._terminals.items() if known.call_id != call_id]:
            self._release_later(name)
        made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        made.add_done_callback(consume_exception)
        self._tasks.start(self._make_terminal(params, call_id, made), "makai-acp-terminal", may_finish=True)
        return _answer(acp.CreateTerminalResponse(terminal_id=await made))

    async def _make_terminal(self, params: acp.CreateTerminalRequest, call_id: str, made: asyncio.Future[str]) -> None:
        """Runs although its call is cancelled meanwhile: only the answer says what has to be released."""
        try:
            created = await self._request(calls.TERMINAL_CREATE, params)
        except (RpcError, TransportError) as error:
            if not made.done():
                made.set_exception(error)
            return
        name = f"{self._connection_name}/{created.terminal_id}"
        self._terminals[name] = _Terminal(created.terminal_id, call_id)
        self._unshown[name] = asyncio.Event()
        is_too_long = len(created.terminal_id) > MAX_TERMINAL_ID
        if made.done() or self._tasks.closing or is_too_long:
            self.on_shown(name)
            await self._release(name)
        if not made.done() and is_too_long:
            made.set_exception(TransportError(f"A terminal's id has more than {MAX_TERMINAL_ID} characters."))
        elif not made.done():
            made.set_result(name)

    async def _use_terminal(self, call: EditorCall[Any, Any], name: str) -> ToolAnswer:
        known = self._terminals.get(name)
        if known is None:
            if self.terminal_id(name) is None:
                raise NotSupported("This terminal belongs to another editor.")
            return _refusal("This terminal was released.")
        if call is calls.TERMINAL_RELEASE:
            await asyncio.shield(self._release_later(name))
            return _answer(Empty())
        return _answer(await self._request(call, acp.TerminalRequest(session_id="", terminal_id=known.terminal_id)))

    def _release_later(self, name: str) -> asyncio.Task[None]:
        """Also when the call that asks for it is cancelled meanwhile."""
        return self._tasks.start(self._release(name), "makai-acp-terminal-release", may_finish=True)

    async def _release(self, name: str) -> None:
        if (known := self._terminals.pop(name, None)) is None:
            return
        if (shown := self._unshown.get(name)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(EMBED_S):
                    await shown.wait()
            self._unshown.pop(name, None)
        released = acp.TerminalRequest(session_id="", terminal_id=known.terminal_id)
        try:
            await self._request(calls.TERMINAL_RELEASE, released)
        except (RpcError, TransportError) as error:
            log.warning("a terminal of the editor was not released: %s", error.message)


def offered_by(capabilities: connecting.AcpClientCapabilities) -> ev.ClientCapabilities:
    """What an editor does for its agent, as the terms of a session say it."""
    return ev.ClientCapabilities(
        read_files=capabilities.fs.read_text_file,
        write_files=capabilities.fs.write_text_file,
        terminals=capabilities.terminal,
        terminal_sandbox=_terminal_sandbox(capabilities.meta) if capabilities.terminal else "",
    )


def _terminal_sandbox(meta: Mapping[str, Any] | None) -> str:
    """What a client says about its terminals; words that makai has no meaning for say nothing."""
    said = (meta or {}).get(connecting.TERMINAL_SANDBOX)
    return said if said in ("read-only", "workspace-write") else ""


def described_servers(
    servers: Sequence[sessions.McpServer],
) -> tuple[tuple[ev.McpServer, ...], dict[str, McpServerValues]]:
    """The MCP servers of an editor as terms of a session, which only name variables and headers, and the values, which
    stay in this process."""
    described: list[ev.McpServer] = []
    values: dict[str, McpServerValues] = {}
    for server in servers:
        match server:
            case sessions.StdioMcpServer():
                env = {each.name: each.value for each in server.env}
                values[server.name] = McpServerValues(env=env)
                described.append(
                    ev.McpServer(name=server.name, command=server.command, args=server.args, env_names=tuple(env))
                )
            case sessions.HttpMcpServer() | sessions.SseMcpServer():
                headers = {each.name: each.value for each in server.headers}
                values[server.name] = McpServerValues(headers=headers)
                transport: Literal["http", "sse"] = "sse" if isinstance(server, sessions.SseMcpServer) else "http"
                described.append(
                    ev.McpServer(name=server.name, url=server.url, transport=transport, header_names=tuple(headers))
                )
    return tuple(described), values


def _params(call: EditorCall[Any, Any], request: ToolRequest) -> Any:
    try:
        return msgspec.convert(request.arguments, call.params)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The parameters of {request.name} cannot be read: {error}.") from None


def _answer(result: msgspec.Struct) -> ToolAnswer:
    return ToolAnswer(content=(), details_json=msgspec.json.encode(result).decode())


def _refusal(message: str) -> ToolAnswer:
    return ToolAnswer(content=(Text(text=message),), is_error=True)
