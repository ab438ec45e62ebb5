"""Rows of tokens: who may call the server, how much, until when. Blocking. Only the hash of a token's secret is stored.
Every row has a checksum, and a row that does not verify is left out: a damaged token does not count."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from makai.core.errors import InvalidRequest
from makai.sessions.log.base import StoredToken

MAX_TOKENS: Final = 1000
KEPT_MS: Final = 90 * 24 * 3600 * 1000
"""How long a token that expired or was revoked stays in the list."""
_FIELDS: Final = StoredToken.__struct_fields__
_SELECT: Final = f"SELECT {', '.join(_FIELDS)}, checksum FROM token"


def to_remove(tokens: Iterable[StoredToken], new: StoredToken) -> list[str]:
    """The ids of tokens that make room for `new`; refuses one that cannot be stored beside the others."""
    others = [token for token in tokens if token.token_id != new.token_id]
    if any(token.name == new.name and token.is_live(new.created_ms) for token in others):
        hint = f"Choose another name, or revoke it: `makai tokens revoke {new.name}`."
        raise InvalidRequest(f"There is a token {new.name!r} already.", hint=hint)
    old = [token.token_id for token in others if (token.revoked_ms or token.expires_ms) + KEPT_MS < new.created_ms]
    if len(others) - len(old) >= MAX_TOKENS:
        raise InvalidRequest(f"There are {MAX_TOKENS} tokens.", hint="Ended ones are removed after 90 days.")
    return old


def list_tokens(connection: sqlite3.Connection) -> list[StoredToken]:
    rows = connection.execute(f"{_SELECT} ORDER BY created_ms, token_id").fetchall()
    return [token for row in rows if (token := _token(row)) is not None]


def put_token(connection: sqlite3.Connection, token: StoredToken) -> bool:
    """Insert or replace; always True."""
    for token_id in to_remove(list_tokens(connection), token):
        connection.execute("DELETE FROM token WHERE token_id = ?", (token_id,))
    store(connection, token)
    return True


def revoke(connection: sqlite3.Connection, token_id: str, now_ms: int) -> bool:
    """A row that is damaged is removed: no part of it can be relied upon."""
    token = next((token for token in list_tokens(connection) if token.token_id == token_id), None)
    if token is None:
        return connection.execute("DELETE FROM token WHERE token_id = ?", (token_id,)).rowcount > 0
    if token.revoked_ms is None:
        store(connection, msgspec.structs.replace(token, revoked_ms=now_ms))
    return True


def note_use(connection: sqlite3.Connection, token_ids: Sequence[str], now_ms: int) -> bool:
    """Always True."""
    for token in list_tokens(connection):
        if token.token_id in token_ids:
            store(connection, msgspec.structs.replace(token, used_ms=now_ms))
    return True


def store(connection: sqlite3.Connection, token: StoredToken) -> None:
    row = tuple(getattr(token, name) for name in _FIELDS)
    connection.execute("DELETE FROM token WHERE token_id = ?", (token.token_id,))
    connection.execute(f"INSERT INTO token VALUES ({', '.join('?' * len(row))}, ?)", (*row, _checksum(token)))


def salvaged(connection: sqlite3.Connection) -> tuple[list[StoredToken], int]:
    """Everything that verifies, and how many rows do not; a table that cannot be read to its end counts as one."""
    found: list[StoredToken] = []
    damaged = 0
    try:
        for row in connection.execute(_SELECT):
            token = _token(row)
            damaged += token is None
            found += [] if token is None else [token]
    except sqlite3.DatabaseError:
        damaged += 1
    return found, damaged


def _token(row: tuple[Any, ...]) -> StoredToken | None:
    values = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in row[:-1]]
    try:
        token = msgspec.convert(dict(zip(_FIELDS, values, strict=True)), StoredToken)
    except msgspec.ValidationError:  # a damaged row can hold values of any type
        return None
    return token if row[-1] == _checksum(token) else None


def _checksum(token: StoredToken) -> int:
    return crc32(msgspec.json.encode(token))
