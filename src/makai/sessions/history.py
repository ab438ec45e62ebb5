"""Folds the log of a session into the conversation that a model continues (`messages`) and the transcript for people
(`items`).

For the model: a turn is an assistant message, followed by the results of its calls; everything up to the last
`compacted` is its summary; a turn that failed and was tried again in the same run is left out, and so is what
sub-agents say. A turn that broke off keeps what it said, and the result of a tool that was stopped has what it wrote.
To continue a conversation it is enough to read the events above `SessionState.compacted_through`. For a harness without
turns, everything between two inputs counts as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from makai.catalog.model_ref import ModelRef, parse_model_ref
from makai.core import session_events as ev
from makai.core.content import (
    AssistantPart,
    Audio,
    Image,
    SessionPart,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    content_for_model,
    for_model,
    with_note,
)
from makai.core.errors import ModelRefError
from makai.core.messages import AssistantMessage, Message, StopReason, ToolMessage, UserMessage
from makai.core.usage import Usage
from makai.harness.base import PlacedMessage
from makai.sessions.log.base import LoggedEvent
from makai.sessions.state import note_for_model

NO_OUTPUT = "The tool gave no output."
MAX_STOPPED_OUTPUT = 16_384
"""Characters of the output of a stopped tool that the model gets: the newest."""

Note: TypeAlias = ev.Notice | ev.PlanUpdated | ev.Compacted | ev.RunFailed | ev.RunAborted


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of what a transcript shows. `event_id` is the event that began it, `ts` its time."""

    event_id: int
    ts: int
    run_id: str | None = None
    parent_call_id: str = ""
    """Of the call in which a sub-agent says it."""


class UserItem(Item, frozen=True, tag="user"):
    content: str | tuple[SessionPart, ...]
    waits: bool = False
    """No run has read it yet."""


class TextItem(Item, frozen=True, tag="text"):
    """Text of the assistant; not `whole` when it broke off or is still arriving."""

    text: str
    whole: bool = True


class ThinkingItem(Item, frozen=True, tag="thinking"):
    text: str
    whole: bool = True
    redacted: bool = False


class ToolItem(Item, frozen=True, tag="tool"):
    """A call with everything known about it so far; its title, kind and locations are the newest."""

    call: ev.ToolCalled
    decision: ev.ApprovalDecided | None = None
    result: ev.ToolFinished | None = None


class NoteItem(Item, frozen=True, tag="note"):
    event: Note


TranscriptItem: TypeAlias = UserItem | TextItem | ThinkingItem | ToolItem | NoteItem


class _Words(msgspec.Struct):
    """A text or thinking block. Deltas count only until the whole block is there."""

    item: TextItem | ThinkingItem
    deltas: list[str] = []
    signature: str | None = None

    def shown(self) -> TextItem | ThinkingItem:
        return self.item if self.item.whole else msgspec.structs.replace(self.item, text="".join(self.deltas))

    def part(self) -> AssistantPart | None:
        item = self.shown()
        if isinstance(item, TextItem):
            return Text(text=item.text, text_signature=self.signature)
        if not item.whole:
            return None  # thinking that broke off has no signature, and its own vendor refuses it without
        return Thinking(thinking=item.text, thinking_signature=self.signature, redacted=item.redacted)


class _Called(msgspec.Struct):
    item: ToolItem
    result_id: int = 0
    was_started: bool = False
    output: str = ""
    """What the tool wrote so far; its result has it, unless the tool is stopped."""

    def shown(self) -> ToolItem:
        return self.item

    def model_id(self) -> str:
        # The vendor's own id, so that a conversation read from the log is, to the byte, the one its cache knows.
        return self.item.call.vendor_call_id or self.item.call.call_id

    def part(self) -> AssistantPart:
        call = self.item.call
        return ToolCall(
            tool_call_id=self.model_id(),
            name=call.name,
            arguments_json=call.arguments_json,
            thought_signature=call.signature,
            arguments_error=call.arguments_error,
        )

    def answer(self, result: ev.ToolFinished) -> ToolMessage:
        return ToolMessage(
            result=ToolResult(
                tool_call_id=self.model_id(),
                tool_name=self.item.call.name,
                content=tuple(map(_result_part, result.content)) or (Text(text=NO_OUTPUT),),
                is_error=result.is_error or result.interrupted,
            )
        )


class _Turn:
    """One model call. Its blocks are in the order in which they began."""

    def __init__(self, logged: ev.Logged, model: ModelRef) -> None:
        self.event_id = logged.event_id
        self.last_event_id = logged.event_id
        self.run_id = logged.run_id
        self.ts = logged.ts
        self.model = model
        self.blocks: list[_Words | _Called] = []
        self.words: dict[tuple[type, str, int], _Words] = {}
        self.stop_reason: StopReason = "aborted"  # until its end says otherwise
        self.usage = Usage()
        self.is_retried = False

    def messages(self) -> Iterator[PlacedMessage]:
        blocks = [block for block in self.blocks if not block.item.parent_call_id]
        parts = tuple(part for block in blocks if (part := block.part()) is not None)
        if not parts or self.is_retried:
            return
        message = AssistantMessage(
            content=parts,
            provider=self.model.provider_id,
            api=self.model.api,
            model=self.model.model_id,
            usage=self.usage,
            stop_reason=self.stop_reason,
            timestamp=self.ts,
        )
        yield PlacedMessage(self.last_event_id, message)
        for block in blocks:
            if isinstance(block, _Called) and block.item.result is not None:
                yield PlacedMessage(max(self.last_event_id, block.result_id), block.answer(block.item.result))

    def retry(self) -> None:
        """The model is asked again in the same run. A failed turn that did nothing is then not part of the
        conversation, and its calls, which did not run, are not either."""
        has_run = any(isinstance(block, _Called) and block.was_started for block in self.blocks)
        self.is_retried = self.stop_reason == "error" and not has_run


class _Brought(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a client brought along from an earlier conversation."""

    event_id: int
    ts: int
    run_id: str | None
    message: Message

    def items(self) -> Iterator[TranscriptItem]:
        """What people read of it. Calls and results of that conversation are none of this session's."""
        place: dict[str, Any] = {"event_id": self.event_id, "ts": self.ts, "run_id": self.run_id}
        match self.message:
            case UserMessage(content=content):
                yield UserItem(**place, content=content)
            case AssistantMessage():
                yield TextItem(**place, text=self.message.text())
            case _:
                pass


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the model has to know with the next message: files were restored. People read the notice about it."""

    event_id: int
    text: str


class History:
    def __init__(self, *, has_turns: bool = True) -> None:
        """`has_turns` is for logs that are not read from their beginning, which says it."""
        self._entries: list[UserItem | NoteItem | _Brought | _Turn | _Told] = []
        self._waiting: dict[str, UserItem] = {}
        self._compacted: PlacedMessage | None = None
        self._through = 0
        self._calls: dict[str, _Called] = {}
        self._turn: _Turn | None = None
        self._has_turns = has_turns
        self._runs_say_it = False
        """Whether the runs of the log say if their agent has turns, as they do since it can change."""

    def apply(self, logged: LoggedEvent) -> None:
        if isinstance(logged, ev.Logged) and (step := _STEPS.get(type(logged.event))) is not None:
            step(self, logged.event, logged)

    def placed(self) -> tuple[PlacedMessage, ...]:
        placed = [] if self._compacted is None else [self._compacted]
        told: list[_Told] = []
        for entry in self._entries:
            if entry.event_id <= self._through:
                continue
            if isinstance(entry, _Told):
                told.append(entry)
            elif isinstance(entry, _Turn):
                placed += entry.messages()
            elif isinstance(entry, _Brought):
                placed.append(PlacedMessage(entry.event_id, entry.message))
            elif isinstance(entry, UserItem):
                content = content_for_model(entry.content)
                for note in reversed(told):
                    content = with_note(note.text, content)
                told.clear()
                said = None if isinstance(entry.content, str) else entry.content
                placed.append(PlacedMessage(entry.event_id, UserMessage(content=content), said))
        placed += [PlacedMessage(note.event_id, UserMessage(content=note.text)) for note in told]
        return tuple(placed)

    def messages(self) -> tuple[Message, ...]:
        return tuple(placed.message for placed in self.placed())

    def items(self) -> tuple[TranscriptItem, ...]:
        items: list[TranscriptItem] = []
        for entry in self._entries:
            if isinstance(entry, _Turn):
                items += [block.shown() for block in entry.blocks]
            elif isinstance(entry, _Brought):
                items += entry.items()
            elif not isinstance(entry, _Told):
                items.append(entry)
        return tuple(items)

    def waiting(self) -> tuple[UserItem, ...]:
        """Inputs that were accepted and that no run has read yet. They are not part of the conversation."""
        return tuple(self._waiting.values())

    def _on_created(self, event: ev.SessionCreated, logged: ev.Logged) -> None:
        self._has_turns = event.capabilities.has_turns

    def _on_harness_changed(self, event: ev.HarnessChanged, logged: ev.Logged) -> None:
        self._has_turns = event.capabilities.has_turns
        self._runs_say_it = True

    def _on_run_started(self, event: ev.RunStarted, logged: ev.Logged) -> None:
        if event.retried_run_id and self._turn is not None and self._turn.run_id == event.retried_run_id:
            self._turn.retry()
        self._turn = None
        self._runs_say_it |= event.without_turns
        if self._runs_say_it:
            self._has_turns = not event.without_turns

    def _on_accepted(self, event: ev.InputAccepted, logged: ev.Logged) -> None:
        self._waiting[event.input_id] = UserItem(**_place(logged), content=event.content, waits=True)

    def _on_withdrawn(self, event: ev.InputWithdrawn, logged: ev.Logged) -> None:
        self._waiting.pop(event.input_id, None)

    def _on_user_message(self, event: ev.UserInput, logged: ev.Logged) -> None:
        self._waiting.pop(event.input_id, None)
        self._entries.append(UserItem(**_place(logged), content=event.content))
        if not self._has_turns:
            self._turn = None

    def _on_history_message(self, event: ev.HistoryMessage, logged: ev.Logged) -> None:
        self._entries.append(_Brought(**_place(logged), message=event.message))

    def _current_turn(self, logged: ev.Logged) -> _Turn | None:
        """None when the log is read from the middle of a turn that the summary represents."""
        if self._turn is None and not self._has_turns:
            self._turn = _Turn(logged, _model_of(""))
            self._turn.stop_reason = "end_turn"
            self._entries.append(self._turn)
        return self._turn

    def _on_turn_started(self, event: ev.TurnStarted, logged: ev.Logged) -> None:
        if event.parent_call_id:
            return
        self._on_asked_again(event, logged)
        self._turn = _Turn(logged, _model_of(event.model_ref))
        self._entries.append(self._turn)

    def _on_asked_again(self, event: ev.TurnStarted | ev.RunResumed, logged: ev.Logged) -> None:
        if self._turn is not None:
            self._turn.retry()

    def _on_turn_ended(self, event: ev.TurnEnded, logged: ev.Logged) -> None:
        if self._turn is not None and not event.parent_call_id:
            self._turn.stop_reason = event.stop_reason
            self._turn.usage = event.usage
            self._turn.last_event_id = logged.event_id

    def _on_delta(self, event: ev.Delta, logged: ev.Logged) -> None:
        if (words := self._words(event, logged)) is not None:
            words.deltas.append(event.delta)

    def _on_whole(self, event: ev.AssistantText | ev.Reasoning, logged: ev.Logged) -> None:
        if (words := self._words(event, logged)) is not None:
            if event.broken_off:
                words.deltas = [event.text]
                return
            words.item = msgspec.structs.replace(words.item, text=event.text, whole=True)
            words.deltas.clear()
            words.signature = event.signature
            if isinstance(event, ev.Reasoning):
                words.item = msgspec.structs.replace(words.item, redacted=event.redacted)

    def _words(
        self, event: ev.AssistantTextDelta | ev.ReasoningDelta | ev.AssistantText | ev.Reasoning, logged: ev.Logged
    ) -> _Words | None:
        """The block an event belongs to, new or known. Agents without turns may use an index again."""
        turn = self._current_turn(logged)
        if turn is None:
            return None
        turn.last_event_id = logged.event_id
        kind = ThinkingItem if isinstance(event, ev.ReasoningDelta | ev.Reasoning) else TextItem
        key = (kind, event.parent_call_id, event.content_index)
        words = turn.words.get(key)
        if words is None or words.item.whole:
            item = kind(**_place(logged), parent_call_id=event.parent_call_id, text="", whole=False)
            words = turn.words[key] = _Words(item)
            turn.blocks.append(words)
        return words

    def _on_called(self, event: ev.ToolCalled, logged: ev.Logged) -> None:
        if (turn := self._current_turn(logged)) is not None:
            item = ToolItem(**_place(logged), parent_call_id=event.parent_call_id, call=event)
            called = self._calls[event.call_id] = _Called(item)
            turn.blocks.append(called)
            turn.last_event_id = logged.event_id

    def _on_started(self, event: ev.ToolStarted, logged: ev.Logged) -> None:
        if (called := self._calls.get(event.call_id)) is not None:
            called.was_started = True

    def _on_progress(self, event: ev.ToolProgress, logged: ev.Logged) -> None:
        if (called := self._calls.get(event.call_id)) is not None:
            called.output = (called.output + event.text)[-MAX_STOPPED_OUTPUT - 1 :]

    def _on_updated(self, event: ev.ToolUpdated, logged: ev.Logged) -> None:
        if (called := self._calls.get(event.call_id)) is not None:
            said = {name: getattr(event, name) for name in ("title", "kind", "locations")}
            news = {name: value for name, value in said.items() if value is not None}
            call = msgspec.structs.replace(called.item.call, **news)
            called.item = msgspec.structs.replace(called.item, call=call)

    def _on_decided(self, event: ev.ApprovalDecided, logged: ev.Logged) -> None:
        if (called := self._calls.get(event.call_id)) is not None:
            called.item = msgspec.structs.replace(called.item, decision=event)

    def _on_finished(self, event: ev.ToolFinished, logged: ev.Logged) -> None:
        if (called := self._calls.pop(event.call_id, None)) is not None:
            called.item = msgspec.structs.replace(called.item, result=with_output(event, called.output))
            called.result_id = logged.event_id

    def _on_compacted(self, event: ev.Compacted, logged: ev.Logged) -> None:
        self._through = event.through
        summary = f"<summary>\n{event.summary}\n</summary>"
        self._compacted = PlacedMessage(event.through, UserMessage(content=summary))
        self._on_note(event, logged)

    def _on_notice(self, event: ev.Notice, logged: ev.Logged) -> None:
        """A notice that changes takes the place of what it said before."""
        for at in range(len(self._entries) - 1, -1, -1) if event.notice_id else ():
            match self._entries[at]:
                case NoteItem(event=ev.Notice(notice_id=event.notice_id)) as earlier:
                    self._entries[at] = msgspec.structs.replace(earlier, event=event)
                    return
                case UserItem():
                    break
        self._on_note(event, logged)

    def _on_restored(self, event: ev.FilesRestored, logged: ev.Logged) -> None:
        if any(file.outcome == "restored" for file in event.files):
            self._entries.append(_Told(event_id=logged.event_id, text=note_for_model(event)))

    def _on_note(self, event: Note, logged: ev.Logged) -> None:
        self._entries.append(NoteItem(**_place(logged), event=event))


_STEPS: dict[type, Callable[[History, Any, ev.Logged], None]] = {
    ev.SessionCreated: History._on_created,
    ev.HarnessChanged: History._on_harness_changed,
    ev.RunStarted: History._on_run_started,
    ev.InputAccepted: History._on_accepted,
    ev.InputWithdrawn: History._on_withdrawn,
    ev.UserInput: History._on_user_message,
    ev.HistoryMessage: History._on_history_message,
    ev.TurnStarted: History._on_turn_started,
    ev.TurnEnded: History._on_turn_ended,
    ev.RunResumed: History._on_asked_again,
    **dict.fromkeys((ev.AssistantTextDelta, ev.ReasoningDelta), History._on_delta),
    **dict.fromkeys((ev.AssistantText, ev.Reasoning), History._on_whole),
    ev.ToolCalled: History._on_called,
    ev.ApprovalDecided: History._on_decided,
    ev.ToolStarted: History._on_started,
    ev.ToolProgress: History._on_progress,
    ev.ToolUpdated: History._on_updated,
    ev.ToolFinished: History._on_finished,
    ev.Compacted: History._on_compacted,
    ev.FilesRestored: History._on_restored,
    ev.Notice: History._on_notice,
    **dict.fromkeys((ev.PlanUpdated, ev.RunFailed, ev.RunAborted), History._on_note),
}


def history(events: Iterable[LoggedEvent]) -> History:
    folded = History()
    for logged in events:
        folded.apply(logged)
    return folded


def with_output(result: ev.ToolFinished, output: str) -> ev.ToolFinished:
    """The result of a call; that of a stopped one has what the tool wrote until then."""
    if not result.interrupted or not output.strip():
        return result
    left_out = "[the beginning is left out]\n" if len(output) > MAX_STOPPED_OUTPUT else ""
    told = f"Its output until it was stopped:\n{left_out}{output[-MAX_STOPPED_OUTPUT:]}"
    return msgspec.structs.replace(result, content=(*result.content, Text(text=told)))


def _place(logged: ev.Logged) -> dict[str, Any]:
    return {"event_id": logged.event_id, "ts": logged.ts, "run_id": logged.run_id}


def _result_part(part: SessionPart) -> Text | Image:
    part = for_model(part)
    return Text(text="[The tool answered with audio.]") if isinstance(part, Audio) else part


def _model_of(model_ref: str) -> ModelRef:
    try:
        return parse_model_ref(model_ref)
    except ModelRefError:
        return ModelRef("", "", model_ref)  # a harness may name models its own way
