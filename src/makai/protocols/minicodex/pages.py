"""Reading a log backwards: the newest transcript, older pages of it, and the run a cursor is in. Sans-IO: a reader
names its next `window`, its owner reads exactly these events and hands them to `take`, until the window is None. Cost
grows with what is shown, not with the length of the session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from makai.core import session_events as log
from makai.core.session_events import Logged
from makai.protocols.minicodex import frames
from makai.protocols.minicodex.projection import SharedFrame, frame_of
from makai.protocols.minicodex.states import rfc3339
from makai.sessions.log.base import LoggedEvent
from makai.sessions.state import SessionState, fold

TRANSCRIPT_BYTES: Final = 4 * 1024 * 1024
"""A snapshot holds the newest transcript up to this, and a page as well."""
PAGE_ITEMS: Final = 200
MAX_PAGE_ITEMS: Final = 2_000
BROKEN_OFF: Final = ("error", "aborted")
"""How a turn ends whose texts may not be whole."""
MAX_RUNNING_OUTPUT: Final = 100_000
"""Characters of what one running call printed that a snapshot holds; the end of it is kept."""
_FIRST_WINDOW: Final = 512
_LARGEST_WINDOW: Final = 8_192
_NO_STATE: Final = SessionState()


class Window(msgspec.Struct, frozen=True):
    """Events above `after`, up to and with `through`."""

    after: int
    through: int
    deltas: bool = False
    """Whether text and thinking deltas are wanted too."""


class _Backwards:
    """Windows from a place in the log to its beginning, each twice as long as the one after it."""

    def __init__(self, through: int) -> None:
        self.window: Window | None = None
        """What to read next; None: nothing more is needed."""
        self._length = _FIRST_WINDOW
        self._go_back(through)

    def _go_back(self, through: int) -> None:
        self.window = Window(max(0, through - self._length), through) if through > 0 else None
        self._length = min(self._length * 2, _LARGEST_WINDOW)


class RunLookup(_Backwards):
    """Finds what is known about the run that a cursor is in: frames after the cursor show that state."""

    def __init__(self, cursor: int) -> None:
        super().__init__(cursor)
        self.cursor = cursor
        self._events: list[LoggedEvent] = []

    def take(self, events: Sequence[LoggedEvent]) -> None:
        assert self.window is not None
        self._events[:0] = events
        starts = [
            place
            for place, logged in enumerate(events)
            if isinstance(logged, Logged) and isinstance(logged.event, log.RunStarted)
        ]
        if starts:
            del self._events[: starts[-1]]
            self.window = None
        else:
            self._go_back(self.window.after)

    def state(self) -> SessionState:
        """The state at the cursor, as far as it concerns the run."""
        return fold(self._events)


class TranscriptReader(_Backwards):
    """Gathers the newest items below an event, as many as are wanted and fit."""

    def __init__(self, before: int, max_items: int | None = None, max_bytes: int = TRANSCRIPT_BYTES) -> None:
        super().__init__(before - 1)
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: list[SharedFrame] = []
        self._bytes = 0
        self._reached = before - 1
        self._broken: list[Window] = []
        self._end_of_broken_turn: int | None = before - 1
        self._open_turn: Window | None = None
        self._has_seen_turn = False
        self.still_arriving = PartialTexts()
        """Texts of a turn that has not ended."""
        self.running_output = RunningOutput()
        self.usage: log.UsageReported | None = None
        """The newest report of usage, if one was come across."""

    def take(self, events: Sequence[LoggedEvent]) -> None:
        assert self.window is not None
        self._reached = self.window.after
        found = []
        for logged in events:
            if isinstance(logged, Logged) and (item := item_of(logged)) is not None:
                found.append(item)
                self._bytes += len(item.full)
        self._items[:0] = found
        for logged in reversed(events):
            self._look_for_broken_turns(logged)
            if isinstance(logged, Logged):
                self.running_output.take_earlier(logged)
        enough = self._max_items is not None and len(self._items) > self._max_items
        if enough or self._bytes > self._max_bytes:
            self.window = None
        else:
            self._go_back(self._reached)

    def _look_for_broken_turns(self, logged: LoggedEvent) -> None:
        """Walk back over one event. A turn that is open or broke off may have said more than its whole texts."""
        if not isinstance(logged, Logged):
            return
        event = logged.event
        if isinstance(event, log.UsageReported) and self.usage is None:
            self.usage = event
        elif isinstance(event, log.TurnEnded):
            self._has_seen_turn = True
            self._end_of_broken_turn = logged.event_id if event.stop_reason in BROKEN_OFF else None
        elif isinstance(event, log.TurnStarted):
            if self._end_of_broken_turn is not None:
                self._broken.append(Window(logged.event_id, self._end_of_broken_turn, deltas=True))
                if not self._has_seen_turn:
                    self._open_turn = self._broken[-1]
            self._has_seen_turn = True
            self._end_of_broken_turn = None

    def broken_turns(self) -> list[Window]:
        """Where texts may have been said in part only: read these with deltas and give them to `mend`."""
        return self._broken

    def mend(self, window: Window, events: Iterable[LoggedEvent]) -> None:
        texts = PartialTexts()
        for logged in events:
            if isinstance(logged, Logged):
                texts.take(logged)
        if window is self._open_turn:
            self.still_arriving = texts
        else:
            self._items = sorted([*self._items, *texts.items(broken_off=True)], key=lambda item: item.event_id)

    def items(self) -> list[SharedFrame]:
        """The newest items that were wanted and fit, oldest first."""
        return newest(self._items, self._max_items, self._max_bytes)

    def before(self) -> int | None:
        """Where older items end; None when there are none."""
        kept = self.items()
        has_older = self._reached > 0 or len(kept) < len(self._items)
        return (kept[0].event_id if kept else self._reached + 1) if has_older else None


class PartialTexts:
    """Texts and thoughts that are not whole: still arriving, or broken off."""

    def __init__(self) -> None:
        self._texts: dict[tuple[bool, int], tuple[list[str], Logged]] = {}

    def __bool__(self) -> bool:
        return bool(self._texts)

    def take(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, log.AssistantTextDelta | log.ReasoningDelta):
            key = isinstance(event, log.ReasoningDelta), event.content_index
            words = self._texts[key][0] if key in self._texts else []
            words.append(event.delta)
            self._texts[key] = words, logged
        elif isinstance(event, log.AssistantText | log.Reasoning):
            self._texts.pop((isinstance(event, log.Reasoning), event.content_index), None)

    def items(self, *, broken_off: bool) -> list[SharedFrame]:
        """What was said so far, in the order in which it was said."""
        found = []
        for (is_reasoning, content_index), (words, logged) in self._texts.items():
            kind = frames.ReasoningFrame if is_reasoning else frames.AssistantTextFrame
            frame = kind(
                event_id=logged.event_id,
                ts=rfc3339(logged.ts),
                run_id=logged.run_id or "",
                text="".join(words),
                content_index=content_index,
                whole=False,
                broken_off=broken_off or UNSET,
            )
            found.append(SharedFrame(logged.event_id, frame, needs_streaming=True))
        return sorted(found, key=lambda item: item.event_id)


class RunningOutput:
    """What the calls that still run have printed so far, for clients that were not there when it was printed."""

    def __init__(self) -> None:
        self._printed: dict[str, tuple[str, Logged]] = {}
        """For each call the end of its output, and the newest event of it."""
        self._finished: set[str] = set()
        self._has_reached_the_start = False

    def take(self, logged: Logged) -> None:
        """Take the next event of the log."""
        match logged.event:
            case log.ToolProgress(call_id=call_id, text=text):
                before, _ = self._printed.get(call_id, ("", logged))
                self._printed[call_id] = (before + text)[-MAX_RUNNING_OUTPUT:], logged
            case log.ToolFinished(call_id=call_id):
                self._printed.pop(call_id, None)
            case log.RunStarted() | log.RunFinished() | log.RunFailed():
                self._printed.clear()

    def take_earlier(self, logged: Logged) -> None:
        """Take an event before those that were taken, while the log is read backwards."""
        if self._has_reached_the_start:
            return
        match logged.event:
            case log.ToolProgress(call_id=call_id, text=text) if call_id not in self._finished:
                after, newest_event = self._printed.get(call_id, ("", logged))
                if len(after) < MAX_RUNNING_OUTPUT:
                    self._printed[call_id] = (text + after)[-MAX_RUNNING_OUTPUT:], newest_event
            case log.ToolFinished(call_id=call_id):
                self._finished.add(call_id)
            case log.RunStarted() | log.RunFinished() | log.RunFailed():
                self._has_reached_the_start = True

    def items(self) -> list[SharedFrame]:
        found = []
        for call_id, (text, logged) in self._printed.items():
            frame = frames.ToolProgressFrame(
                event_id=logged.event_id, ts=rfc3339(logged.ts), run_id=logged.run_id or "", call_id=call_id, text=text
            )
            found.append(SharedFrame(logged.event_id, frame))
        return found


def item_of(logged: Logged) -> SharedFrame | None:
    """The item of a transcript that an event is; none of them shows the state of its run."""
    frame = frame_of(logged, _NO_STATE)
    if frame is None:
        return None
    shared = SharedFrame(logged.event_id, frame)
    return shared if shared.is_item else None


def newest(items: Sequence[SharedFrame], max_items: int | None, max_bytes: int) -> list[SharedFrame]:
    """The end of a list, up to these bounds; a single item is shown however large it is."""
    kept: list[SharedFrame] = []
    size = 0
    for item in reversed(items):
        size += len(item.full)
        if kept and (size > max_bytes or len(kept) == max_items):
            break
        kept.append(item)
    return kept[::-1]
