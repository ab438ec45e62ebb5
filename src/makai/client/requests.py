"""What callers write -> a typed request and its payload; `InvalidRequest` for what cannot be meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from makai.client.types import ProviderCompleteRequest, RunOptions
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from makai.core.request import ToolDefinition
from makai.protocols.makai.payloads import ChatMessage, RequestContext, RequestOptions, StreamRequest

AnyMessage: TypeAlias = str | Mapping[str, Any] | ChatMessage | Message
Messages: TypeAlias = str | Sequence[AnyMessage]
"""A lone string is one user message."""
Tools: TypeAlias = Sequence[ToolDefinition | Mapping[str, Any]]
Options: TypeAlias = RunOptions | Mapping[str, Any]

_WIRE_OPTIONS: Final = RequestOptions.__struct_fields__
_Shape = TypeVar("_Shape", bound=msgspec.Struct)
_Request = TypeVar("_Request", bound=ProviderCompleteRequest)


def request_of(
    kind: type[_Request],
    request: ProviderCompleteRequest | Mapping[str, Any] | None,
    model_ref: str | None,
    messages: Messages | None,
    tools: Tools | None,
    options: Options | None,
) -> _Request:
    """The typed request, from an object or from its fields, but not from both."""
    fields = {"model_ref": model_ref, "messages": messages, "tools": tools, "options": options}
    given = fields_of(request, fields, fields.keys(), "a request")
    return kind(
        model_ref=given["model_ref"],
        messages=given["messages"],
        tools=tuple(shape_of(ToolDefinition, tool, "tools") for tool in given.get("tools", ())),
        options=shape_of(RunOptions, given.get("options") or RunOptions(), "options"),
    )


def fields_of(
    request: msgspec.Struct | Mapping[str, Any] | None, fields: Mapping[str, Any], known: Set[str], what: str
) -> dict[str, Any]:
    """The fields that were given, by an object or one by one, but not both. The two that are needed are checked."""
    given = given_of(request, fields)
    if unknown := given.keys() - known:
        raise InvalidRequest(f"{what} has no {', '.join(sorted(unknown))}")
    if not isinstance(given.get("model_ref"), str):
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
    return msgspec.structs.asdict(request) if isinstance(request, msgspec.Struct) else dict(request)


def payload_of(request: ProviderCompleteRequest) -> StreamRequest:
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
    return tuple(chat_message(message, f"messages[{position}]") for position, message in enumerate(messages))


def shape_of(kind: type[_Shape], value: _Shape | Mapping[str, Any], name: str) -> _Shape:
    """A typed object, from one or from a dict of its fields."""
    if isinstance(value, kind):
        return value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
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
            return ChatMessage(
                role="assistant",
                content=message.content,
                provider=message.provider,
                api=message.api,
                model=message.model,
                stop_reason=message.stop_reason,
                usage=message.usage,
                timestamp=message.timestamp,
            )
        case ToolMessage():
            return ChatMessage(role="tool", content=(message.result,))
        case _:
            return shape_of(ChatMessage, message, name)
