"""Which database is which part of a sharded store.

The first database holds the map: the names of the shards, and the id of the database of each. Every database holds its
own id, its name in the map, all names, and the id of the store. They are written when a database is first used, and
compared whenever a node joins it; so no two nodes can look for one session in different databases.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import msgspec

from makai.core.errors import InvalidRequest
from makai.sessions.log.postgres.connecting import Connection
from makai.sessions.log.postgres.rows import fetch

_COPY: Final = (
    "Copy the sessions to a new store with `makai sessions copy`; docs/deploy.md (Several databases) says how."
)
_COMPARE: Final = (
    "Give all nodes the same [store] in config.toml; docs/deploy.md (Several databases) says how to change it."
)

_LOCK: Final = "SELECT version FROM format FOR UPDATE"
_FIND: Final = "SELECT name, is_first, names, store_id, database_id FROM shard_map"
_IS_USED: Final = """
SELECT EXISTS (SELECT FROM session), EXISTS (SELECT FROM node WHERE expires_at > clock_timestamp())
"""
_WRITE: Final = """
INSERT INTO shard_map (name, is_first, names, store_id, database_id) VALUES (%s, %s, %s, %s, %s)
"""
_REGISTER: Final = "INSERT INTO shard (name, database_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"


class ShardRole(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says about one database."""

    name: str
    """Empty for the first database when it is no shard as well."""
    is_first: bool
    """Whether it holds what belongs to no session."""
    names: tuple[str, ...]
    """Of all shards, in order."""


class StoredRole(msgspec.Struct, frozen=True):
    """What a database says about itself."""

    role: ShardRole
    store_id: str
    database_id: str


async def check_shard(connection: Connection, shard: str | None) -> None:
    """Raise `InvalidRequest` unless the database is this shard, or, for None, belongs to no sharded store. In the
    transaction that joins: `take_role` waits for it, or it for that."""
    found = await _stored(connection)
    if found is not None and shard is None:
        part = f"the shard {found.role.name!r}" if found.role.name else "the first database"
        raise InvalidRequest(f"The database is {part} of a store with several databases.", hint=_COMPARE)
    if shard is not None and (found is None or found.role.name != shard):
        raise InvalidRequest(f"The database is not the shard {shard!r} any more.", hint=_COMPARE)


async def take_role(connection: Connection, role: ShardRole, store_id: str, database_id: str | None) -> StoredRole:
    """Make an unused database a part of a store, or compare what it is with what it has to be. `store_id` is that of
    the first database, empty for that itself; `database_id` is what the map says, None when this is not known yet."""
    async with connection.transaction():
        await fetch(connection, _LOCK)
        found = await _stored(connection)
        if found is None:
            found = await _first_use(connection, role, store_id, database_id)
    _compare(found, role, store_id, database_id)
    return found


async def shards_of(connection: Connection) -> dict[str, str]:
    """The map: the ids of databases by the names of shards, as far as they were used."""
    return dict(await fetch(connection, "SELECT name, database_id FROM shard"))


async def register(connection: Connection, name: str, database_id: str) -> None:
    """Enter a database into the map, unless the name has another one."""
    await fetch(connection, _REGISTER, (name, database_id))
    if (await shards_of(connection))[name] != database_id:
        raise _another_database(name)


async def _stored(connection: Connection) -> StoredRole | None:
    for name, is_first, names, store_id, database_id in await fetch(connection, _FIND):
        return StoredRole(ShardRole(name=name, is_first=is_first, names=tuple(names)), store_id, database_id)
    return None


async def _first_use(connection: Connection, role: ShardRole, store_id: str, database_id: str | None) -> StoredRole:
    what = _called(role)
    if database_id is not None:
        raise _another_database(role.name)
    ((has_sessions, has_nodes),) = await fetch(connection, _IS_USED)
    if has_sessions:
        raise InvalidRequest(f"{what} has sessions of a store with one database.", hint=_COPY)
    if has_nodes:
        raise InvalidRequest(
            f"{what} is used by a makai whose configuration has no shards.", hint="Stop it, then try again."
        )
    made = StoredRole(role, store_id or uuid4().hex, uuid4().hex)
    await fetch(connection, _WRITE, (role.name, role.is_first, list(role.names), made.store_id, made.database_id))
    return made


def _compare(found: StoredRole, role: ShardRole, store_id: str, database_id: str | None) -> None:
    what, stored = _called(role), found.role
    if stored.names != role.names:
        raise InvalidRequest(
            f"{what} belongs to a store with the shards {', '.join(stored.names)}, and [store.shards] names "
            f"{', '.join(role.names)}. The names of shards cannot be changed.",
            hint=f"Write the names as they were. To have others: {_COPY[0].lower()}{_COPY[1:]}",
        )
    if stored.name != role.name:
        raise InvalidRequest(f"{what} is {_role_in_words(stored)} of its store.", hint=_COMPARE)
    if stored.is_first != role.is_first:
        says = "also the first one" if stored.is_first else "only a shard"
        raise InvalidRequest(
            f"{what} is {says} of its store.",
            hint="`url` in [store] and the shard have to be the same address when they are the same database, and two "
            "addresses when they are two.",
        )
    if store_id and found.store_id != store_id:
        raise InvalidRequest(f"{what} belongs to another store than the one that `url` names.", hint=_COMPARE)
    if database_id is not None and found.database_id != database_id:
        raise _another_database(role.name)


def _called(role: ShardRole) -> str:
    return f"The database of the shard {role.name!r}" if role.name else "The first database (`url` in [store])"


def _role_in_words(role: ShardRole) -> str:
    return f"the shard {role.name!r}" if role.name else "the first database"


def _another_database(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"The address of the shard {name!r} names another database than the one that holds its sessions.",
        hint="Correct the address in [store.shards] of config.toml, or restore that database from its backup.",
    )
