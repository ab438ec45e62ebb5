"""Damage for tests of logs: bits of a stored database, flipped in place."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from makai.sessions.log.base import LogReport

CELL_HEADER = 16
"""More bytes than SQLite writes before the line of an event: lengths, types, numbers and the checksum."""


class Flip(msgspec.Struct, frozen=True):
    detected: bool
    """By a reader of the session, or by the check."""
    confined: bool


def cells(database: Path) -> list[tuple[str, int, int]]:
    """Where each event is in the file: its session, and its first byte and the one after its last."""
    content = database.read_bytes()
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT session_id, line FROM event JOIN session USING (session_key)").fetchall()
    connection.close()
    return [
        (session_id, place - CELL_HEADER, place + len(line))
        for session_id, line in rows
        if content.count(line) == 1 and (place := content.index(line))
    ]


@contextmanager
def flipped_bits(database: Path, *bits: int) -> Iterator[None]:
    """With bits flipped; afterwards the file is as it was."""
    content = database.read_bytes()
    changed = bytearray(content)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    database.write_bytes(changed)
    try:
        yield
    finally:
        database.write_bytes(content)
        for side in ("-wal", "-shm"):
            database.with_name(database.name + side).unlink(missing_ok=True)


def flip(session_id: str, read: Mapping[str, int | str], report: LogReport) -> Flip:
    """Judge a flipped bit in the cell of a session's event by what could be read of each session."""
    others = [outcome for name, outcome in read.items() if name != session_id]
    return Flip(
        detected=isinstance(read[session_id], str) or bool(report.problems),
        confined=not any(isinstance(outcome, str) for outcome in others),
    )
