"""OpenAI Responses, the answer: events and items become parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import streams as ref
from support.fixtures import fixture
from support.messages import call, result, said_by, text_block, thinking_block
from support.streams import ask, decode, decode_whole, done, failed, kinds, model

from makai.core import stream_events as ev
from makai.core.content import AssistantPart, Text, Thinking
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.request import Context
from makai.core.usage import Usage
from makai.providers.openai_responses import OpenAIResponses

API = OpenAIResponses()
MODEL = model(API.id, "openai", id="gpt-5.1", base_url="https://api.example/v1/")
REQUEST = ask(MODEL)


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: " + event["type"].encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n" for event in events
    )


def answer(*content: AssistantPart, **fields: Any) -> AssistantMessage:
    defaults = {"timestamp": ref.TIMESTAMP, "response_id": "resp_1", "stop_reason": "end_turn"}
    return said_by(MODEL, *content, **{**defaults, **fields})


def created() -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}


def ended(kind: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"id": "resp_1", "status": kind, **response}}


def added(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def finished(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, index: int, text: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "item_id": f"i{index}", "delta": text, **fields}


REASONING_ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
    "encrypted_content": "secret==",
    "status": None,
}
REASONING_SIGNATURE = (
    '{"type":"reasoning","summary":[{"type":"summary_text","text":"One."},{"type":"summary_text","text":"Two."}],'
    '"id":"rs_1","encrypted_content":"secret=="}'
)
FULL_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 20},
}
FULL_STREAM = sse(
    created(),
    {"type": "response.in_progress", "response": {"id": "resp_1"}},
    added(0, type="reasoning", id="rs_1", summary=[], encrypted_content="incomplete"),
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "item_id": "rs_1", "summary_index": 0},
    delta("reasoning_summary_text", 0, "On", summary_index=0),
    delta("reasoning_summary_text", 0, "e.", summary_index=0, obfuscation="abc"),
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "item_id": "rs_1", "summary_index": 1},
    delta("reasoning_summary_text", 0, "Two.", summary_index=1),
    finished(0, **REASONING_ITEM),
    added(1, type="message", id="msg_1", role="assistant", content=[], phase="commentary"),
    {"type": "response.content_part.added", "output_index": 1, "content_index": 0, "part": {"type": "output_text"}},
    delta("output_text", 1, "Hé", content_index=0),
    delta("output_text", 1, "llo", content_index=0),
    {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "Héllo"},
    {"type": "keepalive", "sequence_number": 7},
    finished(1, type="message", id="msg_1", content=[{"type": "output_text", "text": "Héllo"}], phase="commentary"),
    added(2, type="function_call", id="fc_1", call_id="call_1", name="a", arguments=""),
    added(3, type="function_call", id="fc_2", call_id="call_2", name="b", arguments=""),
    delta("function_call_arguments", 2, '{"x":'),
    delta("function_call_arguments", 3, '{"y":2}'),
    delta("function_call_arguments", 2, "1}"),
    {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"x":1}'},
    finished(2, type="function_call", id="fc_1", call_id="call_1", name="a", arguments='{"x":1}'),
    finished(3, type="function_call", id="fc_2", call_id="call_2", name="b", arguments='{"y":2}'),
    ended(output=[], usage=FULL_USAGE),
)
CALL_A, CALL_B = call("call_1", "a", '{"x":1}'), call("call_2", "b", '{"y":2}')
FULL_ANSWER = answer(
    Thinking(thinking="One.\n\nTwo.", thinking_signature=REASONING_SIGNATURE),
    Text(text="Héllo", text_signature="commentary"),
    CALL_A,
    CALL_B,
    usage=Usage(input=30, output=50, cache_read=60, cache_write=10, reasoning=20),
    stop_reason="tool_use",
)
FULL_EVENTS: list[ev.StreamEvent] = [
    ev.Start(answer(response_id=None, stop_reason=None)),
    *thinking_block(0, "On", "e.", "\n\nTwo.", signature=REASONING_SIGNATURE),
    *text_block(1, "Hé", "llo", signature="commentary")[:-1],
    ev.Keepalive(),
    ev.TextEnd(1, "commentary", "Héllo"),
    ev.ToolCallStart(2, "call_1", "a"),
    ev.ToolCallStart(3, "call_2", "b"),
    ev.ToolCallDelta(2, '{"x":'),
    ev.ToolCallDelta(3, '{"y":2}'),
    ev.ToolCallDelta(2, "1}"),
    ev.ToolCallEnd(2, CALL_A),
    ev.ToolCallEnd(3, CALL_B),
    ev.Done("tool_use", FULL_ANSWER),
]


@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_a_stream_with_reasoning_text_and_parallel_calls_gives_the_same_events_however_it_is_cut(
    chunk: int | None,
) -> None:
    assert decode(API, REQUEST, FULL_STREAM, chunk) == FULL_EVENTS


def test_what_a_model_answered_can_be_sent_back_to_it() -> None:
    said = done(decode(API, REQUEST, FULL_STREAM))
    results = [result(made.tool_call_id, made.name, "ok") for made in said.tool_calls()]

    again = API.request(ask(MODEL, context=Context(messages=(UserMessage(content="Hi"), said, *results))))

    kinds_sent = " ".join(item["type"] for item in msgspec.json.decode(again.body)["input"])
    calls_and_results = "function_call function_call function_call_output function_call_output"
    assert kinds_sent == f"message reasoning message {calls_and_results}"


@pytest.mark.req("MK-PROV-009")
def test_the_reference_answer_has_the_common_order_and_content() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": ref.TOOL_ID, "name": ref.TOOL_NAME}
    data = sse(
        created(),
        added(0, type="reasoning", id="rs_1", summary=[]),
        delta("reasoning_summary_text", 0, ref.THINKING[:10], summary_index=0),
        delta("reasoning_summary_text", 0, ref.THINKING[10:], summary_index=0),
        finished(0, type="reasoning", id="rs_1", summary=[{"type": "summary_text", "text": ref.THINKING}]),
        added(1, type="message", id="msg_1", content=[]),
        delta("output_text", 1, ref.TEXT[:5], content_index=0),
        delta("output_text", 1, ref.TEXT[5:], content_index=0),
        finished(1, type="message", id="msg_1", content=[{"type": "output_text", "text": ref.TEXT}]),
        added(2, **call, arguments=""),
        delta("function_call_arguments", 2, ref.TOOL_ARGUMENTS[:6]),
        delta("function_call_arguments", 2, ref.TOOL_ARGUMENTS[6:]),
        finished(2, **call, arguments=ref.TOOL_ARGUMENTS),
        ended(usage={"input_tokens": 12, "output_tokens": 34}),
    )

    events = decode(API, REQUEST, data)

    ref.assert_reference(events, Usage(input=12, output=34))


def test_reasoning_without_words_is_kept_for_its_signature() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}

    events = decode(API, REQUEST, sse(added(0, **item), finished(0, **item), ended()))

    signature = '{"type":"reasoning","summary":[],"id":"rs_1","encrypted_content":"x"}'
    assert events[1:3] == [ev.ThinkingStart(0), ev.ThinkingEnd(0, signature, redacted=True)]


def text(words: str) -> dict[str, Any]:
    return {"type": "output_text", "text": words}


def fc(number: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name, **fields}


OPEN_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": ""}
OPEN_TEXT = [{"type": "reasoning_text", "text": "Hmm."}]
OPEN_SIGNATURE = '{"type":"reasoning","summary":[],"id":"rs_1","content":[{"type":"reasoning_text","text":"Hmm."}]}'
HELLO = {"type": "message", "content": [text("Hello")]}
STREAMS = {
    "what was never streamed arrives with the end of its item": (
        [
            finished(0, type="reasoning", id="rs_1", summary=[{"type": "summary_text", "text": "Hm."}]),
            finished(1, **HELLO, id="msg_1"),
            added(2, **fc(1, "a")),
            finished(2, **fc(1, "a", arguments='{"x":1}')),
            finished(3, **fc(2, "b", arguments='{"y":2}')),
            ended(),
        ],
        (Thinking(thinking="Hm."), Text(text="Hello"), CALL_A, CALL_B),
    ),
    "items that only the last event holds still arrive": (
        [
            added(0, type="message", id="msg_1"),
            delta("output_text", 0, "Hel", content_index=0),
            ended(output=[HELLO | {"id": "msg_1"}, fc(1, "a", arguments='{"x":1}')]),
        ],
        (Text(text="Hello"), CALL_A),
    ),
    "deltas that name no item belong to the current one": (
        [
            {"type": "response.output_item.added", "item": {"type": "message"}},
            {"type": "response.output_text.delta", "delta": "Hi"},
            {"type": "response.output_item.done", "item": {"type": "message"}},
            {"type": "response.output_item.added", "item": {"type": "function_call", "call_id": "call_1", "name": "a"}},
            {"type": "response.function_call_arguments.delta", "delta": '{"x":1}'},
            {"type": "response.output_item.done", "item": {"type": "function_call", "call_id": "call_1", "name": "a"}},
            ended(),
        ],
        (Text(text="Hi"), CALL_A),
    ),
    "only positions are stable: some gateways encrypt item ids differently in every event": (
        [
            added(0, type="message", id="aaa"),
            delta("output_text", 0, "Hel", content_index=0, item_id="bbb"),
            delta("output_text", 0, "lo", content_index=0, item_id="ccc"),
            finished(0, **HELLO, id="ddd"),
            ended(output=[HELLO | {"id": "eee"}]),
        ],
        (Text(text="Hello"),),
    ),
    "every content part of a message is its own block": (
        [
            added(0, type="message", id="m", phase="final_answer"),
            delta("output_text", 0, "One", content_index=0),
            delta("output_text", 0, "Two", content_index=1),
            finished(0, type="message", id="m", content=[text("One"), text("Two"), text("Three")]),
            ended(),
        ],
        tuple(Text(text=words, text_signature="final_answer") for words in ("One", "Two", "Three")),
    ),
    "items and events of other kinds are passed over": (
        [
            added(0, type="tool_search_call", arguments={"not": "text"}),
            {"type": "response.web_search_call.searching", "delta": {"not": "text"}},
            finished(0, type="tool_search_call", arguments={"not": "text"}),
            added(1, type="message", id="m"),
            delta("output_text", 1, "Hi", content_index=0),
            finished(1, type="message", id="m", content=[text("Hi")]),
            ended(output=[{"type": "tool_search_call", "arguments": {}}, {"type": "message"}]),
        ],
        (Text(text="Hi"),),
    ),
    "llama.cpp's open reasoning, without positions, becomes thinking that can go back": (
        [
            {"type": "response.output_item.added", "item": {**OPEN_REASONING, "content": []}},
            {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "Hm"},
            {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "m."},
            {"type": "response.output_item.done", "item": {**OPEN_REASONING, "content": OPEN_TEXT}},
            ended(),
        ],
        (Thinking(thinking="Hmm.", thinking_signature=OPEN_SIGNATURE),),
    ),
}


@pytest.mark.parametrize(("events", "content"), STREAMS.values(), ids=STREAMS)
def test_a_stream_becomes_this_content(events: list[dict[str, Any]], content: tuple[AssistantPart, ...]) -> None:
    assert done(decode(API, REQUEST, sse(*events) + b"data: [DONE]\n\n")).content == content


def test_nulls_are_as_good_as_nothing() -> None:
    data = sse(
        {"type": "response.created", "response": None},
        {"type": "response.output_item.added", "item": None},
        {"type": "response.output_text.delta", "delta": None, "item_id": None, "output_index": None},
        {"type": "response.output_item.done", "item": None},
        {"type": "response.completed", "response": None},
    )

    assert done(decode(API, REQUEST, data)) == answer(response_id=None)


def test_a_tool_call_whose_arguments_were_cut_says_so() -> None:
    data = sse(
        added(0, type="function_call", id="fc", call_id="call_1", name="a"),
        delta("function_call_arguments", 0, '{"x":'),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )

    said = done(decode(API, REQUEST, data))

    assert said.stop_reason == "max_tokens"
    assert [call.arguments_json for call in said.tool_calls()] == ['{"x":']
    assert said.tool_calls()[0].arguments_error is not None


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ended("incomplete", incomplete_details={"reason": "max_output_tokens"}), "max_tokens"),
        (ended("incomplete", incomplete_details={"reason": "content_filter"}), "refusal"),
        (ended("completed"), "end_turn"),
    ],
)
def test_stop_reasons(event: dict[str, Any], reason: str) -> None:
    assert done(decode(API, REQUEST, sse(event))).stop_reason == reason


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_answer_that_says_that_it_failed_did_whatever_its_event_is_called(status: str) -> None:
    event = ended("completed") | {"response": {"id": "resp_1", "status": status}}

    assert failure(decode(API, REQUEST, sse(event))) == (
        "provider_error",
        f"openai refused the request: the answer was {status} and the reason not given",
    )


@pytest.mark.parametrize("status", ["incomplete", "queued", "in_progress"])
def test_an_answer_that_does_not_call_itself_complete_is_none(status: str) -> None:
    event = ended("completed") | {"response": {"id": "resp_1", "status": status}}
    last = decode(API, REQUEST, sse(event))[-1]

    assert not isinstance(last, ev.Done) or last.message.stop_reason != "end_turn"


def test_a_refusal_is_text_and_the_reason_to_stop() -> None:
    data = sse(
        added(0, type="message", id="m"),
        delta("refusal", 0, "I will not.", content_index=0),
        finished(0, type="message", id="m", content=[{"type": "refusal", "refusal": "I will not."}]),
        ended(),
    )

    assert done(decode(API, REQUEST, data)) == answer(Text(text="I will not."), stop_reason="refusal")


# ---------------------------------------------------------------- failures


def failure(events: list[ev.StreamEvent]) -> tuple[str, str]:
    return failed(events).error_code, failed(events).error_message


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None},
            ("rate_limited", "openai refused the request: Slow down."),
        ),
        (
            {"type": "error", "error": {"type": "server_error", "message": "Oops with test-key."}},
            ("provider_error", "openai refused the request: Oops with [secret]."),
        ),
        (
            {"type": "server_error", "code": 500, "message": "Oops."},
            ("provider_error", "openai refused the request (HTTP 500): Oops."),
        ),
        (
            ended("failed", error={"code": "context_length_exceeded", "message": "Too much."}),
            ("context_overflow", "openai refused the request: Too much."),
        ),
        (
            ended("failed", error=None),
            ("provider_error", "openai refused the request: the answer was failed and the reason not given"),
        ),
    ],
)
def test_an_error_after_a_good_beginning_keeps_what_arrived(event: dict[str, Any], expected: tuple[str, str]) -> None:
    data = sse(created(), added(0, type="message", id="m"), delta("output_text", 0, "Hel"), event, ended())

    events = decode(API, REQUEST, data)

    assert failure(events) == expected
    assert failed(events).message.content == (Text(text="Hel"),)


def test_a_failed_answer_still_tells_what_it_cost() -> None:
    events = decode(API, REQUEST, sse(ended("failed", error={"message": "no"}, usage={"input_tokens": 3})))

    assert failed(events).usage == Usage(input=3)


# ---------------------------------------------------------------- whole answers


def test_a_whole_response_gives_the_same_message_as_the_stream() -> None:
    body = {
        "id": "resp_1",
        "status": "completed",
        "error": None,
        "output": [
            REASONING_ITEM,
            {"type": "message", "id": "msg_1", "content": [text("Héllo")], "phase": "commentary"},
            fc(1, "a", arguments='{"x":1}'),
            fc(2, "b", arguments='{"y":2}'),
        ],
        "usage": FULL_USAGE,
    }

    assert done(decode_whole(API, REQUEST, msgspec.json.encode(body))) == FULL_ANSWER


@pytest.mark.parametrize("body", [b'{"error":{"message":"no"}}', b'{"status":"cancelled"}', b"<html>"])
def test_a_whole_answer_that_is_no_response_is_an_error(body: bytes) -> None:
    assert failure(decode_whole(API, REQUEST, body))[0] == "provider_error"


def test_a_whole_answer_that_is_not_ready_is_not_finished() -> None:
    assert kinds(decode_whole(API, REQUEST, b'{"status":"queued","output":[]}')) == ["start"]


# ---------------------------------------------------------------- recorded answers of a llama.cpp server


@pytest.mark.parametrize(
    ("capture", "text", "usage"),
    [
        (
            "llama_server/responses_stream",
            "I'm glad to make your acquaintance.",
            Usage(input=1, output=24, cache_read=21),
        ),
        ("llama_server_tools/responses_stream", "Hello! How can I", Usage(input=1, output=10, cache_read=19)),
        ("llama_server/responses_tool_result_stream", "Paris, the City of Light, is", None),
        ("llama_server/responses_tools_auto_stream", "", None),
        ("llama_server/responses_tools_required_stream", "", None),
    ],
)
def test_recorded_text_streams(capture: str, text: str, usage: Usage | None) -> None:
    data = ref.body_of(fixture(f"{capture}.raw.txt"))

    events = decode(API, REQUEST, data)
    said = done(events)

    assert kinds(events) == ["start", "text_start", "text_delta", "text_end", "done"]
    assert said.content == (Text(text=_last_text(data)),)
    assert said.text().startswith(text)
    assert said.usage == (usage or said.usage)
    assert decode(API, REQUEST, data, 1) == events


@pytest.mark.parametrize("name", ["tools_auto", "tools_required", "tool_result"])
def test_recorded_tool_streams(name: str) -> None:
    data = ref.body_of(fixture(f"llama_server_tools/responses_{name}_stream.raw.txt"))

    events = decode(API, REQUEST, data)
    said = done(events)

    assert kinds(events) == ["start", "toolcall_start", "toolcall_delta", "toolcall_end", "done"]
    assert said.stop_reason == "tool_use"
    assert [(call.name, call.arguments_json) for call in said.tool_calls()] == [(ref.TOOL_NAME, '{"city": "Paris"}')]
    assert said.tool_calls()[0].tool_call_id.startswith("call_")
    assert decode(API, REQUEST, data, 1) == events


@pytest.mark.parametrize("folder", ["llama_server", "llama_server_tools"])
@pytest.mark.parametrize("name", ["nostream", "json_schema"])
def test_recorded_whole_answers(folder: str, name: str) -> None:
    body = ref.body_of(fixture(f"{folder}/responses_{name}.raw.txt"))

    said = done(decode_whole(API, REQUEST, body))

    assert said.content == (Text(text=msgspec.json.decode(body)["output"][0]["content"][0]["text"]),)
    assert said.usage.output == msgspec.json.decode(body)["usage"]["output_tokens"]


def _last_text(stream: bytes) -> str:
    """What the last event of a recorded text stream says the whole text is."""
    payload = stream.strip().rpartition(b"data: ")[2]
    text: str = msgspec.json.decode(payload)["response"]["output"][0]["content"][0]["text"]
    return text


# ---------------------------------------------------------------- anything at all


FIELDS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(-2, 3), st.sampled_from(["", "a", "x"]), st.just({}), st.just([])
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "other"])},
    optional={
        "id": st.sampled_from(["a", "b"]),
        "name": st.sampled_from(["", "f"]),
        "arguments": st.sampled_from(["", "{}", '{"x":']),
        "content": st.lists(st.fixed_dictionaries({"type": st.just("output_text"), "text": FIELDS}), max_size=2),
        "encrypted_content": st.sampled_from(["", "x"]),
    },
)
EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "output_text.delta",
                "refusal.delta",
                "reasoning_summary_text.delta",
                "reasoning_text.delta",
                "other",
                "function_call_arguments.delta",
                "function_call_arguments.done",
                "output_item.added",
                "output_item.done",
            ]
        ).map("response.{}".format)
    },
    optional={
        "delta": st.sampled_from(["a", "", "{"]),
        "item": ITEMS,
        "item_id": st.sampled_from(["a", "b"]),
        "output_index": st.integers(0, 2),
        "content_index": st.integers(0, 2),
        "summary_index": FIELDS,
        "arguments": st.sampled_from(["{}", "{"]),
    },
)


@given(st.lists(EVENTS, max_size=12), st.lists(ITEMS, max_size=3))
def test_events_in_any_order_keep_the_law_of_streams(
    events: list[dict[str, Any]], output: list[dict[str, Any]]
) -> None:
    ref.assert_lawful(decode(API, REQUEST, sse(*events, ended(output=output))))
