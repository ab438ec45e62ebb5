"""Calls of the editor that is connected to a session: its files, its terminals, the secrets of its MCP servers.

A session may run in another process than the connection to its editor, so these calls take the way of client tools: a
`ToolRequest` with a reserved name goes to the session's executor (`server.acp_client_calls`). Parameters and results
are those of the Agent Client Protocol. A result is JSON in `ToolAnswer.details_json`; a refusal of the editor is an
answer with `is_error` and its message. An executor that has no editor, or whose editor does not offer the call, raises
`NotSupported`, and the next one is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from makai.core.content import Text
from makai.core.errors import InvalidRequest, MakaiError, ParseError
from makai.core.session_events import ClientCapabilities
from makai.harness.base import ToolAnswer, ToolRequest
from makai.harness.client_tools import EDITOR_CALLS
from makai.wire import strict_json
from makai.wire.acp import client_calls as acp
from makai.wire.acp.common import Empty

ParamsT = TypeVar("ParamsT", bound=msgspec.Struct)
ResultT = TypeVar("ResultT", bound=msgspec.Struct)
AskExecutor: TypeAlias = Callable[[ToolRequest], Awaitable[ToolAnswer | None]]

MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters of a file that the editor reads, and of a terminal's output."""
MAX_COMMAND_S: Final = 3_700.0
"""A little longer than the longest timeout of a command."""
_SLACK_S: Final = 5.0
"""How much later a wait here ends than that of the connection, whose message is better."""


class NoParams(msgspec.Struct, frozen=True):
    pass


class McpValuesRequest(msgspec.Struct, frozen=True, kw_only=True):
    servers: tuple[str, ...]
    """By the names that the session's terms have."""


class McpServerValues(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the terms of a session only name. They are never logged."""

    env: dict[str, str] = {}
    headers: dict[str, str] = {}


class McpValues(msgspec.Struct, frozen=True, kw_only=True):
    servers: dict[str, McpServerValues] = {}


class EditorCall(msgspec.Struct, Generic[ParamsT, ResultT], frozen=True, kw_only=True):
    name: str
    """Of the tool request."""
    method: str
    """Of the request to the editor; empty when its connection answers by itself."""
    params: type[ParamsT]
    result: type[ResultT]
    seconds: float = 20.0


CAPABILITIES: Final = EditorCall(
    name=f"{EDITOR_CALLS}capabilities", method="", params=NoParams, result=ClientCapabilities
)
MCP_VALUES: Final = EditorCall(name=f"{EDITOR_CALLS}mcp_values", method="", params=McpValuesRequest, result=McpValues)
READ_TEXT_FILE: Final = EditorCall(
    name=f"{EDITOR_CALLS}read_text_file",
    method="fs/read_text_file",
    params=acp.ReadTextFileRequest,
    result=acp.ReadTextFileResponse,
)
WRITE_TEXT_FILE: Final = EditorCall(
    name=f"{EDITOR_CALLS}write_text_file", method="fs/write_text_file", params=acp.WriteTextFileRequest, result=Empty
)
TERMINAL_CREATE: Final = EditorCall(
    name=f"{EDITOR_CALLS}terminal_create",
    method="terminal/create",
    params=acp.CreateTerminalRequest,
    result=acp.CreateTerminalResponse,
)
TERMINAL_OUTPUT: Final = EditorCall(
    name=f"{EDITOR_CALLS}terminal_output",
    method="terminal/output",
    params=acp.TerminalRequest,
    result=acp.TerminalOutput,
)
TERMINAL_WAIT: Final = EditorCall(
    name=f"{EDITOR_CALLS}terminal_wait",
    method="terminal/wait_for_exit",
    params=acp.TerminalRequest,
    result=acp.TerminalExit,
    seconds=MAX_COMMAND_S,
)
TERMINAL_KILL: Final = EditorCall(
    name=f"{EDITOR_CALLS}terminal_kill", method="terminal/kill", params=acp.TerminalRequest, result=Empty
)
TERMINAL_RELEASE: Final = EditorCall(
    name=f"{EDITOR_CALLS}terminal_release", method="terminal/release", params=acp.TerminalRequest, result=Empty
)


async def ask_editor(
    execute: AskExecutor,
    call: EditorCall[ParamsT, ResultT],
    params: ParamsT,
    *,
    session_id: str,
    run_id: str = "",
    call_id: str = "",
) -> ResultT | None:
    """The result; None when no editor is connected or it does not offer this. `InvalidRequest` with a message for
    people and models when the editor refuses, does not answer in time, or answers something else."""
    request = ToolRequest(
        session_id=session_id,
        run_id=run_id,
        call_id=call_id,
        name=call.name,
        arguments=msgspec.to_builtins(params),
    )
    try:
        async with asyncio.timeout(call.seconds + _SLACK_S):
            answer = await execute(request)
    except TimeoutError:
        raise InvalidRequest(f"The editor did not answer within {call.seconds:g} s.") from None
    except MakaiError as error:
        raise InvalidRequest(error.message) from None
    if answer is None:
        return None
    if answer.is_error:
        raise InvalidRequest(" ".join(part.text for part in answer.content if isinstance(part, Text)))
    try:
        return strict_json.decode_with(msgspec.json.Decoder(call.result), answer.details_json or "")
    except ParseError as error:
        raise InvalidRequest(f"The answer of the editor cannot be read: {error.message}") from None
