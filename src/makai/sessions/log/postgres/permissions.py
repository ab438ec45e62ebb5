"""Rows of permissions and tokens, which outlive sessions: rules granted for a folder, trust in a folder, and who may
call the server. A row that does not verify allows nothing. Each change is made by a node that has its lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from makai.sessions.log import permissions, tokens
from makai.sessions.log.base import StoredGrant, StoredToken, TrustedFile, TrustedFolder
from makai.sessions.log.postgres.connecting import Connection
from makai.sessions.log.postgres.rows import fetch, is_storable

_GRANT: Final = msgspec.json.Decoder(StoredGrant)
_FILE: Final = msgspec.json.Decoder(TrustedFile)
_TOKEN: Final = msgspec.json.Decoder(StoredToken)
_TRUST: Final = """
INSERT INTO trusted_folder VALUES (%s, %s, %s)
ON CONFLICT (folder) DO UPDATE SET trusted = excluded.trusted, checksum = excluded.checksum
"""
_PUT_GRANT: Final = """
INSERT INTO permission_grant VALUES (%s, %s, %s, %s)
ON CONFLICT (folder, rule) DO UPDATE SET data = excluded.data, checksum = excluded.checksum
"""
_PUT_TOKEN: Final = """
INSERT INTO token VALUES (%s, %s, %s)
ON CONFLICT (token_id) DO UPDATE SET data = excluded.data, checksum = excluded.checksum
"""
# Two nodes that make tokens of one name at once: the second waits, and is refused.
_LOCK_TOKENS: Final = "LOCK TABLE token IN SHARE ROW EXCLUSIVE MODE"


async def list_grants(connection: Connection, folder: str | None) -> list[StoredGrant]:
    if folder is not None and not is_storable(folder):
        return []
    found = await fetch(
        connection,
        "SELECT folder, rule, data, checksum FROM permission_grant"
        " WHERE %(folder)s::text IS NULL OR folder = %(folder)s ORDER BY folder, rule",
        {"folder": folder},
    )
    return [grant for row in found if (grant := _grant(row)) is not None]


def _grant(row: Sequence[Any]) -> StoredGrant | None:
    folder, rule, data, checksum = row
    if crc32(data) != checksum:
        return None
    grant = _GRANT.decode(data)
    return grant if (folder, rule) == (grant.folder, grant.rule) else None


async def revoke(connection: Connection, folder: str, rule: str) -> bool:
    if not (is_storable(folder) and is_storable(rule)):
        return False
    statement = "DELETE FROM permission_grant WHERE folder = %s AND rule = %s RETURNING true"
    return bool(await fetch(connection, statement, (folder, rule)))


async def import_grants(connection: Connection, grants: Sequence[StoredGrant]) -> None:
    """Store those that are newer than what is there."""
    await fetch(connection, "LOCK TABLE permission_grant IN SHARE ROW EXCLUSIVE MODE")
    for grant in permissions.newer_grants(await list_grants(connection, None), grants):
        data = msgspec.json.encode(grant)
        await fetch(connection, _PUT_GRANT, (grant.folder, grant.rule, data, crc32(data)))


async def put_trust(connection: Connection, trust: TrustedFolder, files: Sequence[TrustedFile]) -> None:
    """Replace the decision about a folder, and the files that were trusted with it."""
    await fetch(connection, _TRUST, (trust.folder, trust.trusted, permissions.trust_checksum(trust)))
    await fetch(connection, "DELETE FROM trusted_file WHERE folder = %s", (trust.folder,))
    for file in files:
        data = msgspec.json.encode(file)
        values = (trust.folder, file.path, data, crc32(data, crc32(trust.folder.encode())))
        await fetch(connection, "INSERT INTO trusted_file VALUES (%s, %s, %s, %s)", values)


async def trusted_files(connection: Connection, folder: str) -> list[TrustedFile]:
    if not is_storable(folder):
        return []
    statement = "SELECT data, checksum FROM trusted_file WHERE folder = %s ORDER BY path"
    found = await fetch(connection, statement, (folder,))
    seed = crc32(folder.encode())
    return [_FILE.decode(data) for data, checksum in found if crc32(data, seed) == checksum]


async def is_trusted(connection: Connection, folders: list[str]) -> bool:
    """What the first of these folders that has a row says; False when none has."""
    statement = "SELECT folder, trusted, checksum FROM trusted_folder WHERE folder = ANY(%s)"
    found = await fetch(connection, f"{statement} ORDER BY length(folder) DESC LIMIT 1", (folders,))
    return any(trust.trusted for row in found if (trust := _trust(row)) is not None)


async def list_trusted(connection: Connection) -> list[TrustedFolder]:
    found = await fetch(connection, "SELECT folder, trusted, checksum FROM trusted_folder ORDER BY folder")
    return [trust for row in found if (trust := _trust(row)) is not None]


def _trust(row: Sequence[Any]) -> TrustedFolder | None:
    trust = TrustedFolder(row[0], row[1])
    return trust if permissions.trust_checksum(trust) == row[2] else None


async def list_tokens(connection: Connection) -> list[StoredToken]:
    found = await fetch(connection, "SELECT token_id, data, checksum FROM token")
    sound = [_TOKEN.decode(data) for token_id, data, checksum in found if _token_checksum(token_id, data) == checksum]
    return sorted(sound, key=lambda token: (token.created_ms, token.token_id))


async def put_token(connection: Connection, token: StoredToken) -> None:
    await fetch(connection, _LOCK_TOKENS)
    old = tokens.to_remove(await list_tokens(connection), token)
    await fetch(connection, "DELETE FROM token WHERE token_id = ANY(%s)", (old,))
    await _store_token(connection, token)


async def revoke_token(connection: Connection, token_id: str, now_ms: int) -> bool:
    """A row that is damaged is removed: no part of it can be relied upon."""
    if not is_storable(token_id):
        return False
    await fetch(connection, _LOCK_TOKENS)
    token = next((token for token in await list_tokens(connection) if token.token_id == token_id), None)
    if token is None:
        return bool(await fetch(connection, "DELETE FROM token WHERE token_id = %s RETURNING true", (token_id,)))
    if token.revoked_ms is None:
        await _store_token(connection, msgspec.structs.replace(token, revoked_ms=now_ms))
    return True


async def note_token_use(connection: Connection, token_ids: Sequence[str], now_ms: int) -> None:
    await fetch(connection, _LOCK_TOKENS)
    for token in await list_tokens(connection):
        if token.token_id in token_ids:
            await _store_token(connection, msgspec.structs.replace(token, used_ms=now_ms))


async def count_damaged(connection: Connection) -> dict[str, int]:
    """How many rows do not verify, by what they are."""
    counts: dict[str, int] = {}
    for table, sound in (
        ("permission_grant", len(await list_grants(connection, None))),
        ("trusted_folder", len(await list_trusted(connection))),
        ("token", len(await list_tokens(connection))),
    ):
        ((rows,),) = await fetch(connection, f"SELECT count(*) FROM {table}")
        counts[table] = rows - sound
    beside = counts["permission_grant"] + counts["trusted_folder"]
    return {"grants or words of trust are damaged": beside, "tokens are damaged": counts["token"]}


async def remove_damaged(connection: Connection) -> list[tuple[str, str]]:
    """Remove rows that do not verify, which allow nothing. Returns the table and the key of each."""
    kept: dict[str, set[tuple[str, ...]]] = {
        "permission_grant": {(grant.folder, grant.rule) for grant in await list_grants(connection, None)},
        "trusted_folder": {(word.folder,) for word in await list_trusted(connection)},
        "token": {(token.token_id,) for token in await list_tokens(connection)},
    }
    keys = {"permission_grant": ("folder", "rule"), "trusted_folder": ("folder",), "token": ("token_id",)}
    removed = []
    for table, names in keys.items():
        found = {tuple(row) for row in await fetch(connection, f"SELECT {', '.join(names)} FROM {table}")}
        for key in sorted(found - kept[table]):
            same = " AND ".join(f"{name} = %s" for name in names)
            await fetch(connection, f"DELETE FROM {table} WHERE {same}", key)
            removed.append((table, " ".join(key)))
    return removed


async def _store_token(connection: Connection, token: StoredToken) -> None:
    data = msgspec.json.encode(token)
    await fetch(connection, _PUT_TOKEN, (token.token_id, data, _token_checksum(token.token_id, data)))


def _token_checksum(token_id: str, data: bytes) -> int:
    return crc32(data, crc32(token_id.encode()))
