"""Google Gemini API: `models/{id}:streamGenerateContent`. Pure. What the generations of Gemini do differently is data
(`FAMILIES`). `generate_content` and `GoogleDecoder` are the codec without its address and envelope; the Code Assist
adapter wraps them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any, assert_never

import msgspec

from makai.core.content import AssistantPart, Audio, Image, Text, Thinking, ToolCall, ToolResult, UserPart
from makai.core.errors import InvalidRequest, ProviderError
from makai.core.messages import AssistantMessage, Message, StopReason, SystemMessage, ToolMessage, UserMessage
from makai.core.model import Model, ModelCapability, ReasoningEffort
from makai.core.request import Context, StreamOptions, ToolChoice
from makai.core.secret import Secret
from makai.core.usage import Usage, token_count
from makai.providers import preparation
from makai.providers.base import END_MARK, AnswerDecoder, HttpRequest, ProviderRequest, json_post
from makai.providers.failure import MAX_MESSAGE
from makai.providers.parts import Parts
from makai.wire.sse import SSEDecoder

JSON = dict[str, Any]

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""Google's documented stand-in for the signature of a function call that Gemini did not make itself."""


class GeminiFamily(msgspec.Struct, frozen=True, kw_only=True):
    levels: tuple[str, ...] = ()
    """The accepted values of `thinkingLevel`, lowest first."""
    budget: tuple[int, int] | None = None
    """The smallest and largest `thinkingBudget`, for models that have no levels."""
    can_stop_thinking: bool = False
    """Whether `thinkingBudget: 0` is allowed."""
    third_generation: bool = False
    """Refuses unsigned function calls, takes media inside `functionResponse`, allows tools and a schema together."""


_LOW_TO_HIGH = ("low", "medium", "high")
_ALL_LEVELS = ("minimal", *_LOW_TO_HIGH)

FAMILIES: tuple[tuple[str, GeminiFamily], ...] = (
    ("gemini-3-pro", GeminiFamily(levels=("low", "high"), third_generation=True)),
    ("gemini-3-flash", GeminiFamily(levels=_ALL_LEVELS, third_generation=True)),
    ("gemini-3.1-flash-lite", GeminiFamily(levels=_ALL_LEVELS, third_generation=True)),
    ("gemini-3.5-flash", GeminiFamily(levels=_ALL_LEVELS, third_generation=True)),
    ("gemini-2.5-pro", GeminiFamily(budget=(128, 32_768))),
    ("gemini-2.5-flash-lite", GeminiFamily(budget=(512, 24_576), can_stop_thinking=True)),
    ("gemini-2.5-flash", GeminiFamily(budget=(1, 24_576), can_stop_thinking=True)),
    ("gemini-2", GeminiFamily()),
    ("gemini-1", GeminiFamily()),
    # Newer ones, such as 3.1 Pro and 3.8 Flash, refuse "minimal".
    ("gemini-", GeminiFamily(levels=_LOW_TO_HIGH, third_generation=True)),
    ("", GeminiFamily()),
)
"""Beginning of the model id -> its family; the first match counts."""

THINKING_BUDGETS: dict[ReasoningEffort, int] = {
    "off": 0,
    "minimal": 512,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 32_768,
}
"""Tokens per effort, before they are moved into the family's range."""

STOP_REASONS: dict[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "LANGUAGE": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}

BROKEN_OFF: dict[str, str] = {
    "MALFORMED_FUNCTION_CALL": "the model wrote a function call that cannot be read",
    "MALFORMED_RESPONSE": "the model wrote an answer that cannot be read",
    "UNEXPECTED_TOOL_CALL": "the model called a tool that it was not given",
    "TOO_MANY_TOOL_CALLS": "the model called too many tools in a row",
}
"""Finish reasons after which there is no answer to use."""

_tool_id = preparation.normalised_tool_id(64)


class GoogleGenerativeAI:
    """The codec of `POST {base_url}/v1beta/models/{id}:streamGenerateContent`."""

    id = "google-generative-ai"

    def request(self, request: ProviderRequest) -> HttpRequest:
        """The HTTP request for one streamed answer. The key travels in a header: URLs end up in logs."""
        model = request.model
        url = f"{model.base_url.rstrip('/')}/v1beta/models/{urllib.parse.quote(model.id)}:streamGenerateContent?alt=sse"
        key: dict[str, str | Secret] = {"x-goog-api-key": request.secret} if request.secret else {}
        return json_post(url, generate_content(request), key)

    def decoder(self, request: ProviderRequest, parts: Parts) -> GoogleDecoder:
        return GoogleDecoder(request, parts, _chunk_decoder.decode)


def generate_content(request: ProviderRequest) -> JSON:
    model, options = request.model, request.options
    family = family_of(model)
    context = preparation.prepare(request.context, model, inline_system=False, tool_id=_tool_id)
    contents = _contents(context.messages, family)
    if not contents:
        raise InvalidRequest(f"{model.provider} needs a message with content")
    body: JSON = {"contents": contents}
    if context.system_prompt:
        body["systemInstruction"] = {"parts": [{"text": context.system_prompt}]}
    body.update(_tools(context, options))
    if config := _generation_config(model, family, context, options):
        body["generationConfig"] = config
    return body


def family_of(model: Model) -> GeminiFamily:
    return next(family for prefix, family in FAMILIES if model.id.startswith(prefix))


def _generation_config(model: Model, family: GeminiFamily, context: Context, options: StreamOptions) -> JSON:
    config = preparation.sampling_fields(options, top_p="topP", max_tokens="maxOutputTokens", stop="stopSequences")
    # Before Gemini 3: "Function calling with a response mime type: 'application/json' is unsupported".
    if options.json_schema is not None and (family.third_generation or not context.tools):
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = preparation.schema_object(options.json_schema, "json_schema")
    if model.can(ModelCapability.REASONING) and (thinking := _thinking_config(family, options.reasoning_effort)):
        config["thinkingConfig"] = thinking
    return config


def _thinking_config(family: GeminiFamily, effort: ReasoningEffort | None) -> JSON:
    """Effort in the words of this family. Where thinking cannot be switched off, "off" is as little as possible."""
    if not family.levels and family.budget is None:
        return {}
    if effort is None:
        return {"includeThoughts": True}
    config: JSON = {"includeThoughts": effort != "off"}
    if family.budget is None:
        config["thinkingLevel"] = (preparation.nearest_effort(effort, family.levels) or family.levels[0]).upper()
        return config
    least, most = family.budget
    stop = effort == "off" and family.can_stop_thinking
    config["thinkingBudget"] = 0 if stop else min(max(THINKING_BUDGETS[effort], least), most)
    return config


def _tools(context: Context, options: StreamOptions) -> JSON:
    if not context.tools:
        return {}
    declarations = [preparation.function_fields(tool, "parametersJsonSchema") for tool in context.tools]
    fields: JSON = {"tools": [{"functionDeclarations": declarations}]}
    if options.tool_choice is not None:
        fields["toolConfig"] = {"functionCallingConfig": _calling_config(options.tool_choice)}
    return fields


def _calling_config(choice: ToolChoice) -> JSON:
    match choice.mode:
        case "auto" | "none":
            return {"mode": choice.mode.upper()}
        case "required":
            return {"mode": "ANY"}
        case "tool":
            if not choice.name:
                raise InvalidRequest('tool_choice "tool" needs the name of the tool')
            return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
        case _:
            assert_never(choice.mode)


def _contents(messages: tuple[Message, ...], family: GeminiFamily) -> list[JSON]:
    """The turns. Neighbours of one role are one turn: function responses must follow their calls in one piece."""
    contents: list[JSON] = []
    attachments: list[JSON] = []

    def add(role: str, parts: list[JSON]) -> None:
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        elif parts:
            contents.append({"role": role, "parts": parts})

    for message in messages:
        if not isinstance(message, ToolMessage):
            add("user", attachments)
            attachments = []
        match message:
            case UserMessage():
                add("user", [part for content in message.parts() for part in _user_part(content)])
            case AssistantMessage():
                add("model", _model_parts(message, family))
            case ToolMessage():
                response, images = _function_response(message.result, family)
                add("user", [response])
                attachments += images
            case SystemMessage():
                add("user", [{"text": message.content}])
            case _:
                assert_never(message)
    add("user", attachments)
    return contents


def _user_part(part: UserPart) -> list[JSON]:
    match part:
        case Text():
            # A part without data is refused.
            return [{"text": part.text}] if part.text else []
        case Image() | Audio():
            return [_inline_data(part)]
        case _:
            assert_never(part)


def _inline_data(part: Image | Audio) -> JSON:
    return {"inlineData": {"mimeType": part.mime_type, "data": part.data}}


def _model_parts(message: AssistantMessage, family: GeminiFamily) -> list[JSON]:
    parts = [_model_part(part) for part in message.content]
    if family.third_generation:
        # Only the first call of a turn is signed, also when Gemini calls several tools at once.
        first_call = next((part for part in parts if "functionCall" in part), {})
        first_call.setdefault("thoughtSignature", FOREIGN_SIGNATURE)
    return parts


def _model_part(part: AssistantPart) -> JSON:
    match part:
        case Text():
            return _signed({"text": part.text}, part.text_signature)
        case Thinking():
            return _signed({"text": part.thinking, "thought": True}, part.thinking_signature)
        case ToolCall():
            call = {"id": part.tool_call_id, "name": part.name, "args": preparation.arguments_object(part)}
            return _signed({"functionCall": call}, part.thought_signature)
        case _:
            assert_never(part)


def _signed(part: JSON, signature: str | None) -> JSON:
    return part if signature is None else {**part, "thoughtSignature": signature}


def _function_response(result: ToolResult, family: GeminiFamily) -> tuple[JSON, list[JSON]]:
    """The response part, and the images that have to travel after the responses of the turn."""
    # "Use "output" key to specify function output and "error" key to specify error details"
    outcome = {"error" if result.is_error else "output": result.text()}
    response: JSON = {"id": result.tool_call_id, "name": result.tool_name, "response": outcome}
    images = [_inline_data(part) for part in result.images()]
    if images and family.third_generation:
        response["parts"] = images
        images = []
    return {"functionResponse": response}, images


class _Wire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of what Google sends: every field may be missing or null."""


class FunctionCall(_Wire, frozen=True):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()


class GeminiPart(_Wire, frozen=True):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(_Wire, frozen=True):
    parts: list[GeminiPart] | None = None


class Candidate(_Wire, frozen=True):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class PromptFeedback(_Wire, frozen=True):
    block_reason: str | None = None


class GeminiChunk(_Wire, frozen=True):
    """One event of a stream, or a whole answer: they have the same shape."""

    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: Any = None
    response_id: str | None = None
    error: Any = None


_chunk_decoder = msgspec.json.Decoder(GeminiChunk)
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class GoogleDecoder(AnswerDecoder):
    """Reads a streamGenerateContent answer. `read` turns one event's JSON into a `GeminiChunk`."""

    def __init__(self, request: ProviderRequest, parts: Parts, read: Callable[[bytes], GeminiChunk]) -> None:
        super().__init__(request, parts)
        self._read = read
        self._sse = SSEDecoder()
        self._open = ""
        self._calls = 0
        self._finish_reason: str | None = None
        self._response_id: str | None = None

    def feed(self, data: bytes) -> None:
        for payload in self._sse.feed_data(data):
            self._payload(payload)

    def whole(self, body: bytes) -> None:
        """One JSON document; servers that ignore `alt=sse` send the events as one array."""
        if not body.lstrip().startswith(b"["):
            self._payload(body)
            return
        try:
            payloads = _list_decoder.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._malformed(error) from error
        for payload in payloads:
            self._payload(bytes(payload))

    def close(self) -> None:
        """The finish reason does not end the stream: usage and signatures may follow it, so the body's end does."""
        if self._finish_reason is not None:
            self._end(self._finish_reason, STOP_REASONS, self._response_id)

    def _payload(self, payload: bytes) -> None:
        if self._parts.finished:
            return
        try:
            chunk = self._read(payload)
            if chunk.error:
                self._fail_with(payload)
            else:
                self._chunk(chunk)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if payload != END_MARK:
                raise self._malformed(error) from error

    def _chunk(self, chunk: GeminiChunk) -> None:
        if chunk.usage_metadata is not None:
            self._parts.usage = _usage(chunk.usage_metadata)
        if chunk.response_id is not None:
            self._response_id = chunk.response_id
        if chunk.candidates:
            candidate = chunk.candidates[0]
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    self._part(part)
            if candidate.finish_reason:
                self._finish(candidate.finish_reason, candidate.finish_message)
        elif chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._finish_reason = "PROHIBITED_CONTENT"

    def _part(self, part: GeminiPart) -> None:
        if part.function_call is not None:
            self._call(part.function_call, part.thought_signature)
            return
        text = part.text or ""
        signature = part.thought_signature
        if not text and not signature:
            return
        parts = self._parts
        key = "thinking" if part.thought else "text"
        if key != self._open:
            parts.end(self._open)
            self._open = key
            # Opened even without words: a signature may come alone and must come back in a part of its own.
            parts.open_thinking(key) if part.thought else parts.open_text(key)
        if text:
            parts.thinking(key, text) if part.thought else parts.text(key, text)
        if signature:
            parts.sign(key, signature)

    def _call(self, call: FunctionCall, signature: str | None) -> None:
        """Calls come whole; Gemini before 3 gives them no id."""
        self._parts.end(self._open)
        self._open = ""
        self._calls += 1
        self._whole_call(self._calls, call.id, call.name or "", call.args, signature)

    def _finish(self, reason: str, explanation: str | None) -> None:
        if (what := BROKEN_OFF.get(reason)) is None:
            self._finish_reason = reason
            return
        detail = f": {explanation[:MAX_MESSAGE]}" if explanation else ""
        self._parts.fail(
            ProviderError(
                f"{self._provider} broke off: {what} ({reason}){detail}",
                provider_id=self._provider,
                vendor_code=reason,
                hint="Try again.",
            ),
            retryable=True,
        )


def _usage(counts: Any) -> Usage:
    cached = token_count(counts, "cachedContentTokenCount")
    thoughts = token_count(counts, "thoughtsTokenCount")
    prompt = token_count(counts, "promptTokenCount") + token_count(counts, "toolUsePromptTokenCount")
    return Usage(
        input=max(0, prompt - cached),
        output=token_count(counts, "candidatesTokenCount") + thoughts,
        cache_read=cached,
        reasoning=thoughts,
    )
