"""Tools that a client declared and carries out itself.

In: calls of the model. Out: what the client that attends the session answers, or `tool_unavailable` when none does or
it goes away meanwhile. How a call reaches the client is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition
from makai.core.session_events import ToolFinished
from makai.sessions.log.base import Pending
from makai.sessions.log.encoding import encoded
from makai.sessions.service import Execute, ToolAnswer, ToolRequest
from makai.tools.base import CallDescription, ToolContext, ToolOutcome, text_outcome

UNAVAILABLE = "tool_unavailable: the client that declared this tool is not connected."


class ToolExecutor:
    """The place from which a client carries out the tools of a session."""

    def __init__(self, tool_executors: ToolExecutors, execute: Execute) -> None:
        self.execute = execute
        self.unregistered = asyncio.Event()
        self._tool_executors = tool_executors

    def unregister(self) -> None:
        """Stop; whoever waits for this client learns that it is gone."""
        self.unregistered.set()
        self._tool_executors.remove(self)


class ToolExecutors:
    """The clients that stand by for one session; the newest is asked."""

    def __init__(self) -> None:
        self._executors: list[ToolExecutor] = []

    def __bool__(self) -> bool:
        return bool(self._executors)

    def add(self, execute: Execute) -> ToolExecutor:
        """One more client."""
        executor = ToolExecutor(self, execute)
        self._executors.append(executor)
        return executor

    def remove(self, executor: ToolExecutor) -> None:
        """It left."""
        if executor in self._executors:
            self._executors.remove(executor)

    async def execute(self, request: ToolRequest) -> ToolAnswer | None:
        """The answer of a client, or None when there is none to be had."""
        if not self._executors:
            return None
        executor = self._executors[-1]
        work = asyncio.ensure_future(executor.execute(request))
        work.add_done_callback(_look_at)
        left = asyncio.ensure_future(executor.unregistered.wait())
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            left.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=1.0)


def _look_at(work: asyncio.Future[ToolAnswer]) -> None:
    """A client that fails after nobody waits for it any more is no error of ours."""
    if not work.cancelled():
        work.exception()


class ClientTool:
    """One declared tool, as the agent loop sees it, for one run."""

    def __init__(self, definition: ToolDefinition, session_id: str, run_id: str, tool_executors: ToolExecutors) -> None:
        self.definition = definition
        self._session_id = session_id
        self._run_id = run_id
        self._tool_executors = tool_executors

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """Nothing is known about what it does: the client that declared it knows."""
        return CallDescription(kind="other", title=self.definition.name, subject=self.definition.name)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Have the client do it."""
        answer = await self._tool_executors.execute(
            ToolRequest(
                session_id=self._session_id,
                run_id=self._run_id,
                call_id=context.call_id,
                name=self.definition.name,
                arguments=arguments,
            )
        )
        if answer is None:
            return text_outcome(UNAVAILABLE, is_error=True)
        try:
            # Built-in tools bound what they say; a client may say anything, and what cannot be kept would end the run.
            encoded(
                [Pending(0, None, ToolFinished(call_id="", content=answer.content, details_json=answer.details_json))]
            )
        except InvalidRequest as error:
            return text_outcome(f"The answer of this tool cannot be kept: {error.message}", is_error=True)
        return ToolOutcome(content=answer.content, is_error=answer.is_error, details_json=answer.details_json)
