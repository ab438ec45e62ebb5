"""Tools that a client declared and executes itself.

`ToolExecutors` are the clients that are connected to a session, `ClientTool` is one of their tools as the agent loop
sees it. A call fails with `tool_unavailable` when no client is connected, or when it disconnects during the call. Names
that begin with `EDITOR_CALLS` are no tools: they are what `editor_calls` asks of an editor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

from makai.aio.cancellation import consume_exception
from makai.core.errors import InvalidRequest, NotSupported
from makai.core.request import ToolDefinition
from makai.core.session_events import ToolFinished
from makai.harness.base import Execute, RunPort, ToolAnswer, ToolRequest
from makai.tools.base import CallDescription, ToolContext, ToolOutcome, text_outcome

EDITOR_CALLS: Final = "client/"
UNAVAILABLE = "tool_unavailable: the client that declared this tool is not connected."


class ToolExecutor:
    """One registration of a client, and the calls that it is executing."""

    def __init__(self, executors: list[Self]) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        """One for each call under way; done when the call is, or when this client unregisters."""
        self._executors = executors
        executors.append(self)

    @property
    def calls(self) -> int:
        return len(self._waiting)

    def unregister(self) -> None:
        """Unregister this client. Calls that wait for it fail with `tool_unavailable`."""
        for call in self._waiting:
            _wake(call)
        if self in self._executors:
            self._executors.remove(self)

    async def answer(self, call: Awaitable[ToolAnswer]) -> ToolAnswer | None:
        """The answer of a call that this client executes; None when it unregisters meanwhile."""
        work = asyncio.ensure_future(call)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.add_done_callback(consume_exception)
        work.add_done_callback(lambda _: _wake(ended))
        self._waiting.add(ended)
        try:
            await ended
            return work.result() if work.done() else None
        finally:
            self._waiting.discard(ended)
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=1.0)


class _SessionExecutor(ToolExecutor):
    def __init__(self, executors: list[Self], execute: Execute) -> None:
        super().__init__(executors)
        self.execute = execute


class ToolExecutors:
    """The clients registered for one session; the newest is asked first."""

    def __init__(self) -> None:
        self._executors: list[_SessionExecutor] = []

    def __bool__(self) -> bool:
        return bool(self._executors)

    def add(self, execute: Execute) -> ToolExecutor:
        return _SessionExecutor(self._executors, execute)

    async def execute(self, request: ToolRequest) -> ToolAnswer | None:
        """The answer of the newest client that does not refuse with `NotSupported`; None when there is none, or it
        unregisters meanwhile."""
        for executor in reversed(tuple(self._executors)):
            if executor in self._executors:
                with suppress(NotSupported):
                    return await executor.answer(executor.execute(request))
        return None


def _wake(call: asyncio.Future[None]) -> None:
    if not call.done():
        call.set_result(None)


class ClientTool:
    def __init__(self, definition: ToolDefinition, port: RunPort) -> None:
        self.definition = definition
        self._port = port

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """Only the client that declared the tool knows what a call does."""
        return described(self.definition, self.definition.name)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        request = ToolRequest(
            session_id=self._port.session_id,
            run_id=self._port.run_id,
            call_id=context.call_id,
            name=self.definition.name,
            arguments=arguments,
        )
        answer = await self._port.execute(request)
        return text_outcome(UNAVAILABLE, is_error=True) if answer is None else outcome_of(answer, self._port)


def described(definition: ToolDefinition, title: str) -> CallDescription:
    """A call of a tool that a client carries out, as the client declared the tool."""
    return CallDescription(
        kind="read" if definition.read_only else "other",
        title=title,
        subject=definition.name,
        asks=definition.permission == "ask",
    )


def outcome_of(answer: ToolAnswer, port: RunPort) -> ToolOutcome:
    try:
        # Built-in tools bound their output; a client may send anything, and what cannot be logged ends the run.
        port.check_storable(ToolFinished(call_id="", content=answer.content, details_json=answer.details_json))
    except InvalidRequest as error:
        return text_outcome(f"The answer of this tool cannot be kept: {error.message}", is_error=True)
    return ToolOutcome(content=answer.content, is_error=answer.is_error, details_json=answer.details_json)
