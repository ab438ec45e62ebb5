"""Snapshots and pages of a transcript.

In: the engine's state and the items a view or a reader gathered. Out: encoded frames and the answer of
`/api/sessions/{id}/transcript`. Pure.

Items are encoded already, by the view that showed them first; they are put together here without being read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from makai.protocols.minicodex import frames
from makai.protocols.minicodex.pages import TranscriptReader
from makai.protocols.minicodex.projection import Capabilities, SharedFrame
from makai.protocols.minicodex.states import last_event_id, run_state, session_state
from makai.protocols.minicodex.vocabulary import VERSION
from makai.sessions.state import SessionState

EVERYTHING: Final = Capabilities(streaming=True, makai=True)
"""What a page of the REST interface shows: it is not part of the document."""
_encode: Final = msgspec.json.Encoder().encode


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
    capabilities: Capabilities,
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


def _listed(items: Sequence[SharedFrame], capabilities: Capabilities) -> tuple[frames.TranscriptItem, ...]:
    """Items in their wire form; the encoder copies it as it is."""
    listed = tuple(msgspec.Raw(item) for one in items if (item := one.item(capabilities)) is not None)
    return cast(Any, listed)  # type: ignore[no-any-return]
