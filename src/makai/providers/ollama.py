"""Ollama: `/api/chat`, one JSON object per line. It has no tool choice, no caching control and no audio. Pure."""

from __future__ import annotations

from typing import Any, Final, assert_never

import msgspec

from makai.core.content import Audio, Image, Text, Thinking, ToolResult
from makai.core.errors import InvalidRequest, ParseError, ProviderError
from makai.core.messages import AssistantMessage, Message, StopReason, SystemMessage, ToolMessage, UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import Context, StreamOptions
from makai.core.usage import Usage, token_count
from makai.providers.base import AnswerDecoder, HttpRequest, ProviderRequest, bearer, json_post
from makai.providers.parts import Parts
from makai.providers.preparation import (
    arguments_object,
    function_fields,
    nearest_effort,
    prepare,
    sampling_fields,
    schema_object,
)
from makai.wire.ndjson import NDJSONDecoder

JSON = dict[str, Any]

LEVEL_MODELS = ("gpt-oss",)
"""Models that take a level of thinking instead of yes or no, and cannot stop thinking."""
THINK_LEVELS = ("low", "medium", "high")

STOP_REASONS: dict[str, StopReason] = {"stop": "end_turn", "length": "max_tokens"}


class Ollama:
    """The codec of `POST {base_url}/api/chat`."""

    id = "ollama"

    def request(self, request: ProviderRequest) -> HttpRequest:
        """The HTTP request for one streamed answer. A local server needs no key, ollama.com does."""
        url = request.model.base_url.rstrip("/") + "/api/chat"
        return json_post(url, _body(request), bearer(request.secret), accept="application/x-ndjson")

    def decoder(self, request: ProviderRequest, parts: Parts) -> OllamaDecoder:
        return OllamaDecoder(request, parts)


def _body(request: ProviderRequest) -> JSON:
    model, options = request.model, request.options
    context = prepare(request.context, model, inline_system=True)
    messages = [_message(message) for message in context.messages]
    if context.system_prompt:
        messages.insert(0, {"role": "system", "content": context.system_prompt})
    body: JSON = {"model": model.id, "messages": messages, "stream": True}
    if tools := _tools(context, options):
        body["tools"] = tools
    if options.json_schema is not None:
        body["format"] = schema_object(options.json_schema, "json_schema")
    think = _think(model, options)
    if think is not None:
        body["think"] = think
    if sampling := sampling_fields(options, max_tokens="num_predict"):
        body["options"] = sampling
    return body


def _think(model: Model, options: StreamOptions) -> bool | str | None:
    """None leaves it to the model. Asking a model that cannot think is an error there (MK-PROV-006)."""
    effort = options.reasoning_effort
    if effort is None or not model.can(ModelCapability.REASONING):
        return None
    if any(name in model.id for name in LEVEL_MODELS):
        return nearest_effort(effort, THINK_LEVELS) or THINK_LEVELS[0]
    return effort != "off"


def _tools(context: Context, options: StreamOptions) -> list[JSON]:
    """The only tool choice Ollama can express is to offer none."""
    if options.tool_choice is not None and options.tool_choice.mode == "none":
        return []
    return [{"type": "function", "function": function_fields(tool)} for tool in context.tools]


def _message(message: Message) -> JSON:
    match message:
        case SystemMessage():
            return {"role": "system", "content": message.content}
        case UserMessage():
            return {"role": "user", **_user_content(message)}
        case AssistantMessage():
            return {"role": "assistant", **_assistant_content(message)}
        case ToolMessage():
            return {"role": "tool", **_tool_content(message.result)}
        case _:
            assert_never(message)


def _user_content(message: UserMessage) -> JSON:
    texts: list[str] = []
    images: list[str] = []
    for part in message.parts():
        match part:
            case Text():
                texts.append(part.text)
            case Image():
                images.append(part.data)
            case Audio():
                raise InvalidRequest("ollama does not take audio", hint="Send the text of the recording instead.")
            case _:
                assert_never(part)
    return _with_images("\n".join(texts), images)


def _assistant_content(message: AssistantMessage) -> JSON:
    fields: JSON = {"content": message.text()}
    thinking = "\n".join(part.thinking for part in message.content if isinstance(part, Thinking) and part.thinking)
    if thinking:
        fields["thinking"] = thinking
    if calls := message.tool_calls():
        fields["tool_calls"] = [
            {"id": call.tool_call_id, "function": {"name": call.name, "arguments": arguments_object(call)}}
            for call in calls
        ]
    return fields


def _tool_content(result: ToolResult) -> JSON:
    """The name is what older servers match a result by, the id what newer ones do."""
    # There is no field for "it failed", so the text has to say it.
    text = f"Error: {result.text()}" if result.is_error else result.text()
    return {
        "tool_name": result.tool_name,
        "tool_call_id": result.tool_call_id,
        **_with_images(text, [image.data for image in result.images()]),
    }


def _with_images(text: str, images: list[str]) -> JSON:
    return {"content": text, "images": images} if images else {"content": text}


class _Wire(msgspec.Struct, frozen=True, gc=False):
    """Base of what Ollama sends: every field may be missing or null."""


class _Function(_Wire, frozen=True):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()


class _ToolCall(_Wire, frozen=True):
    id: str | None = None
    function: _Function | None = None


class _Message(_Wire, frozen=True):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Line(_Wire, frozen=True):
    message: _Message | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: Any = None
    prompt_eval_cached_count: Any = None
    eval_count: Any = None
    error: Any = None


_line_decoder = msgspec.json.Decoder(_Line)
_SSE_FIELDS: Final = (b":", b"event:", b"id:", b"retry:")
"""Lines of the framing that a proxy puts around an answer, mostly around an error, besides those with the JSON."""


class OllamaDecoder(AnswerDecoder):
    """Reads an /api/chat answer."""

    def __init__(self, request: ProviderRequest, parts: Parts) -> None:
        super().__init__(request, parts)
        self._ndjson = NDJSONDecoder()
        self._open = ""
        self._calls = 0

    def feed(self, data: bytes) -> None:
        for line in self._ndjson.feed(data):
            if isinstance(line, ParseError):
                raise ProviderError(f"{self._provider}: {line.message}", provider_id=self._provider)
            self._line(line)

    def whole(self, body: bytes) -> None:
        """One JSON document, or the lines of a stream that a proxy calls JSON."""
        if _is_json(body):
            self._line(body)
        else:
            self.feed(body + b"\n")

    def close(self) -> None:
        """The last line may lack its newline. A line that was cut is no news: the answer is incomplete without it."""
        for line in self._ndjson.close():
            if _is_json(line):
                self._line(line)

    def _line(self, line: bytes) -> None:
        if self._parts.finished or line.startswith(_SSE_FIELDS):
            return
        line = line.removeprefix(b"data:")
        try:
            decoded = _line_decoder.decode(line)
            if decoded.error:
                self._fail_with(line)
            else:
                self._decoded(decoded)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._malformed(error) from error

    def _decoded(self, line: _Line) -> None:
        message = line.message
        if message is not None:
            if message.thinking:
                self._switch("thinking")
                self._parts.thinking("thinking", message.thinking)
            if message.content:
                self._switch("text")
                self._parts.text("text", message.content)
            for call in message.tool_calls or ():
                self._call(call)
        if line.done:
            self._parts.usage = _usage(line)
            self._end(line.done_reason or "stop", STOP_REASONS)

    def _switch(self, key: str) -> None:
        if key != self._open:
            self._parts.end(self._open)
            self._open = key

    def _call(self, call: _ToolCall) -> None:
        """Calls come whole; older servers give them no id."""
        self._switch("")
        self._calls += 1
        function = call.function or _Function()
        self._whole_call(self._calls, call.id, function.name or "", function.arguments)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _usage(line: _Line) -> Usage:
    cached = token_count(line.prompt_eval_cached_count)
    prompt = token_count(line.prompt_eval_count)
    return Usage(input=max(0, prompt - cached), output=token_count(line.eval_count), cache_read=cached)
