"""A log in memory, for sessions that are not kept and for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from makai.sessions.log import base, encoding, permissions, projection, tokens
from makai.sessions.log.leases import check_generation
from makai.sessions.log.watchers import Watchers


class _Session(msgspec.Struct):
    view: projection.Projection
    stored: list[encoding.Stored]
    checkpoint: base.Checkpoint | None = None


class _Store:
    """What outlives one holder of the lease."""

    def __init__(self) -> None:
        self.generation = 0
        self.sessions: dict[str, _Session] = {}
        self.grants: dict[tuple[str, str], base.StoredGrant] = {}
        self.trusted: dict[str, bool] = {}
        self.trusted_files: dict[str, list[base.TrustedFile]] = {}
        self.tokens: dict[str, base.StoredToken] = {}
        self.watchers = Watchers()


class MemoryLog:
    def __init__(self, former: MemoryLog | None = None) -> None:
        """With `former`: take over what another one holds, whose appends are refused from then on."""
        self._store: _Store = _Store() if former is None else former._store
        self._store.generation += 1
        self.lease = base.Lease(f"memory-{self._store.generation}", self._store.generation)

    async def claim(self, session_id: str) -> base.Claim:
        return base.Claim(self.lease.generation)

    async def append(
        self, session_id: str, events: Sequence[base.Pending], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        held = self.lease.generation if generation is None else generation
        return self._append(session_id, encoding.encoded(events), expected_last, held)

    async def import_records(self, session_id: str, records: Sequence[base.Record], expected_last: int) -> None:
        self._append(session_id, encoding.imported(records, expected_last), expected_last, self.lease.generation)

    def _append(
        self, session_id: str, bodies: list[encoding.Body], expected_last: int, generation: int
    ) -> tuple[int, int]:
        encoding.check_session_id(session_id)
        asyncio.get_running_loop().call_soon(self._store.watchers.wake, session_id)  # after the answer
        self._check_owner()
        check_generation(self.lease, generation)
        session = self._store.sessions.get(session_id) or _Session(projection.empty(session_id), [])
        summary = session.view.summary
        if summary.events != expected_last:
            raise encoding.conflict(session_id, expected_last, summary.events)
        stored = encoding.numbered(session_id, bodies, summary.events, session.view.latest_ms)
        session.view, grants = projection.appended(session.view, bodies, stored)
        self._store.grants.update({(grant.folder, grant.rule): grant for grant in grants})
        session.stored += stored
        self._store.sessions[session_id] = session
        return stored[0].record.event_id, stored[-1].record.event_id

    def watch(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self._store.watchers.add(session_id, wake)

    def watch_all(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._store.watchers.add_to_all(changed)

    async def read(
        self, session_id: str, after: int = 0, limit: int = base.BATCH_EVENTS, *, deltas: bool = True
    ) -> list[base.LoggedEvent]:
        return encoding.decoded(await self.read_raw(session_id, after, limit, deltas=deltas))

    async def read_raw(
        self, session_id: str, after: int = 0, limit: int = base.BATCH_EVENTS, *, deltas: bool = True
    ) -> list[base.Record]:
        session = self._store.sessions.get(session_id)
        everything = session.stored if session else []
        records: list[base.Record] = []
        size = 0
        for index in range(max(after, 0), len(everything)):
            if len(records) >= limit or size >= base.BATCH_BYTES:
                break
            stored = everything[index]
            if deltas or not stored.is_delta:
                records.append(stored.record)
                size += len(stored.record.line)
        return records

    async def last(self, session_id: str) -> int:
        session = self._store.sessions.get(session_id)
        return len(session.stored) if session else 0

    async def session(self, session_id: str) -> base.SessionSummary | None:
        session = self._store.sessions.get(session_id)
        return session.view.summary if session else None

    async def sessions(self, wanted: base.SessionFilter = base.NEWEST) -> list[base.SessionSummary]:
        summaries = (session.view.summary for session in self._store.sessions.values())
        found = [summary for summary in summaries if _fits(summary, wanted)]
        found.sort(key=lambda summary: (-summary.updated_ms, summary.session_id))
        return found[: wanted.limit]

    async def pending_approvals(self) -> list[base.PendingApproval]:
        return [
            encoding.asked(session_id, session.stored[event_id - 1].record)
            for session_id, session in self._store.sessions.items()
            for event_id in session.view.approvals.values()
        ]

    async def delete(self, session_id: str) -> bool:
        self._check_owner()
        was_there = self._store.sessions.pop(session_id, None) is not None
        self._store.watchers.wake(session_id)
        return was_there

    async def checkpoint(self, session_id: str) -> base.Checkpoint | None:
        session = self._store.sessions.get(session_id)
        return session.checkpoint if session else None

    async def save_checkpoint(self, session_id: str, checkpoint: base.Checkpoint) -> None:
        session = self._store.sessions.get(session_id)
        if session and checkpoint.event_id <= len(session.stored):
            session.checkpoint = checkpoint

    async def grants(self, folder: str | None) -> list[base.StoredGrant]:
        return [grant for key, grant in sorted(self._store.grants.items()) if folder is None or key[0] == folder]

    async def revoke(self, folder: str, rule: str) -> bool:
        self._check_owner()
        return self._store.grants.pop((folder, rule), None) is not None

    async def import_grants(self, grants: Sequence[base.StoredGrant]) -> None:
        self._check_owner()
        newer = permissions.newer_grants(self._store.grants.values(), grants)
        self._store.grants.update({(grant.folder, grant.rule): grant for grant in newer})

    async def trust(self, folder: str, trusted: bool, files: Sequence[base.TrustedFile] = ()) -> None:
        self._check_owner()
        folder = permissions.checked_folder(folder)
        self._store.trusted[folder] = trusted
        self._store.trusted_files[folder] = sorted(files, key=lambda file: file.path)

    async def trusted_files(self, folder: str) -> list[base.TrustedFile]:
        return list(self._store.trusted_files.get(folder, ()))

    async def is_trusted(self, folder: str) -> bool:
        words = (self._store.trusted.get(place) for place in permissions.itself_and_above(folder))
        return next((word for word in words if word is not None), False)

    async def trusted_folders(self) -> list[base.TrustedFolder]:
        return [base.TrustedFolder(folder, trusted) for folder, trusted in sorted(self._store.trusted.items())]

    async def tokens(self) -> list[base.StoredToken]:
        return sorted(self._store.tokens.values(), key=lambda token: (token.created_ms, token.token_id))

    async def put_token(self, token: base.StoredToken) -> None:
        self._check_owner()
        for token_id in tokens.to_remove(self._store.tokens.values(), token):
            del self._store.tokens[token_id]
        self._store.tokens[token.token_id] = token

    async def revoke_token(self, token_id: str, now_ms: int) -> bool:
        self._check_owner()
        token = self._store.tokens.get(token_id)
        if token is not None and token.revoked_ms is None:
            self._store.tokens[token_id] = msgspec.structs.replace(token, revoked_ms=now_ms)
        return token is not None

    async def note_token_use(self, token_ids: Sequence[str], now_ms: int) -> None:
        self._check_owner()
        for token in [token for token in self._store.tokens.values() if token.token_id in token_ids]:
            self._store.tokens[token.token_id] = msgspec.structs.replace(token, used_ms=now_ms)

    async def check(self) -> base.LogReport:
        events = sum(len(session.stored) for session in self._store.sessions.values())
        return base.LogReport(sessions=len(self._store.sessions), events=events, problems=())

    async def close(self) -> None:
        self._store.watchers.wake_all()

    def _check_owner(self) -> None:
        check_generation(self.lease, self._store.generation)


def _fits(summary: base.SessionSummary, wanted: base.SessionFilter) -> bool:
    return (
        (wanted.updated_before_ms is None or summary.updated_ms < wanted.updated_before_ms)
        and (wanted.cwd is None or summary.cwd == wanted.cwd)
        and (not wanted.awaiting_approval or summary.pending_approvals > 0)
        and wanted.shows(summary.archived)
    )
