"""Anthropic Messages: request bodies as a whole, answers as whole lists of events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import streams as ref
from support.fixtures import fixture
from support.messages import call, call_block, result, said_by, text_block, thinking_block
from support.streams import ask, decode, decode_whole, done, failed, kinds, model

from makai.core import stream_events as ev
from makai.core.content import AssistantPart, Audio, Image, Text, Thinking
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, StopReason, SystemMessage, UserMessage
from makai.core.model import Model, ReasoningEffort
from makai.core.request import Context, StreamOptions, ToolChoice, ToolDefinition
from makai.core.secret import Secret
from makai.core.usage import Usage
from makai.providers.anthropic_messages import AnthropicMessages
from makai.providers.base import ProviderRequest

API = AnthropicMessages()
WEATHER_SCHEMA = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
WEATHER = ToolDefinition(name="get_weather", description="Looks it up", parameters_schema_json=WEATHER_SCHEMA)
CLOCK = ToolDefinition(name="clock", description="", parameters_schema_json='{"type":"object"}')
SHORT = {"cache_control": {"type": "ephemeral"}}


def claude(model_id: str = "claude-opus-5", **overrides: object) -> Model:
    return model("anthropic-messages", provider="anthropic", id=model_id, **overrides)


def body(request: ProviderRequest) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(API.request(request).body)
    return decoded


def options_body(target: Model, *, tools: bool = False, **options: Any) -> dict[str, Any]:
    """The part of a body that options decide, without caching."""
    context = Context(messages=(UserMessage(content="Hi"),), tools=(CLOCK,) if tools else ())
    sent = body(ask(target, context=context, options=StreamOptions(cache_retention="none", **options)))
    return {name: value for name, value in sent.items() if name not in ("model", "messages", "stream", "tools")}


def beta(request: ProviderRequest) -> str | Secret | None:
    return API.request(request).headers.get("anthropic-beta")


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (str(e["type"]).encode(), msgspec.json.encode(e)) for e in events)


def started(usage: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "type": "message", "content": [], "usage": usage or {}}}


def block(index: int, content_block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content_block}


def delta(index: int, **fields: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str, **usage: int) -> tuple[dict[str, Any], dict[str, Any]]:
    closing = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    return closing, {"type": "message_stop"}


EMPTY = AssistantMessage(
    content=(), provider="anthropic", api="anthropic-messages", model="claude-opus-5", timestamp=ref.TIMESTAMP
)
START = ev.Start(EMPTY)


def answer(*content: AssistantPart, **fields: Any) -> AssistantMessage:
    defaults = {"stop_reason": "end_turn", "response_id": "msg_1"}
    return msgspec.structs.replace(EMPTY, content=content, **{**defaults, **fields})


# ---------------------------------------------------------------- requests


def conversation() -> Context:
    own = answer(
        *(
            Thinking(thinking="Let me see…", thinking_signature="sig=="),
            Thinking(thinking="", thinking_signature="opaque", redacted=True),
            Thinking(thinking="unsigned"),
            Text(text="Looking up Zürich."),
            call("toolu_1", "get_weather", '{"city": "Zürich"}'),
            call("call|2", "clock", '{"tz": ', arguments_error="not a JSON object"),
        ),
        stop_reason="tool_use",
    )
    picture = Image(data="iVBORw0=", mime_type="image/png")
    return Context(
        system_prompt="Be brief.",
        messages=(
            SystemMessage(content="Speak German."),
            UserMessage(content=(Text(text="Weather? ☂"), picture, Text(text=" "))),
            own,
            result("toolu_1", "get_weather", (Text(text="sunny"), picture)),
            result("call|2", "clock", "", is_error=True),
            UserMessage(content="And now?"),
        ),
        tools=(WEATHER, CLOCK),
    )


def test_a_conversation_becomes_this_request() -> None:
    options = StreamOptions(
        max_tokens=4096,
        stop=("END", " "),
        reasoning_effort="medium",
        tool_choice=ToolChoice(mode="auto"),
        json_schema='{"type":"object"}',
        session_id="s-1",
        metadata={"user_id": "u-1", "trace": "t"},
    )
    made = API.request(ask(claude(), context=conversation(), options=options, secret="sk-ant-api03-x"))

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}}
    second_id = msgspec.json.decode(made.body)["messages"][1]["content"][5]["id"]
    assert made.url == "http://127.0.0.1:9/v1/messages"
    assert made.headers == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "x-api-key": Secret("sk-ant-api03-x"),
    }
    assert second_id.startswith("call_2_")
    assert msgspec.json.decode(made.body) == {
        "model": "claude-opus-5",
        "max_tokens": 4096,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.\n\nSpeak German.", **SHORT}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Weather? ☂"}, image]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Let me see…", "signature": "sig=="},
                    {"type": "redacted_thinking", "data": "opaque"},
                    {"type": "text", "text": "unsigned"},
                    {"type": "text", "text": "Looking up Zürich."},
                    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Zürich"}},
                    {
                        "type": "tool_use",
                        "id": second_id,
                        "name": "clock",
                        "input": {"_malformed_arguments": '{"tz": '},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "sunny"}, image],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": second_id,
                        "content": "The tool failed and gave no reason.",
                        "is_error": True,
                    },
                    {"type": "text", "text": "And now?", **SHORT},
                ],
            },
        ],
        "tools": [
            {"name": "get_weather", "description": "Looks it up", "input_schema": msgspec.json.decode(WEATHER_SCHEMA)},
            {"name": "clock", "input_schema": {"type": "object"}, **SHORT},
        ],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["END"],
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "medium", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "metadata": {"user_id": "u-1"},
    }
    assert "Zürich".encode() in made.body


def test_a_plain_question_is_a_small_request() -> None:
    bare = claude("llama", capabilities=(), max_output_tokens=None)

    assert body(ask(bare, options=StreamOptions(cache_retention="none"), secret=None)) == {
        "model": "llama",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": True,
    }


def test_an_oauth_token_travels_as_bearer_and_imitates_nobody() -> None:
    assert API.request(ask(claude(), secret="sk-ant-oat01-x")).headers == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "oauth-2025-04-20",
        "Authorization": Secret("Bearer sk-ant-oat01-x"),
    }


def test_long_retention_asks_for_an_hour() -> None:
    sent = body(ask(claude(), context=conversation(), options=StreamOptions(cache_retention="long")))

    hour = {"type": "ephemeral", "ttl": "1h"}
    assert [sent["system"][-1]["cache_control"], sent["tools"][-1]["cache_control"]] == [hour, hour]
    assert sent["messages"][-1]["content"][-1]["cache_control"] == hour


def test_no_retention_marks_nothing() -> None:
    sent = API.request(ask(claude(), context=conversation(), options=StreamOptions(cache_retention="none")))

    assert b"cache_control" not in sent.body


ADAPTIVE = {"type": "adaptive"}
SHOWN = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("model_id", "effort", "expected"),
    [
        # budgets, up to Claude 4.5 and for servers that imitate the API
        ("claude-haiku-4-5-20251001", None, {}),
        ("claude-haiku-4-5-20251001", "off", {}),
        ("claude-haiku-4-5-20251001", "minimal", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("claude-sonnet-4-5", "high", {"thinking": {"type": "enabled", "budget_tokens": 16384}}),
        ("claude-3-7-sonnet-latest", "xhigh", {"thinking": {"type": "enabled", "budget_tokens": 32768}}),
        ("claude-3-5-haiku-latest", "high", {}),
        ("glm-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("glm-5", "off", {"thinking": {"type": "disabled"}}),
        ("glm-5", None, {}),
        # adaptive, off by default
        ("claude-opus-4-6", None, {}),
        ("claude-opus-4-6", "off", {}),
        ("claude-opus-4-6", "minimal", {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("anthropic/claude-sonnet-4.6", "xhigh", {"thinking": ADAPTIVE, "output_config": {"effort": "max"}}),
        ("claude-opus-4-8", "xhigh", {"thinking": SHOWN, "output_config": {"effort": "xhigh"}}),
        ("claude-opus-4-7", None, {}),
        # adaptive, on by default
        ("claude-sonnet-5", None, {"thinking": SHOWN}),
        ("claude-sonnet-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-haiku-5-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        ("claude-sonnet-5-5", "high", {"thinking": SHOWN, "output_config": {"effort": "high"}}),
        # cannot be switched off
        ("claude-opus-5-5", "off", {"thinking": SHOWN, "output_config": {"effort": "low"}}),
        ("claude-fable-5-2", "off", {"thinking": SHOWN, "output_config": {"effort": "low"}}),
        ("claude-fable-5", "low", {"thinking": SHOWN, "output_config": {"effort": "low"}}),
        ("claude-saga-9", "medium", {"thinking": SHOWN, "output_config": {"effort": "medium"}}),
    ],
)
def test_effort_is_spelled_as_each_model_wants_it(
    model_id: str, effort: ReasoningEffort | None, expected: dict[str, Any]
) -> None:
    target = claude(model_id, max_output_tokens=64_000)

    assert options_body(target, reasoning_effort=effort) == {"max_tokens": 64_000, **expected}


@pytest.mark.parametrize(("max_tokens", "budget"), [(100_000, 16384), (8192, 7168), (2048, 1024)])
def test_max_tokens_exceeds_the_budget(max_tokens: int, budget: int) -> None:
    target = claude("claude-haiku-4-5", max_output_tokens=64_000)

    assert options_body(target, reasoning_effort="high", max_tokens=max_tokens) == {
        "max_tokens": min(max_tokens, 64_000),
        "thinking": {"type": "enabled", "budget_tokens": budget},
    }


def test_there_is_no_thinking_when_max_tokens_leaves_no_room() -> None:
    target = claude("claude-haiku-4-5")

    assert options_body(target, reasoning_effort="high", max_tokens=2000) == {"max_tokens": 2000}


@pytest.mark.parametrize(
    ("model_id", "options", "expected"),
    [
        ("claude-haiku-4-5", {"temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2}),
        ("claude-haiku-4-5", {"top_p": 0.9}, {"top_p": 0.9}),
        ("claude-haiku-4-5", {"temperature": 0.0, "reasoning_effort": "off"}, {"temperature": 0.0}),
        (
            "glm-5",
            {"temperature": 0.5, "reasoning_effort": "off"},
            {"temperature": 0.5, "thinking": {"type": "disabled"}},
        ),
        (
            "claude-haiku-4-5",
            {"temperature": 0.2, "reasoning_effort": "minimal"},
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        ),
        ("claude-opus-4-7", {"temperature": 0.2, "top_p": 0.9}, {}),
    ],
)
def test_sampling_is_sent_only_where_the_model_takes_it(
    model_id: str, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert options_body(claude(model_id), **options) == {"max_tokens": 8192, **expected}


@pytest.mark.parametrize(
    ("model_id", "choice", "expected"),
    [
        ("claude-haiku-4-5", ToolChoice(mode="auto"), {"tool_choice": {"type": "auto"}}),
        ("claude-haiku-4-5", ToolChoice(mode="none"), {"tool_choice": {"type": "none"}}),
        ("claude-haiku-4-5", ToolChoice(mode="required"), {"tool_choice": {"type": "any"}}),
        ("claude-opus-4-8", ToolChoice(mode="tool", name="clock"), {"tool_choice": {"type": "tool", "name": "clock"}}),
        # these refuse forced tools
        ("claude-opus-5-5", ToolChoice(mode="required"), {}),
        ("claude-sonnet-5-5", ToolChoice(mode="tool", name="clock"), {}),
    ],
)
def test_tool_choice(model_id: str, choice: ToolChoice, expected: dict[str, Any]) -> None:
    target = claude(model_id, capabilities=())

    assert options_body(target, tools=True, tool_choice=choice) == {"max_tokens": 8192, **expected}
    assert options_body(target, tools=False, tool_choice=choice) == {"max_tokens": 8192}


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [
        ("claude-haiku-4-5", {}),
        ("claude-opus-4-6", {}),
        ("claude-opus-5", {"thinking": {"type": "disabled"}}),
        ("claude-fable-5", {"thinking": SHOWN, "output_config": {"effort": "high"}}),
    ],
)
def test_a_forced_tool_wins_over_thinking_where_both_are_refused(model_id: str, expected: dict[str, Any]) -> None:
    forced = ToolChoice(mode="required")

    assert options_body(claude(model_id), tools=True, tool_choice=forced, reasoning_effort="high") == {
        "max_tokens": 8192,
        "tool_choice": {"type": "any"},
        **expected,
    }


def test_thinking_between_tool_calls_needs_a_header_up_to_claude_4_5() -> None:
    thinks = StreamOptions(reasoning_effort="low")
    with_tools = Context(messages=(UserMessage(content="Hi"),), tools=(CLOCK,))

    assert (
        beta(ask(claude("claude-sonnet-4-5"), context=with_tools, options=thinks)) == "interleaved-thinking-2025-05-14"
    )
    assert beta(ask(claude("claude-sonnet-4-5"), options=thinks)) is None
    assert beta(ask(claude("claude-sonnet-4-5"), context=with_tools)) is None
    assert beta(ask(claude("claude-opus-4-6"), context=with_tools, options=thinks)) is None
    assert beta(ask(claude("glm-5"), context=with_tools, options=thinks)) is None


def test_thinking_that_no_longer_fits_its_conversation_is_dropped_by_the_vendor() -> None:
    target = claude("claude-opus-5-5")
    own = said_by(target, Thinking(thinking="hm", thinking_signature="sig"), Text(text="Hello"))
    context = Context(messages=(UserMessage(content="Hi"), own, UserMessage(content="Again")))
    request = ask(target, context=context, options=StreamOptions(reasoning_effort="high"))

    assert body(request)["thinking"] == {**SHOWN, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert beta(request) == "thinking-binding-controls-2026-08-01"


@pytest.mark.parametrize(
    ("message", "tools", "options", "complaint"),
    [
        (UserMessage(content=" "), (), {}, "no message"),
        (UserMessage(content=(Audio(data="AA==", mime_type="audio/wav"),)), (), {}, "takes no audio"),
        (UserMessage(content="Hi"), (), {"json_schema": "{"}, "json_schema"),
        (UserMessage(content="Hi"), (CLOCK,), {"tool_choice": ToolChoice(mode="tool")}, "name of a tool"),
        (None, (), {}, "no message"),
    ],
)
def test_what_the_api_cannot_express_is_refused(
    message: UserMessage | None, tools: tuple[ToolDefinition, ...], options: dict[str, Any], complaint: str
) -> None:
    context = Context(messages=(message,) if message else (), tools=tools)

    with pytest.raises(InvalidRequest, match=complaint):
        API.request(ask(claude(), context=context, options=StreamOptions(**options)))


# ---------------------------------------------------------------- answers

FULL_STREAM = sse(
    started({"input_tokens": 12, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 7, "output_tokens": 1}),
    {"type": "ping"},
    block(0, {"type": "thinking", "thinking": "", "signature": ""}),
    delta(0, type="thinking_delta", thinking="Let me "),
    delta(0, type="thinking_delta", thinking="see."),
    delta(0, type="signature_delta", signature="si"),
    delta(0, type="signature_delta", signature="g=="),
    stop(0),
    block(1, {"type": "redacted_thinking", "data": "opaque"}),
    stop(1),
    block(2, {"type": "text", "text": ""}),
    delta(2, type="text_delta", text="Zürich ☂"),
    stop(2),
    block(3, {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}),
    delta(3, type="input_json_delta", partial_json=""),
    delta(3, type="input_json_delta", partial_json='{"city":'),
    delta(3, type="input_json_delta", partial_json=' "Zürich"}'),
    stop(3),
    block(4, {"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}}),
    stop(4),
    *ended("tool_use", output_tokens=40),
)
FULL_CALLS = (
    call("toolu_1", "get_weather", '{"city": "Zürich"}'),
    call("toolu_2", "clock"),
)
FULL_MESSAGE = answer(
    Thinking(thinking="Let me see.", thinking_signature="sig=="),
    Thinking(thinking="", thinking_signature="opaque", redacted=True),
    Text(text="Zürich ☂"),
    *FULL_CALLS,
    usage=Usage(input=12, output=40, cache_read=7, cache_write=30),
    stop_reason="tool_use",
)
FULL_EVENTS: list[ev.StreamEvent] = [
    START,
    ev.Keepalive(),
    *thinking_block(0, "Let me ", "see.", signature="sig=="),
    *thinking_block(1, signature="opaque", redacted=True),
    *text_block(2, "Zürich ☂"),
    *call_block(3, FULL_CALLS[0], '{"city":', ' "Zürich"}'),
    *call_block(4, FULL_CALLS[1]),
    ev.Done("tool_use", FULL_MESSAGE),
]


@pytest.mark.parametrize("chunk", [None, 1, 2, 7, 64])
def test_a_stream_becomes_these_events_however_it_is_cut(chunk: int | None) -> None:
    assert decode(API, ask(claude()), FULL_STREAM, chunk) == FULL_EVENTS


@pytest.mark.req("MK-PROV-009")
def test_the_reference_answer() -> None:
    stream = sse(
        started({"input_tokens": 10, "output_tokens": 1}),
        block(0, {"type": "thinking", "thinking": "", "signature": ""}),
        *(delta(0, type="thinking_delta", thinking=piece) for piece in (ref.THINKING[:9], ref.THINKING[9:])),
        delta(0, type="signature_delta", signature="EqQB"),
        stop(0),
        block(1, {"type": "text", "text": ""}),
        *(delta(1, type="text_delta", text=piece) for piece in (ref.TEXT[:5], ref.TEXT[5:])),
        stop(1),
        block(2, {"type": "tool_use", "id": ref.TOOL_ID, "name": ref.TOOL_NAME, "input": {}}),
        *(
            delta(2, type="input_json_delta", partial_json=piece)
            for piece in (ref.TOOL_ARGUMENTS[:4], ref.TOOL_ARGUMENTS[4:])
        ),
        stop(2),
        *ended("tool_use", output_tokens=25),
    )
    events = decode(API, ask(claude()), stream)

    ref.assert_reference(events, Usage(input=10, output=25))


def test_a_whole_json_answer_gives_the_same_message() -> None:
    document = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": "sig=="},
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "text", "text": "Zürich ☂"},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Zürich"}},
            {"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 12,
            "cache_creation_input_tokens": 30,
            "cache_read_input_tokens": 7,
            "output_tokens": 40,
        },
    }
    events = decode_whole(API, ask(claude()), msgspec.json.encode(document))
    compact = msgspec.structs.replace(FULL_CALLS[0], arguments_json='{"city":"Zürich"}')

    assert kinds(events) == kinds(FULL_EVENTS)
    assert done(events) == msgspec.structs.replace(
        FULL_MESSAGE, content=(*FULL_MESSAGE.content[:3], compact, FULL_CALLS[1])
    )


@pytest.mark.parametrize(
    ("vendor", "ours"),
    [
        ("end_turn", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("stop_sequence", "stop_sequence"),
        ("refusal", "refusal"),
        ("pause_turn", "end_turn"),
        ("model_context_window_exceeded", "max_tokens"),
    ],
)
def test_stop_reasons(vendor: str, ours: StopReason) -> None:
    stream = sse(started(), delta(0, type="text_delta", text="I"), *ended(vendor))

    assert decode(API, ask(claude()), stream)[-1] == ev.Done(ours, answer(Text(text="I"), stop_reason=ours))


def test_usage_is_cumulative_and_counts_thinking() -> None:
    first, closing = ended("end_turn", input_tokens=0, output_tokens=9)
    first["usage"]["output_tokens_details"] = {"thinking_tokens": 5}
    events = decode(API, ask(claude()), sse(started({"input_tokens": 3, "output_tokens": 4}), first, closing))

    assert done(events).usage == Usage(input=3, output=9, reasoning=5)


@pytest.mark.parametrize(
    ("kind", "code"),
    [("overloaded_error", "overloaded"), ("rate_limit_error", "rate_limited"), ("api_error", "provider_error")],
)
def test_an_error_event_after_200_ends_the_stream(kind: str, code: str) -> None:
    failure = {"type": "error", "error": {"type": kind, "message": "Sorry, test-key"}, "request_id": "req_1"}
    events = decode(
        API, ask(claude()), sse(started(), delta(0, type="text_delta", text="Hal"), failure, *ended("end_turn"))
    )
    last = failed(events)

    assert events[1:3] == [ev.TextStart(0), ev.TextDelta(0, "Hal")]
    assert (last.error_code, last.message.content, len(events)) == (code, (Text(text="Hal"),), 4)
    assert "Sorry, [secret]" in last.error_message


def test_an_error_document_instead_of_an_answer() -> None:
    events = decode_whole(API, ask(claude()), b'{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}')

    assert failed(events).error_code == "overloaded"


@pytest.mark.parametrize("payload", [b"<html>", b'{"type":', b'"\xff"', b"[1]", b"[" * 100_000])
def test_a_whole_answer_that_is_not_json_is_an_error_that_names_the_provider(payload: bytes) -> None:
    last = failed(decode_whole(API, ask(claude()), payload))

    assert last.error_code == "provider_error"
    assert last.error_message.startswith("anthropic sent an event that is not valid JSON")


def test_a_stream_that_is_cut_after_its_stop_reason_is_complete() -> None:
    events = decode(API, ask(claude()), sse(started(), delta(0, type="text_delta", text="Hi"), ended("end_turn")[0]))

    assert events[-1] == ev.Done("end_turn", answer(Text(text="Hi")))


HIDDEN = Thinking(thinking="", thinking_signature="sig")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        pytest.param(
            [
                started(),
                {"type": "news", "message": "a string", "index": None, "error": None},
                block(0, {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}),
                delta(0, type="input_json_delta", partial_json='{"q":1}'),
                stop(0),
                block(1, {"type": "text", "text": "O"}),
                delta(1, type="citations_delta"),
                delta(1, type="text_delta", text="K"),
                {"type": "content_block_delta", "index": 1, "delta": None},
                *ended("end_turn"),
            ],
            answer(Text(text="OK")),
            id="unknown events, blocks and deltas are passed over",
        ),
        pytest.param(
            [
                {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}},
                {"type": "content_block_stop"},
                {"type": "content_block_start", "content_block": {"type": "tool_use", "id": None, "name": "clock"}},
                {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
                {"type": "content_block_stop"},
                *ended("tool_use"),
            ],
            answer(Text(text="Hi"), call("made_1", "clock", '{"a":1}'), stop_reason="tool_use", response_id=None),
            id="indexes and input may be left out",
        ),
        pytest.param(
            [
                started(),
                block(0, {"type": "tool_use", "id": "t", "name": "clock", "input": {"a": 1}}),
                stop(0),
                *ended("tool_use"),
            ],
            answer(call("t", "clock", '{"a":1}'), stop_reason="tool_use"),
            id="arguments may come at once",
        ),
        pytest.param(
            [
                started(),
                block(0, {"type": "thinking", "thinking": "", "signature": ""}),
                delta(0, type="signature_delta", signature="sig"),
                stop(0),
                *ended("end_turn"),
            ],
            answer(HIDDEN),
            id="hidden thinking keeps its signature",
        ),
    ],
)
def test_these_events_are_this_message(events: list[dict[str, Any]], message: AssistantMessage) -> None:
    assert done(decode(API, ask(claude()), sse(*events))) == message


def test_malformed_arguments_are_visible() -> None:
    stream = sse(
        started(),
        block(0, {"type": "tool_use", "id": "t", "name": "clock", "input": {}}),
        delta(0, type="input_json_delta", partial_json='{"a":'),
        stop(0),
        *ended("max_tokens"),
    )
    (cut,) = done(decode(API, ask(claude()), stream)).tool_calls()

    assert cut.arguments_json == '{"a":'
    assert cut.arguments_error is not None


def test_blocks_that_share_an_index_do_not_mix() -> None:
    stream = sse(
        started(),
        block(0, {"type": "text", "text": "one"}),
        block(0, {"type": "tool_use", "id": "t", "name": "clock", "input": {}}),
        delta(0, type="text_delta", text="two"),
        *ended("tool_use"),
    )

    assert " ".join(kinds(decode(API, ask(claude()), stream))) == (
        "start text_start text_delta text_end toolcall_start text_start text_delta "
        "toolcall_delta toolcall_end text_end done"
    )


# ---------------------------------------------------------------- recorded answers of a llama.cpp server


def recorded(name: str) -> bytes:
    return ref.body_of(fixture(f"{name}.raw.txt"))


@pytest.mark.parametrize(
    ("name", "chunk", "tokens", "response_id"),
    [
        ("stream", None, 15, "chatcmpl-1zaqKC1PXvRpmGjvP7S63bwlVx6L7xjk"),
        ("stream", 1, 15, "chatcmpl-1zaqKC1PXvRpmGjvP7S63bwlVx6L7xjk"),
        ("nostream", None, 17, "chatcmpl-3NdosLUJzaIC7nua1LJUkfMp2wURToid"),
    ],
)
def test_a_recorded_text(name: str, chunk: int | None, tokens: int, response_id: str) -> None:
    data, request = recorded(f"llama_server_tools/anthropic_messages_{name}"), ask(claude())
    events = decode_whole(API, request, data) if name == "nostream" else decode(API, request, data, chunk)

    usage = Usage(input=tokens, output=10, cache_read=5)
    assert done(events) == answer(Text(text="Hello! How can I assist you today?"), usage=usage, response_id=response_id)


@pytest.mark.parametrize(
    ("name", "tool_id", "usage"),
    [
        ("tools_any_stream", "L2UEL5HgXyJ5xlvObQoYAmFt0QGeOJZO", Usage(input=1, output=17, cache_read=209)),
        ("tools_auto_stream", "G1nCBfyRG2KaKRR30XENTl3UAI6O6rfS", Usage(input=1, output=17, cache_read=209)),
        ("tool_result_stream", "vYpeDz1lCUgsfjErloV1NANVc6XPtFS3", Usage(input=24, output=17, cache_read=226)),
    ],
)
def test_recorded_tool_calls(name: str, tool_id: str, usage: Usage) -> None:
    message = done(decode(API, ask(claude()), recorded(f"llama_server_tools/anthropic_{name}")))
    made = call(tool_id, "get_weather", '{"city": "Paris"}')

    assert (message.content, message.stop_reason, message.usage) == ((made,), "tool_use", usage)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("anthropic_messages_stream", 24), ("anthropic_tool_result_stream", 60), ("anthropic_tools_any_stream", 120)],
)
def test_recorded_answers_that_hit_their_limit(name: str, tokens: int) -> None:
    message = done(decode(API, ask(claude()), recorded(f"llama_server/{name}")))

    assert (message.stop_reason, message.usage.output) == ("max_tokens", tokens)
    assert len(message.text().split()) > 10


# ---------------------------------------------------------------- anything at all

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text", "id"]), inner, max_size=2)
    ),
    max_leaves=4,
)
BLOCK_TYPES = st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "other"])
DELTA_TYPES = st.sampled_from(["text_delta", "thinking_delta", "input_json_delta", "signature_delta", "other"])
WORDS = st.sampled_from([None, "", "a", '{"b":1}'])
EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_start",
                "message_delta",
                "ping",
            ]
        )
    },
    optional={
        "index": st.sampled_from([None, 0, 1]),
        "content_block": st.fixed_dictionaries(
            {"type": BLOCK_TYPES}, optional={"text": WORDS, "thinking": WORDS, "signature": WORDS, "data": WORDS}
        ),
        "delta": st.fixed_dictionaries(
            {"type": DELTA_TYPES},
            optional={
                "text": WORDS,
                "thinking": WORDS,
                "partial_json": WORDS,
                "signature": WORDS,
                "stop_reason": WORDS,
            },
        ),
        "message": JSON_VALUES,
        "usage": JSON_VALUES,
    },
)


@given(st.lists(EVENTS, max_size=12))
def test_any_order_of_events_keeps_the_law(events: list[dict[str, Any]]) -> None:
    ref.assert_lawful(decode(API, ask(claude()), sse(*events, {"type": "message_stop"})))


@given(st.binary() | JSON_VALUES.map(msgspec.json.encode))
def test_arbitrary_documents_raise_nothing_but_our_errors(document: bytes) -> None:
    events = decode_whole(API, ask(claude()), document)

    assert isinstance(events[-1], ev.Start | ev.Done | ev.Failed)
