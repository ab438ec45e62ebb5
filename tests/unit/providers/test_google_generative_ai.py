"""The Gemini adapter: requests as Google documents them, answers as Google streams them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import streams as ref
from support.messages import EVERY_OPTION, call_block, result, said_by, text_block, thinking_block
from support.messages import call as made
from support.streams import ask, assert_reference, decode, decode_whole, done, failed, kinds, model

from makai.core import stream_events as ev
from makai.core.content import Audio, Image, Text, Thinking
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, StopReason, SystemMessage, UserMessage
from makai.core.model import Model, ModelCapability, ReasoningEffort
from makai.core.request import Context, StreamOptions, ToolChoice, ToolDefinition
from makai.core.secret import Secret
from makai.core.usage import Usage
from makai.providers.base import ProviderRequest
from makai.providers.google_generative_ai import FOREIGN_SIGNATURE, GoogleGenerativeAI

API = GoogleGenerativeAI()
SCHEMA = '{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"number"}}}'
WEATHER = ToolDefinition(name="get_weather", description="Looks outside.", parameters_schema_json=SCHEMA)
PNG = Image(data="aVZCTw==", mime_type="image/png")


def gemini(name: str = "gemini-3-pro-preview", **overrides: object) -> Model:
    return model(API.id, provider="google", id=name, base_url="http://127.0.0.1:9/", **overrides)


def body(request: ProviderRequest) -> dict[str, Any]:
    value = msgspec.json.decode(API.request(request).body)
    assert isinstance(value, dict)
    return value


def body_of(target: Model, *messages: Any, tools: tuple[ToolDefinition, ...] = (), **options: Any) -> dict[str, Any]:
    context = Context(messages=messages or (UserMessage(content="Hi"),), tools=tools)
    return body(ask(target, context=context, options=StreamOptions(**options)))


def sse(*chunks: Any) -> bytes:
    return b"".join(b"data: " + (c if isinstance(c, bytes) else msgspec.json.encode(c)) + b"\r\n\r\n" for c in chunks)


def chunk(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, **candidate}]}


STREAM = sse(
    {**chunk({"text": ref.THINKING[:10], "thought": True}), "responseId": "resp_1", "modelVersion": "gemini-3-pro"},
    chunk({"text": ref.THINKING[10:], "thought": True}),
    chunk({"text": ref.TEXT[:6]}),
    {**chunk({"text": ref.TEXT[6:]}), "usageMetadata": {"promptTokenCount": 20}},
    chunk({"text": "", "thoughtSignature": "c2lnLXRleHQ="}),
    chunk(
        {
            "functionCall": {"id": ref.TOOL_ID, "name": ref.TOOL_NAME, "args": {"city": "Paris"}},
            "thoughtSignature": "c2lnLWNhbGw=",
        }
    ),
    chunk({"functionCall": {"name": "now"}}),
    {
        **chunk({"text": ""}, finishReason="STOP", index=0),
        "usageMetadata": {
            "promptTokenCount": 120,
            "cachedContentTokenCount": 100,
            "candidatesTokenCount": 30,
            "thoughtsTokenCount": 12,
            "totalTokenCount": 162,
        },
    },
)


def streamed_events(target: Model) -> list[ev.StreamEvent]:
    weather = made(ref.TOOL_ID, ref.TOOL_NAME, ref.TOOL_ARGUMENTS, thought_signature="c2lnLWNhbGw=")
    now = made("made_1", "now")
    empty = said_by(target, timestamp=ref.TIMESTAMP)
    message = msgspec.structs.replace(
        empty,
        content=(Thinking(thinking=ref.THINKING), Text(text=ref.TEXT, text_signature="c2lnLXRleHQ="), weather, now),
        usage=Usage(input=20, output=42, cache_read=100, reasoning=12),
        stop_reason="tool_use",
        response_id="resp_1",
    )
    return [
        ev.Start(empty),
        *thinking_block(0, ref.THINKING[:10], ref.THINKING[10:]),
        *text_block(1, ref.TEXT[:6], ref.TEXT[6:], signature="c2lnLXRleHQ="),
        *call_block(2, weather),
        *call_block(3, now),
        ev.Done("tool_use", message),
    ]


# ---------------------------------------------------------------- request


def test_a_conversation_becomes_the_documented_body() -> None:
    target = gemini()
    context = Context(
        system_prompt="Be brief.",
        tools=(WEATHER,),
        messages=(
            SystemMessage(content="Speak French."),
            UserMessage(content=(Text(text="Où? ☂"), PNG, Audio(data="AAAA", mime_type="audio/wav"))),
            said_by(
                target,
                Thinking(thinking="Hmm", thinking_signature="dGhpbms="),
                Text(text="Un moment.", text_signature="dGV4dA=="),
                made("a", "get_weather", '{"z": "ä", "a": 1.0}', thought_signature="Zmlyc3Q="),
                made("b", "get_weather", "{broken"),
            ),
            result("b", "get_weather", "no such place", is_error=True),
            result("a", "get_weather", (Text(text="rain"), PNG)),
            UserMessage(content="And tomorrow?"),
        ),
    )
    options = msgspec.structs.replace(EVERY_OPTION, tool_choice=ToolChoice(mode="tool", name="get_weather"))

    prepared = API.request(ask(target, context=context, options=options))

    assert prepared.url == "http://127.0.0.1:9/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse"
    assert prepared.headers == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "x-goog-api-key": Secret("test-key"),
    }
    assert "Où? ☂".encode() in prepared.body
    assert b'"args":{"z": "\xc3\xa4", "a": 1.0}' in prepared.body
    assert msgspec.json.decode(prepared.body) == {
        "systemInstruction": {"parts": [{"text": "Be brief.\n\nSpeak French."}]},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "Où? ☂"},
                    {"inlineData": {"mimeType": "image/png", "data": "aVZCTw=="}},
                    {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Hmm", "thought": True, "thoughtSignature": "dGhpbms="},
                    {"text": "Un moment.", "thoughtSignature": "dGV4dA=="},
                    {
                        "functionCall": {"id": "a", "name": "get_weather", "args": {"z": "ä", "a": 1.0}},
                        "thoughtSignature": "Zmlyc3Q=",
                    },
                    {"functionCall": {"id": "b", "name": "get_weather", "args": {"_malformed_arguments": "{broken"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "a",
                            "name": "get_weather",
                            "response": {"output": "rain"},
                            "parts": [{"inlineData": {"mimeType": "image/png", "data": "aVZCTw=="}}],
                        }
                    },
                    {"functionResponse": {"id": "b", "name": "get_weather", "response": {"error": "no such place"}}},
                    {"text": "And tomorrow?"},
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "get_weather",
                        "description": "Looks outside.",
                        "parametersJsonSchema": msgspec.json.decode(SCHEMA),
                    }
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get_weather"]}},
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "maxOutputTokens": 100,
            "stopSequences": ["END"],
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"},
        },
    }


def test_the_smallest_request_holds_nothing_that_was_not_asked_for() -> None:
    target = gemini("gemini-2.0-flash")

    assert body_of(target) == {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


def test_the_model_id_cannot_change_the_address() -> None:
    assert API.request(ask(gemini("a?b#c d"))).url.endswith(
        "/v1beta/models/a%3Fb%23c%20d:streamGenerateContent?alt=sse"
    )


@pytest.mark.parametrize(
    ("name", "effort", "expected"),
    [
        ("gemini-3-pro-preview", None, {"includeThoughts": True}),
        ("gemini-3-pro-preview", "off", {"includeThoughts": False, "thinkingLevel": "LOW"}),
        ("gemini-3-pro-preview", "xhigh", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3-flash-preview", "minimal", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash-preview", "off", {"includeThoughts": False, "thinkingLevel": "MINIMAL"}),
        ("gemini-3.8-flash", "minimal", {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3.1-pro-preview", "medium", {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("gemini-2.5-pro", "off", {"includeThoughts": False, "thinkingBudget": 128}),
        ("gemini-2.5-pro", "xhigh", {"includeThoughts": True, "thinkingBudget": 32_768}),
        ("gemini-2.5-flash", "off", {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.5-flash", "xhigh", {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-flash-lite", "minimal", {"includeThoughts": True, "thinkingBudget": 512}),
        ("gemini-2.5-flash-lite", "low", {"includeThoughts": True, "thinkingBudget": 2_048}),
    ],
)
def test_effort_is_said_in_the_words_of_the_models_generation(
    name: str, effort: ReasoningEffort | None, expected: dict[str, object]
) -> None:
    assert body_of(gemini(name), reasoning_effort=effort)["generationConfig"] == {"thinkingConfig": expected}


@pytest.mark.parametrize("name", ["gemini-2.0-flash", "gemini-1.5-pro", "gemma-3-27b-it"])
def test_models_without_thinking_are_not_asked_to_think(name: str) -> None:
    assert "generationConfig" not in body_of(gemini(name), reasoning_effort="high")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice(mode="auto"), {"mode": "AUTO"}),
        (ToolChoice(mode="none"), {"mode": "NONE"}),
        (ToolChoice(mode="required"), {"mode": "ANY"}),
        (ToolChoice(mode="tool", name="get_weather"), {"mode": "ANY", "allowedFunctionNames": ["get_weather"]}),
    ],
)
def test_tool_choice_becomes_a_calling_mode(choice: ToolChoice, expected: dict[str, object]) -> None:
    sent = body_of(gemini(), tools=(WEATHER,), tool_choice=choice)

    assert sent["toolConfig"] == {"functionCallingConfig": expected}
    assert "toolConfig" not in body_of(gemini(), tool_choice=choice)


def test_a_tool_choice_without_its_name_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="needs the name"):
        body_of(gemini(), tools=(WEATHER,), tool_choice=ToolChoice(mode="tool"))


def test_before_gemini_3_a_schema_gives_way_to_tools() -> None:
    old = gemini("gemini-2.5-flash", capabilities=(ModelCapability.CHAT,))

    assert "generationConfig" not in body_of(old, tools=(WEATHER,), json_schema="{}")
    assert body_of(old, json_schema="{}")["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {},
    }


def test_only_the_first_foreign_call_of_a_turn_gets_the_stand_in_signature() -> None:
    target = gemini()
    calls = (made(name, "f", thought_signature="not ours") for name in ("a", "b"))
    claude = model("anthropic-messages", "anthropic")
    foreign = said_by(claude, Thinking(thinking="Let me see", thinking_signature="x"), *calls)

    assert body_of(target, UserMessage(content="Hi"), foreign)["contents"][1] == {
        "role": "model",
        "parts": [
            {"text": "Let me see"},
            {"functionCall": {"id": "a", "name": "f", "args": {}}, "thoughtSignature": FOREIGN_SIGNATURE},
            {"functionCall": {"id": "b", "name": "f", "args": {}}},
        ],
    }


def test_before_gemini_3_calls_stay_unsigned_and_images_follow_all_responses() -> None:
    target = gemini("gemini-2.5-pro")
    calls = said_by(
        target,
        made("a", "f"),
        made("b", "g"),
    )
    results = [
        result("a", "f", (PNG,)),
        result("b", "g", "done"),
    ]
    responses = [
        {"functionResponse": {"id": "a", "name": "f", "response": {"output": ""}}},
        {"functionResponse": {"id": "b", "name": "g", "response": {"output": "done"}}},
        {"inlineData": {"mimeType": "image/png", "data": "aVZCTw=="}},
    ]
    conversation = (UserMessage(content="Hi"), calls, *results)

    assert body_of(target, *conversation)["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "a", "name": "f", "args": {}}},
                {"functionCall": {"id": "b", "name": "g", "args": {}}},
            ],
        },
        {"role": "user", "parts": responses},
    ]
    assert body_of(target, *conversation, UserMessage(content="And?"))["contents"][2] == {
        "role": "user",
        "parts": [*responses, {"text": "And?"}],
    }


def test_an_empty_conversation_is_refused_here() -> None:
    with pytest.raises(InvalidRequest, match="google needs a message with content"):
        body_of(gemini(), UserMessage(content=""))


# ---------------------------------------------------------------- answer


def test_a_stream_becomes_events_however_it_is_cut() -> None:
    for size in (None, 1, 7):
        assert decode(API, ask(gemini()), STREAM, size) == streamed_events(gemini())


def test_an_array_of_events_is_the_same_answer() -> None:
    request = ask(gemini())
    events = [msgspec.Raw(line[6:]) for line in STREAM.split(b"\r\n\r\n") if line]

    assert decode_whole(API, request, msgspec.json.encode(events)) == streamed_events(request.model)


def test_a_whole_answer_is_the_same_message() -> None:
    request = ask(gemini())
    parts: list[dict[str, Any]] = [
        {"text": ref.THINKING, "thought": True},
        {"text": ref.TEXT, "thoughtSignature": "c2lnLXRleHQ="},
        {
            "functionCall": {"id": ref.TOOL_ID, "name": ref.TOOL_NAME, "args": {"city": "Paris"}},
            "thoughtSignature": "c2lnLWNhbGw=",
        },
        {"functionCall": {"name": "now", "args": None}},
    ]
    answer = {
        **chunk(*parts, finishReason="STOP"),
        "responseId": "resp_1",
        "usageMetadata": {
            "promptTokenCount": 120,
            "cachedContentTokenCount": 100,
            "candidatesTokenCount": 30,
            "thoughtsTokenCount": 12,
        },
    }

    assert decode_whole(API, request, msgspec.json.encode(answer))[-1] == streamed_events(request.model)[-1]


@pytest.mark.req("MK-PROV-009")
def test_the_reference_answer_is_the_same_as_every_other_apis() -> None:
    parts = ({"text": ref.THINKING, "thought": True}, {"text": ref.TEXT})
    call = {"functionCall": {"name": ref.TOOL_NAME, "args": {"city": "Paris"}}, "thoughtSignature": "c2ln"}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3}
    stream = sse(*(chunk(part) for part in parts), {**chunk(call, finishReason="STOP"), "usageMetadata": usage})

    events = decode(API, ask(gemini()), stream)

    assert_reference(events, Usage(input=10, output=8, reasoning=3))


def test_what_the_model_said_goes_back_signed_as_it_came() -> None:
    target = gemini()
    said = done(decode(API, ask(target), STREAM))

    assert body_of(target, UserMessage(content="Hi"), said)["contents"][1]["parts"] == [
        {"text": ref.THINKING, "thought": True},
        {"text": ref.TEXT, "thoughtSignature": "c2lnLXRleHQ="},
        {
            "functionCall": {"id": ref.TOOL_ID, "name": ref.TOOL_NAME, "args": {"city": "Paris"}},
            "thoughtSignature": "c2lnLWNhbGw=",
        },
        {"functionCall": {"id": "made_1", "name": "now", "args": {}}},
    ]


def test_signatures_without_words_and_on_thoughts_are_kept() -> None:
    stream = sse(
        chunk({"text": "", "thought": True, "thoughtSignature": "dA=="}),
        chunk({"text": "", "thoughtSignature": "cw=="}, finishReason="STOP"),
    )

    said = done(decode(API, ask(gemini()), stream))

    assert said.content == (
        Thinking(thinking="", thinking_signature="dA=="),
        Text(text="", text_signature="cw=="),
    )


def test_arguments_are_exactly_what_was_sent() -> None:
    arguments = '{"b": 1.0, "a":"\\u00e9", "n": 12345678901234567890}'
    event = b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%s}}]},"finishReason":"STOP"}]}'

    said = done(decode(API, ask(gemini()), sse(event % arguments.encode())))

    assert [call.arguments_json for call in said.tool_calls()] == [arguments]


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("STOP", "end_turn"),
        ("MAX_TOKENS", "max_tokens"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("BLOCKLIST", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("SPII", "refusal"),
    ],
)
def test_finish_reasons_become_stop_reasons(finish: str, expected: StopReason) -> None:
    events = decode(API, ask(gemini()), sse(chunk({"text": "a"}), {"candidates": [{"finishReason": finish}]}))

    assert done(events).stop_reason == expected


def test_a_blocked_prompt_is_a_refusal() -> None:
    stream = sse({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}})

    said = done(decode(API, ask(gemini()), stream))

    assert (said.stop_reason, said.content, said.usage) == ("refusal", (), Usage(input=4))


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"])
def test_a_call_the_model_got_wrong_is_a_visible_error(reason: str) -> None:
    stream = sse(chunk({"text": "So"}), chunk(finishReason=reason, finishMessage="print(f(")) + STREAM

    last = failed(decode(API, ask(gemini()), stream))

    assert last.error_code == "provider_error"
    assert last.error_message.startswith("google broke off: the model ")
    assert last.error_message.endswith(f"({reason}): print(f(")
    assert last.message.content == (Text(text="So"),)


def test_an_error_inside_the_stream_keeps_what_had_arrived_and_hides_the_key() -> None:
    error = {"error": {"code": 429, "message": "Quota of test-key is used up", "status": "RESOURCE_EXHAUSTED"}}

    last = failed(decode(API, ask(gemini()), sse(chunk({"text": "a"}), error, chunk({"text": "b"}))))

    assert (last.error_code, last.provider_id) == ("rate_limited", "google")
    assert last.error_message == "google refused the request (HTTP 429): Quota of [secret] is used up"
    assert last.message.content == (Text(text="a"),)


@pytest.mark.parametrize("document", [b"[", b"[{]", b"<html>"])
def test_a_whole_answer_that_is_no_json_is_an_error(document: bytes) -> None:
    assert isinstance(decode_whole(API, ask(gemini()), document)[-1], ev.Failed)


def test_nulls_and_missing_fields_are_nothing() -> None:
    stream = sse(
        {"candidates": None, "usageMetadata": None, "promptFeedback": None, "responseId": None, "error": None},
        {"candidates": []},
        {"candidates": [{"content": None, "finishReason": None}]},
        {"candidates": [{"content": {"parts": None}}]},
        chunk({"text": None, "thought": None, "thoughtSignature": None, "functionCall": None}),
        {**chunk({"text": "a"}, finishReason="STOP"), "usageMetadata": {"promptTokenCount": None}},
    )

    assert kinds(decode(API, ask(gemini()), stream)) == ["start", "text_start", "text_delta", "text_end", "done"]


FIELDS = ["candidates", "content", "parts", "text", "functionCall", "name", "args", "id", "error", "finishReason"]
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_no_json_makes_the_decoder_raise_anything_but_our_errors(value: Any) -> None:
    request = ask(gemini())

    assert isinstance(decode(API, request, sse(value))[-1], ev.Done | ev.Failed)
    assert decode_whole(API, request, msgspec.json.encode(value))[0] == ev.Start(
        AssistantMessage(content=(), provider="google", api=API.id, model=request.model.id, timestamp=ref.TIMESTAMP)
    )
