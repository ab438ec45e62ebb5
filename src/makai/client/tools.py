"""`client.tools`: serve tools under an id, for every session that names it, also those of other clients. A call is a
task of the connection: it is cancelled when its answer is no longer wanted, and when the connection ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Self, TypeAlias

import msgspec

from makai.client import requests
from makai.client import types as sdk
from makai.client.callbacks import called, result_of, said_by
from makai.client.connection import Failure, MakaiConnection, client_closed, refusal_in
from makai.client.failures import broken_protocol, transport_failure
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.sanitize import sanitize, sanitize_text
from makai.core.tool_server_ids import check_server_ids
from makai.protocols.makai import tool_payloads as wire
from makai.protocols.makai.client import Reply
from makai.protocols.makai.envelope import Scope

log = logging.getLogger(__name__)

ANSWER_DEADLINE_S: Final = 60.0
"""Opening the sessions of a MAKAI_HOME may mean waiting for another process to let go of them."""
MAX_PARALLEL: Final = 16

_registered = msgspec.json.Decoder(wire.ToolRegistered).decode
_request = msgspec.json.Decoder(wire.ToolRequestMessage).decode
_cancel = msgspec.json.Decoder(wire.ToolCancel).decode


class ServedToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a served tool."""

    name: str
    """As the tool was declared, without the id of its server."""
    arguments: dict[str, Any]
    session_id: str
    run_id: str
    tool_call_id: str
    progress: Callable[[str], None]
    """Shows output to the people who watch, while the tool runs; models do not get it. From any thread."""


ExecuteCall: TypeAlias = Callable[[ServedToolCall], Any]
"""Answers a call as the `execute` of an `AgentTool` does."""


class ToolsApi:
    def __init__(self, connection: MakaiConnection) -> None:
        self._connection = connection
        self._open_ids: set[str] = set()

    def serve(
        self,
        server_id: str,
        *,
        tools: requests.AgentTools,
        execute: ExecuteCall | None = None,
        timeout_s: float = 300.0,
        max_parallel: int = MAX_PARALLEL,
    ) -> ToolServer:
        """Serve tools under an id: `async with client.tools.serve(...) as server:`, or `await` and `close` it. Sessions
        that name the id in their `tool_servers` see them as `server_id__name`. `execute` carries out the tools that
        have no function of their own. A call that is not begun within `timeout_s`, or then not answered within it,
        fails; at most `max_parallel` run at the same time, and others wait."""
        check_server_ids((server_id,))
        own_tools = requests.tools_of(tools) or ()
        if missing := [tool.name for tool in own_tools if tool.execute is None and execute is None]:
            raise InvalidRequest(f"no function executes the tools {', '.join(missing)}", hint="Give `execute`.")
        register = wire.ToolRegister(
            tools=tuple(tool.definition for tool in own_tools), timeout_ms=max(round(timeout_s * 1000), 1)
        )
        functions = _functions(own_tools, execute)
        return ToolServer(self._connection, self._open_ids, server_id, register, functions, max_parallel)


def _functions(tools: tuple[sdk.AgentTool, ...], execute: ExecuteCall | None) -> Mapping[str, ExecuteCall]:
    return {tool.name: _with_arguments(tool.execute) if tool.execute else execute for tool in tools}  # type: ignore[misc]


def _with_arguments(execute: sdk.ExecuteTool) -> ExecuteCall:
    async def call(wanted: ServedToolCall) -> Any:
        return await called(execute, wanted.arguments)

    return call


class ToolServer:
    """Tools that this client serves, from `await` or `async with` to `close` or the end of the connection."""

    def __init__(
        self,
        connection: MakaiConnection,
        open_ids: set[str],
        server_id: str,
        register: wire.ToolRegister,
        functions: Mapping[str, ExecuteCall],
        max_parallel: int,
    ) -> None:
        self.server_id = server_id
        self.tool_names: tuple[str, ...] = ()
        """The names that models see, once the server is registered."""
        self._connection = connection
        self._open_ids = open_ids
        self._register = register
        self._functions = functions
        self._room = asyncio.Semaphore(max_parallel)
        self._scope: Scope | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._asked = ""
        """The message id of the request that `_answer` waits for."""
        self._over = asyncio.Event()
        self._failure: Failure | None = None
        self._executing: dict[str, asyncio.Task[None]] = {}

    def __await__(self) -> Generator[object, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def wait(self) -> None:
        """Return when the server was closed; raise when its connection is lost."""
        await self._over.wait()
        if self._failure is not None:
            raise self._failure()

    async def close(self) -> None:
        """Stop serving. Calls that are being executed are cancelled and fail in their sessions; may be repeated."""
        if self._scope is None or self._over.is_set():
            return
        try:
            await self._ask("tool_unregister", wire.ToolUnregister())
        finally:
            self._end()

    async def _open(self) -> Self:
        if self._scope is not None or self._over.is_set():
            raise InvalidRequest("a tool server can be opened once; serve again")
        if self.server_id in self._open_ids:
            raise InvalidRequest(f"this client serves {self.server_id!r} already", hint="Close that server first.")
        await self._connection.ready()
        self._open_ids.add(self.server_id)
        self._scope = self._connection.listen("server_id", self.server_id, self)
        try:
            reply = await self._ask("tool_register", self._register)
            self.tool_names = _registered(reply.payload).tools
        except (msgspec.DecodeError, ValueError) as error:
            self._end()
            raise broken_protocol(f"a malformed tool_registered: {error}") from error
        except BaseException:
            self._end()
            raise
        return self

    async def _ask(self, kind: str, payload: msgspec.Struct) -> Reply:
        assert self._scope is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._asked = self._connection.post(self._scope, kind, payload)
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                return await self._answer
        except TimeoutError:
            raise transport_failure(f"the server did not answer a {kind} within {ANSWER_DEADLINE_S:g} s") from None

    def deliver(self, reply: Reply) -> None:
        try:
            match reply.type:
                case "tool_registered" | "tool_unregistered" | "nack":
                    self._settle(reply)
                case "tool_request":
                    self._begin(_request(reply.payload))
                case "tool_cancel":
                    if task := self._executing.pop(_cancel(reply.payload).execution_id, None):
                        task.cancel()
        except (msgspec.DecodeError, ValueError) as error:
            log.warning("the server sent a malformed %s: %s", reply.type, error)

    def unread(self, failure: Failure) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(failure())

    def fail(self, failure: Failure) -> None:
        self.unread(failure)
        self._failure = None if failure is client_closed else failure
        self._end()

    def _settle(self, reply: Reply) -> None:
        """Take the answer to a registration or its end. A message about an execution may be refused meanwhile."""
        if self._answer is None or self._answer.done() or reply.in_reply_to != self._asked:
            return
        if reply.type == "nack":
            self._answer.set_exception(refusal_in(reply))
        else:
            self._answer.set_result(reply)

    def _begin(self, wanted: wire.ToolRequestMessage) -> None:
        work = self._execute(wanted)
        task = self._connection.callbacks.start(work, f"makai-served-tool-{wanted.tool_name}")
        self._executing[wanted.execution_id] = task

    async def _execute(self, wanted: wire.ToolRequestMessage) -> None:
        execution_id = wanted.execution_id
        try:
            async with self._room:
                self._post("tool_execution_start", wire.ToolExecutionStart(execution_id))
                result = await self._result_of(wanted)
        except Exception as error:
            log.debug("the tool %s failed", wanted.tool_name, exc_info=True)
            result = sdk.AgentToolResult(content=said_by(error), is_error=True)
        self._executing.pop(execution_id, None)
        response = wire.ToolResponse(execution_id=execution_id, **msgspec.structs.asdict(result))
        try:
            self._post("tool_response", sanitize(response))
        except MakaiError as error:  # the run waits for an answer, so it gets one
            reason = sanitize_text(f"the result of the tool cannot be sent: {error.message}")
            self._post("tool_response", wire.ToolResponse(execution_id=execution_id, content=reason, is_error=True))

    async def _result_of(self, wanted: wire.ToolRequestMessage) -> sdk.AgentToolResult:
        def progress(text: str) -> None:
            update = wire.ToolExecutionUpdate(wanted.execution_id, sanitize_text(text))
            self._connection.call_soon(lambda: self._post("tool_execution_update", update, wanted.execution_id))

        call = ServedToolCall(
            name=wanted.tool_name,
            arguments=wanted.arguments,
            session_id=wanted.session_id,
            run_id=wanted.run_id,
            tool_call_id=wanted.tool_call_id,
            progress=progress,
        )
        return result_of(await called(self._functions[wanted.tool_name], call))

    def _post(self, kind: str, payload: msgspec.Struct, while_executing: str | None = None) -> None:
        is_wanted = while_executing is None or while_executing in self._executing
        if self._scope is not None and not self._over.is_set() and is_wanted:
            self._connection.post(self._scope, kind, payload)

    def _end(self) -> None:
        self._over.set()
        for task in self._executing.values():
            task.cancel()
        self._executing.clear()
        if self._scope is not None:
            self._open_ids.discard(self.server_id)
            self._connection.forget(self._scope)
