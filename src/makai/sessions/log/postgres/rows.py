"""What is read from the tables of sessions, events and checkpoints. Everything is verified, or raises `LogDamaged`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makai.core.errors import LogDamaged
from makai.sessions.log import encoding, projection
from makai.sessions.log.base import (
    BATCH_BYTES,
    Checkpoint,
    PendingApproval,
    Record,
    SessionFilter,
    SessionSummary,
)
from makai.sessions.log.postgres.connecting import Connection
from makai.sessions.log.projection import Projection, SessionRow

LARGEST_NUMBER: Final = 2**62
MAX_LISTED: Final = 2**31
_VIEW: Final = msgspec.json.Decoder(Projection)

ROW: Final = "session_key, session_id, last, updated_ms, waiting, cwd, projection, checksum, generation"
_LOAD: Final = f"""
SELECT {ROW}, (SELECT max(event_id) FROM event WHERE event.session_key = session.session_key)
FROM session WHERE session_id = ANY(%s)
"""
# The batch ends with the event that fills it: its number is found by lengths alone, before any line is read.
_READ: Final = """
WITH chosen AS (SELECT session_key, last FROM session WHERE session_id = %(session_id)s),
fitting AS (
    SELECT event_id, octet_length(line) AS size FROM event
    WHERE session_key = (SELECT session_key FROM chosen) AND event_id > %(after)s {without_deltas}
    ORDER BY event_id LIMIT %(limit)s
),
batch AS (
    SELECT max(event_id) AS last
    FROM (SELECT event_id, sum(size) OVER (ORDER BY event_id) - size AS size_before FROM fitting) AS sized
    WHERE size_before < %(bytes)s
)
SELECT chosen.last, event.event_id, checksum, line
FROM chosen LEFT JOIN event ON event.session_key = chosen.session_key
    AND event_id > %(after)s AND event_id <= (SELECT last FROM batch) {without_deltas}
ORDER BY event_id
"""
_READS: Final = {
    True: _READ.format(without_deltas="").encode(),
    False: _READ.format(without_deltas="AND NOT is_delta").encode(),
}
_QUESTIONS: Final = "SELECT event_id, checksum, line FROM event WHERE session_key = %s AND event_id = ANY(%s)"
_CHECKPOINT: Final = """
SELECT c.event_id, c.format, c.data, c.checksum, s.last
FROM session AS s JOIN checkpoint AS c USING (session_key) WHERE s.session_id = %s
"""
# The lock on the row of the session waits for a deletion, so that no checkpoint stays behind.
_PUT_CHECKPOINT: Final = """
INSERT INTO checkpoint
SELECT session_key, %(event_id)s, %(format)s, %(data)s, %(checksum)s
FROM (
    SELECT session_key FROM session WHERE session_id = %(session_id)s AND last >= %(event_id)s FOR KEY SHARE
) AS chosen
ON CONFLICT (session_key) DO UPDATE SET
    event_id = excluded.event_id, format = excluded.format, data = excluded.data, checksum = excluded.checksum
"""


def is_storable(text: str) -> bool:
    """Whether a text can be compared with what is stored; no other one is there."""
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:
        return False


async def fetch(connection: Connection, statement: str | bytes, values: Any = ()) -> list[tuple[Any, ...]]:
    """All rows of an answer, with values in PostgreSQL's binary form."""
    query = statement.encode() if isinstance(statement, str) else statement
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(query, values)
        return await cursor.fetchall() if cursor.description else []


def row_of(found: Sequence[Any]) -> SessionRow | None:
    """The entry of a session if it is what was written."""
    try:
        view = _VIEW.decode(found[6])
    except msgspec.DecodeError:
        return None
    summary = view.summary
    written = (summary.session_id, summary.events, summary.updated_ms, summary.pending_approvals, summary.cwd)
    if tuple(found[1:6]) != written or projection.row_checksum(summary, found[6]) != found[7]:
        return None
    return SessionRow(found[0], view, found[8])


async def load_sessions(connection: Connection, session_ids: Sequence[str]) -> dict[str, SessionRow | LogDamaged]:
    """The sessions that exist; an error for one whose row and last event do not agree."""
    loaded: dict[str, SessionRow | LogDamaged] = {}
    for found in await fetch(connection, _LOAD, (list(session_ids),)):
        row = row_of(found)
        is_sound = row is not None and row.view.summary.events == found[-1]
        loaded[found[1]] = row if row is not None and is_sound else encoding.damaged(found[1], None)
    return loaded


async def load_session(connection: Connection, session_id: str) -> SessionRow | None:
    if not is_storable(session_id):
        return None
    found = (await load_sessions(connection, [session_id])).get(session_id)
    if isinstance(found, LogDamaged):
        raise found
    return found


async def read_records(connection: Connection, session_id: str, after: int, limit: int, deltas: bool) -> list[Record]:
    """The next events above `after`, each verified; with deltas also without a gap."""
    if not is_storable(session_id):
        return []
    after, limit = min(max(after, 0), LARGEST_NUMBER), min(max(limit, 0), MAX_LISTED)
    wanted = {"session_id": session_id, "after": after, "limit": limit, "bytes": BATCH_BYTES}
    found = await fetch(connection, _READS[deltas], wanted)
    if not found:
        return []
    stored = [(number, checksum, line) for _, number, checksum, line in found if number is not None]
    records = encoding.verified(session_id, stored)
    if deltas:
        _check_complete(session_id, records, after, limit, found[0][0])
    return records


def _check_complete(session_id: str, records: Sequence[Record], after: int, limit: int, last: int) -> None:
    """Raise `LogDamaged` when an event is missing from a batch of reading."""
    end = records[-1].event_id if records else after
    if end - after != len(records):
        numbers = {record.event_id for record in records}
        raise encoding.damaged(session_id, next(each for each in range(after + 1, end + 1) if each not in numbers))
    is_full = len(records) >= limit or sum(len(record.line) for record in records) >= BATCH_BYTES
    if end < last and not is_full:
        raise encoding.damaged(session_id, end + 1)


async def list_sessions(connection: Connection, wanted: SessionFilter) -> list[SessionSummary]:
    """Sessions, the newest first; those whose rows do not verify say so."""
    if wanted.cwd is not None and not is_storable(wanted.cwd):
        return []
    rows = [(each[1], row_of(each)) for each in await fetch(connection, *listing(wanted))]
    return [row.view.summary if row else SessionSummary(session_id=name, damaged=True) for name, row in rows]


def listing(wanted: SessionFilter) -> tuple[str, dict[str, Any]]:
    """The statement that lists sessions, and its values. It reads along the index of spans of time, and sorts the
    sessions of one span at a time until there are enough."""
    conditions: Mapping[str, bool] = {
        "updated_span <= %(before)s::bigint >> 16 AND updated_ms < %(before)s": wanted.updated_before_ms is not None,
        "cwd = %(cwd)s": wanted.cwd is not None,
        "waiting > 0": wanted.awaiting_approval,
        "archived = %(archived)s": wanted.archived != "with",
    }
    chosen = " AND ".join(condition for condition, is_set in conditions.items() if is_set) or "true"
    order = "updated_span DESC, updated_ms DESC, session_id"
    return f"SELECT {ROW} FROM session WHERE {chosen} ORDER BY {order} LIMIT %(limit)s", {
        "before": min(max(wanted.updated_before_ms or 0, -LARGEST_NUMBER), LARGEST_NUMBER),
        "cwd": wanted.cwd,
        "archived": wanted.archived == "only",
        "limit": min(max(wanted.limit, 0), MAX_LISTED),
    }


async def list_approvals(connection: Connection) -> list[PendingApproval]:
    """Questions without an answer. Those of a damaged session are left out."""
    questions: list[PendingApproval] = []
    for found in await fetch(connection, f"SELECT {ROW} FROM session WHERE waiting > 0 ORDER BY session_key"):
        if (row := row_of(found)) is not None:
            questions += await _questions(connection, row)
    return questions


async def _questions(connection: Connection, row: SessionRow) -> list[PendingApproval]:
    session_id, numbers = row.view.summary.session_id, list(row.view.approvals.values())
    found = {each[0]: each for each in await fetch(connection, _QUESTIONS, (row.session_key, numbers))}
    try:
        records = encoding.verified(session_id, [found[number] for number in numbers])
        return [encoding.asked(session_id, record) for record in records]
    except (LogDamaged, KeyError):
        return []


async def load_checkpoint(connection: Connection, session_id: str) -> Checkpoint | None:
    """The checkpoint of a session if it is what was written."""
    if not is_storable(session_id):
        return None
    for event_id, form, data, checksum, last in await fetch(connection, _CHECKPOINT, (session_id,)):
        checkpoint = Checkpoint(event_id, form, data)
        if event_id <= last and checksum == encoding.checkpoint_checksum(session_id, checkpoint):
            return checkpoint
    return None


async def put_checkpoint(connection: Connection, session_id: str, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint; nothing changes when the session is gone or has not so many events."""
    if not 0 <= checkpoint.event_id < LARGEST_NUMBER or not is_storable(session_id):
        return
    values = msgspec.structs.asdict(checkpoint)
    checksum = encoding.checkpoint_checksum(session_id, checkpoint)
    await fetch(connection, _PUT_CHECKPOINT, {**values, "session_id": session_id, "checksum": checksum})
