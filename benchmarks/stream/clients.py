"""One way to read a stream per library, each as its own documentation shows it.

In: the base URL of the upstream (without /v1). Out: a context manager that yields `ReadOne`, a function that asks for
one answer, reads it to its end and says what it saw. Libraries are imported only when their client is opened, because
each client runs in its own process and import cost and memory belong to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import Any

from stream.traffic import MODEL_ID, stamp_of

PROMPT = "Tell me a long story."
KEY = "no-key-needed"
MAX_TOKENS = 4_096


@dataclass(frozen=True)
class Seen:
    """What one stream gave: its deltas, and how long after upstream wrote the first one we had it."""

    deltas: int
    first_delta_ns: int
    text_length: int | None = None
    """Of the assembled answer, where the library assembles one."""


ReadOne = Callable[[], Awaitable[Seen]]
OpenClient = Callable[[str], AbstractAsyncContextManager[ReadOne]]


def _messages() -> list[Any]:
    return [{"role": "user", "content": PROMPT}]


@asynccontextmanager
async def makai_openai(base_url: str) -> AsyncIterator[ReadOne]:
    """makai's whole provider path, chat completions."""
    from makai.providers.openai_completions import OpenAICompletions

    async with _makai(OpenAICompletions(), "openai-completions", base_url + "/v1") as read_one:
        yield read_one


@asynccontextmanager
async def makai_anthropic(base_url: str) -> AsyncIterator[ReadOne]:
    """makai's whole provider path, Anthropic Messages."""
    from makai.providers.anthropic_messages import AnthropicMessages

    async with _makai(AnthropicMessages(), "anthropic-messages", base_url) as read_one:
        yield read_one


@asynccontextmanager
async def _makai(api: Any, api_id: str, base_url: str) -> AsyncIterator[ReadOne]:
    from makai.core.messages import UserMessage
    from makai.core.model import Model
    from makai.core.request import Context, StreamOptions
    from makai.core.secret import Secret
    from makai.core.stream_events import Done, TextDelta
    from makai.core.usage import Price
    from makai.providers.base import ProviderRequest
    from makai.providers.http import HttpClient, HttpProvider

    request = ProviderRequest(
        model=Model(id=MODEL_ID, api=api_id, provider="bench", base_url=base_url, price=Price(input=1.0, output=2.0)),
        context=Context(messages=(UserMessage(content=PROMPT),)),
        options=StreamOptions(max_tokens=MAX_TOKENS),
        secret=Secret(KEY),
    )
    async with HttpClient() as http:
        provider = HttpProvider(api, http)

        async def read_one() -> Seen:
            deltas = 0
            event: object = None
            async for event in provider.stream(request):
                if type(event) is TextDelta:
                    if not deltas:
                        late = monotonic_ns() - stamp_of(event.delta)
                    deltas += 1
            if not isinstance(event, Done) or not event.message.usage.cost_usd:
                raise RuntimeError(f"the stream did not end in a priced answer: {event!r}"[:500])
            return Seen(deltas, late, len(event.message.text()))

        yield read_one


def _vendor(api: str, base_url: str) -> tuple[dict[str, str], str]:
    """The environment and the model name with which makai finds the upstream by itself."""
    if api == "openai":
        return {"LLAMA_CPP_BASE_URL": base_url + "/v1"}, f"llama.cpp/openai-completions@{MODEL_ID}"
    return {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": KEY}, f"anthropic/anthropic-messages@{MODEL_ID}"


@asynccontextmanager
async def _runtime(api: str, base_url: str) -> AsyncIterator[ReadOne]:
    """makai's provider path by a model's name: catalog, credential and provider, without the SDK."""
    from makai.core.messages import UserMessage
    from makai.core.request import Context, StreamOptions
    from makai.core.stream_events import Done, TextDelta
    from makai.providers.runtime import ModelRuntime

    environ, model_ref = _vendor(api, base_url)
    context, options = Context(messages=(UserMessage(content=PROMPT),)), StreamOptions(max_tokens=MAX_TOKENS)
    with tempfile.TemporaryDirectory() as home:
        async with ModelRuntime({"MAKAI_HOME": home, **environ}) as runtime:

            async def read_one() -> Seen:
                deltas = 0
                event: object = None
                async for event in runtime.stream(model_ref, context, options):
                    if type(event) is TextDelta:
                        if not deltas:
                            late = monotonic_ns() - stamp_of(event.delta)
                        deltas += 1
                if not isinstance(event, Done):
                    raise RuntimeError(f"the stream did not end in an answer: {event!r}"[:500])
                return Seen(deltas, late, len(event.message.text()))

            yield read_one


@asynccontextmanager
async def _connect(api: str, base_url: str) -> AsyncIterator[ReadOne]:
    """makai as its README shows it: `makai.connect()` and `client.provider.stream`."""
    import makai

    environ, model_ref = _vendor(api, base_url)
    with tempfile.TemporaryDirectory() as home:
        async with makai.connect(environ={"MAKAI_HOME": home, **environ}) as client:

            async def read_one() -> Seen:
                deltas = 0
                stream = client.provider.stream(
                    model_ref=model_ref, messages=PROMPT, options={"max_tokens": MAX_TOKENS}
                )
                async for event in stream:
                    if event.type == "text_delta":
                        if not deltas:
                            late = monotonic_ns() - stamp_of(event.delta)
                        deltas += 1
                if stream.response is None:
                    raise RuntimeError(f"the stream did not end in an answer: {event!r}"[:500])
                return Seen(deltas, late, len(stream.response.text))

            yield read_one


@asynccontextmanager
async def openai_sdk(base_url: str) -> AsyncIterator[ReadOne]:
    """openai: chat.completions.create(stream=True)."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=base_url + "/v1", api_key=KEY) as client:

        async def read_one() -> Seen:
            stream = await client.chat.completions.create(
                model=MODEL_ID, messages=_messages(), stream=True, stream_options={"include_usage": True}
            )
            return await count_chat_chunks(stream)

        yield read_one


@asynccontextmanager
async def anthropic_raw(base_url: str) -> AsyncIterator[ReadOne]:
    """anthropic: messages.create(stream=True), its cheapest way: events only, no message is assembled."""
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(base_url=base_url, api_key=KEY) as client:

        async def read_one() -> Seen:
            deltas = 0
            stream = await client.messages.create(
                model=MODEL_ID, messages=_messages(), max_tokens=MAX_TOKENS, stream=True
            )
            async for event in stream:
                if event.type == "content_block_delta" and event.delta.type == "text_delta":
                    if not deltas:
                        late = monotonic_ns() - stamp_of(event.delta.text)
                    deltas += 1
            return Seen(deltas, late)

        yield read_one


@asynccontextmanager
async def anthropic_stream(base_url: str) -> AsyncIterator[ReadOne]:
    """anthropic: messages.stream(), which assembles the message as makai does."""
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(base_url=base_url, api_key=KEY) as client:

        async def read_one() -> Seen:
            deltas = 0
            async with client.messages.stream(model=MODEL_ID, messages=_messages(), max_tokens=MAX_TOKENS) as stream:
                async for text in stream.text_stream:
                    if not deltas:
                        late = monotonic_ns() - stamp_of(text)
                    deltas += 1
                message = await stream.get_final_message()
            return Seen(deltas, late, sum(len(block.text) for block in message.content if block.type == "text"))

        yield read_one


@asynccontextmanager
async def litellm(base_url: str) -> AsyncIterator[ReadOne]:
    """litellm: acompletion(stream=True) to an OpenAI endpoint."""
    import litellm

    async def read_one() -> Seen:
        stream = await litellm.acompletion(
            model=f"openai/{MODEL_ID}",
            messages=_messages(),
            stream=True,
            stream_options={"include_usage": True},
            api_base=base_url + "/v1",
            api_key=KEY,
        )
        return await count_chat_chunks(stream)

    yield read_one


@asynccontextmanager
async def pydantic_ai(base_url: str) -> AsyncIterator[ReadOne]:
    """pydantic-ai: Agent.run_stream, text deltas without debouncing."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    agent = Agent(OpenAIChatModel(MODEL_ID, provider=OpenAIProvider(base_url=base_url + "/v1", api_key=KEY)))

    async def read_one() -> Seen:
        deltas = 0
        async with agent.run_stream(PROMPT) as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                if not deltas:
                    late = monotonic_ns() - stamp_of(text)
                deltas += 1
        return Seen(deltas, late)

    yield read_one


@asynccontextmanager
async def any_llm(base_url: str) -> AsyncIterator[ReadOne]:
    """any-llm: acompletion(stream=True) of its openai provider."""
    from any_llm import AnyLLM

    client = AnyLLM.create("openai", api_key=KEY, api_base=base_url + "/v1")

    async def read_one() -> Seen:
        stream = await client.acompletion(
            model=MODEL_ID, messages=_messages(), stream=True, stream_options={"include_usage": True}
        )
        return await count_chat_chunks(stream)

    yield read_one


async def count_chat_chunks(stream: Any) -> Seen:
    """Read a stream of chat completion chunks, in the shape that openai made and others kept."""
    deltas = 0
    async for chunk in stream:
        if chunk.choices and (text := chunk.choices[0].delta.content):
            if not deltas:
                late = monotonic_ns() - stamp_of(text)
            deltas += 1
    return Seen(deltas, late)


CLIENTS: dict[str, OpenClient] = {
    "makai-openai": makai_openai,
    "makai-anthropic": makai_anthropic,
    "runtime-openai": partial(_runtime, "openai"),
    "runtime-anthropic": partial(_runtime, "anthropic"),
    "connect-openai": partial(_connect, "openai"),
    "connect-anthropic": partial(_connect, "anthropic"),
    "openai": openai_sdk,
    "anthropic-raw": anthropic_raw,
    "anthropic-stream": anthropic_stream,
    "any-llm": any_llm,
    "pydantic-ai": pydantic_ai,
    "litellm": litellm,
}
