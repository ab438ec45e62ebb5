"""Follows one model answer and reports its facts as they happen.

A block that broke off has no whole fact: its deltas are all there is of it. Whether there is another turn is the
loop's decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, Self, TypeAlias

import msgspec

from makai.agent.host import Recorder
from makai.agent.tool_calls import PreparedCall, ToolCalls
from makai.core import session_events as ev
from makai.core import stream_events as se
from makai.core.errors import MakaiError
from makai.core.messages import AssistantMessage
from makai.core.request import StreamOptions
from makai.core.sanitize import cut_text
from makai.core.stream_events import Retry, StreamEvent
from makai.core.usage import Usage
from makai.providers.retries import Retries

STREAM_BROKEN: Final = "stream_broken"
log = logging.getLogger(__name__)

_Words: TypeAlias = se.TextDelta | se.ThinkingDelta
"""Named, because `answer_of` asks for it with every word: a union that is written there is made each time."""


class BrokenAnswer(msgspec.Struct, frozen=True):
    """A stream ended without a whole answer."""

    error: MakaiError
    usage: Usage = Usage()
    retryable: bool = False
    """Whether the same request may succeed now."""
    said_something: bool = False
    blames_input: bool = False
    """Whether a picture or a recording in the request may be the reason."""


class TurnAnswer(msgspec.Struct, kw_only=True):
    """How a turn ended: with a whole message, or broken."""

    message: AssistantMessage | None = None
    broken: BrokenAnswer | None = None
    calls: list[PreparedCall] = []
    """Every call that was logged, also of an answer that broke off afterwards."""


async def answer_of(
    stream: AsyncGenerator[StreamEvent, None], recorder: Recorder, tool_calls: ToolCalls, watch: SilenceWatch
) -> TurnAnswer:
    answer = TurnAnswer()
    async with aclosing(guarded(stream)) as events, watch:
        async for event in events:
            if type(event) is not se.Keepalive:  # alive, but nothing new
                watch.news()
                if recorder.is_waiting and not isinstance(event, se.Start | BrokenAnswer):
                    await recorder.end_wait("answered")
            if isinstance(event, _Words):
                delta = _delta(event)
                if not recorder.emit_delta(delta):
                    await recorder.emit(delta)
            elif isinstance(event, se.ToolCallEnd):
                answer.calls.append(await tool_calls.take(event.tool_call, event.content_index))
            elif isinstance(event, se.Done):
                answer.message = event.message
            elif isinstance(event, BrokenAnswer):
                answer.broken = event
                if not event.retryable:
                    await recorder.end_wait("given_up")
            elif isinstance(event, se.Keepalive) and event.retry is not None:
                watch.expect(event.retry.wait_ms / 1000)
                await recorder.wait(event.code, event.retry)
            elif (fact := _fact(event)) is not None:
                await recorder.emit_once(fact) if type(fact) is ev.Notice else await recorder.emit(fact)
    return answer


def _delta(event: _Words) -> ev.Delta:
    kind = ev.AssistantTextDelta if isinstance(event, se.TextDelta) else ev.ReasoningDelta
    return kind(content_index=event.content_index, delta=event.delta)


def _fact(event: StreamEvent) -> ev.SessionEvent | None:
    """The fact that an event is; most kinds say nothing that a session keeps."""
    match event:
        case se.TextEnd(content_index=index, text=text, content_signature=signature):
            kept = cut_text(text)
            return ev.AssistantText(content_index=index, text=kept, signature=signature if kept is text else None)
        case se.ThinkingEnd(content_index=index, thinking=text, thinking_signature=signature, redacted=redacted):
            if (kept := cut_text(text)) is not text:  # its vendor refuses it without the rest
                return ev.Reasoning(content_index=index, text=kept, broken_off=True)
            return ev.Reasoning(content_index=index, text=text, signature=signature, redacted=redacted)
        case se.Keepalive(note=note) if note:  # why nothing happens: a rate limit is no silence
            return ev.Notice(level=event.level, code=event.code, message=note)
        case _:
            return None


async def guarded(stream: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent | BrokenAnswer, None]:
    """The events of a stream up to `Done`, or up to one `BrokenAnswer`, however it ends."""
    try:
        async with aclosing(stream):
            async for event in stream:
                if type(event) is se.Failed:
                    said_something = bool(event.message.content)
                    yield BrokenAnswer(
                        se.failure_of(event),
                        event.usage or Usage(),
                        event.retryable,
                        said_something,
                        event.blames_input,
                    )
                    return
                yield event
                if type(event) is se.Done:
                    return
        yield BrokenAnswer(MakaiError("The provider ended without an answer."))
    except MakaiError as error:
        yield BrokenAnswer(error)
    except Exception as error:
        log.exception("a provider broke its contract")
        message = f"Internal error in a provider: {type(error).__name__}."
        yield BrokenAnswer(MakaiError(message, hint="Please report this."))


class AnswerRetries:
    """Decides whether an answer that broke off is asked for again, says so, and waits. The policy is that of the
    providers, which retry only what fails before an answer begins."""

    def __init__(self, options: StreamOptions, recorder: Recorder) -> None:
        self.recorder = recorder
        self._retries = Retries(options)

    def reset(self) -> None:
        """An answer was whole: the next one may break as often again."""
        self._retries.reset()

    def next_wait(self, broken: BrokenAnswer) -> Retry | None:
        """The wait before the model is asked again, or None when the failure is final; counts the failure. An answer
        that had begun costs money each time and has no patience (`StreamOptions.retry_for_s`)."""
        patience_s = 0.0 if broken.said_something else None
        return self._retries.next_wait(broken.error, patience_s) if broken.retryable else None

    async def wait(self, broken: BrokenAnswer, retry: Retry | None) -> bool:
        """Wait as `next_wait` says. True when the model can be asked again."""
        if retry is None:
            await self.recorder.end_wait("given_up")
            return False
        if broken.said_something:
            message = f"{retry.note} The incomplete answer is not used."
            await self.recorder.emit(ev.Notice(level="warning", code=STREAM_BROKEN, message=message))
        else:
            await self.recorder.wait(STREAM_BROKEN, retry)
        await asyncio.sleep(retry.wait_ms / 1000)
        return True


class SilenceWatch:
    """Calls `tell` once per silence that lasts. One timer looks at a time stamp, so events cost nothing extra."""

    def __init__(self, after_s: float, tell: Callable[[], Awaitable[None]]) -> None:
        self._after_s = after_s
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._last_news = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Future[None] | None = None
        self._told = False

    async def __aenter__(self) -> Self:
        self._timer = self._loop.call_later(self._after_s, self._look)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._telling is not None:
            await self._telling

    def news(self) -> None:
        self._last_news = self._loop.time()
        self._told = False

    def expect(self, silence_s: float) -> None:
        """So much silence has its reason, which was said already."""
        self._last_news = self._loop.time() + silence_s
        self._told = False

    def _look(self) -> None:
        silent_s = self._loop.time() - self._last_news
        if silent_s >= self._after_s and not self._told and (self._telling is None or self._telling.done()):
            self._told = True
            self._telling = asyncio.ensure_future(self._tell())
        next_look_s = self._after_s if self._told else self._after_s - silent_s
        self._timer = self._loop.call_later(max(next_look_s, 0.001), self._look)
