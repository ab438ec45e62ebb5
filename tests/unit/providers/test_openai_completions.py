from typing import Any

import msgspec
import pytest
from support import streams as ref
from support.fixtures import fixture
from support.messages import call, result, said_by
from support.streams import ask, assert_reference, body_of, decode, decode_whole, done, failed, model

from makai.core.content import Audio, Image, Text, Thinking, ToolCall, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, StopReason, SystemMessage, ToolMessage, UserMessage
from makai.core.model import ChatQuirks
from makai.core.request import Context, StreamOptions, ToolChoice, ToolDefinition
from makai.core.usage import Usage
from makai.providers.openai_completions import OpenAICompletions

API = OpenAICompletions()
CHAT = model("openai-completions")
WEATHER = ToolDefinition(name=ref.TOOL_NAME, description="Weather", parameters_schema_json='{"type":"object"}')


def sse(*chunks: object) -> bytes:
    lines = [b"data: " + msgspec.json.encode(chunk) for chunk in chunks]
    return b"\n\n".join([*lines, b"data: [DONE]", b""])


def delta(**fields: object) -> dict[str, object]:
    return {"id": "chat_1", "choices": [{"index": 0, "delta": fields}]}


def finish(reason: str) -> dict[str, object]:
    return {"id": "chat_1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def call_piece(index: int, arguments: str = "", **fields: object) -> dict[str, object]:
    name = {"name": fields.pop("name")} if "name" in fields else {}
    return {"index": index, **fields, "function": {**name, "arguments": arguments}}


REFERENCE_STREAM = sse(
    delta(role="assistant", content=None),
    *(delta(reasoning_content=word) for word in (ref.THINKING[:10], ref.THINKING[10:])),
    *(delta(content=word) for word in (ref.TEXT[:3], ref.TEXT[3:])),
    delta(tool_calls=[call_piece(0, id=ref.TOOL_ID, type="function", name=ref.TOOL_NAME)]),
    *(delta(tool_calls=[call_piece(0, piece)]) for piece in (ref.TOOL_ARGUMENTS[:6], ref.TOOL_ARGUMENTS[6:])),
    finish("tool_calls"),
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 30,
            "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 8},
        },
    },
)


@pytest.mark.req("MK-PROV-009")
def test_the_recorded_stream_becomes_the_reference_answer() -> None:
    events = decode(API, ask(CHAT), REFERENCE_STREAM)
    assert_reference(events, Usage(input=20, output=20, cache_read=10, reasoning=8))
    assert done(events).response_id == "chat_1"


@pytest.mark.parametrize("chunk", range(1, 80))
def test_the_answer_is_the_same_however_the_bytes_are_cut(chunk: int) -> None:
    assert decode(API, ask(CHAT), REFERENCE_STREAM, chunk) == decode(API, ask(CHAT), REFERENCE_STREAM)


def test_parallel_tool_calls_may_interleave() -> None:
    stream = sse(
        delta(tool_calls=[call_piece(0, id="a", name="read"), call_piece(1, id="b", name="write")]),
        delta(tool_calls=[call_piece(1, '{"x":')]),
        delta(tool_calls=[call_piece(0, '{"y":1}')]),
        delta(tool_calls=[call_piece(1, "2}")]),
        finish("tool_calls"),
    )
    assert done(decode(API, ask(CHAT), stream)).content == (
        call("a", "read", '{"y":1}'),
        call("b", "write", '{"x":2}'),
    )


def test_calls_that_are_all_numbered_zero_are_told_apart_by_their_ids() -> None:
    stream = sse(
        delta(tool_calls=[call_piece(0, '{"a":1}', id="a", name="read")]),
        delta(tool_calls=[call_piece(0, '{"b":2}', id="b", name="read")]),
        finish("tool_calls"),
    )
    assert [made.arguments_json for made in done(decode(API, ask(CHAT), stream)).tool_calls()] == [
        '{"a":1}',
        '{"b":2}',
    ]


def test_arguments_given_as_an_object_are_written_as_json() -> None:
    stream = sse(delta(tool_calls=[{"function": {"name": "t", "arguments": {"a": [1]}}}]), finish("tool_calls"))
    (made,) = done(decode(API, ask(CHAT), stream)).tool_calls()
    assert (made.tool_call_id, made.arguments_json) == ("made_1", '{"a":[1]}')


REASONS: list[tuple[str, StopReason]] = [
    ("stop", "end_turn"),
    ("length", "max_tokens"),
    ("content_filter", "refusal"),
    ("tool_calls", "tool_use"),
]


@pytest.mark.parametrize(("vendor", "ours"), REASONS)
def test_stop_reasons_have_our_spelling(vendor: str, ours: StopReason) -> None:
    assert done(decode(API, ask(CHAT), sse(delta(content="x"), finish(vendor)))).stop_reason == ours


@pytest.mark.req("MK-PROV-009")
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_is_thinking_whatever_the_server_calls_it(field: str) -> None:
    stream = sse(delta(**{field: "Hm"}), delta(content="Yes"), finish("stop"))
    assert done(decode(API, ask(CHAT), stream)).content == (Thinking(thinking="Hm"), Text(text="Yes"))


def test_typed_content_pieces_are_read() -> None:
    pieces = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "text", "text": "Yes"}]
    stream = sse(delta(content=pieces), finish("stop"))
    assert done(decode(API, ask(CHAT), stream)).content == (Thinking(thinking="Hm"), Text(text="Yes"))


def test_groq_and_deepseek_usage_is_found() -> None:
    groq = sse(delta(content="x"), finish("stop") | {"x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}})
    assert done(decode(API, ask(CHAT), groq)).usage == Usage(input=3, output=4)
    deepseek = sse(
        finish("stop") | {"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}}
    )
    assert done(decode(API, ask(CHAT), deepseek)).usage == Usage(input=5, output=1, cache_read=4)


def test_an_error_inside_the_stream_ends_it() -> None:
    stream = sse(delta(content="Hel"), {"error": {"message": "does not match the expected format", "code": 500}})
    last = failed(decode(API, ask(CHAT), stream))
    assert last.error_message == "acme refused the request (HTTP 500): does not match the expected format"
    assert last.message.text() == "Hel"


def test_a_whole_completion_gives_the_same_parts() -> None:
    body = {
        "id": "chat_1",
        "choices": [
            {
                "message": {
                    "content": ref.TEXT,
                    "reasoning_content": ref.THINKING,
                    "tool_calls": [
                        {"id": ref.TOOL_ID, "function": {"name": ref.TOOL_NAME, "arguments": ref.TOOL_ARGUMENTS}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
    }
    content = done(decode_whole(API, ask(CHAT), msgspec.json.encode(body))).content
    assert set(map(type, content)) == set(map(type, ref.REFERENCE_CONTENT))


# ------------------------------------------------------------------ recordings of a real llama.cpp server


def recorded(name: str) -> bytes:
    return body_of(fixture(name))


@pytest.mark.parametrize("folder", ["llama_server", "llama_server_tools"])
def test_recorded_llama_streams_are_read_to_their_end(folder: str) -> None:
    for name in ("chat_stream", "chat_json_schema_stream", "chat_tool_result_stream", "chat_tools_auto_stream"):
        message = done(decode(API, ask(CHAT), recorded(f"{folder}/{name}.raw.txt")))
        assert message.content
        assert message.stop_reason in ("end_turn", "max_tokens", "tool_use")


def test_a_recorded_llama_tool_call_is_assembled() -> None:
    message = done(decode(API, ask(CHAT), recorded("llama_server_tools/chat_tools_auto_stream.raw.txt")))
    (made,) = message.tool_calls()
    assert (made.name, made.arguments_json) == ("get_weather", '{"city": "Paris"}')
    assert message.stop_reason == "tool_use"


def test_a_recorded_llama_answer_in_one_piece_is_read() -> None:
    message = done(decode_whole(API, ask(CHAT), recorded("llama_server/chat_tools_required.raw.txt")))
    assert message.text().startswith("Paris, the City of Light")
    assert message.usage == Usage(input=1, output=120, cache_read=36)


# ------------------------------------------------------------------ requests

CONVERSATION = Context(
    system_prompt="Be brief.",
    messages=(
        UserMessage(content=(Text(text="What is this? é"), Image(data="aGk=", mime_type="image/png"))),
        said_by(
            CHAT,
            Thinking(thinking="A picture.", thinking_signature="sig"),
            Text(text="I look."),
            call("call_1", ref.TOOL_NAME, '{"city":"Paris"}'),
            stop_reason="tool_use",
        ),
        result("call_1", ref.TOOL_NAME, (Text(text="sunny"), Image(data="eHk=", mime_type="image/jpeg"))),
        SystemMessage(content="Answer in French."),
        UserMessage(content="And now?"),
    ),
    tools=(WEATHER,),
)


def body(context: Context = CONVERSATION, options: StreamOptions | None = None, **quirks: object) -> dict[str, Any]:
    target = model("openai-completions", quirks=ChatQuirks(**quirks))  # type: ignore[arg-type]
    request = API.request(ask(target, context=context, options=options))
    assert "\\u" not in request.body.decode()
    decoded: dict[str, Any] = msgspec.json.decode(request.body)
    return decoded


@pytest.mark.req("MK-PROV-004")
def test_a_conversation_becomes_this_request() -> None:
    assert body() == {
        "model": "test-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this? é"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Image from the tool get_weather:"},
                    {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,eHk="}},
                ],
            },
            {"role": "system", "content": "Answer in French."},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "get_weather", "description": "Weather", "parameters": {"type": "object"}},
            }
        ],
    }


def test_images_of_tools_follow_the_results_of_all_calls_of_the_turn() -> None:
    calls = [ToolCall(tool_call_id=f"call_{n}", name="look", arguments_json="{}") for n in (1, 2)]
    contents: list[str | tuple[Image, ...]] = [(Image(data="aGk=", mime_type="image/png"),), "nothing"]
    results = [
        ToolMessage(result=ToolResult(tool_call_id=call.tool_call_id, tool_name="look", content=content))
        for call, content in zip(calls, contents, strict=True)
    ]
    asked = Context(messages=(UserMessage(content="Look"), AssistantMessage(content=tuple(calls)), *results))

    messages = body(context=asked)["messages"]

    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "call_1", "content": "(see the image)"},
        {"role": "tool", "tool_call_id": "call_2", "content": "nothing"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Image from the tool look:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        },
    ]


@pytest.mark.req("MK-PROV-005")
def test_options_reach_the_request() -> None:
    options = StreamOptions(
        temperature=0.0,
        top_p=0.5,
        max_tokens=64,
        stop=("END",),
        reasoning_effort="minimal",
        tool_choice=ToolChoice(mode="tool", name=ref.TOOL_NAME),
        json_schema='{"type":"object","properties":{"b":{},"a":{}}}',
        session_id="s1",
        metadata={"user_id": "u"},
    )
    sent = body(
        options=options,
        reasoning="effort",
        max_tokens_field="max_completion_tokens",
        system_role="developer",
        prompt_cache_key=True,
        store=True,
        strict_tools=True,
    )
    del sent["messages"], sent["tools"]
    assert sent == {
        "model": "test-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "store": False,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["END"],
        "max_completion_tokens": 64,
        "reasoning_effort": "low",
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "answer",
                "strict": True,
                "schema": {"type": "object", "properties": {"b": {}, "a": {}}},
            },
        },
        "prompt_cache_key": "s1",
        "metadata": {"user_id": "u"},
    }


EFFORTS = [
    ({"reasoning": "openrouter"}, "high", {"reasoning": {"effort": "high"}}),
    ({"reasoning": "openrouter"}, "off", {"reasoning": {"enabled": False}}),
    ({"reasoning": "enable_thinking"}, "off", {"chat_template_kwargs": {"enable_thinking": False}}),
    ({"reasoning": "thinking_type"}, "low", {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
    ({"reasoning": "effort"}, "off", {}),
    ({"reasoning": "effort", "reasoning_efforts": ("none", "low", "high")}, "off", {"reasoning_effort": "none"}),
    ({"reasoning": "effort"}, "xhigh", {"reasoning_effort": "high"}),
    ({"reasoning": "none"}, "high", {}),
]


@pytest.mark.parametrize(("quirks", "effort", "expected"), EFFORTS)
def test_effort_is_asked_for_in_the_words_of_each_server(
    quirks: dict[str, Any], effort: Any, expected: dict[str, object]
) -> None:
    hi = Context(messages=(UserMessage(content="Hi"),))
    plain = body(hi, **quirks)
    asked = body(hi, StreamOptions(reasoning_effort=effort), **quirks)
    assert {key: value for key, value in asked.items() if key not in plain} == expected


def test_mistral_gets_tool_ids_of_nine_letters_and_digits() -> None:
    messages = body(tool_id_length=9, tool_id_alphanumeric=True, tool_result_name=True)["messages"]
    call_id = messages[2]["tool_calls"][0]["id"]
    assert call_id.isalnum()
    assert len(call_id) == 9
    assert (messages[3]["tool_call_id"], messages[3]["name"]) == (call_id, "get_weather")


def test_earlier_thinking_is_sent_back_only_where_the_server_wants_it() -> None:
    messages = body(reasoning_replay="reasoning_content")["messages"]
    assert messages[2]["reasoning_content"] == "A picture."
    messages = body(reasoning_replay="text")["messages"]
    assert messages[2]["content"] == "A picture.\n\nI look."


def test_cache_marks_are_put_on_the_system_prompt_and_the_newest_user_message() -> None:
    messages = body(anthropic_cache_control=True)["messages"]
    mark = {"cache_control": {"type": "ephemeral"}}
    assert messages[0]["content"] == [{"type": "text", "text": "Be brief."} | mark]
    assert messages[-1]["content"] == [{"type": "text", "text": "And now?"} | mark]
    unmarked = body(options=StreamOptions(cache_retention="none"), anthropic_cache_control=True)
    assert "cache_control" not in msgspec.json.encode(unmarked).decode()


def test_a_failed_tool_says_so_and_a_user_message_may_need_an_answer_between() -> None:
    context = Context(
        messages=(
            UserMessage(content="Go"),
            AssistantMessage(content=(call("c", "t"),)),
            result("c", "t", "no such file", is_error=True),
            UserMessage(content="Well?"),
        )
    )
    messages = body(context, user_after_tool=False)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[1]["content"] is None
    assert messages[2]["content"] == "Error: no such file"


def test_audio_is_taken_as_wav_or_mp3_and_other_kinds_are_refused() -> None:
    sound = Context(messages=(UserMessage(content=(Audio(data="AA==", mime_type="audio/wav"),)),))
    messages = body(sound)["messages"]
    assert messages == [
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]}
    ]
    with pytest.raises(InvalidRequest, match="audio/ogg"):
        body(Context(messages=(UserMessage(content=(Audio(data="AA==", mime_type="audio/ogg"),)),)))
