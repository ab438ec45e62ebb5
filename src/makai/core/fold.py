"""The one reducer: stream events -> the `AssistantMessage` they describe, partial at any moment and whole at the end.

Providers call its steps directly while they make events (`providers.parts`); readers on the other side of a wire apply
the events. A reader in the provider's own process needs neither: block ends and `done` carry the result.

Text is gathered as a list of deltas that is joined whenever it gets long, so a stream of a million one-word deltas
costs about its text and not a million string objects. (`StringIO` does not help: before Python 3.12 it is a list of
100,000 pieces itself, 68 bytes for a word.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from makai.core import stream_events as ev
from makai.core.content import AssistantPart, Text, Thinking, ToolCall
from makai.core.messages import AssistantMessage, StopReason
from makai.core.usage import Usage

MANY_DELTAS = 4096

BlockKind = Literal["text", "thinking", "toolcall"]


class Block:
    """A content block that is still growing. `append` is the hot path: one list append."""

    __slots__ = ("_deltas", "_settled", "append", "index", "kind", "name", "tool_call_id")

    def __init__(self, kind: BlockKind, index: int, tool_call_id: str = "", name: str = "") -> None:
        self.kind = kind
        self.index = index
        self.tool_call_id = tool_call_id
        self.name = name
        self._settled: list[str] = []
        self._deltas: list[str] = []
        self.append: Callable[[str], None] = self._deltas.append

    def settle(self) -> None:
        """Join the deltas when they have become many. Called between reads, not per delta."""
        if len(self._deltas) > MANY_DELTAS:
            self._settled.append("".join(self._deltas))
            self._deltas.clear()

    def text(self) -> str:
        return "".join((*self._settled, *self._deltas))

    def part(self) -> AssistantPart:
        text = self.text()
        if self.kind == "text":
            return Text(text=text)
        if self.kind == "thinking":
            return Thinking(thinking=text)
        return ToolCall(tool_call_id=self.tool_call_id, name=self.name, arguments_json=text)


class MessageFold:
    """Accumulates one answer. Blocks are told apart by their `content_index`."""

    __slots__ = ("_apply", "_base", "_blocks", "_ended", "_final")

    def __init__(self, base: AssistantMessage) -> None:
        self._base = base
        self._blocks: dict[int, Block] = {}
        self._ended: dict[int, AssistantPart] = {}
        self._final: AssistantMessage | None = None
        self._apply: dict[type, Callable[..., object]] = {
            ev.Start: self._on_start,
            ev.TextStart: lambda event: self.open("text", event.content_index),
            ev.ThinkingStart: lambda event: self.open("thinking", event.content_index),
            ev.ToolCallStart: lambda event: self.open("toolcall", event.content_index, event.id, event.name),
            ev.TextDelta: self._on_delta,
            ev.ThinkingDelta: self._on_delta,
            ev.ToolCallDelta: self._on_delta,
            ev.TextEnd: self._on_text_end,
            ev.ThinkingEnd: self._on_thinking_end,
            ev.ToolCallEnd: lambda event: self.end(event.content_index, event.tool_call),
            ev.Done: self._on_terminal,
            ev.Failed: self._on_terminal,
            ev.Keepalive: lambda event: None,
        }

    def apply(self, event: ev.StreamEvent) -> None:
        self._apply[type(event)](event)

    def open(self, kind: BlockKind, index: int, tool_call_id: str = "", name: str = "") -> Block:
        block = Block(kind, index, tool_call_id, name)
        self._blocks[index] = block
        return block

    def end(self, index: int, part: AssistantPart) -> None:
        """Replace a growing block by its final part and free its buffer."""
        self._blocks.pop(index, None)
        self._ended[index] = part

    def content(self) -> tuple[AssistantPart, ...]:
        """All blocks so far, in order of `content_index`."""
        parts = {**self._ended, **{index: block.part() for index, block in self._blocks.items()}}
        return tuple(parts[index] for index in sorted(parts))

    def message(self) -> AssistantMessage:
        """The message so far, or the final one after `done` or `error`."""
        return self._final or msgspec.structs.replace(self._base, content=self.content())

    def finish(
        self, stop_reason: StopReason, usage: Usage, *, response_id: str | None = None, error_message: str | None = None
    ) -> AssistantMessage:
        """Close the message: nothing changes it afterwards."""
        self._final = msgspec.structs.replace(
            self._base,
            content=self.content(),
            stop_reason=stop_reason,
            usage=usage,
            response_id=response_id,
            error_message=error_message,
        )
        self._blocks.clear()
        self._ended.clear()
        return self._final

    def _on_start(self, event: ev.Start) -> None:
        self._base = event.partial

    def _on_delta(self, event: ev.TextDelta | ev.ThinkingDelta | ev.ToolCallDelta) -> None:
        block = self._blocks.get(event.content_index)
        if block is not None:
            block.append(event.delta)
            block.settle()

    def _on_text_end(self, event: ev.TextEnd) -> None:
        if (block := self._blocks.get(event.content_index)) is not None:
            self.end(event.content_index, Text(text=block.text(), text_signature=event.content_signature))

    def _on_thinking_end(self, event: ev.ThinkingEnd) -> None:
        if (block := self._blocks.get(event.content_index)) is not None:
            signature = event.thinking_signature
            part = Thinking(thinking=block.text(), thinking_signature=signature, redacted=event.redacted)
            self.end(event.content_index, part)

    def _on_terminal(self, event: ev.Done | ev.Failed) -> None:
        self._final = event.message


def fold(events: Iterable[ev.StreamEvent]) -> AssistantMessage:
    """The message a whole or broken-off event sequence describes."""
    state = MessageFold(AssistantMessage(content=()))
    for event in events:
        state.apply(event)
    return state.message()
