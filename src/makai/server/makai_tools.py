"""Tool servers on a connection of the Makai protocol: joins their scopes to the sessions of this MAKAI_HOME. A program
registers tools under a `server_id`; a call of any session that names the server becomes a `tool_request`, and the
program's `tool_response` the answer of that call. When the connection ends, its registrations end, and calls that wait
for them fail with `tool_unavailable`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, assert_never
from uuid import uuid4

from makai.core.content import Text
from makai.core.errors import MakaiError, Overloaded, ToolTimeout
from makai.harness.base import Report, ToolAnswer, ToolRequest, ToolServerOffer
from makai.harness.tool_servers import full_names
from makai.protocols.makai import tool_payloads as wire
from makai.protocols.makai.commands import RegisterTools, TakeExecution, ToolServerCommand, UnregisterTools
from makai.protocols.makai.tool_server import ToolServerScopes
from makai.sessions.service import Sessions, ToolRegistration

log = logging.getLogger(__name__)

MAX_REPORTED: Final = 262_144
"""Characters of one execution's updates that are passed on; each update counts `_UPDATE_COST` more."""
_UPDATE_COST: Final = 64


class _Execution:
    """One call that waits for the client."""

    def __init__(self, report: Report) -> None:
        self._answer: asyncio.Future[ToolAnswer] = asyncio.get_running_loop().create_future()
        self._report = report
        self._reported = 0
        self._restart: Callable[[], None] | None = None

    async def answer(self, seconds: float) -> ToolAnswer:
        """Raises `TimeoutError` when neither the start nor the answer comes in time, or the answer after the start."""
        async with asyncio.timeout(seconds) as limit:
            self._restart = lambda: limit.reschedule(asyncio.get_running_loop().time() + seconds)
            return await self._answer

    def take(self, said: wire.ExecutionMessage) -> None:
        if self._answer.done():
            return
        match said:
            case wire.ToolExecutionStart():
                restart, self._restart = self._restart, None
                if restart is not None:
                    restart()
            case wire.ToolExecutionUpdate(text=text):
                self._reported += len(text) + _UPDATE_COST
                if self._reported <= MAX_REPORTED:
                    self._report(text)
            case wire.ToolResponse(content=content):
                parts = (Text(text=content),) if isinstance(content, str) else content
                answer = ToolAnswer(content=parts, is_error=said.is_error, details_json=said.details_json)
                self._answer.set_result(answer)
            case _:
                assert_never(said)


class ConnectionTools:
    def __init__(
        self, scopes: ToolServerScopes, sessions: Callable[[], Awaitable[Sessions]], on_news: Callable[[], None]
    ) -> None:
        """`on_news` is called when something waits to be written."""
        self._scopes = scopes
        self._sessions = sessions
        self._on_news = on_news
        self._registrations: dict[str, ToolRegistration] = {}
        self._executions: dict[str, _Execution] = {}
        self._ended = False

    def carry_out(self, command: ToolServerCommand, group: asyncio.TaskGroup, *, draining: bool) -> None:
        match command:
            case RegisterTools() if draining:
                self._scopes.refuse(
                    command.server_id, Overloaded("the server is shutting down", hint="Try again in a moment.")
                )
            case RegisterTools():
                group.create_task(self._register(command), name=f"makai-tool-server-{command.server_id}")
            case UnregisterTools(server_id=server_id):
                if registration := self._registrations.pop(server_id, None):
                    registration.unregister()
                self._scopes.unregistered(server_id)
            case TakeExecution(said=said):
                if execution := self._executions.get(said.execution_id):
                    execution.take(said)
            case _:
                assert_never(command)

    def cancel(self) -> None:
        """The client is gone."""
        self._ended = True
        for registration in self._registrations.values():
            registration.unregister()
        self._registrations.clear()

    async def _register(self, command: RegisterTools) -> None:
        server_id, wanted = command.server_id, command.request
        try:
            offer = ToolServerOffer(server_id=server_id, tools=wanted.tools, timeout_s=wanted.timeout_ms / 1000)
            names = full_names(offer)
            execute = partial(self._execute, offer)
            registration = await (await self._sessions()).register_tool_server(offer, execute)
        except MakaiError as error:
            self._scopes.refuse(server_id, error)
        except Exception:
            log.exception("a tool server could not be registered")
            self._scopes.refuse(server_id, MakaiError("internal error"))
        else:
            if self._ended:
                registration.unregister()
                return
            self._registrations[server_id] = registration
            self._scopes.registered(server_id, names)
        self._on_news()

    async def _execute(self, offer: ToolServerOffer, request: ToolRequest, report: Report) -> ToolAnswer:
        execution_id, execution = str(uuid4()), _Execution(report)
        self._executions[execution_id] = execution
        message = wire.ToolRequestMessage(
            execution_id=execution_id,
            session_id=request.session_id,
            run_id=request.run_id,
            tool_call_id=request.call_id,
            tool_name=request.name,
            arguments=dict(request.arguments),
            timeout_ms=round(offer.timeout_s * 1000),
        )
        self._scopes.request(offer.server_id, message)
        self._on_news()
        try:
            return await execution.answer(offer.timeout_s)
        except TimeoutError:
            reason = f"The tool server {offer.server_id!r} did not answer within {offer.timeout_s:g} s."
            self._withdraw(offer, wire.ToolCancel(execution_id=execution_id, code="tool_timeout", reason=reason))
            raise ToolTimeout(reason) from None
        except asyncio.CancelledError:
            reason = "The run no longer wants the answer."
            self._withdraw(offer, wire.ToolCancel(execution_id=execution_id, code="aborted", reason=reason))
            raise
        finally:
            del self._executions[execution_id]

    def _withdraw(self, offer: ToolServerOffer, cancel: wire.ToolCancel) -> None:
        self._scopes.cancel(offer.server_id, cancel)
        self._on_news()
