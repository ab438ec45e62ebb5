"""One model answer -> the facts of one turn.

In: a stream of events. Out: facts as they happen, and the `Answer`. It does not decide whether there is another turn,
and carries out nothing. Blocks that broke off have no whole fact: their deltas are all there is of them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from makai.agent.recorder import Recorder
from makai.agent.silence import SilenceWatch
from makai.agent.tool_calls import Call, ToolCalls
from makai.core.errors import Aborted, MakaiError, error_from_code
from makai.core.messages import AssistantMessage
from makai.core.session_events import AssistantText, AssistantTextDelta, Notice, Reasoning, ReasoningDelta
from makai.core.stream_events import (
    Done,
    Failed,
    Keepalive,
    StreamEvent,
    TextDelta,
    TextEnd,
    ThinkingDelta,
    ThinkingEnd,
    ToolCallEnd,
)
from makai.core.usage import Usage

log = logging.getLogger(__name__)


class Broken(msgspec.Struct, frozen=True):
    """A stream ended without a whole answer."""

    error: MakaiError
    usage: Usage = Usage()


class Answer(msgspec.Struct, kw_only=True):
    """How a turn ended: with a whole message, or broken."""

    message: AssistantMessage | None = None
    broken: Broken | None = None
    calls: list[Call] = []
    """Every call that was logged, also of an answer that broke off afterwards."""


async def answer_of(
    stream: AsyncGenerator[StreamEvent, None], recorder: Recorder, tool_calls: ToolCalls, watch: SilenceWatch
) -> Answer:
    """Follow a stream to its end."""
    reader = _Reader(recorder, tool_calls)
    async with aclosing(guarded(stream)) as events, watch:
        async for event in events:
            kind = type(event)
            if kind is not Keepalive:  # alive, but nothing new
                watch.news()
            if (step := reader.steps.get(kind)) is not None:
                await step(event)
    return reader.answer


async def guarded(stream: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent | Broken, None]:
    """The events of a stream up to `Done`, or up to one `Broken`, whatever happens to it."""
    try:
        async with aclosing(stream):
            async for event in stream:
                if type(event) is Failed:
                    yield Broken(_failure_of(event), event.usage or Usage())
                    return
                yield event
                if type(event) is Done:
                    return
        yield Broken(MakaiError("The provider ended without an answer."))
    except MakaiError as error:
        yield Broken(error)
    except Exception as error:
        log.exception("a provider broke its contract")
        yield Broken(MakaiError(f"Internal error in a provider: {type(error).__name__}.", hint="Please report this."))


def _failure_of(event: Failed) -> MakaiError:
    if event.reason == "aborted":
        return Aborted(event.error_message)
    return error_from_code(
        event.error_code,
        event.error_message,
        provider_id=event.provider_id,
        retry_after_ms=event.retry_after_ms,
        hint=event.hint,
    )


_Step: TypeAlias = Callable[[Any], Awaitable[None]]


class _Reader:
    """Turns events into facts. Kinds of events without a step say nothing that a session keeps."""

    def __init__(self, recorder: Recorder, tool_calls: ToolCalls) -> None:
        self._emit = recorder.emit
        self._tool_calls = tool_calls
        self.answer = Answer()
        self.steps: dict[type, _Step] = {
            TextDelta: self._on_text,
            ThinkingDelta: self._on_thinking,
            TextEnd: self._on_text_end,
            ThinkingEnd: self._on_thinking_end,
            ToolCallEnd: self._on_call,
            Done: self._on_done,
            Broken: self._on_broken,
            Keepalive: self._on_keepalive,
        }

    async def _on_text(self, event: TextDelta) -> None:
        await self._emit(AssistantTextDelta(content_index=event.content_index, delta=event.delta))

    async def _on_thinking(self, event: ThinkingDelta) -> None:
        await self._emit(ReasoningDelta(content_index=event.content_index, delta=event.delta))

    async def _on_text_end(self, event: TextEnd) -> None:
        fact = AssistantText(content_index=event.content_index, text=event.text, signature=event.content_signature)
        await self._emit(fact)

    async def _on_thinking_end(self, event: ThinkingEnd) -> None:
        await self._emit(
            Reasoning(
                content_index=event.content_index,
                text=event.thinking,
                signature=event.thinking_signature,
                redacted=event.redacted,
            )
        )

    async def _on_call(self, event: ToolCallEnd) -> None:
        self.answer.calls.append(await self._tool_calls.take(event.tool_call, event.content_index))

    async def _on_keepalive(self, event: Keepalive) -> None:
        """People are told why nothing happens: a rate limit is no silence."""
        if event.note:
            await self._emit(Notice(level="warning", code=event.code, message=event.note))

    async def _on_done(self, event: Done) -> None:
        self.answer.message = event.message

    async def _on_broken(self, event: Broken) -> None:
        self.answer.broken = event
