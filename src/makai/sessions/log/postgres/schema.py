"""The tables in PostgreSQL and their migrations.

Columns that every append changes (`last`, `updated_ms`, `projection`, `checksum`) are in no index, and pages are filled
by half, so that PostgreSQL can put the new version of a row on the same page and need not touch an index. Lines are
BYTEA: they come back byte by byte, which JSONB does not promise.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from makai.core.errors import StorageUnavailable

MIGRATIONS: Final = (
    """
    CREATE TABLE session (
        session_key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session_id  TEXT COLLATE "C" NOT NULL UNIQUE,
        last        BIGINT NOT NULL,
        generation  BIGINT NOT NULL,
        owner       TEXT,
        place       TEXT,
        is_active   BOOLEAN NOT NULL,
        updated_ms  BIGINT NOT NULL,
        waiting     INTEGER NOT NULL,
        cwd         TEXT,
        archived    BOOLEAN NOT NULL,
        projection  BYTEA NOT NULL,
        checksum    BIGINT NOT NULL
    ) WITH (fillfactor = 50);
    CREATE INDEX session_owner ON session (owner);
    CREATE INDEX session_waiting ON session (session_key) WHERE waiting > 0;
    CREATE INDEX session_abandoned ON session (session_key) WHERE is_active AND owner IS NULL;

    CREATE TABLE event (
        session_key BIGINT NOT NULL,
        event_id    BIGINT NOT NULL,
        checksum    BIGINT NOT NULL,
        is_delta    BOOLEAN NOT NULL,
        line        BYTEA NOT NULL,
        PRIMARY KEY (session_key, event_id)
    );

    -- Keys of deleted sessions whose events are still to be removed.
    CREATE TABLE deleted (session_key BIGINT PRIMARY KEY);

    CREATE TABLE checkpoint (
        session_key BIGINT PRIMARY KEY,
        event_id    BIGINT NOT NULL,
        format      INTEGER NOT NULL,
        data        BYTEA NOT NULL,
        checksum    BIGINT NOT NULL
    );

    CREATE TABLE permission_grant (
        folder   TEXT COLLATE "C" NOT NULL,
        rule     TEXT COLLATE "C" NOT NULL,
        data     BYTEA NOT NULL,
        checksum BIGINT NOT NULL,
        PRIMARY KEY (folder, rule)
    );

    CREATE TABLE trusted_folder (
        folder   TEXT COLLATE "C" PRIMARY KEY,
        trusted  BOOLEAN NOT NULL,
        checksum BIGINT NOT NULL
    );

    CREATE TABLE trusted_file (
        folder   TEXT COLLATE "C" NOT NULL,
        path     TEXT COLLATE "C" NOT NULL,
        data     BYTEA NOT NULL,
        checksum BIGINT NOT NULL,
        PRIMARY KEY (folder, path)
    );

    CREATE TABLE token (
        token_id TEXT COLLATE "C" PRIMARY KEY,
        data     BYTEA NOT NULL,
        checksum BIGINT NOT NULL
    );

    -- One row per start of a process.
    CREATE TABLE node (
        node_id    TEXT COLLATE "C" PRIMARY KEY,
        name       TEXT COLLATE "C" NOT NULL,
        home       TEXT COLLATE "C" NOT NULL,
        address    TEXT NOT NULL,
        labels     TEXT[] NOT NULL,
        started_ms BIGINT NOT NULL,
        draining   BOOLEAN NOT NULL DEFAULT false,
        expires_at TIMESTAMPTZ NOT NULL
    ) WITH (fillfactor = 50);

    -- Requests to a node that cannot be reached over the network, and their answers.
    CREATE TABLE relayed_request (
        request_id TEXT COLLATE "C" PRIMARY KEY,
        node_id    TEXT COLLATE "C" NOT NULL,
        frame      BYTEA NOT NULL,
        answer     BYTEA,
        expires_at TIMESTAMPTZ NOT NULL
    );
    CREATE INDEX relayed_request_node ON relayed_request (node_id) WHERE answer IS NULL;
    """,
    # For lists, the newest first. `updated_ms` itself must not be in an index: it changes with every append. This one
    # changes at most once in 65.5 seconds, and the sessions of one such span are sorted when they are listed.
    """
    ALTER TABLE session ADD COLUMN updated_span BIGINT GENERATED ALWAYS AS (updated_ms >> 16) STORED;
    CREATE INDEX session_updated ON session (updated_span);
    """,
    """
    -- What this database is in a store of several; no row in a store of one. `shard_map` explains the columns.
    CREATE TABLE shard_map (
        one         BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
        name        TEXT COLLATE "C" NOT NULL,
        is_first    BOOLEAN NOT NULL,
        names       TEXT[] NOT NULL,
        store_id    TEXT NOT NULL,
        database_id TEXT NOT NULL
    );

    -- In the first database: which database each shard is.
    CREATE TABLE shard (
        name        TEXT COLLATE "C" PRIMARY KEY,
        database_id TEXT NOT NULL
    );
    """,
)
"""Each brings the database from the version that is its index to the next; the table `format` holds the version."""

_ATTEMPTS: Final = 5


_MADE_MEANWHILE: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DuplicateTable,
    psycopg.errors.DuplicateObject,
)


async def migrate(connection: psycopg.AsyncConnection[Any], migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the tables to the newest version, all steps or none. Nodes that start at once wait for each other."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await _migrate(connection, migrations)
            return
        except _MADE_MEANWHILE:
            # Another node made the first table in the same moment; IF NOT EXISTS does not wait for it.
            if attempt == _ATTEMPTS:
                raise


async def _migrate(connection: psycopg.AsyncConnection[Any], migrations: tuple[str, ...]) -> None:
    found = await (await connection.execute("SELECT to_regclass('format') IS NOT NULL")).fetchone()
    if found is None or not found[0]:
        await connection.execute("CREATE TABLE format (version INTEGER NOT NULL, starts BIGINT NOT NULL)")
        await connection.execute("INSERT INTO format VALUES (0, 0)")
    if await _version(connection, migrations) < len(migrations):
        await connection.execute("LOCK TABLE format IN ACCESS EXCLUSIVE MODE")
        for script in migrations[await _version(connection, migrations) :]:
            await connection.execute(script.encode())
        await connection.execute("UPDATE format SET version = %s", (len(migrations),))


async def _version(connection: psycopg.AsyncConnection[Any], migrations: tuple[str, ...]) -> int:
    found = await (await connection.execute("SELECT version FROM format")).fetchone()
    version = int(found[0]) if found else 0
    if version > len(migrations):
        raise StorageUnavailable(
            f"The sessions were written by a newer makai (format {version}, this one knows {len(migrations)}).",
            hint="Update makai, or name another database in [store] of config.toml.",
        )
    return version
