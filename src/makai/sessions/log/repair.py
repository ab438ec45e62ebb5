"""Finds damage in a stored log, and makes the log readable again.

`check` may run beside the owner of the sessions, `repair` must own them. Both block.

Repair writes a new file and puts it in the place of the old one, which is kept. A damaged event is replaced by a notice
of the same number, so no client's cursor becomes wrong. Grants and trust are copied as they are; folding them again
would bring back what was revoked. Checkpoints are not copied: they may rest on events that are now notices.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from makai.auth.private_files import sync_directory
from makai.core.errors import LogDamaged, StorageUnavailable
from makai.sessions.log import encoding, leases, permissions, projection, schema, store, tokens
from makai.sessions.log.base import LogProblem, LogReport, Record
from makai.sessions.log.leases import HomeLock
from makai.sessions.log.writer import unavailable

_AT_ONCE = 500
_ORPHANS = """
SELECT count(*) FROM event
WHERE session_key NOT IN (SELECT session_key FROM session UNION ALL SELECT session_key FROM deleted)
"""
_HIDDEN = """
SELECT count(*) FROM sound_run AS run JOIN event ON event.session_key = run.session_key
WHERE event_id BETWEEN run.first AND run.last AND NOT is_delta
"""


class _Found(msgspec.Struct, frozen=True):
    """A session as far as it can be read."""

    session_id: str
    session_key: int
    row: projection.SessionRow | None
    last: int


def check(home: Path) -> LogReport:
    try:
        with closing(schema.open_reader(home / schema.FILE_NAME)) as connection:
            connection.execute("BEGIN")  # all statements read one moment of the log, whatever its owner commits
            return _check(connection)
    except sqlite3.Error as error:
        raise unavailable(error) from None


def repair(home: Path) -> LogReport:
    """Make every session readable; changes nothing when nothing is damaged."""
    path = home / schema.FILE_NAME
    lock = HomeLock(home)
    try:
        _empty_wal(path)
        report = check(home)
        if not report.problems:
            return report
        return msgspec.structs.replace(report, kept_as=str(_rewrite(path)))
    except (sqlite3.Error, OSError) as error:
        raise unavailable(error) from None
    finally:
        lock.release()


def _check(connection: sqlite3.Connection) -> LogReport:
    problems = _problems_of_the_file(connection) + _problems_beside_the_events(connection)
    events = 0
    sessions = _sessions(connection)
    for session in sessions:
        events += session.last
        problems += _problems(connection, session)
    return LogReport(sessions=len(sessions), events=events, problems=tuple(problems))


def _problems_of_the_file(connection: sqlite3.Connection) -> list[LogProblem]:
    try:
        told = [text.decode(errors="replace") for (text,) in connection.execute("PRAGMA integrity_check")]
        (orphans,) = connection.execute(_ORPHANS).fetchone()
    except sqlite3.DatabaseError as error:
        return [LogProblem("", None, str(error))]
    told += [f"{orphans} events belong to no session"] if orphans else []
    return [LogProblem("", None, text) for text in told if text != "ok"]


def _problems_beside_the_events(connection: sqlite3.Connection) -> list[LogProblem]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < len(schema.MIGRATIONS):
        return []  # not opened by this version yet: the tables are not there
    _, _, damaged = permissions.salvaged(connection)
    _, damaged_tokens = tokens.salvaged(connection)
    try:
        (hidden,) = connection.execute(_HIDDEN).fetchone()
    except sqlite3.DatabaseError as error:
        return [LogProblem("", None, str(error))]
    counts = {
        "grants or words of trust are damaged": damaged,
        "tokens are damaged": damaged_tokens,
        "events are noted as deltas and are none": hidden,
    }
    return [LogProblem("", None, f"{count} {what}") for what, count in counts.items() if count]


def _problems(connection: sqlite3.Connection, session: _Found) -> Iterator[LogProblem]:
    view = projection.empty(session.session_id)
    whole = True
    for event_id, record in _scan(connection, session):
        if record is None:
            whole = False
            yield LogProblem(session.session_id, event_id, "damaged or missing")
        else:
            view = projection.followed(view, encoding.decoded_one(record))
    if session.row is None:
        yield LogProblem(session.session_id, None, "its entry in the list of sessions is damaged")
    elif whole and not projection.is_same(session.row.view, view):
        yield LogProblem(session.session_id, None, "its entry in the list of sessions differs from its events")


def _sessions(connection: sqlite3.Connection) -> list[_Found]:
    rows = connection.execute("SELECT session_key FROM session ORDER BY session_key").fetchall()
    return [_find(connection, key) for (key,) in rows]


def _find(connection: sqlite3.Connection, key: int) -> _Found:
    name, row = store.load_row(connection, key)
    (last,) = connection.execute("SELECT max(event_id) FROM event WHERE session_key = ?", (key,)).fetchone()
    stated = row.view.summary.events if row else 0
    return _Found(name, key, row, max(last or 0, stated))


def _scan(connection: sqlite3.Connection, session: _Found) -> Iterator[tuple[int, Record | None]]:
    """Every number up to the last, with its event where that can be read and verifies."""
    for start in range(1, session.last + 1, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, session.last + 1))
        try:
            found = _good(connection, session, numbers)
        except sqlite3.DatabaseError:  # a damaged page: read each event by itself
            found = {}
            for number in numbers:
                with suppress(sqlite3.DatabaseError):
                    found |= _good(connection, session, range(number, number + 1))
        yield from ((number, found.get(number)) for number in numbers)


def _good(connection: sqlite3.Connection, session: _Found, numbers: range) -> dict[int, Record]:
    rows = connection.execute(
        "SELECT event_id, checksum, line FROM event WHERE session_key = ? AND event_id BETWEEN ? AND ?",
        (session.session_key, numbers[0], numbers[-1]),
    ).fetchall()
    good: dict[int, Record] = {}
    for row in rows:
        try:
            (record,) = encoding.verified(session.session_id, [row])
        except (LogDamaged, TypeError):  # a damaged row can hold values of any type
            continue
        good[record.event_id] = record
    return good


def _empty_wal(path: Path) -> None:
    """Everything into the database itself: a WAL must never lie beside a file it was not made for."""
    schema.open_writer(path).close()
    if path.with_name(f"{path.name}-wal").exists():
        raise StorageUnavailable(f"{path} cannot be closed cleanly.", hint="End other programs that read it.")


def _rewrite(path: Path) -> Path:
    fresh = path.with_name(f"{path.name}.repaired")
    fresh.unlink(missing_ok=True)
    with closing(schema.open_reader(path)) as old, closing(schema.open_writer(fresh)) as new:
        for session in _sessions(old):
            _copy(old, new, session)
        _copy_beside(old, new)
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)  # left by the reader, and empty
    kept_as = path.with_name(f"{path.name}.damaged-{time.time_ns() // 1_000_000}")
    os.link(path, kept_as)
    os.replace(fresh, path)
    sync_directory(path.parent)
    return kept_as


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, session: _Found) -> None:
    view = projection.empty(session.session_id)
    new.execute("BEGIN IMMEDIATE")
    for event_id, record in _scan(old, session):
        if record is not None:
            stored = encoding.stored_again(session.session_id, record)
        else:
            stored = encoding.substitute(session.session_id, event_id, view.latest_ms)
        view = projection.followed(view, encoding.decoded_one(stored.record))
        store.insert_events(new, [(session.session_key, stored)])
    if view.summary.events:
        store.put_sessions(new, [projection.SessionRow(session.session_key, view)])
    new.execute("COMMIT")


def _copy_beside(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    grants, trust, _ = permissions.salvaged(old)
    new.execute("BEGIN IMMEDIATE")
    new.execute(schema.NOTE_DELTA_RUNS)
    with suppress(sqlite3.DatabaseError):  # the lease may be damaged as well
        leases.copy_generation(old, new)
    permissions.put_grants(new, grants)
    for word in trust:
        permissions.put_trust(new, word)
    for token in tokens.salvaged(old)[0]:
        tokens.store(new, token)
    new.execute("COMMIT")
