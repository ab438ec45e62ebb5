"""The stores of sessions that keep the promises of `EventLog`: its tests run on each of them."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final, Protocol

from makai.sessions.log import leases, schema
from makai.sessions.log.base import EventLog
from makai.sessions.log.memory import MemoryLog
from makai.sessions.log.postgres.log import PostgresLog
from makai.sessions.log.postgres.membership import NodeSettings
from makai.sessions.log.postgres.sharded import ShardedLog
from makai.sessions.log.sqlite import SqliteLog
from support.postgres import shared_server


class Store(Protocol):
    """A place that holds sessions."""

    async def open(self) -> EventLog:
        """Own it, with a lease above all former ones, also while a former owner still believes that it owns it."""
        ...


class MemoryStore:
    def __init__(self, folder: Path) -> None:
        self._newest: MemoryLog | None = None

    async def open(self) -> EventLog:
        self._newest = MemoryLog(self._newest)
        return self._newest


class SqliteStore:
    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"

    async def open(self) -> EventLog:
        (self._home / leases.FILE_NAME).unlink(missing_ok=True)  # the lock of a former owner stays with the old file
        return await SqliteLog.open(self._home)


class PostgresStore:
    """Each opening takes the place of the former node of this name, as after a restart on the same machine."""

    def __init__(self, folder: Path) -> None:
        self.url = shared_server().new_schema()

    async def open(self, name: str = "test") -> PostgresLog:
        return await PostgresLog.open(self.url, NodeSettings(name=name, lease_s=60))


class ShardsStore:
    """As `PostgresStore`, with the sessions in two schemas, and everything else in one of them."""

    def __init__(self, folder: Path) -> None:
        self.url = shared_server().new_schema()
        # The session `one` is in the west, and `two` in the east.
        self.shards = {"east": self.url, "west": shared_server().new_schema()}

    async def open(self, name: str = "test") -> ShardedLog:
        return await ShardedLog.open(self.url, self.shards, NodeSettings(name=name, lease_s=60))


STORES: Final[dict[str, Callable[[Path], Store]]] = {
    "memory": MemoryStore,
    "postgres": PostgresStore,
    "shards": ShardsStore,
    "sqlite": SqliteStore,
}


@asynccontextmanager
async def sqlite_log(home: Path) -> AsyncIterator[SqliteLog]:
    log = await SqliteLog.open(home)
    try:
        yield log
    finally:
        await log.close()


def change_row(home: Path, statement: str) -> None:
    """Change one row of the database file itself."""
    with closing(sqlite3.connect(home / schema.FILE_NAME)) as database, database:
        assert database.execute(statement).rowcount == 1
