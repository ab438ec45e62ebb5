"""Chat messages of the wire -> messages of the core (MK-PROV-004); `InvalidRequest` for what cannot be meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from makai.core import messages as core
from makai.core.content import Audio, ContentPart, Image, Text, Thinking, ToolCall, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.request import Context, RequestOptions, StreamOptions, ToolDefinition
from makai.core.usage import Usage
from makai.protocols.makai.payloads import ChatMessage, StreamRequest

_STOP_REASONS = frozenset(get_args(core.StopReason))


def context_of(request: StreamRequest) -> Context:
    messages = conversation_of(request.context.messages)
    for tool in request.context.tools or ():
        check_schema(tool)
    return Context(messages=messages, system_prompt=request.context.system_prompt, tools=request.context.tools)


def conversation_of(chat: Sequence[ChatMessage]) -> tuple[core.Message, ...]:
    """The messages of a request, of which there is at least one."""
    tool_names: dict[str, str] = {}
    messages: list[core.Message] = []
    for position, message in enumerate(chat):
        try:
            converted = list(_convert(message, tool_names))
        except InvalidRequest as error:
            raise InvalidRequest(f"messages[{position}]: {error.message}") from error
        for each in converted:
            if isinstance(each, core.AssistantMessage):
                tool_names.update({call.tool_call_id: call.name for call in each.tool_calls()})
        messages.extend(converted)
    if not messages:
        raise InvalidRequest("a user message is missing")
    return tuple(messages)


def check_schema(tool: ToolDefinition) -> None:
    """MK-TOOL-001: a schema that is not valid JSON is rejected, and before anything is asked of a model."""
    try:
        msgspec.json.decode(tool.parameters_schema_json, type=dict[str, object])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"tools: parameters_schema_json of {tool.name!r} is not a JSON object: {error}") from None


def options_of(options: RequestOptions) -> StreamOptions:
    """The options of a request; time-outs and retries are the server's business."""
    return StreamOptions(**{name: getattr(options, name) for name in options.__struct_fields__})


def _convert(message: ChatMessage, tool_names: dict[str, str]) -> Iterator[core.Message]:
    match message.role:
        case "system" | "developer":
            parts = parts_of(message)
            texts = [part.text for part in parts if isinstance(part, Text)]
            if len(texts) != len(parts):
                raise InvalidRequest(f"a {message.role} message holds text only")
            yield core.SystemMessage(content="".join(texts))
        case "user":
            yield from _user(message, tool_names)
        case "assistant":
            yield _assistant(message)
        case "tool":
            yield from _tool(message, tool_names)


def parts_of(message: ChatMessage) -> tuple[ContentPart, ...]:
    """Its content, also when that was written as a plain string."""
    return (Text(text=message.content),) if isinstance(message.content, str) else message.content


def _user(message: ChatMessage, tool_names: dict[str, str]) -> Iterator[core.Message]:
    """Tool results may come inside a user message; they are messages of their own and go first."""
    parts = parts_of(message)
    for part in parts:
        if isinstance(part, ToolResult):
            yield core.ToolMessage(result=_named(part, tool_names))
    said = tuple(part for part in parts if isinstance(part, Text | Image | Audio))
    if len(said) + sum(isinstance(part, ToolResult) for part in parts) != len(parts):
        raise InvalidRequest("a user message holds text, images, audio and tool results only")
    if said or not parts:
        yield core.UserMessage(content=message.content if isinstance(message.content, str) else said)


def _assistant(message: ChatMessage) -> core.AssistantMessage:
    parts = parts_of(message)
    content = tuple(part for part in parts if isinstance(part, Text | Thinking | ToolCall))
    if len(content) != len(parts):
        raise InvalidRequest("an assistant message holds text, thinking and tool calls only")
    reason = core.STOP_REASON_ALIASES.get(message.stop_reason or "", message.stop_reason)
    return core.AssistantMessage(
        content=content,
        provider=message.provider,
        api=message.api,
        model=message.model,
        # Stop reasons are an open set for clients; one that is not known here says nothing about history.
        stop_reason=reason if reason in _STOP_REASONS else None,  # type: ignore[arg-type]
        usage=message.usage or Usage(),
        timestamp=message.timestamp,
    )


def _tool(message: ChatMessage, tool_names: dict[str, str]) -> Iterator[core.Message]:
    parts = parts_of(message)
    results = [part for part in parts if isinstance(part, ToolResult)]
    if results:
        if len(results) != len(parts):
            raise InvalidRequest("a tool message holds either tool results or the content of one")
        for part in results:
            yield core.ToolMessage(result=_named(part, tool_names))
        return
    if message.tool_call_id is None:
        raise InvalidRequest("a tool message needs tool_call_id, or tool_result parts")
    content = tuple(part for part in parts if isinstance(part, Text | Image))
    if len(content) != len(parts):
        raise InvalidRequest("a tool message holds text and images only")
    result = ToolResult(
        tool_call_id=message.tool_call_id,
        tool_name=message.name or "",
        content=message.content if isinstance(message.content, str) else content,
    )
    yield core.ToolMessage(result=_named(result, tool_names))


def _named(result: ToolResult, tool_names: dict[str, str]) -> ToolResult:
    if result.tool_name:
        return result
    return msgspec.structs.replace(result, tool_name=tool_names.get(result.tool_call_id, ""))
