"""Three of our adapters against a real server that speaks all three APIs: llama.cpp with SmolLM2.

What a model of this size says is worth nothing; that it is asked, heard, limited, stopped and refused as the
provider law says is what these tests look at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from support.llama import LlamaEndpoint
from support.streams import kinds

from makai.catalog.model_ref import format_model_ref
from makai.catalog.models import ModelSource, ModelsRequest
from makai.core.content import Text, ToolCall, ToolResult
from makai.core.fold import fold
from makai.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import Context, StreamOptions, ToolDefinition
from makai.core.secret import Secret
from makai.core.stream_events import Done, Failed, StreamEvent, TextDelta
from makai.providers.base import ProviderRequest
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.registry import builtin_api
from makai.providers.runtime import ModelRuntime

Ask: TypeAlias = Callable[..., Awaitable[list[StreamEvent]]]

CHAT, RESPONSES, MESSAGES = "openai-completions", "openai-responses", "anthropic-messages"
ALL_APIS = pytest.mark.parametrize("api", [CHAT, RESPONSES, MESSAGES])

DEADLINE_S = 120.0
CONTEXT_WINDOW = 4096
TEXT_ANSWER = ["start", "text_start", "text_delta", "text_end", "done"]
TOOL = ToolDefinition(
    name="get_weather",
    description="The weather in a city.",
    parameters_schema_json='{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}',
)


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with HttpClient() as pool:
        yield pool


def model_of(server: LlamaEndpoint, api: str) -> Model:
    """The served model; Anthropic's base URL has no version in it."""
    return Model(
        id=server.model_id,
        api=api,
        provider="llama.cpp",
        base_url=server.base_url.removesuffix("/v1") if api == MESSAGES else server.base_url,
        capabilities=(ModelCapability.CHAT, ModelCapability.STREAMING, ModelCapability.TOOLS),
        max_output_tokens=2048,
    )


async def _ask(
    client: HttpClient,
    server: LlamaEndpoint,
    api: str,
    *messages: Message,
    system_prompt: str | None = None,
    tools: tuple[ToolDefinition, ...] = (),
    options: StreamOptions | None = None,
    key: Secret | None = None,
) -> list[StreamEvent]:
    request = ProviderRequest(
        model=model_of(server, api),
        context=Context(messages=messages, system_prompt=system_prompt, tools=tools),
        options=options or StreamOptions(temperature=0.0, max_tokens=24),
        secret=key or server.key,
    )
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in HttpProvider(builtin_api(api), client).stream(request)]


@pytest.fixture
def ask(client: HttpClient, llama_server: LlamaEndpoint) -> Ask:
    return partial(_ask, client, llama_server)


def final(events: list[StreamEvent]) -> AssistantMessage:
    """The message of an answer that succeeded, which must be what its deltas say."""
    done = events[-1]
    assert isinstance(done, Done), done
    assert fold(events[:-1]).content == done.message.content
    return done.message


@ALL_APIS
async def test_text_streams_in_pieces_and_is_counted(ask: Ask, llama_server: LlamaEndpoint, api: str) -> None:
    events = await ask(api, UserMessage(content="Count from one to ten."))

    message = final(events)
    assert kinds(events) == TEXT_ANSWER
    assert len([event for event in events if isinstance(event, TextDelta)]) > 3
    assert (message.provider, message.api, message.model) == ("llama.cpp", api, llama_server.model_id)
    assert message.usage.input + message.usage.cache_read > 5
    assert 0 < message.usage.output <= 24


@ALL_APIS
async def test_the_system_prompt_reaches_the_model(ask: Ask, api: str) -> None:
    question = UserMessage(content="Hi")
    without = final(await ask(api, question, system_prompt="Be kind."))
    instructed = final(await ask(api, question, system_prompt="Be kind. " * 40))

    # How many tokens the server read is the one thing that does not depend on how clever the model is.
    more = _prompt_tokens(instructed) - _prompt_tokens(without)
    assert 39 * 2 <= more <= 39 * 5


@ALL_APIS
async def test_a_conversation_with_a_tool_call_and_its_result_is_understood(
    ask: Ask, llama_server: LlamaEndpoint, api: str
) -> None:
    call = ToolCall(tool_call_id="call_1", name="get_weather", arguments_json='{"city":"Paris"}')
    model = model_of(llama_server, api)
    turn = AssistantMessage(
        content=(Text(text="Let me look that up."), call),
        provider=model.provider,
        api=api,
        model=model.id,
        stop_reason="tool_use",
    )
    result = ToolResult(tool_call_id="call_1", tool_name="get_weather", content="It is sunny, 21 degrees.")
    history = (UserMessage(content="What is the weather in Paris?"), turn, ToolMessage(result=result))

    short = final(await ask(api, history[0], tools=(TOOL,)))
    events = await ask(api, *history, tools=(TOOL,))

    assert kinds(events) == TEXT_ANSWER
    assert final(events).text().strip()
    assert _prompt_tokens(final(events)) > _prompt_tokens(short)


@pytest.mark.parametrize("api", [CHAT, MESSAGES])
async def test_max_tokens_ends_an_answer_and_says_so(ask: Ask, api: str) -> None:
    message = final(await _long_story(ask, api))

    assert (message.stop_reason, message.usage.output) == ("max_tokens", 16)


async def test_max_tokens_ends_a_response_though_nothing_says_so(ask: Ask) -> None:
    """llama.cpp reports "completed" without incomplete_details, so only the count can be held against the limit."""
    message = final(await _long_story(ask, RESPONSES))

    assert message.usage.output == 16


async def _long_story(ask: Ask, api: str) -> list[StreamEvent]:
    # The Responses API takes no limit below 16.
    options = StreamOptions(temperature=0.0, max_tokens=16)
    return await ask(api, UserMessage(content="Tell me a long story."), options=options)


async def test_a_schema_with_bounded_strings_is_kept_by_chat(ask: Ask) -> None:
    class City(msgspec.Struct, forbid_unknown_fields=True):
        name: str
        large: bool

    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "large": {"type": "boolean"}},
        "required": ["name", "large"],
        "additionalProperties": False,
    }
    options = StreamOptions(temperature=0.0, max_tokens=100, json_schema=msgspec.json.encode(schema).decode())

    message = final(await ask(CHAT, UserMessage(content="Name a city."), options=options))

    assert message.stop_reason == "end_turn"
    assert len(msgspec.json.decode(message.text(), type=City).name) <= 20


@ALL_APIS
async def test_after_an_abort_in_the_middle_the_server_answers_the_next_request(
    ask: Ask, client: HttpClient, llama_server: LlamaEndpoint, api: str
) -> None:
    request = ProviderRequest(
        model=model_of(llama_server, api),
        context=Context(messages=(UserMessage(content="Write a very long story about a lighthouse."),)),
        options=StreamOptions(temperature=0.0, max_tokens=2000),
        secret=llama_server.key,
    )
    pieces = 0
    async with asyncio.timeout(DEADLINE_S), aclosing(HttpProvider(builtin_api(api), client).stream(request)) as events:
        async for event in events:
            pieces += isinstance(event, TextDelta)
            if pieces == 3:
                break

    assert pieces == 3
    # The server has one slot: had the abort not reached it, this answer would wait for up to 2000 tokens.
    async with asyncio.timeout(60):
        final(await ask(api, UserMessage(content="Say hello.")))


@ALL_APIS
async def test_a_conversation_beyond_the_context_window_is_a_context_overflow(ask: Ask, api: str) -> None:
    events = await ask(api, UserMessage(content="one two three four " * CONTEXT_WINDOW))

    assert kinds(events) == ["start", "error"]
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.error_code, failed.provider_id) == ("error", "context_overflow", "llama.cpp")


@ALL_APIS
async def test_a_wrong_key_is_refused_as_auth_required_without_being_repeated(ask: Ask, api: str) -> None:
    wrong = Secret("not-the-key-of-this-server")

    events = await ask(api, UserMessage(content="Hi"), key=wrong)

    assert kinds(events) == ["start", "error"]
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.error_code, failed.provider_id) == ("auth_required", "llama.cpp")
    assert wrong.reveal() not in repr(events)


async def test_the_servers_own_list_of_models_is_found_and_each_of_its_apis_can_be_asked_by_ref(
    llama_server: LlamaEndpoint, tmp_path: Path
) -> None:
    environ = {"LLAMA_CPP_BASE_URL": llama_server.base_url, "LLAMA_API_KEY": llama_server.key.reveal()}
    options = StreamOptions(temperature=0.0, max_tokens=16)
    context = Context(messages=(UserMessage(content="Say hello."),))
    async with ModelRuntime(environ, home=tmp_path) as runtime, asyncio.timeout(DEADLINE_S):
        (listed,) = (await runtime.models(ModelsRequest(provider_id="llama.cpp"))).models
        refs = [format_model_ref("llama.cpp", api, listed.model_id) for api in (CHAT, RESPONSES, MESSAGES)]
        texts = [(await runtime.complete(ref, context, options)).text() for ref in refs]

    assert (listed.model_ref, listed.source) == (refs[0], ModelSource.DYNAMIC)
    assert (listed.model_id, listed.context_window) == (llama_server.model_id, CONTEXT_WINDOW)
    assert all(text.strip() for text in texts)


def _prompt_tokens(message: AssistantMessage) -> int:
    return message.usage.input + message.usage.cache_read + message.usage.cache_write
