"""Opens the log that the configuration names. Only this module knows which stores there are."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from makai.core.config import STORE_VARIABLE, ClusterConfig, Config, StoreConfig
from makai.core.errors import InvalidRequest
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.log.base import EventLog
from makai.sessions.log.nodes import ClusterLog

if TYPE_CHECKING:
    from makai.sessions.log.postgres.log import PostgresLog
    from makai.sessions.log.postgres.membership import NodeSettings


def store_of(home: Path, config: Config) -> StoreConfig:
    """Where the sessions of a MAKAI_HOME are: what the variable says, which keeps a password out of the file, or the
    user's configuration."""
    url = os.environ.get(STORE_VARIABLE)
    return StoreConfig(url=url) if url else config.store


async def open_log(home: Path, config: StoreConfig | None = None, node: NodeSettings | None = None) -> EventLog:
    """Own the sessions of a MAKAI_HOME, or join those in PostgreSQL as `node`; by `store_of` it unless another one is
    given. Raises `HomeInUse`."""
    url = (config or store_of(home, read_config(home / CONFIG_FILE))).url
    if url == "sqlite":
        from makai.sessions.log.sqlite import SqliteLog

        return await SqliteLog.open(home)
    scheme = url.partition(":")[0]
    if scheme in ("postgres", "postgresql"):
        return await _open_postgres(home, url, node)
    raise InvalidRequest(
        f"Sessions cannot be stored in {scheme!r}; this version supports sqlite and postgres.",
        hint='Write url = "sqlite" or url = "postgres://…" in [store] of config.toml, or leave it out.',
    )


async def join_cluster(
    home: Path, config: StoreConfig, *, name: str, address: str, labels: tuple[str, ...], lease_s: float
) -> ClusterLog:
    """Join the sessions in PostgreSQL as a node, which `Node` describes. Raises `HomeInUse`."""
    _, settings = _postgres()
    return await _open_postgres(home, config.url, settings(name=name, address=address, labels=labels, lease_s=lease_s))


def is_postgres(config: StoreConfig) -> bool:
    return config.url.partition(":")[0] in ("postgres", "postgresql")


def _postgres() -> tuple[type[PostgresLog], type[NodeSettings]]:
    try:
        from makai.sessions.log.postgres.log import PostgresLog
        from makai.sessions.log.postgres.membership import NodeSettings
    except ImportError:
        raise InvalidRequest(
            "Sessions in PostgreSQL need the extra `postgres`, which is not installed.",
            hint="Install it: pip install 'makai[postgres]'.",
        ) from None
    return PostgresLog, NodeSettings


async def _open_postgres(home: Path, url: str, node: NodeSettings | None) -> PostgresLog:
    from makai.sessions.log.leases import HomeLock

    log, settings = _postgres()
    lock = await asyncio.to_thread(HomeLock, home)
    try:
        node = node or settings(name=socket.gethostname())
        place = f"{socket.gethostname()}:{await asyncio.to_thread(home.resolve)}"
        return await log.open(url, msgspec.structs.replace(node, home=place), lock)
    except BaseException:
        lock.release()
        raise


VISITOR_LEASE_S: Final = 6.0


async def open_beside(url: str, cluster: ClusterConfig) -> PostgresLog:
    """Join the sessions in PostgreSQL for a while, as a node beside the one of this machine, with the same folders."""
    log, settings = _postgres()
    name = cluster.name or socket.gethostname()
    labels = cluster.labels or (name,)
    return await log.open(url, settings(name=f"{name}-{uuid4().hex[:8]}", labels=labels, lease_s=VISITOR_LEASE_S))
