"""What holds for every wire format alike: cuts, noise, broken streams, credentials, and requests that are refused."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import streams
from support.streams import ask, decode, decode_pieces, decode_whole, done, failed, kinds, model, without_signatures
from support.upstream import answers, upstream

from makai.core.content import Text, Thinking
from makai.core.errors import InvalidRequest
from makai.core.messages import UserMessage
from makai.core.model import ChatQuirks, Model, ModelCapability
from makai.core.request import Context, StreamOptions, ToolDefinition
from makai.core.secret import Secret
from makai.core.stream_events import TextDelta
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.parts import Parts
from makai.providers.registry import builtin_api

DEEP = b"[" * 100_000
NOT_JSON = (b"{", b'{"type":', b"<html>", b"nonsense", b'"\xff"', b'{"a":"\xff"}{', DEEP, b'{"error":' + DEEP)
SAID = (Thinking(thinking="☂"), Text(text="é"))


class Dialect(msgspec.Struct, frozen=True):
    """How one api says `SAID` and the end of an answer, and what looks like its events without being any."""

    api_id: str
    model_ids: tuple[str, ...]
    said: tuple[str, str]
    end: tuple[str, ...]
    malformed: tuple[bytes, ...] = ()
    event: str = "valid JSON"

    def frame(self, *payloads: str | bytes) -> bytes:
        before, after = (b"", b"\n") if self.api_id == "ollama" else (b"data: ", b"\n\n")
        return b"".join(before + (p.encode() if isinstance(p, str) else p) + after for p in payloads)

    def model(self, model_id: str = "", **overrides: object) -> Model:
        fields = {"id": model_id or self.model_ids[0], "quirks": ChatQuirks(reasoning="effort"), **overrides}
        return model(self.api_id, "acme", **fields)


REASONING = '{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"☂"}]}'
RESPONSES = Dialect(
    api_id="openai-responses",
    model_ids=("gpt-5.1",),
    said=(
        f'{{"type":"response.output_item.done","output_index":0,"item":{REASONING}}}',
        '{"type":"response.output_text.delta","output_index":1,"delta":"é"}',
    ),
    end=('{"type":"response.completed","response":{}}',),
    malformed=(
        b"[]",
        b'{"type":"response.output_text.delta","delta":{}}',
        b'{"type":"response.output_item.done","item":7}',
        b'{"type":"response.output_text.delta","delta":"\xff"}',
        b'{"type":"x","deep":' + DEEP + b"]" * 100_000 + b"}",
    ),
)
GOOGLE = Dialect(
    api_id="google-generative-ai",
    model_ids=("gemini-3-pro-preview",),
    said=(
        '{"candidates":[{"content":{"parts":[{"text":"☂","thought":true}]}}]}',
        '{"candidates":[{"content":{"parts":[{"text":"é"}]}}]}',
    ),
    end=('{"candidates":[{"finishReason":"STOP"}]}',),
    malformed=(
        b'{"candidates":3}',
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":"\xff"}}}]}}]}',
    ),
)
DIALECTS = (
    Dialect(
        api_id="anthropic-messages",
        model_ids=("claude-haiku-4-5", "claude-opus-5", "claude-opus-5-5"),
        said=(
            '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"☂"}}',
            '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"é"}}',
        ),
        end=('{"type":"message_delta","delta":{"stop_reason":"end_turn"}}', '{"type":"message_stop"}'),
        malformed=(b"[1]",),
    ),
    RESPONSES,
    msgspec.structs.replace(RESPONSES, api_id="azure-openai-responses"),
    Dialect(
        api_id="openai-completions",
        model_ids=("test-model",),
        said=('{"choices":[{"delta":{"reasoning_content":"☂"}}]}', '{"choices":[{"delta":{"content":"é"}}]}'),
        end=('{"choices":[{"delta":{},"finish_reason":"stop"}]}', "[DONE]"),
        malformed=(b"7", b'{"choices":[{"delta":{"content":"\xff"}}]}'),
        event="a chat completion chunk",
    ),
    GOOGLE,
    msgspec.structs.replace(
        GOOGLE,
        api_id="google-gemini-cli",
        said=tuple(f'{{"response":{said}}}' for said in GOOGLE.said),
        end=tuple(f'{{"response":{end}}}' for end in GOOGLE.end),
        malformed=(),
    ),
    Dialect(
        api_id="ollama",
        model_ids=("qwen3:8b", "gpt-oss:20b"),
        said=('{"message":{"thinking":"☂"}}', '{"message":{"content":"é"}}'),
        end=('{"done":true}',),
        malformed=(
            b'{"message":3}',
            b'{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"a":"\xff"}}}]}}',
        ),
    ),
)

every_api = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.api_id)


@every_api
def test_a_stream_is_the_same_at_every_cut(dialect: Dialect) -> None:
    api, request = builtin_api(dialect.api_id), ask(dialect.model())
    for data in (whole := dialect.frame(*dialect.said, *dialect.end), whole.replace(b"\n", b"\r\n")):
        expected = decode(api, request, data)

        assert without_signatures(done(expected).content) == SAID
        assert done(expected).stop_reason == "end_turn"
        for cut in range(len(data)):
            assert decode_pieces(api, request, (data[:cut], data[cut:])) == expected


@every_api
def test_a_stream_without_its_end_is_an_error_that_keeps_what_arrived(dialect: Dialect) -> None:
    last = failed(decode(builtin_api(dialect.api_id), ask(dialect.model()), dialect.frame(*dialect.said)))

    assert (last.error_code, last.error_message) == ("provider_error", "ended before it was complete")
    assert without_signatures(last.message.content) == SAID


@pytest.mark.parametrize("dialect", [one for one in DIALECTS if "google" not in one.api_id], ids=lambda one: one.api_id)
def test_nothing_after_the_end_counts(dialect: Dialect) -> None:
    """Google's streams have no last event: they end with their connection."""
    api, request = builtin_api(dialect.api_id), ask(dialect.model())
    whole = dialect.frame(*dialect.said, *dialect.end)
    late = dialect.frame(*dialect.said, '{"type":"ping"}', '{"type":"error","error":{"message":"no"}}', "{", "[DONE]")

    assert decode(api, request, whole + late) == decode(api, request, whole)


@pytest.mark.parametrize(
    ("dialect", "payload"),
    [
        pytest.param(dialect, payload, id=f"{dialect.api_id}, payload {number}")
        for dialect in DIALECTS
        for number, payload in enumerate((*NOT_JSON, *dialect.malformed), 1)
    ],
)
def test_an_event_that_is_not_what_the_api_promises_is_an_error_naming_the_provider(
    dialect: Dialect, payload: bytes
) -> None:
    last = failed(decode(builtin_api(dialect.api_id), ask(dialect.model()), dialect.frame(payload)))

    assert last.error_code == "provider_error"
    assert last.error_message.startswith(f"acme sent an event that is not {dialect.event}")


@pytest.mark.proof("S4")
@every_api
@given(data=st.binary(max_size=200), framed=st.booleans(), chunk=st.sampled_from([1, 3, None]))
def test_arbitrary_bytes_end_in_one_terminal_event(
    dialect: Dialect, data: bytes, framed: bool, chunk: int | None
) -> None:
    api, request = builtin_api(dialect.api_id), ask(dialect.model())
    streams.assert_lawful(decode(api, request, dialect.frame(data) if framed else data, chunk))
    assert kinds(decode_whole(api, request, data))[0] == "start"


@every_api
def test_the_credential_travels_in_one_header_and_without_one_none_is_sent(dialect: Dialect) -> None:
    api = builtin_api(dialect.api_id)
    with_key, without = (api.request(ask(dialect.model(), secret=secret)).headers for secret in ("test-key", None))
    (secret,) = (value for value in with_key.values() if isinstance(value, Secret))

    assert "test-key" in secret.reveal()
    assert without == {name: value for name, value in with_key.items() if value is not secret}


@pytest.mark.req("MK-PROV-006")
@pytest.mark.parametrize(
    ("dialect", "model_id"),
    [pytest.param(dialect, name, id=f"{dialect.api_id} {name}") for dialect in DIALECTS for name in dialect.model_ids],
)
def test_effort_is_ignored_by_a_model_that_cannot_reason(dialect: Dialect, model_id: str) -> None:
    def sent(effort: str | None, *capabilities: ModelCapability) -> bytes:
        target = dialect.model(model_id, capabilities=(ModelCapability.CHAT, *capabilities))
        options = StreamOptions(reasoning_effort=effort)  # type: ignore[arg-type]
        return builtin_api(dialect.api_id).request(ask(target, options=options)).body

    assert sent("high") == sent(None)
    assert sent("high", ModelCapability.REASONING) != sent("high")


@every_api
@pytest.mark.parametrize("schema", ["[]", "nope"])
def test_a_tool_whose_schema_is_no_object_is_refused_by_name(dialect: Dialect, schema: str) -> None:
    odd = ToolDefinition(name="odd", description="", parameters_schema_json=schema)
    context = Context(messages=(UserMessage(content="Hi"),), tools=(odd,))

    with pytest.raises(InvalidRequest, match=r"tool '?odd"):
        builtin_api(dialect.api_id).request(ask(dialect.model(), context=context))


@every_api
def test_text_that_no_json_can_hold_is_refused(dialect: Dialect) -> None:
    with pytest.raises(InvalidRequest, match="Unicode"):
        builtin_api(dialect.api_id).request(ask(dialect.model(), "\ud800"))


@every_api
@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"a\u0000b", "a\ufffdb"),
        (rb"a\ud800b", "a\ufffdb"),
        (b"a\x00b\x01", "a\ufffdb\x01"),
        (rb"\udc00\ud800", "\ufffd\ufffd"),
        (b"a\xffb", "a\ufffdb"),
        (rb"\ud83d\ude00\\u0000", "\U0001f600\\u0000"),
    ],
    ids=str,
)
async def test_text_that_cannot_be_carried_is_replaced_and_the_answer_continues(
    dialect: Dialect, sent: bytes, read: str
) -> None:
    payloads = [payload.encode().replace("é".encode(), sent) for payload in (*dialect.said, *dialect.end)]
    content_type = "application/x-ndjson" if dialect.api_id == "ollama" else "text/event-stream"
    body = dialect.frame(*payloads)
    async with upstream(answers(body, content_type=content_type)) as server, HttpClient() as http:
        request = ask(dialect.model(base_url=server.url))
        events = [event async for event in HttpProvider(builtin_api(dialect.api_id), http).stream(request)]

    thought, text = without_signatures(done(events).content)
    assert (thought, text) == (SAID[0], Text(text=read))
    assert "".join(event.delta for event in events if isinstance(event, TextDelta)) == read


def test_what_a_tool_is_called_with_is_escaped_and_never_changed() -> None:
    parts = Parts(model("openai-completions"), 0)
    parts.tool("call", "id\x00", "na\ud800me")
    parts.arguments("call", '{"a": "\x00')
    parts.arguments("call", '\\u0000é\ud83d\ude00"}')
    parts.done("tool_use", response_id="r\x00")
    message = done(parts.take())

    (call,) = message.tool_calls()
    assert (call.tool_call_id, call.name) == ("id\ufffd", "na\ufffdme")
    assert call.arguments_error is None
    assert json.loads(call.arguments_json) == {"a": "\x00\x00é😀"}
    assert message.response_id == "r\ufffd"
