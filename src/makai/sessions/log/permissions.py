"""Rows of permissions that outlive a session: rules granted for a folder, and trust in a folder. Blocking. Every row
has a checksum, and a row that does not verify allows nothing: a damaged grant is left out, so that the call asks again,
and a folder whose row is damaged is not trusted, whatever the folders above it are. Paths are absolute and were
resolved by the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any, Final
from zlib import crc32

import msgspec

from makai.core.errors import InvalidRequest
from makai.sessions.log.base import StoredGrant, TrustedFile, TrustedFolder

MAX_PATH_LENGTH: Final = 4096
"""PATH_MAX of Linux; nothing longer can be opened."""
_GRANT: Final = msgspec.json.Decoder(StoredGrant)
_FILE: Final = msgspec.json.Decoder(TrustedFile)


def checked_folder(folder: str) -> str:
    """A folder in the form that is stored. Refuses what does not name one place by itself."""
    if not _is_plain(folder):
        raise InvalidRequest(f"A folder is an absolute path of at most {MAX_PATH_LENGTH} characters, without '..'.")
    return str(PurePosixPath("/" + folder.lstrip("/")))


def itself_and_above(folder: str) -> list[str]:
    """The folder and those that contain it, the nearest first; none when the text does not name a folder. With
    `/a/b/../c` the text would be beneath `/a/b` and the folder would not."""
    if not _is_plain(folder):
        return []
    path = PurePosixPath(checked_folder(folder))
    return [str(path), *map(str, path.parents)]


def _is_plain(folder: str) -> bool:
    if not folder.startswith("/") or len(folder) > MAX_PATH_LENGTH or "\x00" in folder:
        return False
    try:
        folder.encode()
    except UnicodeEncodeError:  # bytes that are no text, which no store holds
        return False
    return ".." not in PurePosixPath(folder).parts


def put_grants(connection: sqlite3.Connection, grants: Iterable[StoredGrant]) -> None:
    for grant in grants:
        data = msgspec.json.encode(grant)
        connection.execute(
            "INSERT OR REPLACE INTO permission_grant VALUES (?, ?, ?, ?)", (grant.folder, grant.rule, data, crc32(data))
        )


def newer_grants(present: Iterable[StoredGrant], given: Iterable[StoredGrant]) -> list[StoredGrant]:
    """Those of `given` that are about another folder or rule than those that are present, or newer."""
    known = {(grant.folder, grant.rule): grant.ts for grant in present}
    return [grant for grant in given if grant.ts > known.get((grant.folder, grant.rule), -1)]


def import_grants(connection: sqlite3.Connection, grants: Iterable[StoredGrant]) -> bool:
    """Store those that are newer than what is there; always True."""
    put_grants(connection, newer_grants(list_grants(connection, None), grants))
    return True


def list_grants(connection: sqlite3.Connection, folder: str | None) -> list[StoredGrant]:
    rows = connection.execute(
        "SELECT folder, rule, data, checksum FROM permission_grant WHERE ? IS NULL OR folder = ? ORDER BY folder, rule",
        (folder, folder),
    ).fetchall()
    return [grant for row in rows if (grant := _grant(row)) is not None]


def revoke(connection: sqlite3.Connection, folder: str, rule: str) -> bool:
    where = "folder = ? AND rule = ?"
    return connection.execute(f"DELETE FROM permission_grant WHERE {where}", (folder, rule)).rowcount > 0


def put_trust(connection: sqlite3.Connection, trust: TrustedFolder, files: Iterable[TrustedFile] = ()) -> bool:
    """Replace the decision about the folder; always True."""
    row = (trust.folder, trust.trusted, trust_checksum(trust))
    connection.execute("INSERT OR REPLACE INTO trusted_folder VALUES (?, ?, ?)", row)
    connection.execute("DELETE FROM trusted_file WHERE folder = ?", (trust.folder,))
    for file in files:
        data = msgspec.json.encode(file)
        checksum = crc32(data, crc32(trust.folder.encode()))
        connection.execute("INSERT INTO trusted_file VALUES (?, ?, ?, ?)", (trust.folder, file.path, data, checksum))
    return True


def trusted_files(connection: sqlite3.Connection, folder: str) -> list[TrustedFile]:
    rows = connection.execute(
        "SELECT data, checksum FROM trusted_file WHERE folder = ? ORDER BY path", (folder,)
    ).fetchall()
    seed = crc32(folder.encode())
    return [_FILE.decode(data) for data, checksum in rows if isinstance(data, bytes) and crc32(data, seed) == checksum]


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
    return trust if trust_checksum(trust) == checksum else None


def trust_checksum(trust: TrustedFolder) -> int:
    return crc32(trust.folder.encode(), crc32(b"%d" % trust.trusted))
