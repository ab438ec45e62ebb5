"""A model that follows a script: the same in every test, and free.

In: a `ProviderRequest` and a `Scenario`. Out: stream events by the provider law, through the same `Parts` as every
real adapter. Knows no network; time passes only where the scenario says so.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import assert_never

from makai.core.content import Text
from makai.core.errors import ProviderError, error_from_code
from makai.core.messages import AssistantMessage, StopReason, UserMessage
from makai.core.stream_events import StreamEvent
from makai.providers.base import ProviderRequest
from makai.providers.parts import Parts
from makai.providers.scenario import (
    Answer,
    Chunk,
    Count,
    Cut,
    Echo,
    Fail,
    Pace,
    Repeat,
    Say,
    Scenario,
    Signature,
    Stall,
    Step,
    Stop,
    Think,
    Tool,
    Wait,
)

API_ID = "scripted"
_WORD = re.compile(r"\s*\S+\s*$|\s*\S+")


class ScriptedProvider:
    """Performs a scenario. Every request it got is kept in `requests`, so that tests can look at what was asked.

    `scenario` may be a function of the model id, for a provider that serves several scripted models.
    """

    def __init__(self, scenario: Scenario | Callable[[str], Scenario], *, keep_requests: int = 1000) -> None:
        self._scenario = scenario if callable(scenario) else lambda model_id: scenario
        self._keep = keep_requests
        self.requests: list[ProviderRequest] = []

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        """Perform the answer this conversation has reached."""
        scenario = self._scenario(request.model.id)
        self.requests.append(request)
        del self.requests[: -self._keep]
        turn = sum(isinstance(message, AssistantMessage) for message in request.context.messages)
        user_text = _newest_user_text(request)
        parts = Parts(request.model, time.time_ns() // 1_000_000)
        parts.start()
        performance = _Performance(parts, scenario.answer(turn, user_text), user_text)
        for event in parts.take():
            yield event
        for delay in performance.run():
            for event in parts.take():
                yield event
            await asyncio.sleep(delay)
        for event in parts.take():
            yield event


class _Performance:
    """One answer being performed: pushes into parts, yields the seconds to wait."""

    def __init__(self, parts: Parts, answer: Answer, user_text: str) -> None:
        self._parts = parts
        self._answer = answer
        self._user_text = user_text
        self._pace = 0.0
        self._chunk = 0
        self._block = 0
        self._reason: StopReason = "end_turn"

    def run(self) -> Iterator[float]:
        for step in self._answer.steps:
            yield from self._perform(step)
            if self._parts.finished:
                return
        self._parts.done(self._reason)

    def _perform(self, step: Step) -> Iterator[float]:
        match step:
            case Say():
                yield from self._say(self._parts.text, self._deltas(step.text))
            case Echo():
                yield from self._say(self._parts.text, self._deltas(self._user_text))
            case Repeat():
                yield from self._say(self._parts.text, (step.text for _ in range(step.times)))
            case Think():
                yield from self._say(self._parts.thinking, self._deltas(step.text))
            case Tool():
                self._next_block()
                self._parts.tool(self._block, None, step.name)
                yield from self._pieces(self._parts.arguments, self._deltas(step.arguments_json))
            case Signature():
                self._parts.sign(self._block, step.signature)
            case Wait():
                yield step.seconds
            case Pace():
                self._pace = step.seconds
            case Chunk():
                self._chunk = step.size
            case Count():
                self._parts.usage = step.usage
            case Stop():
                self._reason = step.reason
            case Fail():
                error = error_from_code(
                    step.code, step.message, provider_id="scripted", retry_after_ms=step.retry_after_ms
                )
                self._parts.fail(error)
            case Cut():
                self._parts.fail(ProviderError("the connection broke in the middle of the answer"))
            case Stall():
                yield 86_400.0
            case _:
                assert_never(step)

    def _say(self, push: Callable[[int, str], None], deltas: Iterator[str]) -> Iterator[float]:
        self._next_block()
        yield from self._pieces(push, deltas)

    def _pieces(self, push: Callable[[int, str], None], deltas: Iterator[str]) -> Iterator[float]:
        for delta in deltas:
            if self._pace:
                yield self._pace
            push(self._block, delta)

    def _next_block(self) -> None:
        self._parts.end(self._block)
        self._block += 1

    def _deltas(self, text: str) -> Iterator[str]:
        if self._chunk:
            return (text[at : at + self._chunk] for at in range(0, len(text), self._chunk))
        return (match[0] for match in _WORD.finditer(text))


def _newest_user_text(request: ProviderRequest) -> str:
    for message in reversed(request.context.messages):
        if isinstance(message, UserMessage):
            return "".join(part.text for part in message.parts() if isinstance(part, Text))
    return ""
