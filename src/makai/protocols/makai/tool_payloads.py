"""Every payload in the scope of a tool server. Its id is in the envelope."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from makai.core.content import Image, Text
from makai.core.request import ToolDefinition
from makai.protocols.makai.payloads import Payload

TimeoutMs: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]


class ToolRegister(Payload, frozen=True, kw_only=True):
    """Offer tools to every session whose terms name this server, until `tool_unregister` or the end of the
    connection."""

    tools: tuple[ToolDefinition, ...]
    timeout_ms: TimeoutMs = 300_000
    """How long a `tool_request` may wait for `tool_execution_start` or `tool_response`, and after a start for the
    response."""


class ToolUnregister(Payload, frozen=True):
    pass


class ToolExecutionStart(Payload, frozen=True):
    """The tool begins only now; its time counts from here. Optional, once."""

    execution_id: str


class ToolExecutionUpdate(Payload, frozen=True):
    """Output of the tool, for the people who watch. Models do not get it."""

    execution_id: str
    text: str


class ToolResponse(Payload, frozen=True, kw_only=True):
    """The end of an execution."""

    execution_id: str
    content: str | tuple[Text | Image, ...]
    is_error: bool = False
    details_json: str | None = None


class ToolRegistered(Payload, frozen=True, kw_only=True):
    server_id: str
    tools: tuple[str, ...]
    """The names that models see: `server__tool`."""


class ToolUnregistered(Payload, frozen=True):
    server_id: str


class ToolRequestMessage(Payload, frozen=True, kw_only=True):
    """Execute a tool. `execution_id` names this request on this connection; sessions choose `tool_call_id`."""

    execution_id: str
    session_id: str
    run_id: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    timeout_ms: int


class ToolCancel(Payload, frozen=True, kw_only=True):
    """The answer is no longer wanted: the run was stopped or settled, or the tool took too long."""

    execution_id: str
    code: Literal["aborted", "tool_timeout"]
    reason: str


ExecutionMessage: TypeAlias = ToolExecutionStart | ToolExecutionUpdate | ToolResponse

TOOL_CLIENT_PAYLOADS: dict[str, type[msgspec.Struct]] = {
    "tool_register": ToolRegister,
    "tool_unregister": ToolUnregister,
    "tool_execution_start": ToolExecutionStart,
    "tool_execution_update": ToolExecutionUpdate,
    "tool_response": ToolResponse,
}

TOOL_SERVER_PAYLOADS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "tool_registered": (ToolRegistered,),
    "tool_unregistered": (ToolUnregistered,),
    "tool_request": (ToolRequestMessage,),
    "tool_cancel": (ToolCancel,),
}
