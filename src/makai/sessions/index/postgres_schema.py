"""The tables of the index in PostgreSQL. They have no migrations: an index of an older format is built again."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from psycopg import errors

from makai.core.errors import StorageUnavailable
from makai.sessions.index.base import IndexDamaged
from makai.sessions.log.postgres.connecting import Connection

VERSION: Final = 1
"""Of tables and extraction: an older one means that the index is built again."""
NAMES: Final = ("index_session", "index_entry", "index_text", "index_usage")
"""The tables that hold something of sessions."""
_TABLES: Final = """
CREATE TABLE index_session (
    session_key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id  TEXT COLLATE "C" NOT NULL UNIQUE,
    created_ms  BIGINT NOT NULL,
    updated_ms  BIGINT NOT NULL,
    last        BIGINT NOT NULL,
    cwd         TEXT,
    archived    BOOLEAN NOT NULL,
    fold        BYTEA NOT NULL
);
CREATE INDEX index_session_updated ON index_session (updated_ms);

-- What is searched is apart from what is shown: a search reads many rows of the one and few of the other.
CREATE TABLE index_entry (
    session_key BIGINT NOT NULL,
    event_id    BIGINT NOT NULL,
    kind        SMALLINT NOT NULL,
    words       TSVECTOR NOT NULL,
    PRIMARY KEY (session_key, event_id)
);
CREATE INDEX index_entry_words ON index_entry USING gin (words) WITH (gin_pending_list_limit = 512);
CREATE TABLE index_text (
    session_key BIGINT NOT NULL,
    event_id    BIGINT NOT NULL,
    text        TEXT NOT NULL,
    sequence    TEXT NOT NULL,
    PRIMARY KEY (session_key, event_id)
);

CREATE TABLE index_usage (
    session_key BIGINT NOT NULL,
    slot        BIGINT NOT NULL,
    model_ref   TEXT NOT NULL,
    harness     TEXT NOT NULL,
    cwd         TEXT NOT NULL,
    runs        BIGINT NOT NULL,
    input       NUMERIC NOT NULL,
    output      NUMERIC NOT NULL,
    cache_read  NUMERIC NOT NULL,
    cache_write NUMERIC NOT NULL,
    cost_usd    DOUBLE PRECISION,
    PRIMARY KEY (session_key, slot, model_ref, harness, cwd)
);
CREATE INDEX index_usage_slot ON index_usage (slot);

CREATE TABLE index_state (
    compared_ms  BIGINT NOT NULL,
    compares     TEXT,
    compares_to  TIMESTAMPTZ NOT NULL,
    deletions    BIGINT NOT NULL,
    erased       BIGINT NOT NULL,
    erases_after TIMESTAMPTZ NOT NULL
);
INSERT INTO index_state VALUES (0, NULL, '-infinity', 0, 0, '-infinity');
"""


async def prepare(connection: Connection) -> None:
    """Make the tables, unless they are there. Nodes that start at once wait for each other."""
    refusals = (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateObject)
    with suppress(*refusals):  # another node makes it in this moment, which IF NOT EXISTS overlooks
        await connection.execute("CREATE TABLE IF NOT EXISTS index_format (version INTEGER NOT NULL)")
    async with connection.transaction():
        await connection.execute("LOCK TABLE index_format IN EXCLUSIVE MODE")
        found = await (await connection.execute("SELECT version FROM index_format")).fetchone()
        version = found[0] if found else None
        if version is None:
            await _create(connection)
        elif version > VERSION:
            raise StorageUnavailable(
                f"The search index was made by a newer makai (format {version}, this one knows {VERSION}).",
                hint="Update makai on this machine.",
            )
        elif version < VERSION:
            raise IndexDamaged(f"The search index has the format {version}.")


async def reset(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute(f"DROP TABLE IF EXISTS index_format, index_state, {', '.join(NAMES)}".encode())
        await connection.execute("CREATE TABLE index_format (version INTEGER NOT NULL)")
        await _create(connection)


async def _create(connection: Connection) -> None:
    await connection.execute(_TABLES.encode())
    await connection.execute("INSERT INTO index_format VALUES (%s)", (VERSION,))
