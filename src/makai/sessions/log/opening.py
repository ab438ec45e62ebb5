"""Opens the log that the configuration names. Only this module knows which stores there are."""

from __future__ import annotations

import asyncio
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from makai.core.config import ClusterConfig, StoreConfig
from makai.core.errors import InvalidRequest
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.log.base import EventLog

if TYPE_CHECKING:
    from makai.sessions.log.postgres.log import PostgresLog
    from makai.sessions.log.postgres.membership import NodeSettings


VISITOR_LEASE_S: Final = 6.0


async def open_log(home: Path, config: StoreConfig | None = None, node: NodeSettings | None = None) -> EventLog:
    """Own the sessions of a MAKAI_HOME, or join those in PostgreSQL as `node`; by its `[store]` unless another one is
    given. Raises `HomeInUse`."""
    url = (config or read_config(home / CONFIG_FILE).store).url
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


async def open_beside(url: str, cluster: ClusterConfig) -> PostgresLog:
    """Join the sessions in PostgreSQL for a while, as a node beside the one of this machine, with the same folders."""
    _check_extra()
    from makai.sessions.log.postgres.log import PostgresLog
    from makai.sessions.log.postgres.membership import NodeSettings

    name = cluster.name or socket.gethostname()
    return await PostgresLog.open(
        url, NodeSettings(name=f"{name}-{uuid4().hex[:8]}", labels=cluster.labels or (name,), lease_s=VISITOR_LEASE_S)
    )


async def _open_postgres(home: Path, url: str, node: NodeSettings | None) -> PostgresLog:
    _check_extra()
    from makai.sessions.log.leases import HomeLock
    from makai.sessions.log.postgres.log import PostgresLog
    from makai.sessions.log.postgres.membership import NodeSettings

    lock = await asyncio.to_thread(HomeLock, home)
    try:
        return await PostgresLog.open(url, node or NodeSettings(name=socket.gethostname()), lock)
    except BaseException:
        lock.release()
        raise


def _check_extra() -> None:
    if find_spec("psycopg") is None:
        raise InvalidRequest(
            "Sessions in PostgreSQL need the extra `postgres`, which is not installed.",
            hint="Install it: pip install 'makai[postgres]'.",
        )
