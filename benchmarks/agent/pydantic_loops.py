"""pydantic-ai's agent, as its documentation shows it.

In: the upstream's base URL, or None for a model in process. Out: a context manager that yields `RunOne`. The caller
sees every delta (`event_stream_handler`), as makai's callers do; nothing is stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agent.makai_loops import RunOne
from agent.script import DESCRIPTION, LAST_WORD, PROMPT, TOOL, squared, turn_after
from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, RunContext, TextPart, TextPartDelta
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from stream.traffic import MODEL_ID


async def follow_script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """The model in process."""
    results = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    turn = turn_after(results)
    for word in turn.words:
        yield word
    if turn.arguments:
        yield {0: DeltaToolCall(name=TOOL, json_args="", tool_call_id=turn.call_id)}
        for piece in turn.arguments:
            yield {0: DeltaToolCall(json_args=piece)}


def _model(base_url: str | None) -> Model:
    if base_url is None:
        return FunctionModel(stream_function=follow_script)
    return OpenAIChatModel(MODEL_ID, provider=OpenAIProvider(base_url=f"{base_url}/v1", api_key="no-key-needed"))


@asynccontextmanager
async def pydantic_ai_loop(base_url: str | None) -> AsyncIterator[RunOne]:
    """Agent.run with an event stream handler."""
    agent = Agent(_model(base_url))

    @agent.tool_plain(name=TOOL, description=DESCRIPTION)
    async def square(number: int) -> str:
        return squared(number)

    async def run_one() -> int:
        seen = 0

        async def handle(context: RunContext[None], events: AsyncIterable[Any]) -> None:
            nonlocal seen
            async for event in events:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    seen += len(event.part.content)
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    seen += len(event.delta.content_delta)

        result = await agent.run(PROMPT, event_stream_handler=handle)
        if not result.output.endswith(LAST_WORD):
            raise RuntimeError(f"the run went wrong: {result.output!r}"[:500])
        return seen

    yield run_one
