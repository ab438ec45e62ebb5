"""Makes damaged sessions in a database readable again, as `log.repair` does in a file.

A damaged event is replaced by a notice of the same number, and the entry of its session is folded again. What is
replaced is handed to the caller first, who keeps it. No other node may be there: one that has a session in memory would
not see the change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from makai.sessions.log import encoding, projection
from makai.sessions.log.postgres.checking import pages, scan
from makai.sessions.log.postgres.connecting import Connection
from makai.sessions.log.postgres.permissions import remove_damaged
from makai.sessions.log.postgres.rows import ROW, fetch, row_of
from makai.sessions.log.postgres.writer import ACTIVE

_LOCK: Final = f"SELECT {ROW} FROM session WHERE session_key = %s FOR UPDATE"
_PUT_EVENT: Final = """
INSERT INTO event (session_key, event_id, checksum, is_delta, line) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (session_key, event_id)
DO UPDATE SET checksum = excluded.checksum, is_delta = excluded.is_delta, line = excluded.line
"""
# A node that owned the session has an older generation now: it cannot append, and reads the session again.
_PUT_SESSION: Final = """
UPDATE session SET
    last = %s, generation = generation + 1, owner = NULL, is_active = %s, updated_ms = %s, waiting = %s, cwd = %s,
    archived = %s, projection = %s, checksum = %s
WHERE session_key = %s
"""
_ORPHANS: Final = """
DELETE FROM event WHERE session_key NOT IN (SELECT session_key FROM session UNION ALL SELECT session_key FROM deleted)
RETURNING session_key, event_id, checksum, line
"""


class DamagedRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row as it was before the repair."""

    session_id: str = ""
    event_id: int | None = None
    """None: the entry of the session, or what `what` names."""
    checksum: int = 0
    data: bytes = b""
    what: str = ""


Keep: TypeAlias = Callable[[Sequence[DamagedRow]], Awaitable[None]]
"""Returns when the rows are stored elsewhere; only then they are replaced."""


async def repair(connection: Connection, keep: Keep) -> None:
    """Repair one session after the other, each in a transaction of its own."""
    keys = [found[0] async for found in pages(connection)]
    for key in keys:
        async with connection.transaction():
            await _repair_session(connection, key, keep)
    async with connection.transaction():
        removed = [DamagedRow(what=f"{table}: {key}") for table, key in await remove_damaged(connection)]
        for key, event_id, checksum, line in await fetch(connection, _ORPHANS):
            removed.append(DamagedRow("", event_id, checksum, line, f"event of the session with the key {key}"))
        if removed:
            await keep(removed)


async def _repair_session(connection: Connection, key: int, keep: Keep) -> None:
    found = await fetch(connection, _LOCK, (key,))
    if not found:
        return
    row, session_id = row_of(found[0]), found[0][1]
    view = projection.empty(session_id)
    damaged, substitutes = list[DamagedRow](), list[encoding.Stored]()
    async for scanned in scan(connection, key, session_id, row.view.summary.events if row else 0):
        record = scanned.record
        if record is None:
            if scanned.line:
                damaged.append(DamagedRow(session_id, scanned.event_id, scanned.checksum, scanned.line))
            substitutes.append(encoding.substitute(session_id, scanned.event_id, view.latest_ms))
            record = substitutes[-1].record
        view = projection.followed(view, encoding.decoded_one(record))
    if not substitutes and row is not None and projection.is_same(row.view, view):
        return
    await keep([*damaged, DamagedRow(session_id, None, found[0][7], found[0][6])])
    for stored in substitutes:
        values = (key, stored.record.event_id, stored.checksum, stored.is_delta, stored.record.line)
        await fetch(connection, _PUT_EVENT, values)
    await _put_entry(connection, key, view)


async def _put_entry(connection: Connection, key: int, view: projection.Projection) -> None:
    await fetch(connection, "DELETE FROM checkpoint WHERE session_key = %s", (key,))
    summary = view.summary
    if not summary.events:  # nothing is left of it
        await fetch(connection, "DELETE FROM session WHERE session_key = %s", (key,))
        return
    data = msgspec.json.encode(view)
    values: tuple[Any, ...] = (
        summary.events,
        summary.status in ACTIVE,
        summary.updated_ms,
        summary.pending_approvals,
        summary.cwd,
        summary.archived,
        data,
        projection.row_checksum(summary, data),
        key,
    )
    await fetch(connection, _PUT_SESSION, values)
