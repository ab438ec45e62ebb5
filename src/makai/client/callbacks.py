"""The caller's own functions in an agent's run: its tools, and its decisions about permissions. Each call is a task."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from makai.client.types import AgentTool, AgentToolResult, Allow, Deny, PermissionHandler, PermissionRequest
from makai.core.content import Text
from makai.core.errors import MakaiError
from makai.core.sanitize import sanitize, sanitize_text
from makai.protocols.makai.agent_payloads import PermissionResponse, ToolExecute, ToolResultMessage

log = logging.getLogger(__name__)

Send: TypeAlias = Callable[[str, msgspec.Struct], object]
"""Sends an envelope in the session; does nothing when the session has been let go of."""
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class Callbacks:
    """The tools and the permission handler of one caller, for one session."""

    def __init__(self, tools: Sequence[AgentTool], on_permission_request: PermissionHandler | None) -> None:
        self._tools: Mapping[str, AgentTool] = {tool.name: tool for tool in tools}
        self._on_permission_request = on_permission_request
        self._executing: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._asking: dict[str, tuple[str, asyncio.Task[None]]] = {}

    def execute(self, call: ToolExecute, send: Send, spawn: Spawn) -> None:
        work = self._execute(call, send)
        self._executing[call.tool_call_id] = call.run_id, spawn(work, f"makai-tool-{call.tool_name}")

    def ask(self, request: PermissionRequest, send: Send, spawn: Spawn) -> None:
        """Have the caller decide; without a handler others do."""
        if self._on_permission_request is not None and request.tool_call_id not in self._asking:
            work = self._decide(self._on_permission_request, request, send)
            self._asking[request.tool_call_id] = request.run_id, spawn(work, f"makai-permission-{request.tool_name}")

    def call_is_over(self, tool_call_id: str) -> None:
        """Cancel a call whose result is no longer wanted."""
        _cancel(self._executing.pop(tool_call_id, None))

    def is_decided(self, tool_call_id: str) -> None:
        """Stop asking: the request was decided."""
        _cancel(self._asking.pop(tool_call_id, None))

    def run_is_over(self, run_id: str | None = None) -> None:
        """A run has ended, or with None: the caller has left."""
        for calls in (self._executing, self._asking):
            for call_id, call in list(calls.items()):
                if run_id is None or call[0] == run_id:
                    del calls[call_id]
                    _cancel(call)

    async def _execute(self, call: ToolExecute, send: Send) -> None:
        try:
            result = await self._result_of(call)
        except Exception as error:
            log.debug("the tool %s failed", call.tool_name, exc_info=True)
            result = AgentToolResult(content=_said(error), is_error=True)
        self._executing.pop(call.tool_call_id, None)
        message = ToolResultMessage(
            tool_call_id=call.tool_call_id,
            content=result.content,
            is_error=result.is_error,
            details_json=result.details_json,
        )
        try:
            send("tool_result", sanitize(message))
        except MakaiError as error:  # the run waits for an answer, so it gets one
            reason = sanitize_text(f"the result of the tool cannot be sent: {error.message}")
            send("tool_result", ToolResultMessage(tool_call_id=call.tool_call_id, content=reason, is_error=True))

    async def _result_of(self, call: ToolExecute) -> AgentToolResult:
        tool = self._tools.get(call.tool_name)
        if tool is None or tool.execute is None:
            raise LookupError(f"this client has no function for the tool {call.tool_name!r}")
        return result_of(await called(tool.execute, call.arguments))

    async def _decide(self, handler: PermissionHandler, request: PermissionRequest, send: Send) -> None:
        try:
            decision = await called(handler, request)
            if not isinstance(decision, Allow | Deny | None):
                raise TypeError(f"on_permission_request answered {decision!r} instead of Allow or Deny")
        except Exception as error:
            log.exception("on_permission_request failed; the call is denied")
            decision = Deny(reason=f"the permission handler failed: {_said(error)}")
        self._asking.pop(request.tool_call_id, None)
        if decision is not None:
            send("permission_response", sanitize(_response(request, decision)))


async def called(function: Callable[[Any], Any], argument: Any) -> Any:
    """The answer of an async function, or of a plain one, which runs in a worker thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(argument)
    answer = await asyncio.to_thread(function, argument)
    return await answer if inspect.isawaitable(answer) else answer


def result_of(answer: Any) -> AgentToolResult:
    """What a tool's function answered, in the form that the model gets."""
    match answer:
        case AgentToolResult():
            return answer
        case str():
            return AgentToolResult(content=answer)
        case None:
            return AgentToolResult(content="")
        case list() | tuple() if answer and all(isinstance(part, Text) for part in answer):
            return AgentToolResult(content=tuple(answer))
        case _:
            return AgentToolResult(content=msgspec.json.encode(answer).decode())


def _response(request: PermissionRequest, decision: Allow | Deny) -> PermissionResponse:
    if isinstance(decision, Deny):
        return PermissionResponse(tool_call_id=request.tool_call_id, decision="deny", reason=decision.reason)
    # Without a `grant` there is no rule that could outlive this call, and a wider scope would be refused.
    scope = decision.scope if request.grant else "once"
    return PermissionResponse(
        tool_call_id=request.tool_call_id,
        decision="approve",
        scope=scope,
        digest=request.digest,
        grant=decision.grant if scope != "once" else "",
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _cancel(call: tuple[str, asyncio.Task[None]] | None) -> None:
    if call is not None:
        call[1].cancel()
