"""Opens the log that the configuration names. Only this module knows which stores there are."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from makai.core.config import STORE_VARIABLE, ClusterConfig, Config, StoreConfig, shard_variable
from makai.core.errors import InvalidRequest
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.log.base import EventLog
from makai.sessions.log.nodes import ClusterLog

if TYPE_CHECKING:
    from makai.sessions.log.leases import HomeLock
    from makai.sessions.log.postgres.log import PostgresLog
    from makai.sessions.log.postgres.membership import NodeSettings
    from makai.sessions.log.postgres.sharded import ShardedLog


def store_of(home: Path, config: Config) -> StoreConfig:
    """Where the sessions of a MAKAI_HOME are: what the variable says, which keeps a password out of the file, or the
    user's configuration."""
    store = config.store
    shards = {name: os.environ.get(shard_variable(name)) or address for name, address in store.shards.items()}
    return StoreConfig(url=os.environ.get(STORE_VARIABLE) or store.url, shards=shards)


async def open_log(home: Path, config: StoreConfig | None = None, node: NodeSettings | None = None) -> EventLog:
    """Own the sessions of a MAKAI_HOME, or join those in PostgreSQL as `node`; by `store_of` it unless another one is
    given. Raises `HomeInUse`."""
    store = config or store_of(home, read_config(home / CONFIG_FILE))
    if is_postgres(store):
        return await _open_postgres(home, store, node)
    scheme = store.url.partition(":")[0]
    if store.shards:
        raise InvalidRequest(
            f"Sessions in {scheme!r} cannot be divided among shards.",
            hint='Write url = "postgres://…" in [store] of config.toml, or remove [store.shards].',
        )
    if store.url == "sqlite":
        from makai.sessions.log.sqlite import SqliteLog

        return await SqliteLog.open(home)
    raise InvalidRequest(
        f"Sessions cannot be stored in {scheme!r}; this version supports sqlite and postgres.",
        hint='Write url = "sqlite" or url = "postgres://…" in [store] of config.toml, or leave it out.',
    )


async def join_cluster(
    home: Path, config: StoreConfig, *, name: str, address: str, labels: tuple[str, ...], lease_s: float
) -> ClusterLog:
    """Join the sessions in PostgreSQL as a node, which `Node` describes. Raises `HomeInUse`."""
    settings = _node_settings()(name=name, address=address, labels=labels, lease_s=lease_s)
    return await _open_postgres(home, config, settings)


def is_postgres(config: StoreConfig) -> bool:
    return _is_postgres(config.url)


def _is_postgres(url: str) -> bool:
    return url.startswith(("postgres:", "postgresql:"))


def _node_settings() -> type[NodeSettings]:
    try:
        from makai.sessions.log.postgres.membership import NodeSettings
    except ImportError:
        raise InvalidRequest(
            "Sessions in PostgreSQL need the extra `postgres`, which is not installed.",
            hint="Install it: pip install 'makai[postgres]'.",
        ) from None
    return NodeSettings


async def _open_postgres(home: Path, config: StoreConfig, node: NodeSettings | None) -> PostgresLog | ShardedLog:
    from makai.sessions.log.leases import HomeLock

    settings = _node_settings()
    lock = await asyncio.to_thread(HomeLock, home)
    try:
        node = node or settings(name=socket.gethostname())
        place = f"{socket.gethostname()}:{await asyncio.to_thread(home.resolve)}"
        return await _join(config, msgspec.structs.replace(node, home=place), lock)
    except BaseException:
        lock.release()
        raise


async def _join(config: StoreConfig, node: NodeSettings, lock: HomeLock | None) -> PostgresLog | ShardedLog:
    if not config.shards:
        from makai.sessions.log.postgres.log import PostgresLog

        return await PostgresLog.open(config.url, node, lock)
    for name, address in config.shards.items():
        if not _is_postgres(address):
            raise InvalidRequest(
                f"The shard {name!r} is not a database of PostgreSQL.",
                hint=f'Write {name} = "postgres://…" in [store.shards] of config.toml.',
            )
    from makai.sessions.log.postgres.sharded import ShardedLog

    return await ShardedLog.open(config.url, config.shards, node, lock)


VISITOR_LEASE_S: Final = 6.0


async def open_beside(config: StoreConfig, cluster: ClusterConfig) -> PostgresLog | ShardedLog:
    """Join the sessions in PostgreSQL for a while, as a node beside the one of this machine, with the same folders."""
    settings = _node_settings()
    name = cluster.name or socket.gethostname()
    labels = cluster.labels or (name,)
    visitor = settings(name=f"{name}-{uuid4().hex[:8]}", labels=labels, lease_s=VISITOR_LEASE_S)
    return await _join(config, visitor, None)


async def reach(config: StoreConfig) -> list[str]:
    """Connect to each database of a store in PostgreSQL, and change nothing. Returns where they are, without user and
    password. Raises `StorageUnavailable`."""
    _node_settings()  # raises when there is no driver
    from makai.sessions.log.postgres.connecting import Database

    databases = {config.url: Database(config.url)}
    databases |= {address: Database(address, name) for name, address in config.shards.items()}
    return await asyncio.gather(*(database.reach() for database in databases.values()))
