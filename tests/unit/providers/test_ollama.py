"""The Ollama adapter: requests as Ollama documents them, answers line by line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support import streams as ref
from support.messages import EVERY_OPTION, call_block, result, said_by, text_block, thinking_block
from support.messages import call as made
from support.streams import ask, assert_reference, decode, decode_whole, done, failed, kinds, model

from makai.core import stream_events as ev
from makai.core.content import Audio, Image, Text, Thinking
from makai.core.errors import InvalidRequest
from makai.core.messages import StopReason, SystemMessage, UserMessage
from makai.core.model import Model, ReasoningEffort
from makai.core.request import Context, StreamOptions, ToolChoice, ToolDefinition
from makai.core.secret import Secret
from makai.core.usage import Usage
from makai.providers.ollama import Ollama

API = Ollama()
SCHEMA = '{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"number"}}}'
WEATHER = ToolDefinition(name="get_weather", description="Looks outside.", parameters_schema_json=SCHEMA)
PNG = Image(data="aVZCTw==", mime_type="image/png")


def qwen(name: str = "qwen3:8b", **overrides: object) -> Model:
    return model(API.id, provider="ollama", id=name, base_url="http://127.0.0.1:9/", **overrides)


def body_of(target: Model, *messages: Any, tools: tuple[ToolDefinition, ...] = (), **options: Any) -> dict[str, Any]:
    context = Context(messages=messages or (UserMessage(content="Hi"),), tools=tools)
    value = msgspec.json.decode(API.request(ask(target, context=context, options=StreamOptions(**options))).body)
    assert isinstance(value, dict)
    return value


def line(message: dict[str, Any] | None = None, **fields: Any) -> bytes:
    spoken = {"role": "assistant", "content": "", **(message or {})}
    values = {"model": "qwen3:8b", "created_at": "2026-09-17T15:42:59.5Z", "message": spoken, "done": False, **fields}
    return msgspec.json.encode(values) + b"\n"


def call(name: str, arguments: object, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"index": 0, "name": name, "arguments": arguments}}


LAST = line(
    done=True,
    done_reason="stop",
    total_duration=30258609300,
    prompt_eval_count=40,
    prompt_eval_cached_count=30,
    eval_count=12,
)
STREAM = b"".join(
    (
        line({"thinking": ref.THINKING[:10]}),
        line({"thinking": ref.THINKING[10:]}),
        line({"content": ref.TEXT[:6]}),
        line({"content": ref.TEXT[6:]}),
        line({"tool_calls": [call(ref.TOOL_NAME, {"city": "Paris"}, id=ref.TOOL_ID), call("now", {})]}),
        LAST,
    )
)


def streamed_events(target: Model) -> list[ev.StreamEvent]:
    weather, now = made(ref.TOOL_ID, ref.TOOL_NAME, ref.TOOL_ARGUMENTS), made("made_1", "now")
    empty = said_by(target, timestamp=ref.TIMESTAMP)
    message = msgspec.structs.replace(
        empty,
        content=(Thinking(thinking=ref.THINKING), Text(text=ref.TEXT), weather, now),
        usage=Usage(input=10, output=12, cache_read=30),
        stop_reason="tool_use",
    )
    return [
        ev.Start(empty),
        *thinking_block(0, ref.THINKING[:10], ref.THINKING[10:]),
        *text_block(1, ref.TEXT[:6], ref.TEXT[6:]),
        *call_block(2, weather),
        *call_block(3, now),
        ev.Done("tool_use", message),
    ]


# ---------------------------------------------------------------- request


def test_a_conversation_becomes_the_documented_body() -> None:
    target = qwen()
    said = said_by(
        target,
        *(
            Thinking(thinking="Hmm"),
            Text(text="Un moment."),
            made("a", "get_weather", '{"z": "ä", "a": 1.0}'),
            made("b", "get_weather", "{broken"),
        ),
    )
    context = Context(
        system_prompt="Be brief.",
        tools=(WEATHER,),
        messages=(
            UserMessage(content=(Text(text="Où?"), Text(text="☂"), PNG)),
            SystemMessage(content="Speak French."),
            said,
            result("a", "get_weather", (Text(text="rain"), PNG)),
            result("b", "get_weather", "no such place", is_error=True),
        ),
    )
    options = msgspec.structs.replace(EVERY_OPTION, tool_choice=ToolChoice(mode="required"))

    prepared = API.request(ask(target, context=context, options=options))

    assert prepared.url == "http://127.0.0.1:9/api/chat"
    assert prepared.headers == {
        "Content-Type": "application/json",
        "Accept": "application/x-ndjson",
        "Authorization": Secret("Bearer test-key"),
    }
    assert "Où?".encode() in prepared.body
    assert b'"arguments":{"z": "\xc3\xa4", "a": 1.0}' in prepared.body
    assert msgspec.json.decode(prepared.body) == {
        "model": "qwen3:8b",
        "stream": True,
        "think": True,
        "format": {"type": "object"},
        "options": {"temperature": 0.5, "top_p": 0.9, "num_predict": 100, "stop": ["END"]},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "Looks outside.",
                    "parameters": msgspec.json.decode(SCHEMA),
                },
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Où?\n☂", "images": ["aVZCTw=="]},
            {"role": "system", "content": "Speak French."},
            {
                "role": "assistant",
                "content": "Un moment.",
                "thinking": "Hmm",
                "tool_calls": [
                    {"id": "a", "function": {"name": "get_weather", "arguments": {"z": "ä", "a": 1.0}}},
                    {"id": "b", "function": {"name": "get_weather", "arguments": {"_malformed_arguments": "{broken"}}},
                ],
            },
            {
                "role": "tool",
                "tool_name": "get_weather",
                "tool_call_id": "a",
                "content": "rain",
                "images": ["aVZCTw=="],
            },
            {"role": "tool", "tool_name": "get_weather", "tool_call_id": "b", "content": "Error: no such place"},
        ],
    }


def test_the_smallest_request_holds_nothing_that_was_not_asked_for() -> None:
    prepared = API.request(ask(qwen(), secret=None))

    assert prepared.headers == {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
    assert msgspec.json.decode(prepared.body) == {
        "model": "qwen3:8b",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
    }


@pytest.mark.parametrize(
    ("name", "effort", "think"),
    [
        ("qwen3:8b", "off", False),
        ("qwen3:8b", "minimal", True),
        ("gpt-oss:20b", "off", "low"),
        ("gpt-oss:20b", "minimal", "low"),
        ("gpt-oss:120b-cloud", "medium", "medium"),
        ("gpt-oss:20b", "xhigh", "high"),
    ],
)
def test_effort_becomes_think(name: str, effort: ReasoningEffort, think: object) -> None:
    assert body_of(qwen(name), reasoning_effort=effort)["think"] == think


def test_no_tools_are_offered_when_none_may_be_called() -> None:
    assert "tools" not in body_of(qwen(), tools=(WEATHER,), tool_choice=ToolChoice(mode="none"))
    assert "tools" in body_of(qwen(), tools=(WEATHER,), tool_choice=ToolChoice(mode="auto"))


def test_audio_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="ollama does not take audio"):
        body_of(qwen(), UserMessage(content=(Audio(data="AAAA", mime_type="audio/wav"),)))


# ---------------------------------------------------------------- answer


def test_a_stream_becomes_events_however_it_is_cut() -> None:
    request = ask(qwen())
    expected = streamed_events(request.model)

    for size in (None, 1, 7):
        assert decode(API, request, STREAM, size) == expected
    assert decode(API, request, STREAM.rstrip()) == expected


def test_a_stream_that_calls_itself_json_is_the_same_answer() -> None:
    request = ask(qwen())

    assert decode_whole(API, request, STREAM) == streamed_events(request.model)


def test_a_whole_answer_is_the_same_message() -> None:
    request = ask(qwen())
    message = {
        "content": ref.TEXT,
        "thinking": ref.THINKING,
        "tool_calls": [call(ref.TOOL_NAME, {"city": "Paris"}, id=ref.TOOL_ID), call("now", None)],
    }
    counts = {"prompt_eval_count": 40, "prompt_eval_cached_count": 30, "eval_count": 12}
    answer = line(message, done=True, done_reason="stop", **counts)

    assert decode_whole(API, request, answer)[-1] == streamed_events(request.model)[-1]


@pytest.mark.req("MK-PROV-009")
def test_the_reference_answer_is_the_same_as_every_other_apis() -> None:
    stream = b"".join(
        (
            line({"thinking": ref.THINKING}),
            line({"content": ref.TEXT}),
            line({"tool_calls": [call(ref.TOOL_NAME, {"city": "Paris"})]}),
            LAST,
        )
    )

    events = decode(API, ask(qwen()), stream)

    assert_reference(events, Usage(input=10, output=12, cache_read=30))


@pytest.mark.parametrize(("reason", "expected"), [("stop", "end_turn"), ("length", "max_tokens"), (None, "end_turn")])
def test_done_reasons_become_stop_reasons(reason: str | None, expected: StopReason) -> None:
    events = decode(API, ask(qwen()), line({"content": "a"}) + line(done=True, done_reason=reason))

    assert done(events).stop_reason == expected


def test_an_error_line_keeps_what_had_arrived_and_hides_the_key() -> None:
    error = b'{"error":"model runner has unexpectedly stopped, key test-key"}\n'

    last = failed(decode(API, ask(qwen()), line({"content": "a"}) + error + line({"content": "b"})))

    assert (last.error_code, last.provider_id) == ("provider_error", "ollama")
    assert last.error_message == ("ollama refused the request: model runner has unexpectedly stopped, key [secret]")
    assert last.message.content == (Text(text="a"),)


def test_the_status_of_an_error_line_counts() -> None:
    last = failed(decode(API, ask(qwen()), b'{"error":"too many concurrent requests","status":429}\n'))

    assert last.error_code == "rate_limited"


def test_an_error_that_a_proxy_frames_as_a_server_sent_event_is_read() -> None:
    framed = b': ping\nevent: error\nid: 1\ndata: {"error":"too many concurrent requests","status":429}\n\n'
    last = failed(decode(API, ask(qwen()), framed))

    assert (last.error_code, last.error_message) == (
        "rate_limited",
        "ollama refused the request (HTTP 429): too many concurrent requests",
    )


@pytest.mark.parametrize(
    "noise", [b"{", b"<html>\n</html>", b'{"message":3}', b"[" * 100_000, b'{"error":' + b"[" * 100_000]
)
def test_a_whole_answer_that_is_no_json_is_an_error_that_names_the_provider(noise: bytes) -> None:
    last = failed(decode_whole(API, ask(qwen()), noise))

    assert last.error_message.startswith("ollama sent an event that is not valid JSON: ")
    assert decode(API, ask(qwen()), noise + b"\n")[-1] == last


def test_a_line_without_end_is_an_error() -> None:
    last = failed(decode(API, ask(qwen()), b"x" * (17 * 1024 * 1024)))

    assert last.error_message == "ollama: line exceeds the limit of 16777216 bytes"


@pytest.mark.parametrize("kept", [0, 5, 60])
def test_a_stream_that_is_cut_is_incomplete(kept: int) -> None:
    last = failed(decode(API, ask(qwen()), line({"content": "a"}) + LAST[:kept]))

    assert last.error_message == "ended before it was complete"
    assert last.message.content == (Text(text="a"),)


@pytest.mark.parametrize(
    ("given", "visible"), [("no object", "no object"), ("[1]", "[1]"), ([1], "[1]"), (7, "7")], ids=str
)
def test_arguments_that_are_no_object_stay_visible(given: object, visible: str) -> None:
    stream = line({"tool_calls": [call("f", given)]}) + line(done=True)

    said = done(decode(API, ask(qwen()), stream))

    (made,) = said.tool_calls()
    assert made.arguments_json == visible
    assert made.arguments_error is not None


def test_nulls_and_missing_fields_are_nothing() -> None:
    stream = (
        b'{"message":null}\n{}\n'
        b'{"message":{"content":null,"thinking":null,"tool_calls":null},"done":null,"error":null}\n'
        b'{"message":{"content":"a"},"done":true,"done_reason":null,"eval_count":null}\n'
    )

    assert kinds(decode(API, ask(qwen()), stream)) == ["start", "text_start", "text_delta", "text_end", "done"]
