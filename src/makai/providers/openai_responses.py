"""OpenAI Responses, the request: items in, and reasoning that travels encrypted. Pure. Nothing is kept at the vendor
(`store: false`): each request carries the whole conversation, and earlier reasoning goes back as the encrypted item the
same model made. What model families accept is data (`FAMILIES`). Azure serves the same API at another address, with
another header."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, assert_never
from urllib.parse import urlencode

import msgspec

from makai.core.content import Audio, Image, Text, Thinking, ToolCall, ToolResult, UserPart
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import Context, StreamOptions
from makai.core.secret import Secret
from makai.providers.base import HttpRequest, ProviderRequest, bearer, json_post
from makai.providers.openai_responses_answer import ResponsesDecoder, replayed_reasoning
from makai.providers.parts import Parts
from makai.providers.preparation import (
    arguments_text,
    function_fields,
    nearest_effort,
    normalised_tool_id,
    prepare,
    schema_object,
)

JSON = dict[str, Any]

MIN_OUTPUT_TOKENS = 16
"""The API refuses a smaller `max_output_tokens`."""
MAX_CACHE_KEY = 64
AZURE_PATH = "/openai/v1"
PHASES = ("commentary", "final_answer")


class ResponsesFamily(msgspec.Struct, frozen=True, kw_only=True):
    efforts: tuple[str, ...] = ("low", "medium", "high")
    off: str | None = None
    """What comes closest to not reasoning; None leaves the effort out, which means the model's own default."""
    cache: Literal["key", "retention", "ttl"] = "key"
    """How a long-lived prompt cache is asked for; "key": it cannot be."""


_UP_TO_XHIGH = ("low", "medium", "high", "xhigh")

UNKNOWN_FAMILY = ResponsesFamily()
FAMILIES: dict[str, ResponsesFamily] = {
    "o1": ResponsesFamily(off="low"),
    "o3": ResponsesFamily(off="low"),
    "o4": ResponsesFamily(off="low"),
    "o3-deep-research": ResponsesFamily(efforts=("medium",)),
    "o4-mini-deep-research": ResponsesFamily(efforts=("medium",)),
    "gpt-oss": ResponsesFamily(off="low"),
    "gpt-3": ResponsesFamily(efforts=()),
    "gpt-4": ResponsesFamily(efforts=()),
    "gpt-4.1": ResponsesFamily(efforts=(), cache="retention"),
    "gpt-5": ResponsesFamily(efforts=("minimal", "low", "medium", "high"), off="minimal", cache="retention"),
    "gpt-5-pro": ResponsesFamily(efforts=("high",), cache="retention"),
    "gpt-5-codex": ResponsesFamily(off="low", cache="retention"),
    "gpt-5.": ResponsesFamily(efforts=_UP_TO_XHIGH, off="none", cache="retention"),
    "gpt-5.1": ResponsesFamily(off="none", cache="retention"),
    "gpt-5.1-chat": ResponsesFamily(efforts=("medium",), cache="retention"),
    "gpt-5.1-codex": ResponsesFamily(off="low", cache="retention"),
    "gpt-5.1-codex-max": ResponsesFamily(efforts=_UP_TO_XHIGH, off="low", cache="retention"),
    "gpt-5.2-chat": ResponsesFamily(efforts=("medium",), cache="retention"),
    "gpt-5.2-codex": ResponsesFamily(efforts=_UP_TO_XHIGH, off="low", cache="retention"),
    "gpt-5.2-pro": ResponsesFamily(efforts=("medium", "high", "xhigh"), cache="retention"),
    "gpt-5.3-chat": ResponsesFamily(efforts=("medium",), cache="retention"),
    "gpt-5.3-codex": ResponsesFamily(efforts=_UP_TO_XHIGH, off="low", cache="retention"),
    "gpt-5.4-pro": ResponsesFamily(efforts=("medium", "high", "xhigh"), cache="retention"),
    "gpt-5.5-pro": ResponsesFamily(efforts=("medium", "high", "xhigh"), cache="retention"),
    "gpt-5.6": ResponsesFamily(efforts=_UP_TO_XHIGH, off="none", cache="ttl"),
    "gpt-6-sol": ResponsesFamily(efforts=_UP_TO_XHIGH, off="none", cache="ttl"),
    "gpt-": ResponsesFamily(efforts=_UP_TO_XHIGH, off="low", cache="ttl"),
}
"""Beginning of a model id -> its family; the longest match counts. A model that is not here gets the common ground."""


def family_of(model_id: str) -> ResponsesFamily:
    """The family of a model, whichever gateway prefix ("openai/…") its id has."""
    name = model_id.rpartition("/")[2].lower()
    prefix = max((prefix for prefix in FAMILIES if name.startswith(prefix)), key=len, default="")
    return FAMILIES.get(prefix, UNKNOWN_FAMILY)


class OpenAIResponses:
    """The codec of `POST {base_url}/responses`."""

    id = "openai-responses"

    def request(self, request: ProviderRequest) -> HttpRequest:
        credential = self.credential(request.secret) if request.secret else {}
        return json_post(self.url(request.model), _body(request), credential)

    def url(self, model: Model) -> str:
        """Where the request goes; the base URL already ends in /v1."""
        return model.base_url.rstrip("/") + "/responses"

    def credential(self, secret: Secret) -> dict[str, str | Secret]:
        return bearer(secret)

    def decoder(self, request: ProviderRequest, parts: Parts) -> ResponsesDecoder:
        return ResponsesDecoder(request, parts)


class AzureOpenAIResponses(OpenAIResponses):
    """The codec of `POST {base_url}/openai/v1/responses`: the model id is the name of a deployment."""

    id = "azure-openai-responses"

    def url(self, model: Model) -> str:
        """The v1 address of the resource. Azure shows its URL with and without the path, so both are accepted."""
        resource = model.base_url.rstrip("/").removesuffix(AZURE_PATH)
        version = model.options.get("api_version")
        query = "?" + urlencode({"api-version": version}) if version else ""
        return f"{resource}{AZURE_PATH}/responses{query}"

    def credential(self, secret: Secret) -> dict[str, str | Secret]:
        return {"api-key": secret}


def _body(request: ProviderRequest) -> JSON:
    model, options = request.model, request.options
    family = family_of(model.id)
    context = prepare(request.context, model, inline_system=True, tool_id=normalised_tool_id(64))
    body: JSON = {"model": model.id, "stream": True, "store": False}
    if context.system_prompt:
        body["instructions"] = context.system_prompt
    body["input"] = [item for message in context.messages for item in _items(message)]
    if options.max_tokens is not None:
        body["max_output_tokens"] = max(MIN_OUTPUT_TOKENS, options.max_tokens)
    body.update(_reasoning_and_sampling(model, options, family))
    body.update(_tools(context, options))
    if options.json_schema is not None:
        schema = schema_object(options.json_schema, "the output schema")
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}}
    body.update(_cache(options, family))
    if options.metadata:
        body["metadata"] = options.metadata
    return body


def _reasoning_and_sampling(model: Model, options: StreamOptions, family: ResponsesFamily) -> JSON:
    """Effort for models that reason (MK-PROV-006), temperature for models that do not: the API takes either."""
    fields: JSON = {}
    level = None
    if model.can(ModelCapability.REASONING):
        # Without this the reasoning item comes back empty, and with `store: false` it could not be sent back.
        fields["include"] = ["reasoning.encrypted_content"]
        effort = options.reasoning_effort
        if effort is not None:
            level = family.off if effort == "off" else nearest_effort(effort, family.efforts)
        if level is not None:
            # Summaries only when effort is asked for: OpenAI refuses them to organisations it has not verified.
            fields["reasoning"] = {"effort": level} if level == "none" else {"effort": level, "summary": "auto"}
        if level != "none":
            return fields
    if options.temperature is not None:
        fields["temperature"] = options.temperature
    if options.top_p is not None:
        fields["top_p"] = options.top_p
    return fields


def _tools(context: Context, options: StreamOptions) -> JSON:
    if not context.tools:
        return {}
    # The default of `strict` is true, and strict mode refuses most schemas that were not written for it.
    functions = [{"type": "function", **function_fields(tool), "strict": False} for tool in context.tools]
    fields: JSON = {"tools": functions, "parallel_tool_calls": True}
    choice = options.tool_choice
    if choice is not None:
        fields["tool_choice"] = {"type": "function", "name": choice.name} if choice.mode == "tool" else choice.mode
    return fields


def _cache(options: StreamOptions, family: ResponsesFamily) -> JSON:
    """OpenAI caches by itself; the key brings requests of one conversation to the same cache."""
    if options.cache_retention == "none":
        # "If there are no explicit breakpoints, the request does not use prompt caching."
        return {"prompt_cache_options": {"mode": "explicit"}} if family.cache == "ttl" else {}
    fields: JSON = {}
    if options.session_id:
        key = options.session_id
        fits = len(key) <= MAX_CACHE_KEY
        fields["prompt_cache_key"] = key if fits else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
    if options.cache_retention == "long" and family.cache == "ttl":
        fields["prompt_cache_options"] = {"ttl": "12h"}
    elif options.cache_retention == "long" and family.cache == "retention":
        fields["prompt_cache_retention"] = "24h"
    return fields


def _items(message: Message) -> Iterator[Any]:
    """The input items of one message; an assistant turn is one item per part."""
    match message:
        case SystemMessage():
            yield {"type": "message", "role": "developer", "content": message.content}
        case UserMessage():
            yield {"type": "message", "role": "user", "content": _input_content(message.parts())}
        case AssistantMessage():
            for part in message.content:
                if (item := _output_item(part)) is not None:
                    yield item
        case ToolMessage():
            yield {
                "type": "function_call_output",
                "call_id": message.result.tool_call_id,
                "output": _tool_output(message.result),
            }
        case _:
            assert_never(message)


def _input_content(parts: Iterable[UserPart]) -> list[JSON]:
    content: list[JSON] = []
    for part in parts:
        match part:
            case Text():
                content.append({"type": "input_text", "text": part.text})
            case Image():
                url = f"data:{part.mime_type};base64,{part.data}"
                content.append({"type": "input_image", "detail": "auto", "image_url": url})
            case Audio():
                raise InvalidRequest("the OpenAI Responses API takes no audio", hint="Use a chat completions model.")
            case _:
                assert_never(part)
    return content


def _tool_output(result: ToolResult) -> str | list[JSON]:
    """Plain text where that says it all: not every server takes a list."""
    if isinstance(result.content, str) or all(isinstance(part, Text) for part in result.content):
        return f"Error: {result.text()}" if result.is_error else result.text()
    failed = [{"type": "input_text", "text": "Error:"}] if result.is_error else []
    return failed + _input_content(result.content)


def _output_item(part: Text | Thinking | ToolCall) -> Any:
    """One part of an earlier answer as an item, or None when there is nothing to send. Without ids: nothing is stored
    under them, and a message id without its reasoning item is refused."""
    match part:
        case Text():
            if not part.text:
                return None
            content = [{"type": "output_text", "text": part.text, "annotations": []}]
            item: JSON = {"type": "message", "role": "assistant", "content": content}
            return item | ({"phase": part.text_signature} if part.text_signature in PHASES else {})
        case Thinking():
            return replayed_reasoning(part.thinking_signature)
        case ToolCall():
            return {
                "type": "function_call",
                "call_id": part.tool_call_id,
                "name": part.name,
                "arguments": arguments_text(part),
            }
        case _:
            assert_never(part)
