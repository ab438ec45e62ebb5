"""The Code Assist adapter: the Gemini codec in an envelope."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import streams as ref
from support.streams import ask, assert_reference, decode, decode_whole, done, failed, model

from makai.core.content import Text
from makai.core.messages import UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.secret import Secret
from makai.core.stream_events import Done, Failed
from makai.core.usage import Usage
from makai.providers.google_gemini_cli import GoogleGeminiCli

API = GoogleGeminiCli()


def gemini(**overrides: object) -> Model:
    return model(API.id, provider="gemini-cli", id="gemini-2.5-pro", **overrides)


def wrapped(*responses: dict[str, Any]) -> bytes:
    events = [msgspec.json.encode({"response": response, "traceId": "trace_1"}) for response in responses]
    return b"".join(b"data: " + event + b"\n\n" for event in events)


def chunk(part: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, **fields}]}


REFERENCE = wrapped(
    chunk({"text": ref.THINKING, "thought": True}),
    chunk({"text": ref.TEXT}),
    {
        **chunk(
            {"functionCall": {"name": ref.TOOL_NAME, "args": {"city": "Paris"}}, "thoughtSignature": "c2ln"},
            finishReason="STOP",
        ),
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3},
    },
)


def test_the_request_is_wrapped_with_model_and_project() -> None:
    target = gemini(options={"project": "my-project"})
    context = Context(system_prompt="Be brief.", messages=(UserMessage(content="Hi"),))
    options = StreamOptions(reasoning_effort="low", session_id="session_1", temperature=0.2)

    prepared = API.request(ask(target, context=context, options=options))

    assert prepared.url == "http://127.0.0.1:9/v1internal:streamGenerateContent?alt=sse"
    assert prepared.headers == {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Authorization": Secret("Bearer test-key"),
    }
    assert msgspec.json.decode(prepared.body) == {
        "model": "gemini-2.5-pro",
        "project": "my-project",
        "request": {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "generationConfig": {
                "temperature": 0.2,
                "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 2048},
            },
            "session_id": "session_1",
        },
    }


def test_project_session_and_token_may_be_missing() -> None:
    prepared = API.request(ask(gemini(), secret=None))

    assert prepared.headers == {"Content-Type": "application/json", "Accept": "text/event-stream"}
    assert msgspec.json.decode(prepared.body) == {
        "model": "gemini-2.5-pro",
        "request": {
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        },
    }


@pytest.mark.req("MK-PROV-009")
def test_the_reference_answer_is_the_same_as_every_other_apis() -> None:
    events = decode(API, ask(gemini()), REFERENCE)

    assert_reference(events, Usage(input=10, output=8, reasoning=3))
    assert done(events).response_id == "trace_1"


def test_a_stream_is_the_same_at_every_cut() -> None:
    request = ask(gemini())
    expected = decode(API, request, REFERENCE)

    for cut in range(len(REFERENCE)):
        assert ref.decode_pieces(API, request, (REFERENCE[:cut], REFERENCE[cut:])) == expected


def test_a_whole_answer_is_unwrapped_and_its_own_id_wins() -> None:
    answer = {"response": {**chunk({"text": "Hi"}, finishReason="STOP"), "responseId": "resp_1"}, "traceId": "trace_1"}

    said = done(decode_whole(API, ask(gemini()), msgspec.json.encode(answer)))

    assert (said.content, said.response_id) == ((Text(text="Hi"),), "resp_1")


def test_an_error_beside_the_envelope_ends_the_stream() -> None:
    error = b'data: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}\n\n'

    last = failed(decode(API, ask(gemini()), wrapped(chunk({"text": "a"})) + error))

    assert (last.error_code, last.provider_id) == ("overloaded", "gemini-cli")
    assert last.message.content == (Text(text="a"),)


def test_an_empty_envelope_says_nothing_and_a_cut_stream_is_incomplete() -> None:
    last = failed(decode(API, ask(gemini()), b"data: {}\n\n" + b'data: {"response":null}\n\n'))

    assert last.error_message == "ended before it was complete"


@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoder_raise_anything_but_our_errors(noise: bytes) -> None:
    assert isinstance(decode(API, ask(gemini()), b'data: {"response":' + noise + b"}\n\n")[-1], Done | Failed)
