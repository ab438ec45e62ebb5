"""The model of these benchmarks: it says what its user wants, as fast or as slowly as its user wants.

In: a conversation whose newest user message is a `Wish`. Out: stream events by the provider law. It stands in for
`providers.runtime.ModelRuntime`, so that nothing but the session is measured.

The words come in two blocks that take turns, because consecutive deltas of one block would be stored as one event.
Those of a paced answer say when they were said, so that a client knows how old it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from time import monotonic, monotonic_ns
from typing import Final

import msgspec
from stream.traffic import words

from makai.core.content import Text
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Done, Start, StreamEvent, TextDelta, TextEnd, TextStart
from makai.core.usage import Usage

MODEL: Final = Model(id="bench-model", api="bench", provider="bench")
MODEL_REF: Final = "bench/bench@bench-model"
STAMP: Final = "@"
"""Before and after the time of a paced delta, which is in nanoseconds of the monotonic clock."""
_DELTAS_PER_READ: Final = 8
"""What a network read would bring at once."""


class Wish(msgspec.Struct, frozen=True):
    """What the model is to say."""

    deltas: int
    per_second: float = 0.0
    """0: as fast as it is taken."""
    padding: int = 0
    """Characters after the stamp of a paced delta."""
    first_after_s: float = 0.0

    def text(self) -> str:
        """As a user's message."""
        return msgspec.json.encode(self).decode()


class BenchModels:
    """`agent.host.Models`: one model under every name."""

    def resolve(self, model: str | Model | None) -> Model:
        """Always the same."""
        return MODEL

    async def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Say it."""
        newest = context.messages[-1]
        assert isinstance(newest, UserMessage)
        assert isinstance(newest.content, str)
        wish = msgspec.json.decode(newest.content, type=Wish)
        yield Start(partial=AssistantMessage(content=()))
        yield TextStart(content_index=0)
        yield TextStart(content_index=1)
        async for event in _paced(wish) if wish.per_second else _flat(wish):
            yield event
        yield TextEnd(content_index=0)
        yield TextEnd(content_index=1)
        usage = Usage(input=100, output=wish.deltas)
        message = AssistantMessage(content=(Text(text="..."),), usage=usage, stop_reason="end_turn")
        yield Done(reason="end_turn", message=message)


async def _flat(wish: Wish) -> AsyncGenerator[StreamEvent, None]:
    ready = [TextDelta(content_index=number % 2, delta=word) for number, word in enumerate(words())]
    for number in range(wish.deltas):
        if number % _DELTAS_PER_READ == 0:
            await asyncio.sleep(0)
        yield ready[number % len(ready)]


async def _paced(wish: Wish) -> AsyncGenerator[StreamEvent, None]:
    due = monotonic() + wish.first_after_s
    padding = "." * wish.padding
    for number in range(wish.deltas):
        await asyncio.sleep(max(due - monotonic(), 0))
        yield TextDelta(content_index=number % 2, delta=f"{STAMP}{monotonic_ns()}{STAMP}{padding}")
        due += 1 / wish.per_second
