"""This process as a node of the cluster: its row in the table `node`, and the lease that it renews there.

The database decides by its own clock when a lease is over. The node counts its own deadline from before it asked for
the renewal, so by its own clock the lease ends first: from then on it neither appends nor answers from memory, whatever
its timers and tasks have come to. The row is renewed on a connection of its own, so that no other work delays it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias
from uuid import uuid4

import msgspec
import psycopg

from makai.aio.postgres import is_retryable
from makai.core.errors import InvalidRequest, OwnershipLost
from makai.sessions.log.base import Lease
from makai.sessions.log.nodes import Node
from makai.sessions.log.postgres.connecting import Connection, Database, cut, deadline
from makai.sessions.log.postgres.rows import fetch
from makai.sessions.log.postgres.shard_map import check_shard

log = logging.getLogger(__name__)

Prepare: TypeAlias = Callable[[Connection], Awaitable[None]]

MIN_LEASE_S: Final = 0.5
MAX_LEASE_S: Final = 600.0
MAX_LABELS: Final = 100
MAX_NAME_LENGTH: Final = 200
PREPARE_S: Final = 600.0
"""For migrations of the tables."""
_RETRY_S: Final = 0.5
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It runs while the machine is suspended, where there is such a clock."""

_REMOVE: Final = "DELETE FROM node WHERE (name = %s AND home = %s) OR node_id = %s RETURNING node_id"
_START: Final = "UPDATE format SET starts = starts + 1 RETURNING starts"
_JOIN: Final = """
INSERT INTO node (node_id, name, home, address, labels, started_ms, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
RETURNING (extract(epoch FROM expires_at) * 1000)::bigint
"""
_RENEW: Final = """
UPDATE node SET expires_at = clock_timestamp() + make_interval(secs => %s)
WHERE node_id = %s AND expires_at > clock_timestamp()
RETURNING (extract(epoch FROM expires_at) * 1000)::bigint
"""
# In the order of their keys, as everything that locks several sessions does: no two wait for each other.
FREE: Final = """
UPDATE session SET owner = NULL, generation = generation + 1
WHERE session_key IN (SELECT session_key FROM session WHERE owner = ANY(%s) ORDER BY session_key FOR UPDATE)
"""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says about itself when it joins. `Node` explains the fields."""

    name: str
    address: str = ""
    labels: tuple[str, ...] = ()
    """Empty: the name is the only one."""
    lease_s: float = 6.0
    home: str = ""
    """Names the MAKAI_HOME whose lock this process has: a former node of the same name and home is dead."""
    shard: str | None = None
    """The name of the database in a store of several, empty for the first one; None in a store of one."""
    process: str = ""
    """The same in all databases of a store of several: `nodes.process_of`."""


class Membership:
    """From `start` until `stop`, this process is a node, and a new one after each time that it lost its lease."""

    def __init__(self, database: Database, settings: NodeSettings, prepare: Prepare, lost: Callable[[], None]) -> None:
        """`prepare` is called before this process joins for the first time. `lost` is called in the event loop when the
        lease is over, before this node joins again."""
        if not 0 < len(settings.name) <= MAX_NAME_LENGTH or not settings.name.isprintable():
            raise InvalidRequest("The name of a node is 1 to 200 printable characters.", hint="Set [cluster] name.")
        if len(settings.labels) > MAX_LABELS or not all(label.isprintable() and label for label in settings.labels):
            raise InvalidRequest(f"A node has at most {MAX_LABELS} labels of printable characters.")
        if not MIN_LEASE_S <= settings.lease_s <= MAX_LEASE_S:
            raise InvalidRequest(f"lease_seconds is a number from {MIN_LEASE_S:g} to {MAX_LEASE_S:g}.")
        self._database = database
        self._settings = settings
        self._prepare = prepare
        self._is_prepared = False
        self._lost = lost
        self._node: Node = Node(node_id="", name=settings.name)
        self._lease = Lease("", 0)
        self._valid_until = 0.0
        self._is_lost = True
        self._listeners: dict[object, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None

    @property
    def node(self) -> Node:
        return self._node

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def is_connected(self) -> bool:
        """Whether the newest renewal of the lease reached the database."""
        return self._connection is not None

    def is_valid(self) -> bool:
        """Whether no other node can own the sessions of this one."""
        return not self._is_lost and _now() < self._valid_until

    def check(self) -> None:
        """Raise `OwnershipLost` when the lease is over."""
        if not self.is_valid():
            self.lose()
            raise lease_lost(self._database.title)

    def lose(self) -> None:
        """End the lease now; the next renewal joins again."""
        if self._is_lost:
            return
        self._is_lost = True
        log.warning("This node lost its lease; other nodes may take over its sessions.")
        self._lost()
        for call in tuple(self._listeners.values()):
            call()

    def on_lost(self, call: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = call

        def remove() -> None:
            self._listeners.pop(key, None)

        return remove

    def note_draining(self) -> None:
        self._node = msgspec.structs.replace(self._node, draining=True)

    async def start(self, *, may_join_later: bool = False) -> None:
        """Join, in the place of former processes of this name and MAKAI_HOME, whose lock this one has. With
        `may_join_later`, a database that does not answer is no error: the lease is lost until it does."""
        pause_s = self._settings.lease_s / 3
        try:
            self._connection = await self._database.connect()
            await self._join_first(self._connection)
        except BaseException as error:
            await self._drop()
            if not (may_join_later and isinstance(error, psycopg.Error) and is_retryable(error)):
                raise
            log.warning("This node cannot use %s yet: %s", self._database.title, self._database.text_of(error))
            pause_s = _RETRY_S
        self._task = asyncio.get_running_loop().create_task(self._keep(pause_s), name="makai-node-lease")

    async def stop(self) -> None:
        """Leave, and give up all sessions. What fails is left to the end of the lease."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._is_lost = True
        with contextlib.suppress(psycopg.Error):
            connection = self._connection or await self._database.connect()
            with deadline(connection, self._settings.lease_s):
                async with connection.transaction():
                    removed = await fetch(connection, _REMOVE, (None, None, self._node.node_id))
                    await free(connection, [node_id for (node_id,) in removed])
            await connection.close()

    async def _keep(self, pause_s: float) -> None:
        """Renew the lease, or join again, until this task is cancelled."""
        while True:
            await asyncio.sleep(pause_s)
            renewing = asyncio.get_running_loop().create_task(self._renew(), name="makai-node-renewal")
            try:
                await self._wait_for(renewing)
            except asyncio.CancelledError:
                await self._end(renewing)
                raise
            pause_s = self._settings.lease_s / 3
            if (error := renewing.exception()) is not None:
                log.warning(
                    "The lease of this node in %s was not renewed: %s",
                    self._database.title,
                    self._database.text_of(error),
                )
                await self._drop()
                pause_s = min(pause_s, _RETRY_S)

    async def _wait_for(self, renewing: asyncio.Task[None]) -> None:
        """Wait for a renewal, and end the lease in time when it takes too long."""
        while not renewing.done():
            left_s = None if self._is_lost else max(self._valid_until - _now(), 0.0)
            await asyncio.wait({renewing}, timeout=left_s)
            if not self.is_valid():
                self.lose()

    async def _end(self, renewing: asyncio.Task[None]) -> None:
        if self._connection is None:
            renewing.cancel()  # it connects
        else:
            cut(self._connection)
        await asyncio.wait({renewing})
        if not renewing.cancelled():
            renewing.exception()
        await self._drop()

    async def _renew(self) -> None:
        if self._connection is None:
            self._connection = await self._database.connect()
        connection = self._connection
        if not self._is_prepared:
            await self._join_first(connection)
            return
        with deadline(connection, self._settings.lease_s):
            if not self._is_lost:
                asked = _now()
                renewed = await fetch(connection, _RENEW, (self._settings.lease_s, self._node.node_id))
                if renewed and not self._is_lost:
                    self._prolong(asked, renewed[0][0])
                    return
                self.lose()
            await self._join(connection, None)

    async def _join_first(self, connection: Connection) -> None:
        with deadline(connection, PREPARE_S):
            await self._prepare(connection)
        with deadline(connection, self._settings.lease_s):
            await self._join(connection, self._settings.name)
        self._is_prepared = True

    async def _join(self, connection: Connection, name: str | None) -> None:
        """Become a node. The sessions of this process's former one are free from then on; with `name` also those of
        former processes of this name and home."""
        settings = self._settings
        node = Node(
            node_id=f"{settings.shard}.{settings.process}.{uuid4().hex}" if settings.process else uuid4().hex,
            name=settings.name,
            address=settings.address,
            labels=settings.labels or (settings.name,),
            started_ms=time.time_ns() // 1_000_000,
        )
        described = (node.node_id, node.name, settings.home, node.address, list(node.labels), node.started_ms)
        async with connection.transaction():
            removed = await fetch(connection, _REMOVE, (name, settings.home, self._node.node_id))
            await free(connection, [node_id for (node_id,) in removed])
            ((generation,),) = await fetch(connection, _START)
            await check_shard(connection, settings.shard)  # after the row of `format` is locked
            asked = _now()
            ((expires_ms,),) = await fetch(connection, _JOIN, (*described, settings.lease_s))
        self._node = node
        self._lease = Lease(node.node_id, generation)
        self._is_lost = False
        self._prolong(asked, expires_ms)

    def _prolong(self, asked: float, expires_ms: int) -> None:
        self._valid_until = asked + self._settings.lease_s
        self._lease = msgspec.structs.replace(self._lease, expires_ms=expires_ms)

    async def _drop(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


async def free(connection: Connection, node_ids: Sequence[str]) -> int:
    """Take the sessions of nodes that are no more away from them; returns how many there were."""
    if not node_ids:
        return 0
    async with connection.cursor() as cursor:
        await cursor.execute(FREE.encode(), (list(node_ids),))
        return cursor.rowcount


def lease_lost(where: str = "the database") -> OwnershipLost:
    return OwnershipLost(
        f"This node lost its connection to {where} for too long, and its sessions with it.",
        hint="Nothing was stored. It joins again by itself; try again then.",
    )


def _now() -> float:
    return time.clock_gettime(_CLOCK)
