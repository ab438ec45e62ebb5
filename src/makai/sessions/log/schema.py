"""The database file: how it is opened, its tables, and their migrations. WAL with `synchronous=FULL`: a commit returns
after its fsync, so it survives a power cut (NORMAL loses the last ones), and readers never wait for the writer. The
writer runs checkpoints after it has acknowledged, not inside a commit. Text is read as bytes, because damaged text need
not be UTF-8."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from makai.auth.private_files import sync_directory
from makai.core.errors import StorageUnavailable

FILE_NAME: Final = "sessions.db"

SEAL: Final = "(session_key * 7 + first * 31 + last * 17) % 65521"
"""Of a run of deltas: differs for every flipped bit, because 65521 is a prime."""
NOTE_DELTA_RUNS: Final = f"""
    INSERT INTO delta_run (session_key, first, last, seal)
    SELECT session_key, first, last, {SEAL}
    FROM (
        SELECT session_key, event_id - 1 AS last, 1 + lag(event_id, 1, 0) OVER (
            PARTITION BY session_key ORDER BY event_id
        ) AS first
        FROM event WHERE NOT is_delta
    )
    WHERE last - first >= 63;
"""
"""Into an empty table: the runs of 64 deltas and more that another event follows."""

MIGRATIONS: Final = (
    # Sessions are told apart by a key that is not given again while an event has it: the events of a deleted session
    # can be removed piece by piece, while another one of the same name grows.
    """
    CREATE TABLE session (
        session_key INTEGER PRIMARY KEY,
        session_id  TEXT NOT NULL UNIQUE,
        last        INTEGER NOT NULL,
        updated_ms  INTEGER NOT NULL,
        waiting     INTEGER NOT NULL,
        cwd         TEXT,
        projection  BLOB NOT NULL,
        checksum    INTEGER NOT NULL
    );
    CREATE INDEX session_waiting ON session (waiting) WHERE waiting > 0;
    CREATE TABLE event (
        session_key INTEGER NOT NULL,
        event_id    INTEGER NOT NULL,
        checksum    INTEGER NOT NULL,
        is_delta    INTEGER NOT NULL,
        line        BLOB NOT NULL,
        PRIMARY KEY (session_key, event_id)
    ) WITHOUT ROWID;
    CREATE TABLE deleted (session_key INTEGER PRIMARY KEY);
    """,
    # Long runs of nothing but deltas, so that reading without them leaps over their pages. (A partial index of the rest
    # does the same; with it a hundred sessions appended 8 % fewer events a second, with runs 2 %.)
    # A run whose seal is wrong is damaged and not believed: what it would hide is read, and left out one by one.
    f"""
    CREATE TABLE delta_run (
        session_key INTEGER NOT NULL,
        first       INTEGER NOT NULL,
        last        INTEGER NOT NULL,
        seal        INTEGER NOT NULL,
        PRIMARY KEY (session_key, first)
    ) WITHOUT ROWID;
    CREATE VIEW sound_run AS
    SELECT * FROM delta_run WHERE seal = {SEAL};
    {NOTE_DELTA_RUNS}
    CREATE TABLE checkpoint (
        session_key INTEGER PRIMARY KEY,
        event_id    INTEGER NOT NULL,
        format      INTEGER NOT NULL,
        data        BLOB NOT NULL,
        checksum    INTEGER NOT NULL
    );
    CREATE TABLE permission_grant (
        folder   TEXT NOT NULL,
        rule     TEXT NOT NULL,
        data     BLOB NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (folder, rule)
    ) WITHOUT ROWID;
    CREATE TABLE trusted_folder (
        folder   TEXT PRIMARY KEY,
        trusted  INTEGER NOT NULL,
        checksum INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    # One row: who owns the store. Every commit compares the generation.
    """
    CREATE TABLE lease (
        only       INTEGER PRIMARY KEY CHECK (only = 1),
        holder     TEXT NOT NULL,
        generation INTEGER NOT NULL,
        expires_ms INTEGER
    );
    INSERT INTO lease VALUES (1, '', 0, NULL);
    """,
    # Tokens of callers, by the hash of their secrets.
    """
    CREATE TABLE token (
        token_id   TEXT PRIMARY KEY,
        name       TEXT NOT NULL,
        scope      TEXT NOT NULL,
        digest     TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        session_id TEXT,
        used_ms    INTEGER,
        revoked_ms INTEGER,
        checksum   INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    # The content of project files that was trusted with a folder.
    """
    CREATE TABLE trusted_file (
        folder   TEXT NOT NULL,
        path     TEXT NOT NULL,
        data     BLOB NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (folder, path)
    ) WITHOUT ROWID;
    """,
    # For lists only: what counts is in the projection. Sessions of older versions are not archived.
    """
    ALTER TABLE session ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
    """,
)
"""Each brings the database from the version that is its index to the next; `PRAGMA user_version` counts them."""

_LOCK_WAIT_S: Final = 10.0
"""Only a person's own sqlite3 shell can hold a lock; no makai process does."""
_WAL_KEPT_BYTES: Final = 64 * 1024 * 1024


def open_writer(path: Path, migrations: Sequence[str] = MIGRATIONS) -> sqlite3.Connection:
    """The one connection that writes; makes the file and its tables when they are missing."""
    _create(path)
    connection = sqlite3.connect(path, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
    connection.text_factory = bytes
    try:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_KEPT_BYTES}")
        migrate(connection, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def open_unsynced(path: Path) -> sqlite3.Connection:
    """A connection of the writer's thread that commits without an fsync; the writer's next commit does it. It never
    waits for a lock, and never makes a file or a table."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("synchronous=NORMAL", "wal_autocheckpoint=0"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
    connection.text_factory = bytes
    return connection


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Bring the tables to the newest version, each step whole or not at all."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise StorageUnavailable(
            f"The sessions were written by a newer makai (format {version}, this one knows {len(migrations)}).",
            hint="Update makai, or set MAKAI_HOME to another folder.",
        )
    for number, script in enumerate(migrations[version:], version + 1):
        # executescript commits before it starts and knows no transaction of its own.
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version={number}; COMMIT;")


def _create(path: Path) -> None:
    """An empty file that only its owner can read; SQLite gives its side files the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    # A file is durable when its name is, and its folder may be new as well.
    sync_directory(path.parent)
    sync_directory(path.parent.parent)
