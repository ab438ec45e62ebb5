"""The caller's own functions in an agent's run: its tools, and its decisions about permissions. Each call is a task."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from makai.client.type_schema import jsonable
from makai.client.types import AgentTool, AgentToolResult, Allow, Deny, PermissionHandler, PermissionRequest
from makai.core.content import Text, ToolCall, ToolResult
from makai.core.errors import InvalidRequest, MakaiError
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
            result = AgentToolResult(content=said_by(error), is_error=True)
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
            decision = Deny(reason=f"the permission handler failed: {said_by(error)}")
        self._asking.pop(request.tool_call_id, None)
        if decision is not None:
            send("permission_response", sanitize(_response(request, decision)))


async def tool_result(tool: AgentTool | None, call: ToolCall) -> ToolResult:
    """The result of a call that a model asked for outside of a session."""
    from makai.agent.tool_io import ArgumentsSchema

    try:
        if tool is None or tool.execute is None:
            raise LookupError(f"there is no function for the tool {call.name!r}")
        arguments = ArgumentsSchema(tool.definition).arguments(call.arguments_json)
        result = result_of(await called(tool.execute, arguments))
    except Exception as error:
        said = error.message if isinstance(error, InvalidRequest) else said_by(error)
        result = AgentToolResult(content=said, is_error=True)
    return sanitize(
        ToolResult(
            tool_call_id=call.tool_call_id,
            tool_name=call.name,
            content=result.content,
            is_error=result.is_error,
            details_json=result.details_json,
        )
    )


async def called(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The answer of an async function, or of a plain one, which runs in a worker thread."""
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return await function(*arguments, **named)
        answer = await asyncio.to_thread(_in_thread, function, *arguments, **named)
        return await answer if inspect.isawaitable(answer) else answer
    except SystemExit as error:  # it would end the event loop, and with it the caller's program
        raise RuntimeError(f"it wanted to exit with {error.code!r}") from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Something that it waited for was cancelled. The run still waits for an answer.
        raise RuntimeError("what it waited for was cancelled") from None


def _in_thread(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    try:
        return function(*arguments, **named)
    except StopIteration as error:  # a future cannot hold it: the waiting task would never be woken
        raise RuntimeError(said_by(error)) from None


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
            return AgentToolResult(content=_json(answer))


def _json(answer: Any) -> str:
    """The answer as JSON; text in it that cannot be written, such as half a surrogate pair, is replaced."""
    try:
        return msgspec.json.encode(answer, enc_hook=jsonable).decode()
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(answer, enc_hook=jsonable)
        return msgspec.json.encode(sanitize(plain)).decode()


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


def said_by(error: Exception) -> str:
    """What the model gets of an exception: its type and its message, and no line of the program."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _cancel(call: tuple[str, asyncio.Task[None]] | None) -> None:
    if call is not None:
        call[1].cancel()
