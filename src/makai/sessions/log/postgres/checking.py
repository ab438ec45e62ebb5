"""Reads and verifies everything that is stored, as it is in one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from makai.core.errors import LogDamaged
from makai.sessions.log import encoding, projection
from makai.sessions.log.base import LogProblem, LogReport, Record
from makai.sessions.log.postgres.connecting import Connection
from makai.sessions.log.postgres.permissions import count_damaged
from makai.sessions.log.postgres.rows import ROW, fetch, row_of

_AT_ONCE: Final = 500
_ORPHANS: Final = """
SELECT count(*) FROM (SELECT DISTINCT session_key FROM event) AS used
WHERE session_key NOT IN (SELECT session_key FROM session UNION ALL SELECT session_key FROM deleted)
"""
_SESSIONS: Final = f"SELECT {ROW} FROM session WHERE session_key > %s ORDER BY session_key LIMIT {_AT_ONCE}"
_EVENTS: Final = f"""
SELECT event_id, checksum, line FROM event WHERE session_key = %s AND event_id > %s ORDER BY event_id LIMIT {_AT_ONCE}
"""


async def check(connection: Connection, belongs: Callable[[str], bool]) -> LogReport:
    """`belongs` says whether the session with an id is to be in this database."""
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        ((orphans,),) = await fetch(connection, _ORPHANS)
        counts = {"sessions are gone, and their events are not": orphans} | await count_damaged(connection)
        problems = [LogProblem("", None, f"{count} {what}") for what, count in counts.items() if count]
        sessions = events = 0
        async for found in pages(connection):
            row, session_id = row_of(found), found[1]
            sessions += 1
            last, told = await _problems(connection, found[0], session_id, row)
            events += last
            problems += told
            if not belongs(session_id):
                problems.append(LogProblem(session_id, None, "it is in the database of another shard"))
    return LogReport(sessions=sessions, events=events, problems=tuple(problems))


async def pages(connection: Connection) -> AsyncIterator[tuple[Any, ...]]:
    key = 0
    while page := await fetch(connection, _SESSIONS, (key,)):
        for found in page:
            yield found
        key = page[-1][0]


class ScannedEvent(msgspec.Struct, frozen=True):
    event_id: int
    record: Record | None
    """None when the event is damaged or missing."""
    checksum: int = 0
    line: bytes = b""
    """Both as they are stored, whatever they are; empty when the event is missing."""


async def scan(connection: Connection, key: int, session_id: str, stated: int) -> AsyncIterator[ScannedEvent]:
    """Every number up to the last one, or to `stated`, which is what the entry of the session says."""
    last = 0
    while page := await fetch(connection, _EVENTS, (key, last)):
        for event_id, checksum, line in page:
            for missing in range(last + 1, event_id):
                yield ScannedEvent(missing, None)
            last = event_id
            try:
                (record,) = encoding.verified(session_id, [(event_id, checksum, line)])
            except LogDamaged:
                yield ScannedEvent(event_id, None, checksum, line)
            else:
                yield ScannedEvent(event_id, record, checksum, line)
    for missing in range(last + 1, stated + 1):
        yield ScannedEvent(missing, None)


async def _problems(
    connection: Connection, key: int, session_id: str, row: projection.SessionRow | None
) -> tuple[int, list[LogProblem]]:
    """The number of the last event, and everything that is wrong with a session."""
    view, last, problems = projection.empty(session_id), 0, list[LogProblem]()
    async for scanned in scan(connection, key, session_id, row.view.summary.events if row else 0):
        last = scanned.event_id
        if scanned.record is None:
            problems.append(LogProblem(session_id, last, "damaged or missing"))
        else:
            view = projection.followed(view, encoding.decoded_one(scanned.record))
    if row is None:
        problems.append(LogProblem(session_id, None, "its entry in the list of sessions is damaged"))
    elif not problems and not projection.is_same(row.view, view):
        problems.append(LogProblem(session_id, None, "its entry in the list of sessions differs from its events"))
    return last, problems
