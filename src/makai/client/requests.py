"""What callers write -> a typed request and its payload; `InvalidRequest` for what cannot be meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, TypeAlias, TypedDict, TypeVar
from uuid import uuid4

import msgspec

from makai.client import types as sdk
from makai.client.function_tools import tool_of_function
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from makai.core.request import RequestOptions, ToolDefinition
from makai.core.session_events import PermissionMode, SandboxLevel
from makai.core.tool_server_ids import check_server_ids
from makai.protocols.makai.agent_payloads import AgentMessage, AgentOptions, AgentStart
from makai.protocols.makai.envelope import MAX_SESSION_ID_LENGTH, is_session_id, is_uuid
from makai.protocols.makai.payloads import ChatMessage, RequestContext, StreamRequest, read_payload

AnyMessage: TypeAlias = str | Mapping[str, Any] | ChatMessage | Message
Messages: TypeAlias = str | Sequence[AnyMessage]
"""A lone string is one user message."""
AnyTool: TypeAlias = "sdk.AgentTool | ToolDefinition | Mapping[str, Any] | Callable[..., Any]"
"""A function is a tool by its signature and docstring; see `makai.tool`."""
Tools: TypeAlias = Sequence[AnyTool]
Options: TypeAlias = sdk.RunOptions | Mapping[str, Any]
AgentTools: TypeAlias = Sequence[AnyTool]
AgentRunOptionsLike: TypeAlias = sdk.AgentRunOptions | sdk.RunOptions | Mapping[str, Any]

_FIELDS: Final = frozenset(sdk.AgentRunRequest.__struct_fields__)
_STAYS_HERE: Final = frozenset({"auth_retry_policy", "session_id"})
_WIRE_OPTIONS: Final = RequestOptions.__struct_fields__
_Shape = TypeVar("_Shape", bound=msgspec.Struct)


def request_of(
    request: sdk.ProviderCompleteRequest | Mapping[str, Any] | None,
    model_ref: str | None,
    messages: Messages | None,
    tools: Tools | None,
    options: Options | None,
) -> sdk.ProviderCompleteRequest:
    """The typed request, from an object or from its fields, but not from both."""
    fields = {"model_ref": model_ref, "messages": messages, "tools": tools, "options": options}
    given = fields_of(request, fields, fields.keys(), "a request")
    return sdk.ProviderCompleteRequest(
        model_ref=given["model_ref"],
        messages=given["messages"],
        tools=tuple(_definition_of(tool) for tool in _listed(given.get("tools", ()))),
        options=shape_of(sdk.RunOptions, given.get("options") or sdk.RunOptions(), "options"),
    )


def fields_of(
    request: msgspec.Struct | Mapping[str, Any] | None, fields: Mapping[str, Any], known: Set[str], what: str
) -> dict[str, Any]:
    """The fields that were given, by an object or one by one, but not both. The two that are needed are checked."""
    given = given_of(request, fields)
    if unknown := given.keys() - known:
        raise InvalidRequest(f"{what} has no {', '.join(sorted(unknown))}")
    model_ref = given.get("model_ref", "")
    if not isinstance(model_ref, str) or not (model_ref or given.get("agent")):
        raise InvalidRequest("model_ref is missing", hint="client.models.list() says which there are.")
    if "messages" not in given:
        raise InvalidRequest("messages is missing")
    return given | {"messages": chat_messages(given["messages"])}


def given_of(request: msgspec.Struct | Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in fields.items() if value is not None}
    if request is None:
        return given
    if given:
        raise InvalidRequest(f"give a request object or its fields, not both: {', '.join(given)}")
    given = msgspec.structs.asdict(request) if isinstance(request, msgspec.Struct) else dict(request)
    return {name: value for name, value in given.items() if value is not None}


def payload_of(request: sdk.ProviderCompleteRequest) -> StreamRequest:
    """What travels of a request: everything but the retry policy, which is the client's own business."""
    return StreamRequest(
        model_ref=request.model_ref,
        context=RequestContext(messages=request.messages, tools=request.tools),
        options=RequestOptions(**{name: getattr(request.options, name) for name in _WIRE_OPTIONS}),
    )


def chat_messages(messages: Messages) -> tuple[ChatMessage, ...]:
    """Messages in every spelling -> as the wire spells them."""
    if isinstance(messages, str):
        return (ChatMessage(role="user", content=messages),)
    if not isinstance(messages, Iterable) or isinstance(messages, Mapping | bytes):
        raise InvalidRequest("messages is neither a text nor a list of messages")
    return tuple(chat_message(message, f"messages[{position}]") for position, message in enumerate(messages))


def shape_of(kind: type[_Shape], value: _Shape | Mapping[str, Any], name: str) -> _Shape:
    """A typed object, from one or from a dict of its fields."""
    if isinstance(value, kind):
        return value
    try:
        return read_payload(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"{name}: {error}") from error


def chat_message(message: AnyMessage, name: str = "message") -> ChatMessage:
    """A message in any spelling as the wire spells it; `name` is for the error about one that is none."""
    match message:
        case str():
            return ChatMessage(role="user", content=message)
        case ChatMessage():
            return message
        case SystemMessage():
            return ChatMessage(role="system", content=message.content)
        case UserMessage():
            return ChatMessage(role="user", content=message.content)
        case AssistantMessage():
            names = ("content", "provider", "api", "model", "stop_reason", "usage", "timestamp")
            return ChatMessage(role="assistant", **{name: getattr(message, name) for name in names})
        case ToolMessage():
            return ChatMessage(role="tool", content=(message.result,))
        case _:
            return shape_of(ChatMessage, message, name)


class UntypedRunFields(TypedDict, total=False):
    """The fields of an `AgentRunRequest` as callers may write them, without the type of the answer."""

    model_ref: str
    agent: str | None
    messages: Messages
    tools: AgentTools | None
    options: AgentRunOptionsLike | None
    tool_servers: Sequence[str] | None
    system_prompt: str | None
    builtin_tools: bool
    cwd: str | None
    mode: PermissionMode | None
    sandbox: SandboxLevel | None
    title: str | None
    approval_s: float | None
    on_permission_request: sdk.PermissionHandler | None
    output_repairs: int


class AgentRunFields(UntypedRunFields, total=False):
    """All fields of an `AgentRunRequest` as callers may write them."""

    output: Any


def run_request_of(
    request: sdk.AgentRunRequest | Mapping[str, Any] | None, fields: Mapping[str, Any]
) -> sdk.AgentRunRequest:
    given = fields_of(request, fields, _FIELDS, "an agent's request")
    given["tools"] = tools_of(given.get("tools"))
    if (servers := given.get("tool_servers")) is not None:
        given["tool_servers"] = _server_ids(servers)
    given["options"] = _options_of(given.get("options") or sdk.AgentRunOptions())
    return sdk.AgentRunRequest(**given)


def _server_ids(given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise InvalidRequest("tool_servers is a list of ids, not one id")
    check_server_ids(ids := tuple(given))
    return ids


def tools_of(tools: AgentTools | None) -> tuple[sdk.AgentTool, ...] | None:
    if tools is None:
        return None
    found = tuple(_tool_of(tool) for tool in _listed(tools))
    names = [tool.name for tool in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidRequest(f"tools: two have the name {', '.join(twice)}")
    return found


def _listed(tools: Iterable[AnyTool]) -> Iterable[AnyTool]:
    """`InvalidRequest` for one tool without a list: the parts of a text or a mapping would be taken for tools."""
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise InvalidRequest("tools is a list of tools, not one tool", hint="Write tools=[…].")
    return tools


def session_id_of(session_id: str) -> str:
    if not is_session_id(session_id):
        raise InvalidRequest(
            f"a session id has 1 to {MAX_SESSION_ID_LENGTH} characters, none of them NUL or a lone surrogate"
        )
    return session_id.lower() if is_uuid(session_id) else session_id


def session_of(request: sdk.AgentRunRequest) -> str:
    """The session a request is for; a new id where it names none."""
    named = request.options.session_id
    return str(uuid4()) if named is None else session_id_of(named)


def starts_of(request: sdk.AgentRunRequest, *, is_new: bool) -> tuple[AgentStart, ...]:
    """How to begin: a session that is not certain to be new is continued, and begun when it does not exist."""
    system, _ = _split(request)
    tools = None if request.tools is None else tuple(tool.definition for tool in request.tools)
    start = AgentStart(
        model_ref=request.model_ref or None,
        agent=request.agent,
        system_prompt=system,
        tools=tools,
        tool_servers=request.tool_servers,
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


def message_of(request: sdk.AgentRunRequest) -> AgentMessage:
    _, messages = _split(request)
    fields = {name: getattr(request.options, name) for name in AgentOptions.__struct_fields__}
    options = AgentOptions(**{name: value for name, value in fields.items() if name not in _STAYS_HERE})
    return AgentMessage(messages=messages, options=options)


def _split(request: sdk.AgentRunRequest) -> tuple[str | None, tuple[ChatMessage, ...]]:
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


def _tool_of(tool: AnyTool) -> sdk.AgentTool:
    match tool:
        case sdk.AgentTool():
            return tool
        case ToolDefinition():
            fields = msgspec.structs.asdict(tool)
        case Mapping():
            fields = dict(tool)
        case _ if callable(tool):
            return tool_of_function(tool)
        case _:
            raise InvalidRequest(f"tools: {tool!r} is no tool", hint="Give functions, or `makai.AgentTool` values.")
    try:
        return sdk.AgentTool(**fields)
    except TypeError as error:
        raise InvalidRequest(f"tools: {error}") from error


def _definition_of(tool: AnyTool) -> ToolDefinition:
    if isinstance(tool, ToolDefinition | Mapping):
        return shape_of(ToolDefinition, tool, "tools")
    return _tool_of(tool).definition


def _options_of(options: AgentRunOptionsLike) -> sdk.AgentRunOptions:
    if isinstance(options, sdk.RunOptions) and not isinstance(options, sdk.AgentRunOptions):
        options = msgspec.structs.asdict(options)
    return shape_of(sdk.AgentRunOptions, options, "options")
