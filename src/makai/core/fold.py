"""The one reducer: stream events -> the `AssistantMessage` they describe, partial at any moment and whole at the end.

Providers call its steps directly while they make events (`providers.parts`); readers on the other side of a wire apply
the events. A reader in the provider's own process needs neither: block ends and `done` carry the result.

Text is gathered as a list of deltas that is joined whenever it gets long, so a stream of a million one-word deltas
costs about its text and not a million string objects. (`StringIO` does not help: before Python 3.12 it is a list of
100,000 pieces itself, 68 bytes for a word.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, assert_never

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

    __slots__ = ("_base", "_blocks", "_ended", "_final")

    def __init__(self, base: AssistantMessage) -> None:
        self._base = base
        self._blocks: dict[int, Block] = {}
        self._ended: dict[int, AssistantPart] = {}
        self._final: AssistantMessage | None = None

    def apply(self, event: ev.StreamEvent) -> None:
        match event:
            case ev.TextDelta() | ev.ThinkingDelta() | ev.ToolCallDelta():
                if (block := self._blocks.get(event.content_index)) is not None:
                    block.append(event.delta)
                    block.settle()
            case ev.Start(partial=partial):
                self._base = partial
            case ev.TextStart(content_index=index):
                self.open("text", index)
            case ev.ThinkingStart(content_index=index):
                self.open("thinking", index)
            case ev.ToolCallStart(content_index=index):
                self.open("toolcall", index, event.id, event.name)
            case ev.TextEnd(content_index=index):
                if (block := self._blocks.get(index)) is not None:
                    self.end(index, Text(text=block.text(), text_signature=event.content_signature))
            case ev.ThinkingEnd(content_index=index, thinking_signature=signature):
                if (block := self._blocks.get(index)) is not None:
                    thinking = Thinking(thinking=block.text(), thinking_signature=signature, redacted=event.redacted)
                    self.end(index, thinking)
            case ev.ToolCallEnd(content_index=index):
                self.end(index, event.tool_call)
            case ev.Done() | ev.Failed():
                self._final = event.message
            case ev.Keepalive():
                pass
            case _:
                assert_never(event)

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


def fold(events: Iterable[ev.StreamEvent]) -> AssistantMessage:
    """The message a whole or broken-off event sequence describes."""
    state = MessageFold(AssistantMessage(content=()))
    for event in events:
        state.apply(event)
    return state.message()
