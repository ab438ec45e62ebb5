"""Session events -> frames: the one projection of this protocol. An event has at most one frame, in two forms that are
encoded once for all clients: with everything makai.1 adds, and as the document has it. The creation of a session, the
start of a run (its first status says it) and events of a newer version have none. The end of a run is `turn_done` where
the document wants one ("sent if there were no terminal artifacts"), and always after an abort."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from makai.core import session_events as log
from makai.core.confinement import SESSION_SANDBOX
from makai.core.content import Audio, Image, SessionPart, Text, for_model
from makai.core.messages import AssistantMessage, UserMessage
from makai.protocols.minicodex import frames
from makai.protocols.minicodex.states import arguments, as_object, images, present, rfc3339, run_state, words
from makai.protocols.minicodex.vocabulary import MAKAI, MAKAI_1, STREAMING, PastedImage
from makai.sessions.log.base import LoggedEvent
from makai.sessions.state import SessionState, evolve

_COMMON: Final = frozenset(frames.EventBase.__struct_fields__)
Frame: TypeAlias = frames.EventFrame | frames.MakaiFrame | frames.ErrorFrame


class NamedCapabilities(msgspec.Struct, frozen=True):
    """What a client said it understands; other words of its list mean nothing to us."""

    streaming: bool = False
    makai: bool = False

    @classmethod
    def named(cls, names: Iterable[str]) -> NamedCapabilities:
        wanted = frozenset(names)
        return cls(streaming=STREAMING in wanted, makai=MAKAI_1 in wanted)


def frame_of(logged: log.Logged, state: SessionState) -> Frame | None:
    """The frame an event is, with everything makai.1 adds; `state` is the one after the event."""
    make = None if log.is_of_sub_agent(logged.event) else _FRAMES.get(type(logged.event))
    return None if make is None else make(logged.event, logged, state)


def _common(logged: log.Logged) -> dict[str, Any]:
    common: dict[str, Any] = {"event_id": logged.event_id, "ts": rfc3339(logged.ts)}
    if logged.run_id is not None:
        common["run_id"] = logged.run_id
    return common


def _run_status(event: log.RunStatusChanged, logged: log.Logged, state: SessionState) -> Frame | None:
    # A log that is read from the middle of a run that was not looked up has no state to show.
    if state.run is None or state.run.run_id != logged.run_id:
        return None
    return frames.RunStatusEvent(run_state=run_state(state.run), **_common(logged))


def _aborted(event: log.RunAborted, logged: log.Logged, state: SessionState) -> Frame:
    details = {name: text for name, text in (("by", event.by), ("reason", event.reason)) if text}
    return frames.ErrorFrame(
        code="ABORTED", message="The run was aborted.", details=details or UNSET, **_common(logged)
    )


def _failed(event: log.RunFailed, logged: log.Logged, state: SessionState) -> Frame:
    given = {"hint": event.hint, "provider_id": event.provider_id, "retry_after_ms": event.retry_after_ms}
    details = {name: value for name, value in given.items() if value is not None} or UNSET
    return frames.ErrorFrame(code=event.code.upper(), message=event.message, details=details, **_common(logged))


def _run_finished(event: log.RunFinished, logged: log.Logged, state: SessionState) -> Frame:
    had_output = state.run is not None and state.run.run_id == logged.run_id and state.run.has_tool_output
    if had_output and event.stop_reason != "aborted":
        return frames.RunEnded(stop_reason=event.stop_reason, usage=event.usage, **_common(logged))
    return frames.TurnDone(stop_reason=event.stop_reason, usage=event.usage, **_common(logged))


def _reasoning(event: log.Reasoning, logged: log.Logged, state: SessionState) -> Frame | None:
    if event.redacted and not event.text:
        return None  # the vendor withheld it: there is nothing to read
    return _words_of(frames.ReasoningFrame, event, logged)


def _text(event: log.AssistantText, logged: log.Logged, state: SessionState) -> Frame:
    return _words_of(frames.AssistantTextFrame, event, logged)


def _words_of(
    kind: type[frames.AssistantTextFrame | frames.ReasoningFrame],
    event: log.AssistantText | log.Reasoning,
    logged: log.Logged,
) -> Frame:
    frame = kind(text=event.text, content_index=event.content_index, **_common(logged))
    return msgspec.structs.replace(frame, whole=False, broken_off=True) if event.broken_off else frame


def _output(event: log.ToolFinished, logged: log.Logged, state: SessionState) -> Frame:
    return frames.FunctionCallOutputFrame(
        call_id=event.call_id,
        result=frames.CallToolResult(
            content=tuple(_content(part) for part in event.content),
            isError=event.is_error,
            structuredContent=present(as_object(event.details_json)),
        ),
        output=words(event.content),
        is_error=event.is_error,
        diffs=event.diffs,
        exit_code=present(event.exit_code),
        omitted_bytes=event.omitted_bytes or UNSET,
        interrupted=event.interrupted or UNSET,
        **_common(logged),
    )


def _content(part: SessionPart) -> frames.TextContent | frames.ImageContent:
    match for_model(part):
        case Text(text=text):
            return frames.TextContent(text=text)
        case Image(data=data, mime_type=mime_type):
            return frames.ImageContent(data=data, mimeType=mime_type)
        case Audio():
            return frames.TextContent(text="[audio]")


def _same(kind: type[Any], **sources: str | Callable[[Any], Any]) -> Callable[[Any, log.Logged, SessionState], Frame]:
    """A frame whose fields are those of its event, but for those with another name or a function; None is absent."""
    own = [name for name in kind.__struct_fields__ if name not in _COMMON]
    given = {name: sources.get(name, name) for name in own}
    readers = {name: attrgetter(source) if isinstance(source, str) else source for name, source in given.items()}

    def make(event: Any, logged: log.Logged, state: SessionState) -> Frame:
        own = {name: value for name, read in readers.items() if (value := read(event)) is not None}
        frame: Frame = kind(**own, **_common(logged))
        return frame

    return make


def wider_option(options: tuple[log.ApprovalOption, ...]) -> str:
    """What an external agent calls the permission for more than one call, if it offers one."""
    return next((option.label for option in options if option.kind == "allow_always"), "")


def _history(event: log.HistoryMessage, logged: log.Logged, state: SessionState) -> Frame | None:
    match event.message:
        case UserMessage(content=content):
            return frames.UserTextFrame(text=words(content), images=images(content), **_common(logged))
        case AssistantMessage() as message if message.text():
            return frames.AssistantTextFrame(text=message.text(), content_index=0, **_common(logged))
    return None


def _words(event: log.UserInput | log.InputAccepted) -> str:
    return words(event.content)


def _images(event: log.UserInput | log.InputAccepted) -> tuple[PastedImage, ...] | UnsetType:
    return images(event.content)


_FRAMES: Final[dict[type, Callable[[Any, log.Logged, SessionState], Frame | None]]] = {
    log.TitleChanged: _same(frames.TitleChangedFrame),
    log.ModelChanged: _same(frames.ModelChangedFrame),
    log.HarnessChanged: _same(frames.AgentChangedFrame),
    log.ModeChanged: _same(frames.ModeChangedFrame),
    log.TermsChanged: _same(
        frames.TermsChangedFrame, sandbox="terms.sandbox", reasoning_effort="terms.reasoning_effort"
    ),
    log.SessionArchived: _same(frames.SessionArchivedFrame),
    log.SessionClosed: _same(frames.SessionClosedFrame),
    log.InputAccepted: _same(frames.InputAcceptedFrame, text=_words, images=_images),
    log.InputWithdrawn: _same(frames.InputWithdrawnFrame),
    log.UserInput: _same(frames.UserTextFrame, text=_words, images=_images),
    log.HistoryMessage: _history,
    log.RunStatusChanged: _run_status,
    log.RunResumed: _same(frames.RunResumedFrame),
    log.RunAborted: _aborted,
    log.RunFinished: _run_finished,
    log.RunFailed: _failed,
    log.TurnStarted: _same(frames.TurnStartedFrame),
    log.TurnEnded: _same(frames.TurnEndedFrame),
    log.AssistantTextDelta: _same(frames.AssistantTextDeltaFrame, text="delta"),
    log.ReasoningDelta: _same(frames.ReasoningDeltaFrame, text="delta"),
    log.AssistantText: _text,
    log.Reasoning: _reasoning,
    log.ToolCalled: _same(frames.ToolCallFrame, args=lambda call: arguments(call.arguments_json)),
    log.ApprovalRequested: _same(
        frames.ApprovalPending,
        tool_key="name",
        args_json="arguments_json",
        deadline=lambda asked: None if asked.deadline_ms is None else rfc3339(asked.deadline_ms),
        grants=lambda asked: asked.grants or UNSET,
        agent_wider=lambda asked: wider_option(asked.options) or UNSET,
        confinement=lambda asked: UNSET if asked.confinement == SESSION_SANDBOX else asked.confinement,
    ),
    log.ApprovalDecided: _same(frames.ApprovalDecision),
    log.ToolStarted: _same(frames.ToolStartedFrame),
    log.ToolProgress: _same(frames.ToolProgressFrame),
    log.ToolFinished: _output,
    log.PlanUpdated: _same(frames.Plan),
    log.UsageReported: _same(frames.UsageEvent),
    log.Notice: _same(frames.NoticeFrame, notice_id=lambda notice: notice.notice_id or UNSET),
    log.Compacted: _same(frames.CompactedFrame),
}


def makai_fields(kind: type) -> list[str]:
    """The fields of a frame or command that the document does not have."""
    hints = get_type_hints(kind, include_extras=True)
    return [name for name, hint in hints.items() if get_origin(hint) is Annotated and MAKAI in hint.__metadata__]


_BEYOND_THE_DOCUMENT: Final = frozenset(get_args(frames.MakaiFrame))
_BLANKS: Final = {
    kind: dict.fromkeys(makai_fields(kind), UNSET) for kind in (*get_args(frames.EventFrame), frames.ErrorFrame)
}
_NOT_IN_ITEMS: Final = {"event_id": UNSET, "ts": UNSET, "run_id": UNSET}
_ITEMS: Final[dict[type, type[msgspec.Struct]]] = {
    frames.UserTextFrame: frames.UserTextItem,
    frames.AssistantTextFrame: frames.AssistantTextItem,
    frames.ReasoningFrame: frames.ReasoningItem,
    frames.ToolCallFrame: frames.ToolCallItem,
    frames.FunctionCallOutputFrame: frames.FunctionCallOutputItem,
}
_MAKAI_ITEMS: Final = frozenset(get_args(frames.MakaiItem)) - {frames.ToolProgressFrame}
"""What a call printed is part of a transcript only while the call runs (`pages.RunningOutput`)."""
_DELTAS: Final = (frames.AssistantTextDeltaFrame, frames.ReasoningDeltaFrame)
_encode: Final = msgspec.json.Encoder().encode


class SharedFrame:
    """A frame, encoded once for all clients that see the same form of it."""

    __slots__ = ("_as_item", "_as_the_document", "event_id", "frame", "full", "needs_streaming")

    def __init__(self, event_id: int, frame: Frame, *, needs_streaming: bool = False) -> None:
        self.event_id = event_id
        self.frame = frame
        self.needs_streaming = needs_streaming or isinstance(frame, _DELTAS)
        self.full = _encode(frame)
        """With everything makai.1 adds."""
        self._as_the_document: bytes | UnsetType | None = UNSET
        self._as_item: bytes | UnsetType | None = UNSET

    def form(self, capabilities: NamedCapabilities) -> bytes | None:
        if self.needs_streaming and not capabilities.streaming:
            return None
        if capabilities.makai:
            return self.full
        if self._as_the_document is UNSET:
            shown = type(self.frame) not in _BEYOND_THE_DOCUMENT
            blank = _BLANKS.get(type(self.frame), {})
            self._as_the_document = _encode(msgspec.structs.replace(self.frame, **blank)) if shown else None
        return self._as_the_document

    def item(self, capabilities: NamedCapabilities) -> bytes | None:
        """The same as an item of a transcript, "listed without common fields" (MC-EVT-006) for the document."""
        if self.needs_streaming and not (capabilities.streaming and capabilities.makai):
            return None
        if capabilities.makai:
            return self.full
        if self._as_item is UNSET:
            self._as_item = None
            if (kind := _ITEMS.get(type(self.frame))) is not None:
                bare = {**_BLANKS[type(self.frame)], **_NOT_IN_ITEMS}
                fields = {name: bare.get(name, getattr(self.frame, name)) for name in kind.__struct_fields__}
                self._as_item = _encode(kind(**fields))
        return self._as_item

    @property
    def is_item(self) -> bool:
        kind = type(self.frame)
        return kind in _ITEMS or kind in _MAKAI_ITEMS


class Projector:
    """Follows a log from a known state on and makes the frames of its events."""

    def __init__(self, state: SessionState) -> None:
        self.state = state

    def project(self, logged: LoggedEvent) -> SharedFrame | None:
        self.state = evolve(self.state, logged)
        if not isinstance(logged, log.Logged):
            return None
        frame = frame_of(logged, self.state)
        return None if frame is None else SharedFrame(logged.event_id, frame)
