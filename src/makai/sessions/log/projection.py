"""What the list of sessions shows and what was granted for ever, folded from events.

In: a projection and the events that follow it. Out: the next projection, and the grants among those events. Pure;
stores keep both beside the events, in the same transaction, and can always fold the projection anew.

Usage: a `turn_ended` adds what its turn consumed; a `usage` event states the total and so replaces the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from makai.core.session_events import (
    ApprovalDecided,
    ApprovalRequested,
    ModeChanged,
    ModelChanged,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStatusChanged,
    SessionClosed,
    SessionCreated,
    SessionEvent,
    TitleChanged,
    ToolFinished,
    TurnEnded,
    UsageReported,
)
from makai.sessions.log.base import SessionSummary, StoredGrant
from makai.sessions.log.encoding import Body, Stored


class Projection(msgspec.Struct, frozen=True):
    """Everything derived from a session's events."""

    summary: SessionSummary
    approvals: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Calls that wait for a person, and the events that asked."""


def empty(session_id: str) -> Projection:
    """Of a session without events."""
    return Projection(SessionSummary(session_id=session_id))


def appended(
    before: Projection, bodies: Iterable[Body], stored: Sequence[Stored]
) -> tuple[Projection, list[StoredGrant]]:
    """After one append, and what it decided for ever: of several about one folder and rule the last one counts."""
    first = stored[0].record.event_id
    facts = [(number, body.fact) for number, body in enumerate(bodies, first) if type(body.fact) in _AFFECTS]
    after = settled(
        folded(before, facts), events=stored[-1].record.event_id, first_ms=stored[0].ts, last_ms=stored[-1].ts
    )
    return after, _granted(before.summary, facts, stored)


def folded(projection: Projection, facts: Iterable[tuple[int, SessionEvent]]) -> Projection:
    """With numbered events taken into account."""
    for event_id, event in facts:
        if change := _SUMMARY_CHANGES.get(type(event)):
            changed = msgspec.structs.replace(projection.summary, **change(projection.summary, event))
            projection = msgspec.structs.replace(projection, summary=changed)
        elif isinstance(event, ApprovalRequested):
            projection = _with_approvals(projection, {**projection.approvals, event.call_id: event_id})
        elif isinstance(event, ApprovalDecided | ToolFinished) and event.call_id in projection.approvals:
            rest = {call: asked for call, asked in projection.approvals.items() if call != event.call_id}
            projection = _with_approvals(projection, rest)
    return projection


def settled(projection: Projection, *, events: int, first_ms: int, last_ms: int) -> Projection:
    """With the counts and times that every event changes, set once for many."""
    before = projection.summary
    created = before.created_ms or first_ms
    summary = msgspec.structs.replace(before, events=events, created_ms=created, updated_ms=last_ms)
    return msgspec.structs.replace(projection, summary=summary)


def _granted(
    before: SessionSummary, facts: Sequence[tuple[int, SessionEvent]], stored: Sequence[Stored]
) -> list[StoredGrant]:
    cwd = before.cwd
    grants = []
    for event_id, fact in facts:
        if isinstance(fact, SessionCreated):
            cwd = fact.cwd
        elif isinstance(fact, ApprovalDecided) and fact.scope == "always" and fact.grant:
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


def _with_approvals(projection: Projection, approvals: Mapping[str, int]) -> Projection:
    summary = msgspec.structs.replace(projection.summary, pending_approvals=len(approvals))
    return Projection(summary, approvals)


def _created(_: SessionSummary, event: SessionCreated) -> dict[str, object]:
    return {
        "title": event.title,
        "model_ref": event.model_ref,
        "mode": event.mode,
        "harness": event.harness,
        "cwd": event.cwd,
    }


_SUMMARY_CHANGES: Final[Mapping[type, Callable[[SessionSummary, Any], dict[str, object]]]] = {
    SessionCreated: _created,
    TitleChanged: lambda _, event: {"title": event.title},
    ModelChanged: lambda _, event: {"model_ref": event.model_ref},
    ModeChanged: lambda _, event: {"mode": event.mode},
    RunStarted: lambda _, event: {"status": "starting"},
    RunStatusChanged: lambda _, event: {"status": event.status},
    RunFinished: lambda _, event: {"status": "finished"},
    RunFailed: lambda _, event: {"status": "error"},
    SessionClosed: lambda _, event: {"status": "closed"},
    TurnEnded: lambda summary, event: {"usage": summary.usage + event.usage},
    UsageReported: lambda _, event: {"usage": event.total},
}
_AFFECTS: Final = frozenset({*_SUMMARY_CHANGES, ApprovalRequested, ApprovalDecided, ToolFinished})
