"""Answers that differ from their API and can still be read, from every API alike: gateways add end marks and empty
fields, and write the same thing in other JSON types."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from support.streams import ask, assert_lawful, decode, decode_whole, done, failed, model

from makai.core.content import AssistantPart, Text, Thinking, ToolCall
from makai.core.stream_events import StreamEvent
from makai.core.usage import Usage
from makai.providers.registry import builtin_api

ANTHROPIC, RESPONSES, OLLAMA = "anthropic-messages", "openai-responses", "ollama"
CHAT, GOOGLE = "openai-completions", "google-generative-ai"


def streamed(api_id: str, *events: object) -> list[StreamEvent]:
    """The same whole and byte by byte, and lawful."""
    before, after = (b"", b"\n") if api_id == "ollama" else (b"data: ", b"\n\n")
    payloads = (event if isinstance(event, bytes) else msgspec.json.encode(event) for event in events)
    data = b"".join(before + payload + after for payload in payloads)
    api, request = builtin_api(api_id), ask(model(api_id))
    result = decode(api, request, data)
    assert_lawful(result)
    assert decode(api, request, data, chunk=1) == result
    return result


def content(api_id: str, *events: object) -> tuple[AssistantPart, ...]:
    return done(streamed(api_id, *events)).content


def chat(text: str, reason: str | None = None) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": reason}]}


def _with_usage(api_id: str, end: dict[str, object], usage: object) -> dict[str, object]:
    """The end of an answer with this object of counts."""
    if api_id == RESPONSES:
        return {**end, "response": {"status": "completed", "usage": usage}}
    return {**end, "usageMetadata" if api_id == GOOGLE else "usage": usage}


def _counted(api_id: str, end: dict[str, object], count: object) -> dict[str, object]:
    """The end of an answer that counts so many tokens of output."""
    if api_id == OLLAMA:
        return {**end, "eval_count": count}
    names = {CHAT: "completion_tokens", GOOGLE: "candidatesTokenCount"}
    return _with_usage(api_id, end, {names.get(api_id, "output_tokens"): count})


def candidate(text: str, reason: str | None = None) -> dict[str, object]:
    return {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": reason}]}


@pytest.mark.parametrize(("api_id", "said"), [(CHAT, chat), (GOOGLE, candidate)], ids=[CHAT, GOOGLE])
def test_an_empty_finish_reason_is_none(api_id: str, said: Callable[[str, str], object]) -> None:
    end, limit = ("stop", "length") if api_id == CHAT else ("STOP", "MAX_TOKENS")

    assert content(api_id, said("a", ""), said("b", end)) == (Text(text="ab"),)
    assert done(streamed(api_id, said("a", limit), said("", ""))).stop_reason == "max_tokens"
    cut = failed(streamed(api_id, said("a", ""), said("b", "")))
    assert cut.error_message == "ended before it was complete"
    assert cut.message.content == (Text(text="ab"),)


def _called(api_id: str, arguments: object) -> tuple[list[object], object]:
    """A call with these arguments as the events of a stream, and as one document."""
    if api_id == ANTHROPIC:
        block = {"type": "tool_use", "id": "c", "name": "f", "input": arguments}
        end: object = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
        whole: object = {"type": "message", "content": [block], "stop_reason": "tool_use"}
        return [{"type": "content_block_start", "index": 0, "content_block": block}, end], whole
    if api_id == RESPONSES:
        item = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": arguments}
        end = {"type": "response.completed", "response": {"status": "completed"}}
        return [{"type": "response.output_item.done", "output_index": 0, "item": item}, end], {"output": [item]}
    if api_id == GOOGLE:
        parts = [{"functionCall": {"id": "c", "name": "f", "args": arguments}}]
        whole = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
        return [whole], whole
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    if api_id == OLLAMA:
        whole = {"message": {"tool_calls": [call]}, "done": True}
    else:
        whole = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    return [whole], whole


@pytest.mark.parametrize(
    ("given", "arguments"),
    [({"a": 1}, '{"a":1}'), ('{"a":1}', '{"a":1}'), ("", "{}"), (None, "{}"), ({}, "{}")],
    ids=["an object", "text", "empty text", "null", "an empty object"],
)
@pytest.mark.parametrize("api_id", [ANTHROPIC, RESPONSES, GOOGLE, OLLAMA, CHAT])
def test_arguments_may_be_an_object_or_its_text(api_id: str, given: object, arguments: str) -> None:
    events, whole = _called(api_id, given)
    wanted = (ToolCall(tool_call_id="c", name="f", arguments_json=arguments),)

    assert content(api_id, *events) == wanted
    api, request = builtin_api(api_id), ask(model(api_id))
    assert done(decode_whole(api, request, msgspec.json.encode(whole))).content == wanted


def test_arguments_of_a_responses_call_that_come_whole_may_be_an_object() -> None:
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": ""}
    assert content(
        RESPONSES,
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": {"a": 1}},
        {"type": "response.completed", "response": {"status": "completed"}},
    ) == (ToolCall(tool_call_id="c", name="f", arguments_json='{"a":1}'),)


@pytest.mark.parametrize("api_id", [ANTHROPIC, RESPONSES, GOOGLE, OLLAMA])
def test_arguments_that_are_not_utf_8_are_an_error_that_names_the_provider(api_id: str) -> None:
    _, whole = _called(api_id, {"a": "?"})
    api, request = builtin_api(api_id), ask(model(api_id))
    for broken in (b'{"a":"\xff"}', b'"\xff"'):
        body = msgspec.json.encode(whole).replace(b'{"a":"?"}', broken)
        assert failed(decode_whole(api, request, body)).error_message.startswith("acme sent an event that is not valid")


def _said(api_id: str) -> tuple[dict[str, object], dict[str, object]]:
    """An event with the text "a", and the end of the answer."""
    if api_id == ANTHROPIC:
        said: dict[str, object] = {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "a"},
        }
        return said, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    if api_id == RESPONSES:
        said = {"type": "response.output_text.delta", "output_index": 0, "delta": "a"}
        return said, {"type": "response.completed", "response": {"status": "completed"}}
    if api_id == GOOGLE:
        return candidate("a"), candidate("", "STOP")
    if api_id == OLLAMA:
        return {"message": {"content": "a"}}, {"done": True}
    return chat("a"), chat("", "stop")


@pytest.mark.parametrize("error", [None, "", {}, [], False], ids=str)
@pytest.mark.parametrize("api_id", [ANTHROPIC, RESPONSES, GOOGLE, OLLAMA, CHAT])
def test_an_error_field_that_says_nothing_is_no_error(api_id: str, error: object) -> None:
    said, end = _said(api_id)

    assert content(api_id, {**said, "error": error}, {**end, "error": error}) == (Text(text="a"),)


@pytest.mark.parametrize("api_id", [ANTHROPIC, RESPONSES, GOOGLE, CHAT])
def test_the_end_mark_of_chat_completions_disturbs_no_api(api_id: str) -> None:
    said, end = _said(api_id)

    assert content(api_id, said, end, b"[DONE]") == (Text(text="a"),)


@pytest.mark.parametrize("api_id", [ANTHROPIC, RESPONSES, GOOGLE])
def test_an_end_mark_is_not_the_end_of_an_answer_that_has_another(api_id: str) -> None:
    said, _ = _said(api_id)

    assert failed(streamed(api_id, said, b"[DONE]")).error_message == "ended before it was complete"


@pytest.mark.parametrize(
    "thinking", ["hm", ["hm"], [{"type": "text", "text": "hm"}], ["h", None, 7, {}, {"text": None}, "m"]], ids=str
)
def test_pieces_of_chat_content_are_text_or_objects_with_a_text(thinking: object) -> None:
    pieces: list[object] = [{"type": "thinking", "thinking": thinking}, "a", {"type": "text", "text": "b"}]
    odd: list[object] = [None, 7, {}, {"type": "thinking"}, {"type": "text", "text": None}, ["c"]]
    said = {"choices": [{"delta": {"content": pieces + odd}}]}

    assert content(CHAT, said, chat("", "stop")) == (Thinking(thinking="hm"), Text(text="ab"))


@pytest.mark.parametrize("number", [0, 1, None])
def test_a_second_choice_of_a_chat_completion_is_not_mixed_into_the_first(number: int | None) -> None:
    def choice(text: str, index: int | None = number, reason: str | None = None) -> dict[str, object]:
        return {"index": index, "delta": {"content": text}, "finish_reason": reason}

    both = {"choices": [choice("a"), choice("x", 2)]}
    assert content(CHAT, both, {"choices": [choice("y", 2, "length")]}, {"choices": [choice("b", number, "stop")]}) == (
        Text(text="ab"),
    )


def test_choices_without_numbers_are_one_answer() -> None:
    """Copilot splits the text and the calls of a turn into two choices."""
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    choices = [{"message": {"content": "a"}}, {"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]
    body = msgspec.json.encode({"choices": choices})

    assert done(decode_whole(builtin_api(CHAT), ask(model(CHAT)), body)).content == (
        Text(text="a"),
        ToolCall(tool_call_id="c", name="f", arguments_json="{}"),
    )


@pytest.mark.parametrize("deltas", [(), ("a",), ("a", "b")], ids=["no delta", "some of it", "all of it"])
@pytest.mark.parametrize("repeats", [True, False], ids=["with the item", "without the item"])
@pytest.mark.parametrize("kind", ["output_text", "refusal"])
def test_a_responses_text_that_comes_whole_is_read_once(deltas: tuple[str, ...], repeats: bool, kind: str) -> None:
    field = "text" if kind == "output_text" else kind
    at = {"output_index": 0, "content_index": 0}
    whole = {"type": f"response.{kind}.done", **at, field: "ab"}
    item = {"type": "message", "id": "m", "content": [{"type": kind, field: "ab"}]}
    item_done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    completed = {"type": "response.completed", "response": {"status": "completed", "output": [item] * repeats}}
    events = [*({"type": f"response.{kind}.delta", **at, "delta": one} for one in deltas), whole]

    message = done(streamed(RESPONSES, *events, *[item_done, whole] * repeats, completed))
    assert message.content == (Text(text="ab"),)
    assert message.stop_reason == ("end_turn" if kind == "output_text" else "refusal")


def test_responses_texts_that_come_whole_stay_in_their_pieces() -> None:
    def text_done(piece: int, text: str) -> dict[str, object]:
        return {"type": "response.output_text.done", "output_index": 0, "content_index": piece, "text": text}

    completed = {"type": "response.completed", "response": {"status": "completed"}}
    assert content(RESPONSES, text_done(0, "a"), text_done(1, "b"), text_done(0, "a"), completed) == (
        Text(text="a"),
        Text(text="b"),
    )


@pytest.mark.parametrize(
    ("counted", "count"),
    [
        (7, 7),
        (7.0, 7),
        ("7", 7),
        (-7, 0),
        (None, 0),
        (True, 0),
        ("many", 0),
        ([7], 0),
        ({}, 0),
        (1e300, 0),
        (10**40, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("api_id", [ANTHROPIC, RESPONSES, GOOGLE, OLLAMA, CHAT])
def test_an_answer_is_complete_whatever_its_counts_are(api_id: str, counted: object, count: int) -> None:
    said, end = _said(api_id)
    answer = done(streamed(api_id, said, _counted(api_id, end, counted)))

    assert (answer.content, answer.usage) == ((Text(text="a"),), Usage(output=count))


@pytest.mark.parametrize("usage", ["", [], 7, {"prompt_tokens_details": [], "output_tokens_details": "none"}], ids=str)
@pytest.mark.parametrize("api_id", [ANTHROPIC, RESPONSES, GOOGLE, CHAT])
def test_an_answer_is_complete_whatever_shape_its_usage_has(api_id: str, usage: object) -> None:
    said, end = _said(api_id)
    answer = done(streamed(api_id, said, _with_usage(api_id, end, usage)))

    assert (answer.content, answer.usage) == ((Text(text="a"),), Usage())


@pytest.mark.parametrize(
    ("api_id", "reason"), [(CHAT, "STOP"), (CHAT, "Stop"), (GOOGLE, "stop"), (OLLAMA, "STOP"), (ANTHROPIC, "END_TURN")]
)
def test_a_finish_reason_may_be_in_other_letters(api_id: str, reason: str) -> None:
    said, _ = _said(api_id)
    ends: dict[str, object] = {
        CHAT: chat("", reason),
        GOOGLE: candidate("", reason),
        OLLAMA: {"done": True, "done_reason": reason},
        ANTHROPIC: {"type": "message_delta", "delta": {"stop_reason": reason}},
    }

    assert done(streamed(api_id, said, ends[api_id])).stop_reason == "end_turn"
