"""Connections to PostgreSQL.

No task that waits for the server is cancelled: psycopg would send a cancel request, and a commit that waits for its
standby is not rolled back by one. A deadline cuts the socket instead, so the waiting task fails by itself; whether a
commit that was under way is stored is then unknown, and has to be found out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from makai.aio.postgres import PostgresAddress, cut_socket, is_retryable
from makai.core.errors import MakaiError, StorageUnavailable
from makai.sessions.log.postgres import arrays

T = TypeVar("T")
Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

CONNECT_S: Final = 10.0
"""For all hosts of an address together."""
ANSWER_S: Final = 20.0
MAX_CONNECTIONS: Final = 4
"""Of a pool. Further readers wait."""
MAX_IDLE_S: Final = 300.0
_NEW_ATTEMPTS: Final = 2
"""On new connections. One that was idle may have ended long ago, and does not count."""
_CLOSED: Final = "The log is closed."


class Database(PostgresAddress):
    """The database that holds the log, or a part of it."""

    def __init__(self, url: str, shard: str | None = None) -> None:
        """`shard` is its name when it is one of several; what it raises names it, and not where it is."""
        super().__init__(url)
        self.shard = shard

    @property
    def title(self) -> str:
        return f"the shard {self.shard!r}" if self.shard else "the database"

    async def connect(self, seconds: float = CONNECT_S) -> Connection:
        """A connection without a transaction, on which each statement commits by itself."""
        try:
            async with asyncio.timeout(seconds):
                connection = await psycopg.AsyncConnection.connect(
                    **self.settings,  # type: ignore[arg-type]
                    autocommit=True,
                )
        except TimeoutError:
            raise psycopg.OperationalError("no answer while connecting") from None
        arrays.register(connection)
        return connection

    async def reach(self) -> str:
        """Connect once. Returns where the database is, without user and password; raises `StorageUnavailable`."""
        try:
            connection = await self.connect()
        except psycopg.Error as error:
            raise self.unavailable(error) from None
        try:
            found = connection.info
            shard = f" (shard {self.shard})" if self.shard else ""
            return f"PostgreSQL at {found.host}:{found.port}/{found.dbname}{shard}"
        finally:
            await connection.close()

    def unavailable(self, error: Exception) -> StorageUnavailable:
        if self.shard:
            # Without an SQL state it is the driver that speaks, and it names hosts.
            says = f" ({self.text_of(error)})" if isinstance(error, psycopg.Error) and error.sqlstate else ""
            return StorageUnavailable(
                f"Sessions in {self.title} cannot be stored or read{says}.",
                hint="Make sure that its database runs and can be reached, then try again. Other sessions can be used.",
            )
        return StorageUnavailable(
            f"Sessions cannot be stored or read in PostgreSQL ({self.text_of(error)}).",
            hint="Make sure that the database runs and can be reached, then try again.",
        )


def of_unknown_outcome(error: StorageUnavailable) -> StorageUnavailable:
    """The error of a change that was sent to the database, and may be stored."""
    return StorageUnavailable(
        f"{error.message} Whether the last change was stored is not known yet.",
        hint="Make sure that the database runs. Look at what is stored before you try again.",
    )


@contextmanager
def deadline(connection: Connection, seconds: float) -> Iterator[None]:
    """Cut the connection when the block takes longer: what waits in it raises `psycopg.OperationalError`."""
    timer = asyncio.get_running_loop().call_later(seconds, cut, connection)
    try:
        yield
    finally:
        timer.cancel()


def cut(connection: Connection) -> None:
    with suppress(psycopg.Error):
        cut_socket(connection.pgconn.socket)


class ConnectionPool:
    """A few connections for everything but appends. A caller that is cancelled leaves; its statement ends by itself."""

    def __init__(self, database: Database, size: int = MAX_CONNECTIONS, *setup: str) -> None:
        """`setup` are statements for each new connection."""
        self._database = database
        self._setup = setup
        self._slots = asyncio.Semaphore(size)
        self._idle: deque[tuple[float, Connection]] = deque()
        self._running: set[asyncio.Task[Any]] = set()
        self._closing = False

    async def run(self, ask: Callable[[Connection], Awaitable[T]], seconds: float = ANSWER_S) -> T:
        """The answer of `ask`, which may be called again when its connection was lost. Raises `StorageUnavailable` when
        the database does not answer."""
        if self._closing:
            raise StorageUnavailable(_CLOSED)
        task = asyncio.get_running_loop().create_task(self._run(ask, seconds), name="makai-postgres")
        self._running.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def close(self) -> None:
        self._closing = True
        if self._running:
            await asyncio.wait(set(self._running), timeout=ANSWER_S + CONNECT_S)
        while self._idle:
            await self._idle.pop()[1].close()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that still waits raises it

    async def _run(self, ask: Callable[[Connection], Awaitable[T]], seconds: float) -> T:
        loop = asyncio.get_running_loop()
        async with self._slots:
            give_up = loop.time() + seconds
            try:
                connection = await self._idle_connection()
                attempts_left = _NEW_ATTEMPTS + (connection is not None)
                while True:
                    attempts_left -= 1
                    connection = connection or await self._new()
                    try:
                        return await self._ask(connection, ask, seconds)
                    except psycopg.Error as error:
                        if not attempts_left or loop.time() >= give_up or not is_retryable(error):
                            raise
                    connection = None
            except psycopg.Error as error:
                raise self._database.unavailable(error) from None

    async def _idle_connection(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            since, connection = self._idle.pop()
            if now - since < MAX_IDLE_S and not connection.closed:
                return connection
            await connection.close()
        return None

    async def _new(self) -> Connection:
        connection = await self._database.connect()
        for statement in self._setup:
            await connection.execute(statement.encode())
        return connection

    async def _ask(self, connection: Connection, ask: Callable[[Connection], Awaitable[T]], seconds: float) -> T:
        try:
            with deadline(connection, seconds):
                answer = await ask(connection)
        except BaseException as error:
            if not isinstance(error, MakaiError) or connection.info.transaction_status != TransactionStatus.IDLE:
                await connection.close()
            else:
                self._idle.append((asyncio.get_running_loop().time(), connection))
            raise
        self._idle.append((asyncio.get_running_loop().time(), connection))
        return answer
