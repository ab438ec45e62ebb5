"""The entry of a session in the list of sessions, and the permissions granted for always, folded from events.

Stores keep both beside the events, in the same transaction; the entry can always be folded again.

Usage: a `turn_ended` adds what its turn consumed; a `usage` event states the total and so replaces the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from makai.core import session_events as ev
from makai.sessions.log.base import LoggedEvent, SessionSummary, StoredGrant
from makai.sessions.log.encoding import Body, Stored


class Projection(msgspec.Struct, frozen=True):
    summary: SessionSummary
    approvals: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Calls that wait for a person, and the events that asked."""
    last_ms: int = 0
    """The time of the last event. `updated_ms` is when the session was last used, which archiving is not."""

    @property
    def latest_ms(self) -> int:
        """No later event has an earlier time. Rows of older versions have no `last_ms`."""
        return max(self.last_ms, self.summary.updated_ms)


class SessionRow(msgspec.Struct, frozen=True):
    """The entry of a session as a store keeps it."""

    session_key: int
    view: Projection
    generation: int = 0
    """Under which the session is written; 0 in a store that has one for all sessions."""


def row_checksum(summary: SessionSummary, view: bytes) -> int:
    """What a store keeps beside an encoded projection."""
    return crc32(view, crc32(summary.session_id.encode()))


def empty(session_id: str) -> Projection:
    return Projection(SessionSummary(session_id=session_id))


def is_same(stored: Projection, view: Projection) -> bool:
    """Whether a row is what its events lead to. One that an older version wrote has no `last_ms`."""
    return stored == (view if stored.last_ms else msgspec.structs.replace(view, last_ms=0))


def appended(
    before: Projection, bodies: Iterable[Body], stored: Sequence[Stored]
) -> tuple[Projection, list[StoredGrant]]:
    """After one append, and what it granted for always: of several about one folder and rule the last one counts."""
    first = stored[0].record.event_id
    facts = [(number, body.fact) for number, body in enumerate(bodies, first) if type(body.fact) in _AFFECTS]
    archiving = {number for number, fact in facts if isinstance(fact, ev.SessionArchived)}
    used = next((one.ts for one in reversed(stored) if one.record.event_id not in archiving), None)
    after = folded(before, facts, stored[-1].record.event_id, stored[0].ts, stored[-1].ts, used)
    return after, _granted(before.summary, facts, stored)


def folded(
    projection: Projection,
    facts: Iterable[tuple[int, ev.SessionEvent]],
    events: int,
    first_ms: int,
    last_ms: int,
    used_ms: int | None,
) -> Projection:
    """After numbered events, with the counts and times that every event changes set once for all of them. `used_ms` is
    None when the session was only archived, or taken out of the archive."""
    summary, approvals = projection.summary, projection.approvals
    for event_id, event in facts:
        if change := _SUMMARY_CHANGES.get(type(event)):
            summary = msgspec.structs.replace(summary, **change(summary, event))
        elif isinstance(event, ev.ApprovalRequested):
            approvals = {**approvals, event.call_id: event_id}
        elif isinstance(event, _DECIDES) and event.call_id in approvals:
            approvals = {call: asked for call, asked in approvals.items() if call != event.call_id}
    created, waiting = summary.created_ms or first_ms, len(approvals)
    return Projection(
        msgspec.structs.replace(
            summary,
            events=events,
            created_ms=created,
            updated_ms=summary.updated_ms if used_ms is None else used_ms,
            pending_approvals=waiting,
        ),
        approvals,
        last_ms,
    )


def followed(view: Projection, logged: LoggedEvent) -> Projection:
    """After one event that was read from a store."""
    facts = [(logged.event_id, logged.event)] if isinstance(logged, ev.Logged) else []
    is_archiving = any(isinstance(fact, ev.SessionArchived) for _, fact in facts)
    used_ms = None if is_archiving else logged.ts
    return folded(view, facts, logged.event_id, logged.ts, logged.ts, used_ms)


def _granted(
    before: SessionSummary, facts: Sequence[tuple[int, ev.SessionEvent]], stored: Sequence[Stored]
) -> list[StoredGrant]:
    cwd = before.cwd
    grants = []
    for event_id, fact in facts:
        if isinstance(fact, ev.SessionCreated):
            cwd = fact.cwd
        elif isinstance(fact, ev.ApprovalDecided) and fact.scope == "always" and fact.grant:
            grants.append(
                StoredGrant(
                    folder=cwd or "",
                    rule=fact.grant,
                    allow=fact.decision == "approve",
                    session_id=before.session_id,
                    event_id=event_id,
                    ts=stored[event_id - stored[0].record.event_id].ts,
                    by=fact.by,
                )
            )
    return grants


_SUMMARY_CHANGES: Final[Mapping[type, Callable[[SessionSummary, Any], dict[str, object]]]] = {
    ev.SessionCreated: lambda _, event: {
        name: getattr(event, name) for name in ("title", "model_ref", "mode", "harness", "cwd", "made_by")
    },
    ev.TitleChanged: lambda _, event: {"title": event.title},
    ev.ModelChanged: lambda _, event: {"model_ref": event.model_ref},
    ev.HarnessChanged: lambda _, event: {"harness": event.harness, "model_ref": event.model_ref},
    ev.ModeChanged: lambda _, event: {"mode": event.mode},
    ev.RunStarted: lambda _, event: {"status": "starting"},
    ev.RunStatusChanged: lambda _, event: {"status": event.status},
    ev.RunFinished: lambda _, event: {"status": "finished"},
    ev.RunFailed: lambda _, event: {"status": "error"},
    ev.SessionClosed: lambda _, event: {"status": "closed"},
    ev.SessionArchived: lambda _, event: {"archived": event.archived},
    ev.TurnEnded: lambda summary, event: {"usage": summary.usage + event.usage},
    ev.UsageReported: lambda _, event: {"usage": event.total},
}
_DECIDES: Final = (ev.ApprovalDecided, ev.ToolFinished)
_AFFECTS: Final = frozenset({*_SUMMARY_CHANGES, ev.ApprovalRequested, *_DECIDES})
