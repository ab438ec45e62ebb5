"""No option of a request is dropped silently: it is in the request, or the stream says that it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.agent import FakeHost, FakeTool, asked, fixed
from support.streams import ask, decode, decode_whole, done, failed, model
from support.upstream import answers, chat_stream, upstream

from makai.agent.loop import run_agent
from makai.agent.settings import AgentSettings
from makai.core import session_events as ev
from makai.core.messages import StopReason, UserMessage
from makai.core.model import ChatQuirks, Model, ModelCapability
from makai.core.request import Context, RequestOptions, StreamOptions, ToolChoice, ToolDefinition
from makai.core.stream_events import Keepalive, StreamEvent
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.ignored_options import ignored_options
from makai.providers.registry import builtin_api

LOOK = ToolDefinition(name="look", description="", parameters_schema_json='{"type":"object"}')
NOT_REASONING = (ModelCapability.CHAT, ModelCapability.STREAMING, ModelCapability.TOOLS)
MODELS = {
    "anthropic-messages": ("claude-haiku-4-5", "claude-opus-5", "claude-opus-5-5", "claude-3-haiku"),
    "openai-responses": ("gpt-4o", "gpt-5", "gpt-5.1", "gpt-5.6", "gpt-5.1-chat", "o3"),
    "azure-openai-responses": ("gpt-5.1",),
    "openai-completions": ("test-model",),
    "google-generative-ai": ("gemini-2.0-flash", "gemini-2.5-pro", "gemini-3-pro-preview"),
    "google-gemini-cli": ("gemini-2.5-flash",),
    "ollama": ("qwen3:8b", "gpt-oss:20b"),
}
QUIRKS = (
    ChatQuirks(),
    ChatQuirks(reasoning="effort", json_schema="json_object", prompt_cache_key=True),
    ChatQuirks(reasoning="thinking_type", json_schema="none", store=True, anthropic_cache_control=True),
)
SET: dict[str, tuple[Any, ...]] = {
    "temperature": (0.0, 0.7),
    "top_p": (0.5,),
    "max_tokens": (5, 2_000, 8_192),
    "stop": (("END",), ("\n",), ("END", "\n")),
    "reasoning_effort": ("off", "low", "xhigh"),
    "tool_choice": (ToolChoice(mode="none"), ToolChoice(mode="required"), ToolChoice(mode="tool", name="look")),
    "json_schema": ('{"type":"object","properties":{"a":{"type":"string"}}}',),
    "cache_retention": ("none", "long"),
    "metadata": ({"user_id": "u"}, {"user_id": "u", "team": "blue"}),
}
NOT_IN_REQUESTS = {"session_id", "account"}
"""A hint for caches, and the choice of a credential."""


def targets() -> list[Model]:
    found = []
    for api_id, names in MODELS.items():
        for name in names:
            for quirks in QUIRKS if api_id == "openai-completions" else QUIRKS[:1]:
                reasoning = model(api_id, id=name, quirks=quirks)
                found += [reasoning, msgspec.structs.replace(reasoning, capabilities=NOT_REASONING)]
    return found


def body(target: Model, options: StreamOptions) -> bytes:
    context = Context(messages=(UserMessage(content="Hi"),), tools=(LOOK,))
    return builtin_api(target.api).request(ask(target, context=context, options=options)).body


def ignored(target: Model, **options: Any) -> tuple[str, ...]:
    context = Context(messages=(UserMessage(content="Hi"),), tools=(LOOK,))
    return ignored_options(builtin_api(target.api), ask(target, context=context, options=StreamOptions(**options)))


def test_every_option_is_tried() -> None:
    assert {*SET, *NOT_IN_REQUESTS} == set(RequestOptions.__struct_fields__)


@pytest.mark.parametrize("others", [{}, {"reasoning_effort": "high"}, {"temperature": 0.3, "top_p": 0.9}], ids=str)
def test_an_option_shows_in_the_request_or_is_reported(others: dict[str, Any]) -> None:
    for target in targets():
        for name, values in SET.items():
            for value in values:
                options = StreamOptions(**{**others, name: value})
                without = msgspec.structs.replace(options, **{name: getattr(StreamOptions(), name)})
                reported = [each.partition(".")[0] for each in ignored(target, **{**others, name: value})]
                if body(target, options) == body(target, without):
                    is_off = value == "off" and not target.can(ModelCapability.REASONING)
                    assert is_off or name in reported or value == target.max_output_tokens, (target, name, value)


def test_what_is_sent_is_not_reported() -> None:
    sent = {"temperature": 0.5, "top_p": 0.5, "max_tokens": 9, "stop": ("END",), "tool_choice": ToolChoice()}
    for api_id in ("openai-completions", "google-generative-ai", "ollama"):
        assert ignored(model(api_id, id=MODELS[api_id][0]), **sent) == (), api_id


@pytest.mark.parametrize(
    ("target", "options", "names"),
    [
        (("openai-responses", "gpt-5.1"), {"temperature": 0.2, "top_p": 0.1}, ("temperature", "top_p")),
        (("openai-responses", "gpt-5.1"), {"temperature": 0.2, "reasoning_effort": "off"}, ()),
        (("openai-responses", "gpt-4o"), {"stop": ("END",)}, ("stop",)),
        (("azure-openai-responses", "gpt-5.1"), {"stop": ("END",), "top_p": 0.5}, ("top_p", "stop")),
        (("anthropic-messages", "claude-3-haiku"), {"temperature": 0.5, "top_p": 0.5}, ("top_p",)),
        (("anthropic-messages", "claude-3-haiku"), {"stop": ("END", " ")}, ("stop",)),
        (("anthropic-messages", "claude-3-haiku"), {"metadata": {"user_id": "u", "x": "y"}}, ("metadata.x",)),
        (("ollama", "qwen3:8b"), {"tool_choice": ToolChoice(mode="required")}, ("tool_choice",)),
        (("ollama", "qwen3:8b"), {"metadata": {"a": "b"}}, ("metadata.a",)),
    ],
)  # fmt: skip
def test_these_are_reported(target: tuple[str, str], options: dict[str, Any], names: tuple[str, ...]) -> None:
    assert ignored(model(target[0], id=target[1]), **options) == names


async def events_of(target: Model, options: StreamOptions, body: bytes) -> list[StreamEvent]:
    async with upstream(answers(body)) as server, HttpClient() as client:
        there = msgspec.structs.replace(target, base_url=server.url)
        request = ask(there, options=options)
        return [event async for event in HttpProvider(builtin_api(target.api), client).stream(request)]


RESPONSE = b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n'


async def test_the_stream_says_what_was_left_out_and_continues() -> None:
    events = await events_of(
        model("openai-responses", id="gpt-5.1"), StreamOptions(temperature=0.2, stop=("E",)), RESPONSE
    )

    note = "acme does not take `temperature`, `stop` for gpt-5.1 in this request: it was sent without."
    assert events[1] == Keepalive("option_ignored", note, "warning")
    assert [type(event).__name__ for event in events] == ["Start", "Keepalive", "Done"]


async def test_a_request_without_options_says_nothing() -> None:
    events = await events_of(model("openai-responses", id="gpt-5.1"), StreamOptions(), RESPONSE)

    assert [type(event).__name__ for event in events] == ["Start", "Done"]


CALL = (
    b'data: {"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"look","arguments":"{}"}}]}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
)


async def test_a_run_warns_once_and_not_in_every_turn() -> None:
    host = FakeHost()
    async with upstream(answers(CALL), answers(chat_stream("Done"))) as server, HttpClient() as client:
        target = model("openai-completions", base_url=server.url)
        provider = HttpProvider(builtin_api(target.api), client)

        class OneModel:
            def resolve(self, name: object) -> Model:
                return target

            def stream(self, name: object, context: Context, options: StreamOptions | None = None) -> Any:
                return provider.stream(ask(target, context=context, options=options))

        settings = AgentSettings(model="any", options=StreamOptions(metadata={"team": "blue"}))
        outcome = await run_agent(host, OneModel(), asked(), fixed({"look": FakeTool("look")}), host.decide, settings)

    assert (outcome.stop_reason, len(server.requests)) == ("end_turn", 2)
    assert [fact for fact in host.facts if isinstance(fact, ev.Notice)] == [
        ev.Notice(
            level="warning",
            code="option_ignored",
            message="acme does not take `metadata.team` for test-model in this request: it was sent without.",
        )
    ]


# ---------------------------------------------------------------- why an answer ended


def claude_end(reason: str) -> str:
    return (
        'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}\n\n'
        f'data: {{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}\n\ndata: {{"type":"message_stop"}}\n\n'
    )


def responses_end(response: str, event: str = "response.incomplete") -> str:
    return (
        'data: {"type":"response.output_text.delta","output_index":0,"delta":"Hi"}\n\n'
        f'data: {{"type":"{event}","response":{response}}}\n\n'
    )


def chat_end(reason: str) -> str:
    return chat_stream("Hi", finish=reason).decode()


def gemini_end(reason: str) -> str:
    return f'data: {{"candidates":[{{"content":{{"parts":[{{"text":"Hi"}}]}},"finishReason":"{reason}"}}]}}\n\n'


def ollama_end(reason: str) -> str:
    return f'{{"message":{{"content":"Hi"}},"done":true,"done_reason":"{reason}"}}\n'


INCOMPLETE = '{"status":"incomplete"%s}'


@pytest.mark.parametrize(
    ("api_id", "answer", "said", "retryable"),
    [
        ("openai-responses", responses_end(INCOMPLETE % ""), "incomplete", True),
        ("openai-responses", responses_end(INCOMPLETE % ',"incomplete_details":null'), "incomplete", True),
        ("openai-responses", responses_end(INCOMPLETE % ',"incomplete_details":{}'), "incomplete", True),
        ("openai-responses", responses_end(INCOMPLETE % "", "response.completed"), "incomplete", True),
        ("openai-responses", responses_end("{}"), "incomplete", True),
        ("openai-responses", responses_end(INCOMPLETE % ',"incomplete_details":{"reason":"tired"}'), "tired", False),
        ("openai-completions", chat_end("tired"), "tired", False),
        ("openai-completions", chat_end("error"), "error", True),
        ("openai-completions", chat_end("insufficient_system_resource"), "insufficient_system_resource", True),
        ("anthropic-messages", claude_end("tired"), "tired", False),
        ("google-generative-ai", gemini_end("OTHER"), "OTHER", True),
        ("google-generative-ai", gemini_end("TIRED"), "TIRED", False),
        ("ollama", ollama_end("tired"), "tired", False),
    ],
)  # fmt: skip
def test_an_end_that_is_not_known_is_an_error_and_no_end_turn(
    api_id: str, answer: str, said: str, retryable: bool
) -> None:
    last = failed(decode(builtin_api(api_id), ask(model(api_id)), answer.encode()))

    assert last.error_message == f"acme ended the answer early ({said})"
    assert (last.message.text(), last.retryable) == ("Hi", retryable)


@pytest.mark.parametrize(
    ("api_id", "answer", "reason"),
    [
        ("openai-responses", responses_end('{"incomplete_details":{"reason":"max_output_tokens"}}'), "max_tokens"),
        ("openai-responses", responses_end('{"incomplete_details":{"reason":"content_filter"}}'), "refusal"),
        ("openai-responses", responses_end("{}", "response.completed"), "end_turn"),
        ("openai-completions", chat_end("length"), "max_tokens"),
        ("anthropic-messages", claude_end("model_context_window_exceeded"), "max_tokens"),
        ("google-generative-ai", gemini_end("SAFETY"), "refusal"),
        ("ollama", ollama_end("length"), "max_tokens"),
    ],
)  # fmt: skip
def test_known_ends_keep_their_meaning(api_id: str, answer: str, reason: StopReason) -> None:
    assert done(decode(builtin_api(api_id), ask(model(api_id)), answer.encode())).stop_reason == reason


def test_a_whole_response_that_is_incomplete_is_an_error_too() -> None:

    last = failed(
        decode_whole(builtin_api("openai-responses"), ask(model("openai-responses")), b'{"status":"incomplete"}')
    )

    assert last.error_message == "acme ended the answer early (incomplete)"
