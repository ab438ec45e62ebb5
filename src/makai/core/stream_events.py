"""Stream events: one model answer while it arrives. The law every provider keeps (MK-PROV-010 to -014): `start` first
and once, then blocks, then exactly one `done` or `error`, then nothing. A block is `*_start`, any number of `*_delta`,
one `*_end`, all with one `content_index`; indexes ascend as blocks open. The end of a block carries the whole block, so
that readers need not gather its deltas again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal, TypeAlias

import msgspec

from makai.core.content import ToolCall
from makai.core.errors import Aborted, MakaiError, error_from_code
from makai.core.messages import AssistantMessage, StopReason
from makai.core.usage import Usage


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of every stream event."""


class Start(Event, frozen=True, tag_field="type", tag="start"):
    """The request was accepted and is on its way upstream. `partial` is the empty message."""

    partial: AssistantMessage


class TextStart(Event, frozen=True, tag_field="type", tag="text_start"):
    content_index: int


class TextDelta(Event, frozen=True, gc=False, tag_field="type", tag="text_delta"):
    content_index: int
    delta: str


class TextEnd(Event, frozen=True, tag_field="type", tag="text_end"):
    content_index: int
    content_signature: str | None = None
    text: str = ""
    """The deltas joined. Empty in an event rebuilt from the wire, which does not repeat them."""


class ThinkingStart(Event, frozen=True, tag_field="type", tag="thinking_start"):
    content_index: int


class ThinkingDelta(Event, frozen=True, gc=False, tag_field="type", tag="thinking_delta"):
    content_index: int
    delta: str


class ThinkingEnd(Event, frozen=True, tag_field="type", tag="thinking_end"):
    content_index: int
    thinking_signature: str | None = None
    redacted: bool = False
    thinking: str = ""
    """As `TextEnd.text`."""


class ToolCallStart(Event, frozen=True, tag_field="type", tag="toolcall_start"):
    content_index: int
    id: str
    name: str


class ToolCallDelta(Event, frozen=True, gc=False, tag_field="type", tag="toolcall_delta"):
    content_index: int
    delta: str


class ToolCallEnd(Event, frozen=True, tag_field="type", tag="toolcall_end"):
    """`tool_call` is the whole call; its `arguments_json` equals the deltas joined."""

    content_index: int
    tool_call: ToolCall


class Done(Event, frozen=True, tag_field="type", tag="done"):
    """The answer is complete. `reason` equals `message.stop_reason`."""

    reason: StopReason
    message: AssistantMessage


class Failed(Event, frozen=True, tag_field="type", tag="error"):
    """The answer broke off. `message` holds what had arrived; `error_code` is a code of `core.errors`."""

    reason: Literal["aborted", "error"]
    error_code: str
    error_message: str
    message: AssistantMessage
    retry_after_ms: int | None = None
    provider_id: str | None = None
    hint: str | None = None
    usage: Usage | None = None
    retryable: bool = False
    """The answer had begun and broke off for a reason that may pass: the same request may succeed now. A caller's
    decision, because part of the answer was delivered; failures before it are retried by the provider."""
    blames_input: bool = False
    """The vendor refused the request for what is in it, which may be a picture or a recording."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A failed request is sent again after a wait."""

    reason: str
    """Why it failed, in whole sentences."""
    wait_ms: int
    attempt: int
    """The number of the attempt that follows the wait; the first request was 1."""
    max_retries: int | None = None
    """None: as many as fit into `StreamOptions.retry_for_s`."""

    @property
    def note(self) -> str:
        """What a user reads during a wait that is not counted down."""
        wait_s = self.wait_ms / 1000
        if self.max_retries is None:
            return f"{self.reason} Asking again in {wait_s:.0f} s (attempt {self.attempt})."
        return f"{self.reason} Asking again in {wait_s:.1f} s ({self.attempt - 1} of {self.max_retries})."


class Keepalive(Event, frozen=True, tag_field="type", tag="keepalive"):
    """Nothing new arrived. A `note` is for the user: why the provider waits before it asks again, or which options of
    the request it does not take."""

    code: str = ""
    note: str = ""
    level: Literal["info", "warning"] = "info"
    retry: Retry | None = None
    """What `note` says, for a reader in the same process that counts the wait down."""


_TextEvent: TypeAlias = TextStart | TextDelta | TextEnd
_ThinkingEvent: TypeAlias = ThinkingStart | ThinkingDelta | ThinkingEnd
_ToolCallEvent: TypeAlias = ToolCallStart | ToolCallDelta | ToolCallEnd
StreamEvent: TypeAlias = Start | _TextEvent | _ThinkingEvent | _ToolCallEvent | Done | Failed | Keepalive
TERMINAL = (Done, Failed)


def failure_of(event: Failed) -> MakaiError:
    """The exception a terminal `error` event stands for."""
    if event.reason == "aborted":
        return Aborted(event.error_message)
    return error_from_code(
        event.error_code,
        event.error_message,
        provider_id=event.provider_id,
        retry_after_ms=event.retry_after_ms,
        hint=event.hint,
    )


async def one_by_one(batches: AsyncGenerator[Sequence[StreamEvent], None]) -> AsyncGenerator[StreamEvent, None]:
    """The events of batches. Closing it closes `batches`."""
    async with aclosing(batches):
        async for batch in batches:
            for event in batch:
                yield event


async def in_batches(events: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[Sequence[StreamEvent], None]:
    """Every event as a batch of its own. Closing it closes `events`."""
    async with aclosing(events):
        async for event in events:
            yield (event,)
