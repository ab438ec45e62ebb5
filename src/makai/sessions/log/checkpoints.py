"""Rows of checkpoints: what somebody derived from a session's events, so as not to read them all again.

In: bytes that mean something to whoever saves them, and nothing here. Out: the same bytes, or None when there are none
that can be relied upon: a checkpoint is never worth an error, because the events are still there. Blocking.

A row belongs to a session's key, which no other session gets, not even one of the same name.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final
from zlib import crc32

from makai.sessions.log.base import Checkpoint

_PUT: Final = """
INSERT OR REPLACE INTO checkpoint SELECT ?, ?, ?, ?, ? FROM session WHERE session_key = ? AND last >= ?
"""
_GET: Final = """
SELECT c.event_id, c.format, c.data, c.checksum, s.last
FROM session AS s JOIN checkpoint AS c USING (session_key) WHERE s.session_id = ?
"""


def put(connection: sqlite3.Connection, session_key: int, session_id: str, checkpoint: Checkpoint) -> bool:
    """In the place of the former one; False when the session is gone or has not got so far."""
    row = (session_key, checkpoint.event_id, checkpoint.format, checkpoint.data, _checksum(session_id, checkpoint))
    return connection.execute(_PUT, (*row, session_key, checkpoint.event_id)).rowcount > 0


def load(connection: sqlite3.Connection, session_id: str) -> Checkpoint | None:
    """The checkpoint of a session, if it is what was written."""
    try:
        row = connection.execute(_GET, (session_id,)).fetchone()
    except sqlite3.Error:
        return None
    return _verified(session_id, row) if row else None


def _verified(session_id: str, row: tuple[Any, ...]) -> Checkpoint | None:
    event_id, form, data, checksum, last = row
    if not (all(isinstance(number, int) for number in (event_id, form, last)) and isinstance(data, bytes)):
        return None  # a damaged row can hold values of any type
    checkpoint = Checkpoint(event_id, form, data)
    return checkpoint if event_id <= last and checksum == _checksum(session_id, checkpoint) else None


def _checksum(session_id: str, checkpoint: Checkpoint) -> int:
    numbers = b"".join(number.to_bytes(8, "big", signed=True) for number in (checkpoint.event_id, checkpoint.format))
    return crc32(checkpoint.data, crc32(numbers, crc32(session_id.encode())))
