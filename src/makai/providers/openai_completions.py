"""OpenAI chat completions: the dialect most servers speak, each a little differently. Pure. How OpenAI, Groq, DeepSeek,
Mistral, xAI, OpenRouter, llama.cpp and the others differ is data (`ChatQuirks` of the model); this file has no vendor
names in its logic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

import msgspec

from makai.core.content import Audio, Image, Text, Thinking, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, StopReason, SystemMessage, ToolMessage, UserMessage
from makai.core.model import ChatQuirks, Model, ModelCapability
from makai.core.request import StreamOptions, ToolDefinition
from makai.core.usage import Usage, token_count
from makai.providers.base import END_MARK, AnswerDecoder, HttpRequest, ProviderRequest, bearer, json_post
from makai.providers.parts import Parts, arguments_error
from makai.providers.preparation import (
    arguments_text,
    function_fields,
    nearest_effort,
    normalised_tool_id,
    prepare,
    sampling_fields,
    schema_object,
)
from makai.wire.sse import SSEDecoder

STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "end_turn": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "tool_calls": "tool_use",
    "tool_use": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
}
AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}

JSON = dict[str, Any]


class OpenAICompletions:
    """The codec of `POST {base_url}/chat/completions`."""

    id = "openai-completions"

    def request(self, request: ProviderRequest) -> HttpRequest:
        model, quirks = request.model, request.model.quirks
        return json_post(
            model.base_url.rstrip("/") + quirks.path, _body(request, model, quirks), bearer(request.secret)
        )

    def decoder(self, request: ProviderRequest, parts: Parts) -> ChatDecoder:
        return ChatDecoder(request, parts)


def _body(request: ProviderRequest, model: Model, quirks: ChatQuirks) -> JSON:
    options = request.options
    context = prepare(
        request.context,
        model,
        inline_system=True,
        tool_id=normalised_tool_id(quirks.tool_id_length, alphanumeric=quirks.tool_id_alphanumeric),
    )
    messages: list[JSON] = []
    if context.system_prompt:
        messages.append({"role": quirks.system_role, "content": context.system_prompt})
    messages.extend(_conversation(context.messages, quirks))
    if not quirks.user_after_tool:
        messages = _assistant_between_tool_and_user(messages)
    if quirks.anthropic_cache_control and options.cache_retention != "none":
        _mark_cache(messages, options)
    body: JSON = {"model": model.id, "messages": messages, "stream": True}
    if quirks.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if quirks.store:
        body["store"] = False
    body.update(sampling_fields(options, max_tokens=quirks.max_tokens_field))
    body.update(_reasoning(options, model, quirks))
    body.update(_tools(context.tools, options, quirks))
    body.update(_output_format(options, quirks))
    if quirks.prompt_cache_key and options.session_id and options.cache_retention != "none":
        body["prompt_cache_key"] = options.session_id
    if options.metadata and quirks.store:
        body["metadata"] = options.metadata
    return body


def _reasoning(options: StreamOptions, model: Model, quirks: ChatQuirks) -> JSON:
    """Effort in the words of this server; nothing when the model does not reason (MK-PROV-006)."""
    effort = options.reasoning_effort
    if effort is None or not model.can(ModelCapability.REASONING):
        return {}
    match quirks.reasoning:
        case "none":
            return {}
        case "effort":
            level = nearest_effort(effort, quirks.reasoning_efforts)
            return {"reasoning_effort": level} if level else {}
        case "openrouter":
            return {"reasoning": {"enabled": False} if effort == "off" else {"effort": effort}}
        case "enable_thinking":
            return {"chat_template_kwargs": {"enable_thinking": effort != "off"}}
        case "thinking_type":
            if effort == "off":
                return {"thinking": {"type": "disabled"}}
            level = nearest_effort(effort, quirks.reasoning_efforts)
            return {"thinking": {"type": "enabled"}} | ({"reasoning_effort": level} if level else {})


def _tools(tools: tuple[ToolDefinition, ...], options: StreamOptions, quirks: ChatQuirks) -> JSON:
    if not tools:
        return {}
    strict = {"strict": False} if quirks.strict_tools else {}
    fields: JSON = {"tools": [{"type": "function", "function": function_fields(tool) | strict} for tool in tools]}
    choice = options.tool_choice
    if choice is None:
        return fields
    if choice.mode == "tool":
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        fields["tool_choice"] = quirks.tool_choice_required if choice.mode == "required" else choice.mode
    return fields


def _output_format(options: StreamOptions, quirks: ChatQuirks) -> JSON:
    if options.json_schema is None or quirks.json_schema == "none":
        return {}
    if quirks.json_schema == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = schema_object(options.json_schema, "the output schema")
    named = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _conversation(messages: Iterable[Message], quirks: ChatQuirks) -> Iterator[JSON]:
    """A tool message holds text only; pictures follow in a user message that says where they come from, after the
    results of all calls of the turn: nothing may stand between those."""
    images: list[JSON] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            images.extend(_result_images(message.result))
        elif images:
            yield {"role": "user", "content": images}
            images = []
        yield _message(message, quirks)
    if images:
        yield {"role": "user", "content": images}


def _message(message: Message, quirks: ChatQuirks) -> JSON:
    match message:
        case SystemMessage():
            return {"role": quirks.system_role, "content": message.content}
        case UserMessage():
            return {"role": "user", "content": _user_content(message)}
        case AssistantMessage():
            return _assistant(message, quirks)
        case ToolMessage():
            return _tool_result(message.result, quirks)
        case _:
            assert_never(message)


def _user_content(message: UserMessage) -> str | list[JSON]:
    parts = message.parts()
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    content: list[JSON] = []
    for part in parts:
        match part:
            case Text():
                content.append({"type": "text", "text": part.text})
            case Image():
                content.append(_image(part))
            case Audio():
                content.append(_audio(part))
    return content


def _image(part: Image) -> JSON:
    return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}


def _audio(part: Audio) -> JSON:
    audio_format = AUDIO_FORMATS.get(part.mime_type)
    if audio_format is None:
        raise InvalidRequest(f"chat completions take audio as wav or mp3, not {part.mime_type}")
    return {"type": "input_audio", "input_audio": {"data": part.data, "format": audio_format}}


def _assistant(message: AssistantMessage, quirks: ChatQuirks) -> JSON:
    text = message.text()
    thinking = "\n\n".join(part.thinking for part in message.content if isinstance(part, Thinking) and part.thinking)
    calls = [
        {
            "id": call.tool_call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments_text(call)},
        }
        for call in message.tool_calls()
    ]
    if thinking and quirks.reasoning_replay == "text":
        text = f"{thinking}\n\n{text}" if text else thinking
    fields: JSON = {"role": "assistant", "content": text or (None if calls else "")}
    if thinking and quirks.reasoning_replay == "reasoning_content":
        fields["reasoning_content"] = thinking
    if calls:
        fields["tool_calls"] = calls
    return fields


def _tool_result(result: ToolResult, quirks: ChatQuirks) -> JSON:
    text = f"Error: {result.text()}" if result.is_error else result.text()
    if not text and result.images():
        text = "(see the image)"
    named = {"name": result.tool_name} if quirks.tool_result_name else {}
    return {"role": "tool", "tool_call_id": result.tool_call_id, "content": text, **named}


def _result_images(result: ToolResult) -> list[JSON]:
    if not (images := result.images()):
        return []
    return [{"type": "text", "text": f"Image from the tool {result.tool_name}:"}, *map(_image, images)]


def _assistant_between_tool_and_user(messages: list[JSON]) -> list[JSON]:
    spaced: list[JSON] = []
    for message in messages:
        if message["role"] == "user" and spaced and spaced[-1]["role"] == "tool":
            spaced.append({"role": "assistant", "content": "I have read the tool result."})
        spaced.append(message)
    return spaced


def _mark_cache(messages: list[JSON], options: StreamOptions) -> None:
    """Anthropic's cache marks, as OpenRouter passes them on: on the system prompt and the last user message."""
    mark: JSON = {"type": "ephemeral"} | ({"ttl": "1h"} if options.cache_retention == "long" else {})
    users = [message for message in messages if message["role"] == "user"]
    for message in messages[:1] + users[-1:]:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        message["content"][-1]["cache_control"] = mark


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    id: str | None = None
    x_groq: Any = None
    error: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class ChatDecoder(AnswerDecoder):
    """Reads one answer: SSE chunks, or one whole completion."""

    __slots__ = ("_called", "_choice", "_finish", "_response_id", "_sse", "_unnamed")

    def __init__(self, request: ProviderRequest, parts: Parts) -> None:
        super().__init__(request, parts)
        self._sse = SSEDecoder()
        self._choice = -1
        """The number of the choice that is read; -1 before the first."""
        self._finish: str | None = None
        self._response_id: str | None = None
        self._called: dict[int, tuple[str, str]] = {}
        """Id and name of the newest call, by the server's number."""
        self._unnamed: dict[int, tuple[str, str, str]] = {}
        """Id, name and arguments of calls whose name has not come yet."""

    def feed(self, data: bytes) -> None:
        for payload in self._sse.feed_data(data):
            if payload == END_MARK:
                self._done()
            elif not self._parts.finished:
                self._chunk(payload)

    def whole(self, body: bytes) -> None:
        self._chunk(body)

    def close(self) -> None:
        """Some servers never send `[DONE]`; a finish reason is enough."""
        if self._finish is not None:
            self._done()

    def _chunk(self, payload: bytes) -> None:
        # One function for a chunk and its delta: this runs once per word.
        try:
            chunk = _decode_chunk(payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self._malformed(error, "a chat completion chunk") from error
        parts = self._parts
        for choice in chunk.choices or ():
            if (choice.index or 0) != self._choice and self._is_another_answer(choice.index or 0):
                continue
            if (delta := choice.delta or choice.message) is not None:
                if content := delta.content:
                    if isinstance(content, str):
                        parts.text("text", content, after="thinking")
                    else:
                        self._content_list(content)
                if thinking := delta.reasoning_content or delta.reasoning or delta.reasoning_text:
                    parts.end("text")
                    parts.thinking("thinking", thinking)
                if delta.refusal:
                    parts.text("text", delta.refusal, after="thinking")
                if delta.tool_calls:
                    for position, call in enumerate(delta.tool_calls):
                        self._tool_call(call, position)
            if choice.finish_reason:  # some servers send "" with every chunk
                self._finish = choice.finish_reason
        if chunk.usage is not None:
            parts.usage = _usage(chunk.usage)
        elif isinstance(chunk.x_groq, dict) and chunk.x_groq.get("usage") is not None:
            parts.usage = _usage(chunk.x_groq["usage"])
        if self._response_id is None:
            self._response_id = chunk.id
        if chunk.error:
            self._fail_with(payload)

    def _is_another_answer(self, choice: int) -> bool:
        """Whether a choice is one that was not asked for: the first one counts, whatever its number."""
        if self._choice < 0:
            self._choice = choice
        return choice != self._choice

    def _content_list(self, content: list[Any]) -> None:
        """Mistral's reasoning models send content as typed pieces."""
        for piece in content:
            if isinstance(piece, dict) and piece.get("type") == "thinking":
                self._parts.end("text")
                thoughts = piece.get("thinking")
                for inner in thoughts if isinstance(thoughts, list) else (thoughts,):
                    self._parts.thinking("thinking", _text_of(inner))
            elif text := _text_of(piece):
                self._parts.text("text", text, after="thinking")

    def _tool_call(self, call: _ToolCall, position: int) -> None:
        parts = self._parts
        index = position if call.index is None else call.index
        key = ("tool", index)
        function = call.function or _Function()
        written = function.arguments or ""
        if not isinstance(written, str):
            written = msgspec.json.encode(written).decode()
        if function.name and parts.is_open(key) and self._is_another(index, call.id, function.name, written):
            parts.end(key)
        if not parts.is_open(key):
            call_id, _, held = self._unnamed.pop(index, ("", "", ""))
            begun = (call.id or call_id, function.name or "", held + written)
            if function.name:
                self._begin_call(index, *begun)
            else:  # vLLM gives the id first and the name in the next chunk
                self._unnamed[index] = begun
        elif written:
            parts.arguments(key, written)

    def _is_another(self, index: int, call_id: str | None, name: str, written: str) -> bool:
        """Whether a named piece begins another call: some servers number all parallel calls 0, or give them no ids."""
        known_id, known_name = self._called[index]
        if call_id:
            return call_id != known_id
        is_complete = bool(written.strip()) and arguments_error(self._parts.written(("tool", index))) is None
        return name != known_name or is_complete

    def _begin_call(self, index: int, call_id: str, name: str, written: str) -> None:
        parts = self._parts
        self._called[index] = (call_id, name)
        parts.end("thinking")
        parts.end("text")
        parts.tool(("tool", index), call_id or None, name)
        parts.arguments(("tool", index), written)

    def _done(self) -> None:
        if self._finish is None and self._parts.is_empty:
            return  # an end mark without an answer: what came before it was an error of an unknown shape
        for index, begun in self._unnamed.items():
            self._begin_call(index, *begun)
        self._unnamed = {}
        self._end(self._finish or "stop", STOP_REASONS, self._response_id)


def _text_of(piece: Any) -> str:
    """A piece of content is text, or an object with a text."""
    text = piece.get("text") if isinstance(piece, dict) else piece
    return text if isinstance(text, str) else ""


def _usage(usage: Any) -> Usage:
    """OpenAI counts cached tokens inside the prompt and reasoning inside the completion."""
    cached = token_count(usage, "prompt_tokens_details", "cached_tokens")
    cached = cached or token_count(usage, "prompt_cache_hit_tokens")
    return Usage(
        input=max(0, token_count(usage, "prompt_tokens") - cached),
        output=token_count(usage, "completion_tokens"),
        cache_read=cached,
        reasoning=token_count(usage, "completion_tokens_details", "reasoning_tokens"),
    )
