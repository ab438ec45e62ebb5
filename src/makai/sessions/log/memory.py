"""A log in memory: what tests use, and sessions that are not to be kept.

In and out: as every log. Durable as long as the process: an append is done when it returns.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from makai.sessions.log import encoding, folders, projection
from makai.sessions.log.base import (
    BATCH_BYTES,
    BATCH_EVENTS,
    NEWEST,
    Checkpoint,
    LoggedEvent,
    LogReport,
    Pending,
    PendingApproval,
    Record,
    SessionFilter,
    SessionSummary,
    StoredGrant,
    TrustedFolder,
)


class _Session(msgspec.Struct):
    view: projection.Projection
    stored: list[encoding.Stored]
    checkpoint: Checkpoint | None = None


class MemoryLog:
    """Numbered events of many sessions, until the process ends."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._grants: dict[tuple[str, str], StoredGrant] = {}
        self._trusted: dict[str, bool] = {}

    async def append(self, session_id: str, events: Sequence[Pending], expected_last: int) -> tuple[int, int]:
        encoding.check_session_id(session_id)
        bodies = encoding.encoded(events)
        session = self._sessions.get(session_id) or _Session(projection.empty(session_id), [])
        summary = session.view.summary
        if summary.events != expected_last:
            raise encoding.conflict(session_id, expected_last, summary.events)
        stored = encoding.numbered(session_id, bodies, summary.events, summary.updated_ms)
        session.view, grants = projection.appended(session.view, bodies, stored)
        self._grants.update({(grant.folder, grant.rule): grant for grant in grants})
        session.stored += stored
        self._sessions[session_id] = session
        return stored[0].record.event_id, stored[-1].record.event_id

    async def read(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[LoggedEvent]:
        return encoding.decoded(await self.read_raw(session_id, after, limit, deltas=deltas))

    async def read_raw(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[Record]:
        session = self._sessions.get(session_id)
        everything = session.stored if session else []
        records: list[Record] = []
        size = 0
        for index in range(max(after, 0), len(everything)):
            if len(records) >= limit or size >= BATCH_BYTES:
                break
            stored = everything[index]
            if deltas or not stored.is_delta:
                records.append(stored.record)
                size += len(stored.record.line)
        return records

    async def last(self, session_id: str) -> int:
        session = self._sessions.get(session_id)
        return len(session.stored) if session else 0

    async def session(self, session_id: str) -> SessionSummary | None:
        session = self._sessions.get(session_id)
        return session.view.summary if session else None

    async def sessions(self, wanted: SessionFilter = NEWEST) -> list[SessionSummary]:
        found = [session.view.summary for session in self._sessions.values() if _fits(session.view.summary, wanted)]
        found.sort(key=lambda summary: (-summary.updated_ms, summary.session_id))
        return found[: wanted.limit]

    async def pending_approvals(self) -> list[PendingApproval]:
        return [
            encoding.asked(session_id, session.stored[event_id - 1].record)
            for session_id, session in self._sessions.items()
            for event_id in session.view.approvals.values()
        ]

    async def delete(self, session_id: str) -> bool:
        return self._sessions.pop(session_id, None) is not None

    async def checkpoint(self, session_id: str) -> Checkpoint | None:
        session = self._sessions.get(session_id)
        return session.checkpoint if session else None

    async def save_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> None:
        session = self._sessions.get(session_id)
        if session and checkpoint.event_id <= len(session.stored):
            session.checkpoint = checkpoint

    async def grants(self, folder: str | None) -> list[StoredGrant]:
        return [grant for key, grant in sorted(self._grants.items()) if folder is None or key[0] == folder]

    async def revoke(self, folder: str, rule: str) -> bool:
        return self._grants.pop((folder, rule), None) is not None

    async def trust(self, folder: str, trusted: bool) -> None:
        self._trusted[folders.checked(folder)] = trusted

    async def is_trusted(self, folder: str) -> bool:
        words = (self._trusted.get(place) for place in folders.itself_and_above(folder))
        return next((word for word in words if word is not None), False)

    async def trusted_folders(self) -> list[TrustedFolder]:
        return [TrustedFolder(folder, trusted) for folder, trusted in sorted(self._trusted.items())]

    async def check(self) -> LogReport:
        events = sum(len(session.stored) for session in self._sessions.values())
        return LogReport(sessions=len(self._sessions), events=events, problems=())

    async def close(self) -> None:
        """Nothing to let go of: whoever has the log can still read it."""


def _fits(summary: SessionSummary, wanted: SessionFilter) -> bool:
    return (
        (wanted.updated_before_ms is None or summary.updated_ms < wanted.updated_before_ms)
        and (wanted.cwd is None or summary.cwd == wanted.cwd)
        and (not wanted.awaiting_approval or summary.pending_approvals > 0)
    )
