"""What a fork takes over from its origin: the origin's log, as the beginning of its own.

In: a log, a session and the last event that counts. Out: batches of events to append behind the fork's
`session_created`. A copy, not a reference: a fork shows, exports and continues all of its history by itself, and stays
whole when its origin is deleted.

Deltas are left out where the whole text follows them, so numbers change; what names an event (`compacted.through`) is
given the number of the copy. Settings are not copied: the fork's own `session_created` has them. Nor is what people
granted for more than one call, nor words that wait: they were meant for the origin. Batches end where a run does, so
that half a copy has no run that could be resumed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from makai.core.session_events import (
    AgentSession,
    ApprovalDecided,
    Compacted,
    InputAccepted,
    Logged,
    ModeChanged,
    ModelChanged,
    RunFailed,
    RunFinished,
    SessionClosed,
    SessionCreated,
    TermsChanged,
    TitleChanged,
)
from makai.sessions.conversation import with_broken_turns
from makai.sessions.log.base import EventLog, Pending
from makai.sessions.log.encoding import joined

BATCH: Final = 1_000
LARGEST_BATCH: Final = 8_000
"""Of a run that is longer than a batch; a log takes 10,000 events at once."""
_OF_THE_ORIGIN: Final = (
    AgentSession,
    SessionCreated,
    SessionClosed,
    ModeChanged,
    ModelChanged,
    TermsChanged,
    TitleChanged,
    InputAccepted,
)


async def copied(log: EventLog, origin: str, through: int, first: int) -> AsyncIterator[list[Pending]]:
    """The events of `origin` up to `through`, for a log in which the first of them gets the number `first`."""
    numbers: list[int] = []
    """The origin's numbers of what was copied, in order; the copy's are `first`, `first + 1`, ..."""
    batch: list[Pending] = []
    async for logged in with_broken_turns(log, origin, 0, through):
        if not isinstance(logged, Logged) or isinstance(logged.event, _OF_THE_ORIGIN):
            continue
        event = logged.event
        if isinstance(event, Compacted):
            event = msgspec.structs.replace(event, through=first + _count_until(numbers, event.through) - 1)
        elif isinstance(event, ApprovalDecided):
            # What a person granted was granted there, and may have been taken back since.
            event = msgspec.structs.replace(event, scope="once", grant="")
        if len(batch) >= LARGEST_BATCH or (
            len(batch) >= BATCH and isinstance(batch[-1].event, RunFinished | RunFailed)
        ):
            yield batch
            batch = []
        copy = Pending(logged.ts, logged.run_id, event)
        if batch and len(one := joined([batch[-1], copy])) == 1:
            batch[-1:], numbers[-1] = one, logged.event_id  # the log would join these deltas, and number them once
        else:
            batch.append(copy)
            numbers.append(logged.event_id)
    if batch:
        yield batch


def _count_until(numbers: list[int], through: int) -> int:
    """How many of the copied events are not above one of the origin's."""
    return bisect_right(numbers, through)
