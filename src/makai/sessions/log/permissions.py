"""Rows of what people allowed or refused for longer than a session: rules for a folder, and trust in a folder.

In: grants folded from events, and a person's word about folders. Out: the same again. Blocking; transactions are known
elsewhere.

Every row has a checksum, and what does not verify allows nothing: a damaged grant is not there, so that the question is
asked again, and a folder whose row is damaged is not trusted, whatever the folders above it are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final
from zlib import crc32

import msgspec

from makai.sessions.log.base import StoredGrant, TrustedFolder

_GRANT: Final = msgspec.json.Decoder(StoredGrant)


def put_grants(connection: sqlite3.Connection, grants: Iterable[StoredGrant]) -> None:
    """Each in the place of what was said about the same folder and rule before."""
    for grant in grants:
        data = msgspec.json.encode(grant)
        connection.execute(
            "INSERT OR REPLACE INTO permission_grant VALUES (?, ?, ?, ?)", (grant.folder, grant.rule, data, crc32(data))
        )


def list_grants(connection: sqlite3.Connection, folder: str | None) -> list[StoredGrant]:
    """Of one folder, or of all; those that do not verify are left out."""
    rows = connection.execute(
        "SELECT folder, rule, data, checksum FROM permission_grant WHERE ? IS NULL OR folder = ? ORDER BY folder, rule",
        (folder, folder),
    ).fetchall()
    return [grant for row in rows if (grant := _grant(row)) is not None]


def revoke(connection: sqlite3.Connection, folder: str, rule: str) -> bool:
    """Forget a rule; False when there was none."""
    where = "folder = ? AND rule = ?"
    return connection.execute(f"DELETE FROM permission_grant WHERE {where}", (folder, rule)).rowcount > 0


def put_trust(connection: sqlite3.Connection, trust: TrustedFolder) -> bool:
    """In the place of what was said about the folder before; True, because it always is."""
    row = (trust.folder, trust.trusted, _trust_checksum(trust))
    connection.execute("INSERT OR REPLACE INTO trusted_folder VALUES (?, ?, ?)", row)
    return True


def is_trusted(connection: sqlite3.Connection, folders: list[str]) -> bool:
    """What the first of these folders that has a row says; False when none has."""
    places = ",".join("?" * len(folders))
    rows = connection.execute(
        f"SELECT folder, trusted, checksum FROM trusted_folder WHERE folder IN ({places})"
        " ORDER BY length(folder) DESC LIMIT 1",
        folders,
    ).fetchall()
    return any(trust.trusted for row in rows if (trust := _trust(row)) is not None)


def list_trusted(connection: sqlite3.Connection) -> list[TrustedFolder]:
    """Every decision that verifies, by folder."""
    rows = connection.execute("SELECT folder, trusted, checksum FROM trusted_folder ORDER BY folder").fetchall()
    return [trust for row in rows if (trust := _trust(row)) is not None]


def salvaged(connection: sqlite3.Connection) -> tuple[list[StoredGrant], list[TrustedFolder], int]:
    """Everything that verifies, and how many rows do not; a table that cannot be read to its end counts as one."""
    grant_rows, lost_grants = _readable(connection, "SELECT folder, rule, data, checksum FROM permission_grant")
    trust_rows, lost_trust = _readable(connection, "SELECT folder, trusted, checksum FROM trusted_folder")
    grants = [grant for row in grant_rows if (grant := _grant(row)) is not None]
    trust = [word for row in trust_rows if (word := _trust(row)) is not None]
    damaged = len(grant_rows) - len(grants) + len(trust_rows) - len(trust)
    return grants, trust, damaged + lost_grants + lost_trust


def _readable(connection: sqlite3.Connection, statement: str) -> tuple[list[tuple[Any, ...]], int]:
    rows: list[tuple[Any, ...]] = []
    try:
        for row in connection.execute(statement):
            rows.append(row)  # noqa: PERF402 - what was read before the error is kept
    except sqlite3.DatabaseError:
        return rows, 1
    return rows, 0


def _grant(row: tuple[Any, ...]) -> StoredGrant | None:
    folder, rule, data, checksum = row
    if not isinstance(data, bytes) or crc32(data) != checksum:
        return None
    grant = _GRANT.decode(data)
    return grant if (folder, rule) == (grant.folder.encode(), grant.rule.encode()) else None


def _trust(row: tuple[Any, ...]) -> TrustedFolder | None:
    folder, trusted, checksum = row
    if not isinstance(folder, bytes) or trusted not in (0, 1):
        return None
    trust = TrustedFolder(folder.decode(errors="replace"), trusted == 1)
    return trust if _trust_checksum(trust) == checksum else None


def _trust_checksum(trust: TrustedFolder) -> int:
    return crc32(trust.folder.encode(), crc32(b"%d" % trust.trusted))
