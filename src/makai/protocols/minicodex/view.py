"""One open session as all its clients see it: its state, its newest transcript, and its latest frames. One view per
session is shared by its connections, so that every event is decoded, projected and encoded once for each form of a
frame and not once for each client. It remembers a bounded number of frames; a client that is further behind reads the
log (`pages.RunLookup`, `Projector`). Snapshots and pages copy items that are encoded already."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from makai.core import session_events as log
from makai.protocols.minicodex import frames
from makai.protocols.minicodex.pages import (
    BROKEN_OFF,
    TRANSCRIPT_BYTES,
    PartialTexts,
    RunningOutput,
    TranscriptReader,
    newest,
)
from makai.protocols.minicodex.projection import NamedCapabilities, Projector, SharedFrame
from makai.protocols.minicodex.states import last_event_id, run_state, session_details, session_state
from makai.protocols.minicodex.vocabulary import VERSION
from makai.sessions.log.base import LoggedEvent
from makai.sessions.state import SessionState

MAX_FRAMES: Final = 4_096
MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
_SPOKEN: Final = frozenset({log.AssistantTextDelta, log.ReasoningDelta, log.AssistantText, log.Reasoning})
_BREAKS: Final = frozenset({log.TurnStarted, log.TurnEnded, log.RunFinished, log.RunFailed})
_encode: Final = msgspec.json.Encoder().encode


def transcript_reader(state: SessionState) -> TranscriptReader:
    return TranscriptReader(state.last_event_id + 1)


class SessionView:
    def __init__(self, session_id: str, state: SessionState, transcript: TranscriptReader | None = None) -> None:
        """`transcript` has read what `state` includes; a session in which nothing was said yet needs none."""
        self.session_id = session_id
        self._projector = Projector(state)
        self._frames: list[SharedFrame] = []
        self._frame_ids: list[int] = []
        """Of the frames, in their order: every client searches them after every event."""
        self._frame_bytes = 0
        self.floor = state.last_event_id
        """Frames are remembered for every cursor from here on."""
        self._items = transcript.items() if transcript else []
        self._item_bytes = sum(len(item.full) for item in self._items)
        self._before = transcript.before() if transcript else None
        self._partial = transcript.still_arriving if transcript else PartialTexts()
        self._running_output = transcript.running_output if transcript else RunningOutput()
        self._usage = transcript.usage if transcript else None
        self._snapshot: tuple[NamedCapabilities, bool, bytes] | None = None

    @property
    def state(self) -> SessionState:
        return self._projector.state

    @property
    def last_event_id(self) -> int:
        return self._projector.state.last_event_id

    def take(self, logged: LoggedEvent) -> None:
        shared = self._projector.project(logged)
        self._snapshot = None
        if isinstance(logged, log.Logged):
            self._follow(logged)
        if shared is None:
            return
        self._frames.append(shared)
        self._frame_ids.append(shared.event_id)
        self._frame_bytes += len(shared.full)
        if len(self._frames) > 2 * MAX_FRAMES or self._frame_bytes > 2 * MAX_FRAME_BYTES:
            self._forget_frames()
        if shared.is_item:
            self._add_item(shared)

    def _follow(self, logged: log.Logged) -> None:
        self._running_output.take(logged)
        kind = type(logged.event)
        if kind in _SPOKEN:
            self._partial.take(logged)
        elif kind in _BREAKS and self._partial:
            # What a turn said in part and then never whole is shown as long as the turn itself says that it broke off.
            if isinstance(logged.event, log.TurnEnded) and logged.event.stop_reason in BROKEN_OFF:
                for broken_off in self._partial.items(broken_off=True):
                    self._add_item(broken_off)
            self._partial = PartialTexts()
        elif isinstance(logged.event, log.UsageReported):
            self._usage = logged.event

    def _add_item(self, item: SharedFrame) -> None:
        insort(self._items, item, key=attrgetter("event_id"))
        self._item_bytes += len(item.full)
        if self._item_bytes > 2 * TRANSCRIPT_BYTES:
            self._items = newest(self._items, None, TRANSCRIPT_BYTES)
            self._item_bytes = sum(len(kept.full) for kept in self._items)
            self._before = self._items[0].event_id

    def _forget_frames(self) -> None:
        kept = newest(self._frames, MAX_FRAMES, MAX_FRAME_BYTES)
        forgotten = self._frames[: len(self._frames) - len(kept)]
        if forgotten:
            self.floor = forgotten[-1].event_id
        self._frames = kept
        self._frame_ids = [frame.event_id for frame in kept]
        self._frame_bytes = sum(len(frame.full) for frame in kept)

    def frames(self, after: int, capabilities: NamedCapabilities, max_bytes: int) -> tuple[list[bytes], int]:
        """Frames above a cursor that is not below `floor`, and the cursor after them."""
        found: list[bytes] = []
        size = 0
        for place in range(bisect_right(self._frame_ids, after), len(self._frames)):
            shared = self._frames[place]
            encoded = shared.form(capabilities)
            if encoded is None:
                continue
            found.append(encoded)
            size += len(encoded)
            if size >= max_bytes:
                return found, shared.event_id
        return found, self.last_event_id

    def welcome(self) -> bytes:
        return _encode(frames.Welcome(v=VERSION, session_state=session_state(self.session_id, self.state)))

    def details(self) -> bytes:
        return _encode(session_details(self.session_id, self.state, self._usage))

    def snapshot(self, capabilities: NamedCapabilities, *, with_window: bool = False) -> bytes:
        """A `snapshot` frame of now; clients that come back together share it."""
        known = self._snapshot
        if known is not None and known[:2] == (capabilities, with_window):
            return known[2]
        items = list(self._items)
        for arriving in (*self._partial.items(broken_off=False), *self._running_output.items()):
            insort(items, arriving, key=attrgetter("event_id"))
        shown = newest(items, None, TRANSCRIPT_BYTES)
        before = shown[0].event_id if len(shown) < len(items) else self._before
        encoded = snapshot(self.session_id, self.state, shown, before, capabilities, with_window=with_window)
        self._snapshot = capabilities, with_window, encoded
        return encoded


EVERYTHING: Final = NamedCapabilities(streaming=True, makai=True)
"""What a page of the REST interface shows: it is not part of the document."""


class TranscriptPage(msgspec.Struct, frozen=True, kw_only=True):
    """Items as a snapshot lists them with makai.1, oldest first."""

    items: tuple[frames.TranscriptItem, ...]
    before: int | None
    """Pass it on for the page before this one; null: this was the first."""


def snapshot(
    session_id: str,
    state: SessionState,
    items: Sequence[SharedFrame],
    before: int | None,
    capabilities: NamedCapabilities,
    *,
    with_window: bool = False,
) -> bytes:
    """A `snapshot` frame that contains everything up to the state's last event."""
    run = state.run
    shown = None
    if run is not None:
        of_the_run = [item for item in items if item.frame.run_id == run.run_id] if with_window else ()
        shown = run_state(run, _listed(of_the_run, capabilities) if with_window else UNSET)
    return _encode(
        frames.Snapshot(
            v=VERSION,
            session_state=session_state(session_id, state),
            run_state=shown,
            transcript=_listed(items, capabilities),
            event_id=last_event_id(state),
            before=before if capabilities.makai else UNSET,
        )
    )


def page(reader: TranscriptReader) -> bytes:
    """The answer to a request for older items, when the reader has read enough."""
    return _encode(TranscriptPage(items=_listed(reader.items(), EVERYTHING), before=reader.before()))


def _listed(items: Sequence[SharedFrame], capabilities: NamedCapabilities) -> tuple[frames.TranscriptItem, ...]:
    """Items in their wire form; the encoder copies it as it is."""
    listed = tuple(msgspec.Raw(item) for one in items if (item := one.item(capabilities)) is not None)
    return cast(Any, listed)  # type: ignore[no-any-return]
