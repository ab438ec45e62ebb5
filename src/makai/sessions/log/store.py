"""Rows of the database: sessions, events, runs of deltas and checkpoints. Blocking; the caller has the transaction.

Readers have none, and the owner may commit between two statements: values that are compared come from one statement.

What is read is verified, or raises `LogDamaged`; SQLite's own errors are passed on. As few calls of SQLite as possible
carry as many rows as possible, because each one releases the GIL and, while the event loop is busy, waits for it: 128
rows written by `executemany` took 142 ms beside a busy loop, by one statement 0.9 ms.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from makai.core.errors import LogDamaged
from makai.sessions.log.base import BATCH_BYTES, Checkpoint, PendingApproval, Record, SessionFilter, SessionSummary
from makai.sessions.log.encoding import Stored, asked, checkpoint_checksum, damaged, verified
from makai.sessions.log.projection import Projection, SessionRow, row_checksum
from makai.sessions.log.schema import SEAL

_LARGEST_NUMBER: Final = 2**62
_NO_CHECKSUM: Final = -1

_VIEW: Final = msgspec.json.Decoder(Projection)

_ROW: Final = "session_key, session_id, last, updated_ms, waiting, cwd, projection, checksum"
_LOAD: Final = f"""
SELECT {_ROW}, (SELECT max(event_id) FROM event WHERE event.session_key = session.session_key)
FROM session WHERE session_id = ?
"""
_OR_UPDATE: Final = "ON CONFLICT (session_key) DO UPDATE SET " + ", ".join(
    f"{column} = excluded.{column}"
    for column in ("last", "updated_ms", "waiting", "cwd", "projection", "checksum", "archived")
)

_SIZES: Final = (*range(1, 17), 64, 256)
"""Rows in one statement: few enough sizes for SQLite to keep each of them prepared."""
_INSERT_EVENTS: Final = {size: f"INSERT INTO event VALUES {','.join(['(?,?,?,?,?)'] * size)}" for size in _SIZES}
_PUT_SESSIONS: Final = {
    size: f"INSERT INTO session VALUES {','.join(['(?,?,?,?,?,?,?,?,?)'] * size)} {_OR_UPDATE}" for size in _SIZES
}

# The batch ends with the event that fills it: its number is found by lengths alone, before any line is read.
_READ: Final = """
SELECT s.last, (
    SELECT group_concat(event_id || ' ' || checksum || ' ' || line, char(10))
    FROM event
    WHERE session_key = s.session_key AND event_id > :after AND event_id <= (
        SELECT max(event_id) FROM (
            SELECT event_id, sum(length(line)) OVER (ORDER BY event_id) - length(line) AS size_before
            FROM event
            WHERE session_key = s.session_key AND event_id > :after
            ORDER BY event_id LIMIT :limit
        ) WHERE size_before < :bytes
    )
)
FROM session AS s WHERE s.session_id = :session_id
"""

_KEY: Final = "(SELECT session_key FROM session WHERE session_id = :session_id)"
# Stretches between the runs of deltas; each but the first has an event that is none, so `limit` of them are enough.
_READ_WITHOUT_DELTAS: Final = f"""
WITH RECURSIVE stretch (first, last) AS (
    SELECT start, (
        SELECT coalesce(min(first), :end) - 1 FROM sound_run WHERE session_key = {_KEY} AND first > start
    )
    FROM (
        SELECT 1 + max(:after, coalesce((
            SELECT last FROM sound_run WHERE session_key = {_KEY} AND first <= :after + 1
            ORDER BY first DESC LIMIT 1
        ), 0)) AS start
    )
    UNION ALL
    SELECT run.last + 1, (
        SELECT coalesce(min(first), :end) - 1 FROM sound_run WHERE session_key = {_KEY} AND first > run.last
    )
    FROM stretch JOIN sound_run AS run ON run.session_key = {_KEY} AND run.first = stretch.last + 1
    LIMIT :limit + 1
),
fitting (event_id, size) AS (
    SELECT event_id, length(line)
    FROM stretch
    CROSS JOIN event ON session_key = {_KEY} AND event_id BETWEEN stretch.first AND stretch.last
    WHERE NOT is_delta LIMIT :limit
),
batch (last) AS (
    SELECT max(event_id)
    FROM (SELECT event_id, sum(size) OVER (ORDER BY event_id) - size AS size_before FROM fitting)
    WHERE size_before < :bytes
)
SELECT group_concat(event_id || ' ' || checksum || ' ' || line, char(10))
FROM stretch
CROSS JOIN event ON session_key = {_KEY}
    AND event_id BETWEEN stretch.first AND min(stretch.last, (SELECT last FROM batch))
WHERE NOT is_delta
"""

_NOTE_RUN: Final = f"""
INSERT INTO delta_run SELECT session_key, first, last, {SEAL}
FROM (SELECT ? AS session_key, ? AS first, ? AS last)
"""

_PUT_CHECKPOINT: Final = """
INSERT OR REPLACE INTO checkpoint SELECT ?, ?, ?, ?, ? FROM session WHERE session_key = ? AND last >= ?
"""
_GET_CHECKPOINT: Final = """
SELECT c.event_id, c.format, c.data, c.checksum, s.last
FROM session AS s JOIN checkpoint AS c USING (session_key) WHERE s.session_id = ?
"""


def insert_events(connection: sqlite3.Connection, events: Iterable[tuple[int, Stored]]) -> None:
    # An int: SQLite's module knows no bool, and would raise and catch two exceptions before it takes one for an int.
    rows = [
        (key, event.record.event_id, event.checksum, int(event.is_delta), event.record.line) for key, event in events
    ]
    _insert(connection, _INSERT_EVENTS, rows)


def put_sessions(connection: sqlite3.Connection, sessions: Iterable[SessionRow]) -> None:
    rows = [_row(session) for session in sessions]
    _insert(connection, _PUT_SESSIONS, rows)


def insert_runs(connection: sqlite3.Connection, runs: Iterable[tuple[int, int, int]]) -> None:
    for run in runs:
        connection.execute(_NOTE_RUN, run)


def _insert(connection: sqlite3.Connection, statements: Mapping[int, str], rows: Sequence[tuple[object, ...]]) -> None:
    start = 0
    while left := len(rows) - start:
        size = 256 if left >= 256 else 64 if left >= 64 else min(left, 16)
        connection.execute(statements[size], list(chain.from_iterable(rows[start : start + size])))
        start += size


def _row(session: SessionRow) -> tuple[object, ...]:
    summary = session.view.summary
    values = (summary.events, summary.updated_ms, summary.pending_approvals, summary.cwd)
    view = msgspec.json.encode(session.view)
    checksum = row_checksum(summary, view)
    return (session.session_key, summary.session_id, *values, view, checksum, int(summary.archived))


def next_key(connection: sqlite3.Connection) -> int:
    """A key that no session and no event has."""
    tables = ("session", "event", "deleted", "checkpoint", "delta_run")
    used = [connection.execute(f"SELECT max(session_key) FROM {table}").fetchone()[0] for table in tables]
    return 1 + max(key or 0 for key in used)


def doom(connection: sqlite3.Connection, session_id: str) -> bool:
    """Forget a session; its events are left to `purge`."""
    key = "(SELECT session_key FROM session WHERE session_id = ?)"
    connection.execute(f"INSERT INTO deleted SELECT * FROM {key}", (session_id,))
    connection.execute(f"DELETE FROM checkpoint WHERE session_key = {key}", (session_id,))
    return connection.execute("DELETE FROM session WHERE session_id = ?", (session_id,)).rowcount > 0


def purge(connection: sqlite3.Connection, most: int) -> bool:
    """Remove up to `most` events of a deleted session; False when none is left."""
    found = connection.execute("SELECT session_key FROM deleted LIMIT 1").fetchone()
    if found is None:
        return False
    chosen = "SELECT event_id FROM event WHERE session_key = ? LIMIT ?"
    removed = connection.execute(
        f"DELETE FROM event WHERE session_key = ? AND event_id IN ({chosen})", (found[0], found[0], most)
    )
    if removed.rowcount < most:
        connection.execute("DELETE FROM delta_run WHERE session_key = ?", found)
        connection.execute("DELETE FROM deleted WHERE session_key = ?", found)
    return True


def load_session(connection: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """A session, if there is one and its row and its last event agree."""
    found = connection.execute(_LOAD, (session_id,)).fetchone()
    if found is None:
        return None
    session = _session(found)
    if session is None or session.view.summary.events != found[-1]:
        raise damaged(session_id, None)
    return session


def key_of(connection: sqlite3.Connection, session_id: str) -> int | None:
    found = connection.execute("SELECT session_key FROM session WHERE session_id = ?", (session_id,)).fetchone()
    return found[0] if found else None


def load_row(connection: sqlite3.Connection, session_key: int) -> tuple[str, SessionRow | None]:
    """The name of a session, as far as it can be read, and its row if that is what was written."""
    found = connection.execute(f"SELECT {_ROW} FROM session WHERE session_key = ?", (session_key,)).fetchone()
    view = _view(found)
    return (view.summary if view else _summary(found)).session_id, _session(found)


def _view(row: Sequence[Any]) -> Projection | None:
    """What is derived from the events, if its checksum fits; it knows the session's name as well."""
    try:
        view = _VIEW.decode(row[6])
    except (msgspec.DecodeError, TypeError):
        return None
    return view if row_checksum(view.summary, row[6]) == row[7] else None


def _session(row: Sequence[Any]) -> SessionRow | None:
    if (view := _view(row)) is None:
        return None
    summary = view.summary
    written = (summary.session_id, summary.events, summary.updated_ms, summary.pending_approvals, summary.cwd)
    stored = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in row[1:6]]
    return SessionRow(row[0], view) if stored == list(written) else None


def read_records(connection: sqlite3.Connection, session_id: str, after: int, limit: int, deltas: bool) -> list[Record]:
    """The next events above `after`, each verified; with deltas also without a gap."""
    after, limit = min(max(after, 0), _LARGEST_NUMBER), max(limit, 0)
    if not deltas:
        return _read_without_deltas(connection, session_id, after, limit)
    found = connection.execute(
        _READ, {"session_id": session_id, "after": after, "limit": limit, "bytes": BATCH_BYTES}
    ).fetchone()
    if found is None:
        return []
    last, text = found
    records = verified(session_id, _pieces(after, text)) if text is not None else []
    _check_complete(session_id, records, after, limit, last)
    return records


def _read_without_deltas(connection: sqlite3.Connection, session_id: str, after: int, limit: int) -> list[Record]:
    wanted = {"session_id": session_id, "after": after, "limit": limit, "bytes": BATCH_BYTES}
    (text,) = connection.execute(_READ_WITHOUT_DELTAS, {**wanted, "end": _LARGEST_NUMBER + 2}).fetchone()
    return verified(session_id, _pieces(after, text)) if text is not None else []


def _pieces(after: int, text: bytes) -> list[tuple[int, int, bytes]]:
    pieces: list[tuple[int, int, bytes]] = []
    try:
        for piece in text.split(b"\n"):
            number, checksum, line = piece.split(b" ", 2)
            pieces.append((int(number), int(checksum), line))
    except ValueError:
        pieces.append(((pieces[-1][0] if pieces else after) + 1, _NO_CHECKSUM, b""))
    return pieces


def _check_complete(session_id: str, records: list[Record], after: int, limit: int, last: int) -> None:
    end = records[-1].event_id if records else after
    if end - after != len(records):
        numbers = {record.event_id for record in records}
        raise damaged(session_id, next(number for number in range(after + 1, end + 1) if number not in numbers))
    is_full = len(records) >= limit or sum(len(record.line) for record in records) >= BATCH_BYTES
    if end < last and not is_full:
        raise damaged(session_id, end + 1)


def list_sessions(connection: sqlite3.Connection, wanted: SessionFilter) -> list[SessionSummary]:
    """Sessions, the newest first; those whose rows do not verify say so. The first hundred of 100,000 take 50 ms of
    CPU; an index for it would double what every append writes."""
    conditions = {
        "updated_ms < :before": wanted.updated_before_ms is not None,
        "cwd = :cwd": wanted.cwd is not None,
        "waiting > 0": wanted.awaiting_approval,
        "archived = :archived": wanted.archived != "with",
    }
    chosen = " AND ".join(condition for condition, is_set in conditions.items() if is_set) or "1"
    rows = connection.execute(
        f"SELECT {_ROW} FROM session WHERE {chosen} ORDER BY updated_ms DESC, session_id LIMIT :limit",
        {
            "before": wanted.updated_before_ms,
            "cwd": wanted.cwd,
            "archived": int(wanted.archived == "only"),
            "limit": max(wanted.limit, 0),
        },
    )
    return [_summary(row) for row in rows]


def _summary(row: Sequence[Any]) -> SessionSummary:
    if session := _session(row):
        return session.view.summary
    name = row[1].decode(errors="replace") if isinstance(row[1], bytes) else str(row[1])
    return SessionSummary(session_id=name, damaged=True)


def list_approvals(connection: sqlite3.Connection) -> list[PendingApproval]:
    """Questions without an answer. Those of a damaged session are left out."""
    rows = connection.execute(f"SELECT {_ROW} FROM session WHERE waiting > 0 ORDER BY session_key").fetchall()
    questions: list[PendingApproval] = []
    for session in filter(None, map(_session, rows)):
        with contextlib.suppress(LogDamaged):
            questions += _questions(connection, session)
    return questions


def _questions(connection: sqlite3.Connection, session: SessionRow) -> list[PendingApproval]:
    session_id = session.view.summary.session_id
    found = [
        connection.execute(
            "SELECT event_id, checksum, line FROM event WHERE session_key = ? AND event_id = ?",
            (session.session_key, event_id),
        ).fetchone()
        for event_id in session.view.approvals.values()
    ]
    if None in found:
        raise damaged(session_id, None)
    return [asked(session_id, record) for record in verified(session_id, found)]


def put_checkpoint(connection: sqlite3.Connection, session_key: int, session_id: str, checkpoint: Checkpoint) -> bool:
    """Replace the checkpoint of the session with this key; False when it is gone or has not so many events."""
    row = (
        session_key,
        checkpoint.event_id,
        checkpoint.format,
        checkpoint.data,
        checkpoint_checksum(session_id, checkpoint),
    )
    return connection.execute(_PUT_CHECKPOINT, (*row, session_key, checkpoint.event_id)).rowcount > 0


def load_checkpoint(connection: sqlite3.Connection, session_id: str) -> Checkpoint | None:
    """The checkpoint of a session if it is what was written. It is never worth an error: the events are still there."""
    try:
        row = connection.execute(_GET_CHECKPOINT, (session_id,)).fetchone()
    except sqlite3.Error:
        return None
    if row is None:
        return None
    event_id, form, data, checksum, last = row
    if not (all(isinstance(number, int) for number in (event_id, form, last)) and isinstance(data, bytes)):
        return None  # a damaged row can hold values of any type
    checkpoint = Checkpoint(event_id, form, data)
    return checkpoint if event_id <= last and checksum == checkpoint_checksum(session_id, checkpoint) else None
