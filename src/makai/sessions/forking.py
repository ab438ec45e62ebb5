"""Forks: a session that begins with a copy of another session's settings and events.

A copy, not a reference: a fork shows, exports and continues all of its history by itself, and stays complete when its
origin is deleted.

Deltas are left out where the whole text follows them, so event numbers change; a field that names an event
(`compacted.through`) gets the number of the copy. Settings events are not copied: the fork's `session_created` has the
values. Grants beyond one call and queued inputs belong to the origin and are not copied either. Batches end where a
run does, so that an interrupted copy has no run that could be resumed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.sessions.commands import Create
from makai.sessions.conversation import with_broken_turns
from makai.sessions.engine import MAX_TITLE_LENGTH
from makai.sessions.log.base import EventLog, Pending
from makai.sessions.log.encoding import joined
from makai.sessions.requests import ForkSession
from makai.sessions.state import SessionState

BATCH: Final = 1_000
MAX_BATCH: Final = 8_000
"""The limit inside a run that is longer than a batch; a log takes 10,000 events at once."""
_SETTINGS: Final = (
    ev.AgentSession, ev.HarnessChanged, ev.ModeChanged, ev.ModelChanged, ev.SessionArchived, ev.TermsChanged,
    ev.TitleChanged,
)  # fmt: skip
_OF_THE_ORIGIN: Final = (ev.SessionCreated, ev.SessionClosed, ev.InputAccepted, ev.InputWithdrawn, *_SETTINGS)


_COPY_MARK: Final = " (fork)"


async def last_event(log: EventLog, wanted: ForkSession) -> int | None:
    """The last event of the origin that the fork has, when the request names one. The start of a run belongs to the
    message that began it; before a message that steered a run stands what the run did until then."""
    message = wanted.before
    if message is None:
        return wanted.at
    if wanted.at is not None:
        raise SessionRefused("BAD_ARGUMENT", "A fork has `at` or `before`, not both.")
    ending = [each for each in await log.read(wanted.origin, max(message - 3, 0), 3) if each.event_id <= message]
    match [logged.event if isinstance(logged, ev.Logged) else None for logged in ending]:
        case [ev.RunStarted(), ev.RunStatusChanged(), ev.UserInput() | ev.HistoryMessage()]:
            return message - 3
        case [*_, ev.UserInput() | ev.HistoryMessage()]:
            return message - 1
    raise SessionRefused("BAD_ARGUMENT", f"Event {message} is no message.")


def fork_of(origin: SessionState, wanted: ForkSession, now: int) -> Create:
    """The settings of a fork: the origin's, except those that the request names."""
    if origin.terms.agent_session_id:
        # Two sessions must not continue one conversation of the agent, and its beginning is known to the agent alone.
        raise SessionRefused(
            "INVALID_COMMAND",
            "This session continues a conversation that its agent keeps itself; it cannot be branched.",
            hint="Start a new session, and tell the agent what it needs to know.",
        )
    at = origin.last_event_id if wanted.at is None else wanted.at
    if not 0 < at <= origin.last_event_id:
        raise SessionRefused("BAD_ARGUMENT", f"The session has events 1 to {origin.last_event_id}, not {at}.")
    settings = {name: getattr(origin, name) for name in ("model_ref", "mode", "cwd", "roots", "terms")}
    name = origin.title.removesuffix(_COPY_MARK)[: MAX_TITLE_LENGTH - len(_COPY_MARK)]
    settings["title"] = f"{name}{_COPY_MARK}" if name else ""
    settings |= {name: value for name in settings if (value := getattr(wanted, name)) is not None}
    return Create(now=now, harness=origin.harness, forked_from=wanted.origin, forked_at=at, **settings)


async def copied(log: EventLog, origin: str, through: int, first: int) -> AsyncIterator[tuple[list[Pending], bool]]:
    """The events of `origin` up to `through`, for a log in which the first of them gets the number `first`: batches,
    and whether each is the last."""
    numbers: list[int] = []
    """The origin's numbers of what was copied, in order; the copy's are `first`, `first + 1`, ..."""
    batch: list[Pending] = []
    async for logged in with_broken_turns(log, origin, 0, through):
        if not isinstance(logged, ev.Logged) or isinstance(logged.event, _OF_THE_ORIGIN):
            continue
        event = logged.event
        if isinstance(event, ev.Compacted):
            not_above = bisect_right(numbers, event.through)
            event = msgspec.structs.replace(event, through=first + not_above - 1)
        elif isinstance(event, ev.ApprovalDecided):
            # The person granted it to the origin, and may have revoked it since.
            event = msgspec.structs.replace(event, scope="once", grant="")
        if len(batch) >= MAX_BATCH or (
            len(batch) >= BATCH and isinstance(batch[-1].event, ev.RunFinished | ev.RunFailed)
        ):
            yield batch, False
            batch = []
        copy = Pending(logged.ts, logged.run_id, event)
        if batch and len(one := joined([batch[-1], copy])) == 1:
            batch[-1:], numbers[-1] = one, logged.event_id  # the log would join these deltas, and number them once
        else:
            batch.append(copy)
            numbers.append(logged.event_id)
    if batch:
        yield batch, True
