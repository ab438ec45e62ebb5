"""OpenAI Responses, the request: conversations become input items."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from support.messages import call, result, said_by
from support.streams import TOOL_NAME, ask, model

from makai.core.content import Audio, Image, Text, Thinking
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, SystemMessage, UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import Context, StreamOptions, ToolChoice, ToolDefinition
from makai.core.secret import Secret
from makai.providers.openai_responses import OpenAIResponses

API = OpenAIResponses()
MODEL = model(API.id, "openai", id="gpt-5.1", base_url="https://api.example/v1/")
SCHEMA = '{"type":"object","properties":{"city":{"type":"string"}}}'
WEATHER = ToolDefinition(name=TOOL_NAME, description="Weather in a city", parameters_schema_json=SCHEMA)


def sent(context: Context | None = None, options: StreamOptions | None = None, target: Model = MODEL) -> Any:
    return msgspec.json.decode(API.request(ask(target, context=context, options=options)).body)


def said(*messages: Message) -> Any:
    return sent(Context(messages=messages))["input"]


def own(*content: Any) -> AssistantMessage:
    return said_by(MODEL, *content, stop_reason="end_turn")


def test_a_whole_conversation_becomes_input_items() -> None:
    signature = (
        '{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"id":"rs_1","encrypted_content":"x"}'
    )
    context = Context(
        system_prompt="Be terse.",
        tools=(WEATHER,),
        messages=(
            UserMessage(content=(Text(text="Wie wird's in Zürich?"), Image(data="aGk=", mime_type="image/png"))),
            own(
                Thinking(thinking="hm", thinking_signature=signature),
                Text(text="Moment.", text_signature="commentary"),
                call("call_1", TOOL_NAME, '{"city":"Zürich"}'),
                call("call_2", TOOL_NAME, '{"city":', arguments_error="cut"),
            ),
            result("call_1", TOOL_NAME, (Text(text="18 °C"), Image(data="bWFw", mime_type="image/jpeg"))),
            result("call_2", TOOL_NAME, "bad input", is_error=True),
            SystemMessage(content="Now in English."),
            UserMessage(content="And?"),
        ),
    )
    options = StreamOptions(
        temperature=0.3,
        max_tokens=5,
        reasoning_effort="high",
        tool_choice=ToolChoice(mode="tool", name=TOOL_NAME),
        json_schema=SCHEMA,
        cache_retention="long",
        session_id="session-1",
        metadata={"user": "u1"},
        stop=("END",),
    )

    request = API.request(ask(MODEL, context=context, options=options))

    assert request.url == "https://api.example/v1/responses"
    assert request.headers == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Authorization": Secret("Bearer test-key"),
    }
    assert "Zürich".encode() in request.body
    assert msgspec.json.decode(request.body) == {
        "model": "gpt-5.1",
        "stream": True,
        "store": False,
        "instructions": "Be terse.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Wie wird's in Zürich?"},
                    {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="},
                ],
            },
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "hm"}],
                "id": "rs_1",
                "encrypted_content": "x",
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Moment.", "annotations": []}],
                "phase": "commentary",
            },
            {"type": "function_call", "call_id": "call_1", "name": TOOL_NAME, "arguments": '{"city":"Zürich"}'},
            {
                "type": "function_call",
                "call_id": "call_2",
                "name": TOOL_NAME,
                "arguments": '{"_malformed_arguments":"{\\"city\\":"}',
            },
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [
                    {"type": "input_text", "text": "18 °C"},
                    {"type": "input_image", "detail": "auto", "image_url": "data:image/jpeg;base64,bWFw"},
                ],
            },
            {"type": "function_call_output", "call_id": "call_2", "output": "Error: bad input"},
            {"type": "message", "role": "developer", "content": "Now in English."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And?"}]},
        ],
        "max_output_tokens": 16,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high", "summary": "auto"},
        "tools": [
            {
                "type": "function",
                "name": TOOL_NAME,
                "description": "Weather in a city",
                "parameters": msgspec.json.decode(SCHEMA),
                "strict": False,
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": {"type": "function", "name": TOOL_NAME},
        "text": {
            "format": {"type": "json_schema", "name": "answer", "schema": msgspec.json.decode(SCHEMA), "strict": True}
        },
        "prompt_cache_key": "session-1",
        "prompt_cache_retention": "24h",
        "metadata": {"user": "u1"},
    }


def test_a_plain_request_says_nothing_that_was_not_asked_for() -> None:
    target = model(API.id, id="some-model", capabilities=(ModelCapability.CHAT,))

    assert sent(target=target) == {
        "model": "some-model",
        "stream": True,
        "store": False,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
    }


@pytest.mark.parametrize(
    ("model_id", "effort", "reasoning"),
    [
        ("gpt-5.1", "off", {"effort": "none"}),
        ("gpt-5.1", "minimal", {"effort": "low", "summary": "auto"}),
        ("gpt-5.1", "xhigh", {"effort": "high", "summary": "auto"}),
        ("gpt-5.2", "xhigh", {"effort": "xhigh", "summary": "auto"}),
        ("gpt-5", "off", {"effort": "minimal", "summary": "auto"}),
        ("gpt-5-mini", "minimal", {"effort": "minimal", "summary": "auto"}),
        ("gpt-5-pro", "low", {"effort": "high", "summary": "auto"}),
        ("gpt-5-pro", "off", None),
        ("gpt-5.1-codex-max", "xhigh", {"effort": "xhigh", "summary": "auto"}),
        ("o4-mini", "off", {"effort": "low", "summary": "auto"}),
        ("o3", "xhigh", {"effort": "high", "summary": "auto"}),
        ("gpt-6.1-sol", "off", {"effort": "low", "summary": "auto"}),
        ("openai/gpt-5.6-terra", "off", {"effort": "none"}),
        ("my-deployment", "off", None),
        ("my-deployment", "xhigh", {"effort": "high", "summary": "auto"}),
        ("gpt-5.1", None, None),
    ],
)
def test_effort_is_moved_to_what_the_model_family_accepts(model_id: str, effort: Any, reasoning: Any) -> None:
    body = sent(options=StreamOptions(reasoning_effort=effort), target=model(API.id, id=model_id))

    assert body.get("reasoning") == reasoning


def test_a_model_that_does_not_reason_gets_its_temperature_beside_an_effort() -> None:
    target = model(API.id, id="gpt-4.1", capabilities=(ModelCapability.CHAT,))
    body = sent(options=StreamOptions(reasoning_effort="high", temperature=0.5, top_p=0.9), target=target)

    assert {"reasoning", "include"}.isdisjoint(body)
    assert (body["temperature"], body["top_p"]) == (0.5, 0.9)


def test_temperature_goes_to_a_reasoning_model_only_while_it_does_not_reason() -> None:
    warm = StreamOptions(temperature=0.5, top_p=0.9, reasoning_effort="off")

    assert sent(options=warm)["temperature"] == 0.5
    assert sent(options=warm)["top_p"] == 0.9
    assert "temperature" not in sent(options=StreamOptions(temperature=0.5))
    assert "temperature" not in sent(options=warm, target=model(API.id, id="o3"))


@pytest.mark.parametrize(
    ("model_id", "retention", "fields"),
    [
        ("gpt-5.1", "short", {"prompt_cache_key": "s"}),
        ("gpt-5.1", "none", {}),
        ("gpt-5.6-sol", "long", {"prompt_cache_key": "s", "prompt_cache_options": {"ttl": "12h"}}),
        ("gpt-5.6-sol", "none", {"prompt_cache_options": {"mode": "explicit"}}),
        ("gpt-4.1", "long", {"prompt_cache_key": "s", "prompt_cache_retention": "24h"}),
        ("o3", "long", {"prompt_cache_key": "s"}),
        ("my-deployment", "long", {"prompt_cache_key": "s"}),
    ],
)
def test_cache_retention_is_asked_for_in_the_words_of_the_family(
    model_id: str, retention: Any, fields: dict[str, Any]
) -> None:
    body = sent(options=StreamOptions(session_id="s", cache_retention=retention), target=model(API.id, id=model_id))

    assert {key: value for key, value in body.items() if key.startswith("prompt_cache")} == fields


def test_a_long_session_id_becomes_a_cache_key_of_legal_length() -> None:
    key = sent(options=StreamOptions(session_id="s" * 65))["prompt_cache_key"]

    assert key == hashlib.sha256(b"s" * 65).hexdigest()


@pytest.mark.parametrize("mode", ["auto", "none", "required"])
def test_tool_choice_modes_keep_their_names(mode: Any) -> None:
    context = Context(messages=(UserMessage(content="Hi"),), tools=(WEATHER,))

    assert sent(context, StreamOptions(tool_choice=ToolChoice(mode=mode)))["tool_choice"] == mode


def test_reasoning_of_another_model_goes_back_as_words_and_without_its_signature() -> None:
    foreign = said_by(
        model("anthropic-messages", "anthropic"),
        *(Thinking(thinking="hm", thinking_signature="sig"), Text(text="Hi", text_signature="final_answer")),
    )

    assert said(UserMessage(content="Hi"), foreign)[1:] == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}
        for text in ("hm", "Hi")
    ]


@pytest.mark.parametrize("signature", [None, "not json", "{}", '{"type":"reasoning"}', "\ud800"])
def test_own_reasoning_that_cannot_be_proven_is_left_out(signature: str | None) -> None:
    turn = own(Thinking(thinking="hm", thinking_signature=signature), Text(text="Hi"))

    assert [item["type"] for item in said(turn)] == ["message"]


def test_a_long_tool_id_is_shortened_alike_for_the_call_and_its_result() -> None:
    items = said(own(call("x" * 80, TOOL_NAME)), result("x" * 80, TOOL_NAME, "ok"))

    assert items[0]["call_id"] == items[1]["call_id"]
    assert len(items[0]["call_id"]) <= 64


def test_audio_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidRequest, match="audio"):
        said(UserMessage(content=(Audio(data="aGk=", mime_type="audio/wav"),)))
