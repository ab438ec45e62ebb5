"""Anthropic Messages, the request: Claude, and the servers that speak Claude's API (llama.cpp and others). Pure. How
one generation of Claude differs from the next (thinking, sampling, forced tools) is data in `anthropic_models`.
Requests never claim to come from another vendor's client."""

from __future__ import annotations

from typing import Any, Final, assert_never

from makai.core.content import Audio, Image, Text, Thinking, ToolCall, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import Context, StreamOptions, ToolChoice, ToolDefinition
from makai.core.secret import Secret
from makai.providers.anthropic_messages_answer import MessagesDecoder
from makai.providers.anthropic_models import Dialect, dialect_of, thinking_fields
from makai.providers.base import HttpRequest, ProviderRequest, bearer, json_post
from makai.providers.parts import Parts
from makai.providers.preparation import arguments_object, normalised_tool_id, prepare, schema_object

JSON = dict[str, Any]

# Not 2026-10-21: that version refuses temperature and top_p for every model, and compatible servers do not know it.
API_VERSION: Final = "2023-06-01"
BETA_INTERLEAVED: Final = "interleaved-thinking-2025-05-14"
BETA_BINDING: Final = "thinking-binding-controls-2026-08-01"
BETA_OAUTH: Final = "oauth-2025-04-20"
OAUTH_PREFIX: Final = "sk-ant-oat"

MAX_TOKENS: Final = 64_000
"""`max_tokens` is required; this is ours when the caller names none and the model allows as much."""
MAX_TOKENS_UNKNOWN_MODEL: Final = 8_192


class AnthropicMessages:
    """The codec of `POST {base_url}/v1/messages`."""

    id = "anthropic-messages"

    def request(self, request: ProviderRequest) -> HttpRequest:
        body = _body(request, dialect_of(request.model.id))
        return json_post(request.model.base_url.rstrip("/") + "/v1/messages", body, _headers(request, body))

    def decoder(self, request: ProviderRequest, parts: Parts) -> MessagesDecoder:
        return MessagesDecoder(request, parts)


def _headers(request: ProviderRequest, body: JSON) -> dict[str, str | Secret]:
    headers: dict[str, str | Secret] = {"anthropic-version": API_VERSION}
    betas = []
    if request.secret and request.secret.reveal().startswith(OAUTH_PREFIX):
        headers |= bearer(request.secret)
        betas.append(BETA_OAUTH)
    elif request.secret:
        headers["x-api-key"] = request.secret
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled" and "tools" in body and dialect_of(request.model.id).interleaved:
        betas.append(BETA_INTERLEAVED)
    if "block_binding" in thinking:
        betas.append(BETA_BINDING)
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    return headers


def _body(request: ProviderRequest, dialect: Dialect) -> JSON:
    model, options = request.model, request.options
    context = prepare(request.context, model, inline_system=False, tool_id=normalised_tool_id(64))
    mark = _cache_mark(options)
    messages = _messages(context)
    if not messages:
        raise InvalidRequest("the conversation holds no message to answer")
    if mark and messages[-1]["role"] == "user":
        messages[-1]["content"][-1] |= mark
    body: JSON = {"model": model.id, "max_tokens": _max_tokens(model, options), "messages": messages, "stream": True}
    if context.system_prompt:
        body["system"] = [{"type": "text", "text": context.system_prompt, **mark}]
    if context.tools:
        body["tools"] = [_tool(tool) for tool in context.tools]
        body["tools"][-1] |= mark
        body |= _tool_choice(options.tool_choice, dialect)
    if model.can(ModelCapability.REASONING):
        body |= thinking_fields(
            dialect,
            options.reasoning_effort,
            body["max_tokens"],
            forces_tool=body.get("tool_choice", {}).get("type") in ("any", "tool"),
            replays_thinking=_has_thinking(messages),
        )
    _add_sampling(body, options, dialect)
    if options.json_schema is not None:
        schema = schema_object(options.json_schema, "json_schema")
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": schema}
    if user_id := options.metadata.get("user_id"):
        body["metadata"] = {"user_id": user_id}
    return body


def _cache_mark(options: StreamOptions) -> JSON:
    """The prompt up to a marked block is cached: 5 minutes unless a `ttl` says otherwise."""
    if options.cache_retention == "none":
        return {}
    ttl = {"ttl": "1h"} if options.cache_retention == "long" else {}
    return {"cache_control": {"type": "ephemeral", **ttl}}


def _max_tokens(model: Model, options: StreamOptions) -> int:
    limit = model.max_output_tokens
    if options.max_tokens is not None:
        return min(options.max_tokens, limit) if limit else options.max_tokens
    return min(MAX_TOKENS, limit) if limit else MAX_TOKENS_UNKNOWN_MODEL


def _tool(tool: ToolDefinition) -> JSON:
    described = {"description": tool.description} if tool.description else {}
    schema = schema_object(tool.parameters_schema_json, f"the parameters of tool {tool.name!r}")
    return {"name": tool.name, **described, "input_schema": schema}


def _tool_choice(choice: ToolChoice | None, dialect: Dialect) -> JSON:
    if choice is None:
        return {}
    match choice.mode:
        case "auto" | "none":
            return {"tool_choice": {"type": choice.mode}}
        case "required" | "tool" if dialect.forced_tools == "never":
            return {}
        case "required":
            return {"tool_choice": {"type": "any"}}
        case "tool":
            if not choice.name:
                raise InvalidRequest('tool_choice "tool" needs the name of a tool')
            return {"tool_choice": {"type": "tool", "name": choice.name}}


def _has_thinking(messages: list[JSON]) -> bool:
    return any(
        block["type"] in ("thinking", "redacted_thinking") for message in messages for block in message["content"]
    )


def _add_sampling(body: JSON, options: StreamOptions, dialect: Dialect) -> None:
    if options.stop and (stop := [sequence for sequence in options.stop if sequence.strip()]):
        body["stop_sequences"] = stop
    if not dialect.sampling or body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
        return
    # Claude 4.1 and later refuse both together; temperature is the one people mean.
    if options.temperature is not None:
        body["temperature"] = options.temperature
    elif options.top_p is not None:
        body["top_p"] = options.top_p


def _messages(context: Context) -> list[JSON]:
    """The turns, neighbours of one role merged: the results of parallel calls must share one user message."""
    messages: list[JSON] = []
    for message in context.messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if not (blocks := _blocks(message)):
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def _blocks(message: Message) -> list[JSON]:
    match message:
        case UserMessage():
            return [block for part in message.parts() for block in _input_block(part)]
        case AssistantMessage():
            return [block for part in message.content for block in _output_block(part)]
        case ToolMessage():
            return [_result_block(message.result)]
        case SystemMessage():
            return []  # `prepare` has left none
        case _:
            assert_never(message)


def _input_block(part: Text | Image | Audio) -> list[JSON]:
    match part:
        case Text():
            return _text_block(part.text)
        case Image():
            source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
            return [{"type": "image", "source": source}]
        case Audio():
            raise InvalidRequest("the anthropic-messages API takes no audio: send text or images")
        case _:
            assert_never(part)


def _text_block(text: str) -> list[JSON]:
    """ "text content blocks must contain non-whitespace text" """
    return [{"type": "text", "text": text}] if text.strip() else []


def _output_block(part: Text | Thinking | ToolCall) -> list[JSON]:
    match part:
        case Text():
            return _text_block(part.text)
        case ToolCall():
            return [{"type": "tool_use", "id": part.tool_call_id, "name": part.name, "input": arguments_object(part)}]
        case Thinking() if part.thinking_signature is None:
            return _text_block(part.thinking)
        case Thinking() if part.redacted:
            return [{"type": "redacted_thinking", "data": part.thinking_signature}]
        case Thinking():
            return [{"type": "thinking", "thinking": part.thinking, "signature": part.thinking_signature}]
        case _:
            assert_never(part)


def _result_block(result: ToolResult) -> JSON:
    content: str | list[JSON]
    if isinstance(result.content, str):
        content = result.content
    else:
        content = [block for part in result.content for block in _input_block(part)]
    if not content and result.is_error:
        content = "The tool failed and gave no reason."  # "content cannot be empty if is_error is true"
    block: JSON = {"type": "tool_result", "tool_use_id": result.tool_call_id, "content": content}
    return block | ({"is_error": True} if result.is_error else {})
