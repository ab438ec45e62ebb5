"""Tools that a client declared and executes itself.

`ToolExecutors` are the clients that are connected to a session, `ClientTool` is one of their tools as the agent loop
sees it. A call fails with `tool_unavailable` when no client is connected, or when it disconnects during the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from makai.aio.cancellation import consume_exception
from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition
from makai.core.session_events import ToolFinished
from makai.harness.base import Execute, RunPort, ToolAnswer, ToolRequest
from makai.tools.base import CallDescription, ToolContext, ToolOutcome, text_outcome

UNAVAILABLE = "tool_unavailable: the client that declared this tool is not connected."


class ToolExecutor:
    def __init__(self, executors: list[ToolExecutor], execute: Execute) -> None:
        self.execute = execute
        self.waiting: set[asyncio.Future[None]] = set()
        """One for each call under way; done when the call is, or when this client unregisters."""
        self._executors = executors

    def unregister(self) -> None:
        """Unregister this client. Calls that wait for it fail with `tool_unavailable`."""
        for call in self.waiting:
            _wake(call)
        if self in self._executors:
            self._executors.remove(self)


class ToolExecutors:
    """The clients registered for one session; the newest is asked."""

    def __init__(self) -> None:
        self._executors: list[ToolExecutor] = []

    def __bool__(self) -> bool:
        return bool(self._executors)

    def add(self, execute: Execute) -> ToolExecutor:
        executor = ToolExecutor(self._executors, execute)
        self._executors.append(executor)
        return executor

    async def execute(self, request: ToolRequest) -> ToolAnswer | None:
        """The answer of the newest client, or None when there is none or it unregisters meanwhile."""
        if not self._executors:
            return None
        executor = self._executors[-1]
        work = asyncio.ensure_future(executor.execute(request))
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.add_done_callback(consume_exception)
        work.add_done_callback(lambda _: _wake(ended))
        executor.waiting.add(ended)
        try:
            await ended
            return work.result() if work.done() else None
        finally:
            executor.waiting.discard(ended)
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=1.0)


def _wake(call: asyncio.Future[None]) -> None:
    if not call.done():
        call.set_result(None)


class ClientTool:
    def __init__(self, definition: ToolDefinition, port: RunPort) -> None:
        self.definition = definition
        self._port = port

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """Only the client that declared the tool knows what a call does."""
        return CallDescription(kind="other", title=self.definition.name, subject=self.definition.name)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        request = ToolRequest(
            session_id=self._port.session_id,
            run_id=self._port.run_id,
            call_id=context.call_id,
            name=self.definition.name,
            arguments=arguments,
        )
        answer = await self._port.execute(request)
        if answer is None:
            return text_outcome(UNAVAILABLE, is_error=True)
        try:
            # Built-in tools bound their output; a client may send anything, and what cannot be logged ends the run.
            fact = ToolFinished(call_id="", content=answer.content, details_json=answer.details_json)
            self._port.check_storable(fact)
        except InvalidRequest as error:
            return text_outcome(f"The answer of this tool cannot be kept: {error.message}", is_error=True)
        return ToolOutcome(content=answer.content, is_error=answer.is_error, details_json=answer.details_json)
