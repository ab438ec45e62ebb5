"""What callers of `client.agent` write -> a typed request and its payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypedDict
from uuid import uuid4

import msgspec

from makai.client.requests import Messages, fields_of, shape_of
from makai.client.types import AgentRunOptions, AgentRunRequest, AgentTool, PermissionHandler, RunOptions
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition
from makai.core.session_events import PermissionMode, SandboxLevel
from makai.protocols.makai.agent_payloads import AgentMessage, AgentOptions, AgentStart
from makai.protocols.makai.envelope import is_uuid
from makai.protocols.makai.payloads import ChatMessage

AgentTools: TypeAlias = Sequence[AgentTool | ToolDefinition | Mapping[str, Any]]
AgentRunOptionsLike: TypeAlias = AgentRunOptions | RunOptions | Mapping[str, Any]

_FIELDS: Final = frozenset(AgentRunRequest.__struct_fields__)
_STAYS_HERE: Final = frozenset({"auth_retry_policy", "session_id"})


class AgentRunFields(TypedDict, total=False):
    """The fields of an `AgentRunRequest` as callers may write them."""

    model_ref: str
    messages: Messages
    tools: AgentTools | None
    options: AgentRunOptionsLike | None
    system_prompt: str | None
    builtin_tools: bool
    cwd: str | None
    mode: PermissionMode | None
    sandbox: SandboxLevel | None
    title: str | None
    approval_s: float | None
    on_permission_request: PermissionHandler | None


def run_request_of(request: AgentRunRequest | Mapping[str, Any] | None, fields: AgentRunFields) -> AgentRunRequest:
    """The typed request, from an object or from its fields, but not from both."""
    given = fields_of(request, fields, _FIELDS, "an agent's request")
    given["tools"] = tools_of(given.get("tools"))
    given["options"] = _options_of(given.get("options") or AgentRunOptions())
    return AgentRunRequest(**given)


def tools_of(tools: AgentTools | None) -> tuple[AgentTool, ...] | None:
    return None if tools is None else tuple(_tool_of(tool) for tool in tools)


def session_id_of(session_id: str) -> str:
    """A session's id as the wire wants it."""
    if not is_uuid(session_id):
        raise InvalidRequest(f"{session_id!r} is no session id", hint="Session ids are UUIDs: str(uuid.uuid4()).")
    return session_id.lower()


def session_of(request: AgentRunRequest) -> str:
    """The session a request is for; a new id where it names none."""
    named = request.options.session_id
    return str(uuid4()) if named is None else session_id_of(named)


def starts_of(request: AgentRunRequest, *, is_new: bool) -> tuple[AgentStart, ...]:
    """How to begin: a session that is not certain to be new is continued, and begun when it does not exist."""
    system, _ = _split(request)
    tools = None if request.tools is None else tuple(tool.definition for tool in request.tools)
    start = AgentStart(
        model_ref=request.model_ref,
        system_prompt=system,
        tools=tools,
        builtin_tools=request.builtin_tools,
        cwd=request.cwd,
        mode=request.mode,
        sandbox=request.sandbox,
        title=request.title,
        approval_s=request.approval_s,
    )
    if is_new:
        return (start,)
    return msgspec.structs.replace(start, resume=True), start


def message_of(request: AgentRunRequest) -> AgentMessage:
    _, messages = _split(request)
    fields = {name: getattr(request.options, name) for name in AgentOptions.__struct_fields__}
    options = AgentOptions(**{name: value for name, value in fields.items() if name not in _STAYS_HERE})
    return AgentMessage(messages=messages, options=options)


def _split(request: AgentRunRequest) -> tuple[str | None, tuple[ChatMessage, ...]]:
    """Instructions and conversation: the protocol takes them apart, `messages` holds both."""
    count = 0
    for message in request.messages:
        if message.role not in ("system", "developer"):
            break
        count += 1
    if request.system_prompt is not None or not count:
        return request.system_prompt, request.messages
    return "\n\n".join(map(_text_of, request.messages[:count])), request.messages[count:]


def _text_of(message: ChatMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content if isinstance(part, Text))


def _tool_of(tool: AgentTool | ToolDefinition | Mapping[str, Any]) -> AgentTool:
    if isinstance(tool, AgentTool):
        return tool
    fields = msgspec.structs.asdict(tool) if isinstance(tool, msgspec.Struct) else dict(tool)
    try:
        return AgentTool(**fields)
    except TypeError as error:
        raise InvalidRequest(f"tools: {error}") from error


def _options_of(options: AgentRunOptionsLike) -> AgentRunOptions:
    if isinstance(options, RunOptions) and not isinstance(options, AgentRunOptions):
        options = msgspec.structs.asdict(options)
    return shape_of(AgentRunOptions, options, "options")
