"""The log in PostgreSQL, for one node or many. Only the event loop that opened it may use it.

Appends go to the group writer. Everything else uses a few connections of its own. What this node appended last is read
from memory while it has its lease, because no other node writes to its sessions then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar, get_args

import psycopg

from makai.aio.tasks import BackgroundTasks
from makai.core.errors import OwnershipLost, SessionElsewhere, StorageUnavailable
from makai.core.session_events import Delta
from makai.sessions.log import base, encoding
from makai.sessions.log.heads import Heads
from makai.sessions.log.leases import HomeLock, taken_over
from makai.sessions.log.nodes import Node
from makai.sessions.log.permissions import checked_folder, itself_and_above
from makai.sessions.log.postgres import checking, ownership, permissions, relay, repairing, rows, schema
from makai.sessions.log.postgres.connecting import Connection, ConnectionPool, Database, of_unknown_outcome
from makai.sessions.log.postgres.membership import Membership, NodeSettings, Prepare
from makai.sessions.log.postgres.writer import GroupWriter, PendingAppend
from makai.sessions.log.room import Room
from makai.sessions.log.watchers import Watchers

T = TypeVar("T")

MAX_QUEUED_BYTES: Final = 32 * 1024 * 1024
PATIENCE_S: Final = 30.0
CHECK_S: Final = 3600.0
PURGE_EVENTS: Final = 2000
CLOSE_S: Final = 10.0
_EVENT_OVERHEAD_BYTES: Final = 200
_CLOSED: Final = "The log is closed."
_DELTAS: Final = frozenset(get_args(Delta))

_FENCE: Final = "SELECT true FROM node WHERE node_id = %s AND expires_at > clock_timestamp() FOR KEY SHARE"
_DELETABLE: Final = """
SELECT session_key, (
    SELECT node_id FROM node WHERE node_id = owner AND node_id <> %s AND expires_at > clock_timestamp()
)
FROM session WHERE session_id = %s FOR UPDATE OF session
"""
_PURGE: Final = f"""
WITH chosen AS MATERIALIZED (SELECT session_key FROM deleted ORDER BY session_key LIMIT 1 FOR UPDATE SKIP LOCKED),
removed AS (
    DELETE FROM event WHERE session_key = (SELECT session_key FROM chosen) AND event_id IN (
        SELECT event_id FROM event WHERE session_key = (SELECT session_key FROM chosen) LIMIT {PURGE_EVENTS}
    )
    RETURNING 1
),
ended AS (
    DELETE FROM deleted
    WHERE session_key = (SELECT session_key FROM chosen) AND (SELECT count(*) FROM removed) < {PURGE_EVENTS}
)
SELECT EXISTS (SELECT FROM chosen)
"""


class PostgresLog:
    """`ClusterLog`. Make one by `open`."""

    def __init__(self, database: Database, settings: NodeSettings, prepare: Prepare, lock: HomeLock | None) -> None:
        self._database = database
        self._lock = lock
        self._heads = Heads()
        self._watchers = Watchers()
        self._queue = Room(MAX_QUEUED_BYTES)
        self._pool = ConnectionPool(database)
        self._unsynced = ConnectionPool(database, 1, "SET synchronous_commit = off")
        self._membership = Membership(database, settings, prepare, self._lease_lost)
        self._writer = GroupWriter(database, self._membership, self._heads, self._settled)
        self._tasks = BackgroundTasks()
        self._purging: asyncio.Task[None] | None = None
        self._taken_over = 0
        self._closing = False

    @classmethod
    async def open(
        cls,
        url: str,
        node: NodeSettings,
        lock: HomeLock | None = None,
        *,
        prepare: Prepare = schema.migrate,
        may_join_later: bool = False,
    ) -> PostgresLog:
        """Join the cluster. `lock` is released with the log; it proves that no other process of this name lives.
        `prepare` makes the tables; `may_join_later` is that of `Membership.start`."""
        database = Database(url, node.shard)
        log = cls(database, node, prepare, lock)
        try:
            await log._membership.start(may_join_later=may_join_later)
        except psycopg.Error as error:
            raise database.unavailable(error) from None
        log._writer.start()
        log._purge_later()
        return log

    @property
    def database(self) -> Database:
        return self._database

    @property
    def lease(self) -> base.Lease:
        return self._membership.lease

    @property
    def node(self) -> Node:
        return self._membership.node

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be appended: this node has not reached the database for as long as its lease."""
        return not self._membership.is_valid()

    @property
    def is_connected(self) -> bool:
        """Whether the newest renewal of the lease reached the database."""
        return self._membership.is_connected

    @property
    def taken_over(self) -> int:
        return self._taken_over

    @property
    def parts(self) -> tuple[PostgresLog]:
        return (self,)

    def part_of(self, node_id: str) -> PostgresLog:
        return self

    def on_lease_lost(self, call: Callable[[Callable[[str], bool]], None]) -> Callable[[], None]:
        return self._membership.on_lost(lambda: call(lambda session_id: True))

    async def claim(self, session_id: str) -> base.Claim:
        self._membership.check()
        if not rows.is_storable(session_id):
            return base.Claim(generation=0)  # there is no such session, and `append` refuses to make it
        node = self.node
        try:
            claim, has_run = await self._pool.run(lambda connection: ownership.claim(connection, node, session_id))
        except OwnershipLost:
            self._membership.lose()
            raise taken_over() from None
        if self.node is not node and self.node.node_id != node.node_id:
            raise taken_over()  # the lease was lost meanwhile
        head = self._heads.get(session_id)
        if head is not None and head.row.generation != claim.generation:
            self._writer.forget([session_id])
        self._taken_over += has_run
        return claim

    async def append(
        self, session_id: str, events: Sequence[base.Pending], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        return await self._append(session_id, encoding.encoded(events), expected_last, generation)

    async def import_records(self, session_id: str, records: Sequence[base.Record], expected_last: int) -> None:
        await self._append(session_id, encoding.imported(records, expected_last), expected_last)

    async def _append(
        self, session_id: str, bodies: list[encoding.Body], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        encoding.check_session_id(session_id)
        weight = sum([len(body.event) + _EVENT_OVERHEAD_BYTES for body in bodies])
        self._membership.check()
        held = await self._generation(session_id) if generation is None else generation
        if not self._queue.try_enter(weight):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._queue.enter(weight)
            except TimeoutError:
                raise StorageUnavailable(
                    "The database is too slow for what is to be stored.", hint="Try again."
                ) from None
        if self._closing:
            self._queue.leave(weight)
            raise StorageUnavailable(_CLOSED)
        waiter: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        is_urgent = any(type(body.fact) not in _DELTAS for body in bodies)
        self._writer.submit(PendingAppend(session_id, bodies, expected_last, held, weight, is_urgent, waiter))
        return await waiter  # the writer bounds it: giving up would not tell whether it is stored

    def watch(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self._watchers.add(session_id, wake)

    def watch_all(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._watchers.add_to_all(changed)

    def wake(self, session_id: str) -> None:
        """Wake the watchers of a session that another node changed."""
        self._watchers.wake(session_id)

    async def read(
        self, session_id: str, after: int = 0, limit: int = base.BATCH_EVENTS, *, deltas: bool = True
    ) -> list[base.LoggedEvent]:
        return encoding.decoded(await self.read_raw(session_id, after, limit, deltas=deltas))

    async def read_raw(
        self, session_id: str, after: int = 0, limit: int = base.BATCH_EVENTS, *, deltas: bool = True
    ) -> list[base.Record]:
        if (records := self._from_tail(session_id, after, limit, deltas)) is not None:
            return records
        return await self._pool.run(lambda connection: rows.read_records(connection, session_id, after, limit, deltas))

    async def last(self, session_id: str) -> int:
        summary = await self.session(session_id)
        return summary.events if summary else 0

    async def session(self, session_id: str) -> base.SessionSummary | None:
        if (head := self._heads.get(session_id)) is not None and self._membership.is_valid():
            return head.row.view.summary
        row = await self._pool.run(lambda connection: rows.load_session(connection, session_id))
        return row.view.summary if row else None

    async def sessions(self, wanted: base.SessionFilter = base.NEWEST) -> list[base.SessionSummary]:
        return await self._pool.run(lambda connection: rows.list_sessions(connection, wanted))

    async def pending_approvals(self) -> list[base.PendingApproval]:
        return await self._pool.run(rows.list_approvals)

    async def delete(self, session_id: str) -> bool:
        node_id = self.node.node_id

        async def delete(connection: Connection) -> bool:
            if not rows.is_storable(session_id):
                return False
            found = await rows.fetch(connection, _DELETABLE, (node_id, session_id))
            for key, owner in found:
                if owner is not None:
                    message = f"Another node has the session {session_id}."
                    raise SessionElsewhere(message, node_id=owner, hint="Ask that node, or try again.")
                await rows.fetch(connection, "DELETE FROM session WHERE session_key = %s", (key,))
                await rows.fetch(connection, "DELETE FROM checkpoint WHERE session_key = %s", (key,))
                await rows.fetch(connection, "INSERT INTO deleted VALUES (%s)", (key,))
            return bool(found)

        existed = await self._change(delete)
        self._writer.forget([session_id])
        self._watchers.wake(session_id)
        if existed:
            self._purge_later()
        return existed

    async def checkpoint(self, session_id: str) -> base.Checkpoint | None:
        return await self._pool.run(lambda connection: rows.load_checkpoint(connection, session_id))

    async def save_checkpoint(self, session_id: str, checkpoint: base.Checkpoint) -> None:
        if self._closing:
            raise StorageUnavailable(_CLOSED)
        with suppress(StorageUnavailable):  # the events are there: what is derived from them can be derived again
            await self._unsynced.run(lambda connection: rows.put_checkpoint(connection, session_id, checkpoint))

    async def grants(self, folder: str | None) -> list[base.StoredGrant]:
        return await self._pool.run(lambda connection: permissions.list_grants(connection, folder))

    async def revoke(self, folder: str, rule: str) -> bool:
        return await self._change(lambda connection: permissions.revoke(connection, folder, rule))

    async def import_grants(self, grants: Sequence[base.StoredGrant]) -> None:
        await self._change(lambda connection: permissions.import_grants(connection, grants))

    async def trust(self, folder: str, trusted: bool, files: Sequence[base.TrustedFile] = ()) -> None:
        word = base.TrustedFolder(checked_folder(folder), trusted)
        await self._change(lambda connection: permissions.put_trust(connection, word, files))

    async def trusted_files(self, folder: str) -> list[base.TrustedFile]:
        return await self._pool.run(lambda connection: permissions.trusted_files(connection, folder))

    async def is_trusted(self, folder: str) -> bool:
        covering = itself_and_above(folder)
        return await self._pool.run(lambda connection: permissions.is_trusted(connection, covering))

    async def trusted_folders(self) -> list[base.TrustedFolder]:
        return await self._pool.run(permissions.list_trusted)

    async def tokens(self) -> list[base.StoredToken]:
        return await self._pool.run(permissions.list_tokens)

    async def put_token(self, token: base.StoredToken) -> None:
        await self._change(lambda connection: permissions.put_token(connection, token))

    async def revoke_token(self, token_id: str, now_ms: int) -> bool:
        return await self._change(lambda connection: permissions.revoke_token(connection, token_id, now_ms))

    async def note_token_use(self, token_ids: Sequence[str], now_ms: int) -> None:
        await self._change(lambda connection: permissions.note_token_use(connection, token_ids, now_ms))

    async def check(self, belongs: Callable[[str], bool] = lambda session_id: True) -> base.LogReport:
        """As `EventLog.check`. A session that does not belong to this database is a problem."""
        return await self._pool.run(lambda connection: checking.check(connection, belongs), CHECK_S)

    async def repair(self, keep: repairing.Keep) -> None:
        """Make every session readable, while no other node is there. `keep` gets what is replaced."""
        self._membership.check()
        await self._pool.run(lambda connection: repairing.repair(connection, keep), CHECK_S)

    async def nodes(self) -> list[Node]:
        return await self._pool.run(ownership.live_nodes)

    async def find_node(self, node_id: str) -> Node | None:
        return await self._pool.run(lambda connection: ownership.find_node(connection, node_id))

    async def owner(self, session_id: str) -> Node | None:
        if not rows.is_storable(session_id):
            return None
        return await self._pool.run(lambda connection: ownership.owner(connection, session_id))

    async def release(self, session_ids: Sequence[str]) -> None:
        node = self.node
        self._writer.forget(session_ids)
        await self._pool.run(lambda connection: ownership.release(connection, node, session_ids))
        self._writer.forget(session_ids)  # a commit may have ended between

    async def drain(self) -> None:
        node = self.node
        self._membership.note_draining()
        await self._pool.run(lambda connection: ownership.drain(connection, node))

    async def free_abandoned(self) -> int:
        return await self._pool.run(ownership.free_abandoned)

    async def claim_abandoned(self, limit: int) -> list[str]:
        self._membership.check()
        node = self.node
        claimed = await self._pool.run(lambda connection: ownership.claim_abandoned(connection, node, limit))
        self._writer.forget(claimed)
        self._taken_over += len(claimed)
        return claimed

    async def misplaced(self) -> list[str]:
        node = self.node
        return await self._pool.run(lambda connection: ownership.misplaced(connection, node))

    async def put_relayed(self, request_id: str, node_id: str, frame: bytes, valid_s: float) -> None:
        await self._pool.run(lambda connection: relay.put(connection, request_id, node_id, frame, valid_s))

    async def take_relayed(self, limit: int) -> list[tuple[str, bytes]]:
        node_id = self.node.node_id
        return await self._pool.run(lambda connection: relay.take(connection, node_id, limit))

    async def answer_relayed(self, request_id: str, answer: bytes) -> None:
        await self._pool.run(lambda connection: relay.put_answer(connection, request_id, answer))

    async def relayed_answer(self, request_id: str) -> bytes | None:
        return await self._pool.run(lambda connection: relay.answer(connection, request_id))

    async def withdraw_relayed(self, request_id: str) -> bool:
        return await self._pool.run(lambda connection: relay.withdraw(connection, request_id))

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._watchers.wake_all()
        await self._writer.stop()
        await self._tasks.close(CLOSE_S)
        await self._membership.stop()
        await asyncio.gather(self._pool.close(), self._unsynced.close())
        if self._lock is not None:
            self._lock.release()

    async def _generation(self, session_id: str) -> int:
        """Of the claim that this node has or gets."""
        if (head := self._heads.get(session_id)) is not None:
            return head.row.generation
        return (await self.claim(session_id)).generation

    async def _change(self, apply: Callable[[Connection], Awaitable[T]]) -> T:
        """Make a durable change, if this node has its lease. A change whose commit was sent and not confirmed is made
        again: `apply` does no harm when the first one counted, and the answer is the first one that says that there was
        something to change. When that cannot be done either, the error says that the outcome is unknown."""
        self._membership.check()
        node_id = self.node.node_id
        answers: list[T] = []
        """Of attempts whose commit was sent."""

        async def change(connection: Connection) -> T:
            async with connection.transaction():
                if not await rows.fetch(connection, _FENCE, (node_id,)):
                    raise StorageUnavailable("This node lost its lease during a change.") if answers else taken_over()
                answers.append(await apply(connection))
            return answers[-1]

        try:
            answer = await self._pool.run(change)
        except OwnershipLost:
            self._membership.lose()
            raise
        except StorageUnavailable as error:
            raise of_unknown_outcome(error) if answers else error from None
        return next((each for each in answers if each), answer)

    def _from_tail(self, session_id: str, after: int, limit: int, deltas: bool) -> list[base.Record] | None:
        """What followers of a live session ask for; None when the database has to be asked."""
        if after < 0 or (head := self._heads.get(session_id)) is None or not self._membership.is_valid():
            return None
        if (records := head.after(after)) is None:
            return None
        if not deltas:
            records = tuple(record for record in records if not encoding.is_delta(record))
        return list(records[: max(limit, 0)])

    def _settled(self, append: PendingAppend) -> None:
        self._queue.leave(append.weight)
        self._watchers.wake(append.session_id)

    def _lease_lost(self) -> None:
        self._writer.lose_lease()

    def _purge_later(self) -> None:
        if self._purging is None or self._purging.done():
            self._purging = self._tasks.start(self._purge(), "makai-postgres-purge")

    async def _purge(self) -> None:
        """Remove the events of deleted sessions. What fails is left to the next deletion or start."""

        async def purge(connection: Connection) -> bool:
            ((found,),) = await rows.fetch(connection, _PURGE)
            return bool(found)

        with suppress(StorageUnavailable):
            while await self._pool.run(purge):
                pass
