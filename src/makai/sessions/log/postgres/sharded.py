"""The log in several databases: each session is in the one that `shard_of` its id names, and what belongs to no session
is in the first one. No statement concerns two databases.

This process is a node of every database, with a lease in each. One that does not answer takes only its own sessions
along: what concerns all sessions raises `StorageUnavailable`, which names it, and everything else continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, TypeVar
from uuid import uuid4

import msgspec
import psycopg

from makai.aio.tasks import BackgroundTasks
from makai.core.errors import InvalidRequest, StorageUnavailable
from makai.sessions.log import base
from makai.sessions.log.leases import HomeLock
from makai.sessions.log.nodes import Node
from makai.sessions.log.postgres import schema, shard_map
from makai.sessions.log.postgres.connecting import Connection, Database, deadline
from makai.sessions.log.postgres.log import PostgresLog
from makai.sessions.log.postgres.membership import PREPARE_S, NodeSettings
from makai.sessions.log.postgres.shard_grants import ShardGrants
from makai.sessions.log.postgres.shard_map import ShardRole
from makai.sessions.log.shards import shard_of

T = TypeVar("T")

CLOSE_S: Final = 10.0


class ShardedLog:
    """`ClusterLog`. Make one by `open`."""

    def __init__(self, first: PostgresLog, shards: Mapping[str, PostgresLog], lock: HomeLock | None) -> None:
        self._first = first
        self._shards = shards
        self._by_prefix = {"": first, **shards}
        self._lock = lock
        self._grants = ShardGrants(shards)
        self._tasks = BackgroundTasks()
        self._tasks.start(self._grants.keep(), "makai-shard-grants")
        self._closed = False

    @classmethod
    async def open(
        cls, url: str, shards: Mapping[str, str], node: NodeSettings, lock: HomeLock | None = None
    ) -> ShardedLog:
        """Join every database. `url` is the first one, and may be one of the shards. Raises `InvalidRequest` when a
        database is not what the configuration says. A shard that was used before may be away; the others may not."""
        opening = _Opening(url, shards, msgspec.structs.replace(node, process=uuid4().hex))
        await opening.take_first()
        async with AsyncExitStack() as opened:
            first = await opening.join_first()
            opened.push_async_callback(first.close)
            names = [name for name in sorted(shards) if name != opening.shared]
            joined = await asyncio.gather(*(opening.join(name) for name in names), return_exceptions=True)
            logs = {name: log for name, log in zip(names, joined, strict=True) if isinstance(log, PostgresLog)}
            for log in logs.values():
                opened.push_async_callback(log.close)
            for answer in joined:
                if isinstance(answer, BaseException):
                    raise answer
            opened.pop_all()
        if opening.shared is not None:
            logs[opening.shared] = first
        return cls(first, logs, lock)

    @property
    def database(self) -> Database:
        return self._first.database

    @property
    def lease(self) -> base.Lease:
        return self._first.lease

    @property
    def node(self) -> Node:
        return self._first.node

    @property
    def parts(self) -> tuple[PostgresLog, ...]:
        return tuple(dict.fromkeys(self._by_prefix.values()))

    def part_of(self, node_id: str) -> PostgresLog:
        part = self._by_prefix.get(node_id.partition(".")[0])
        if part is None:
            raise StorageUnavailable(f"There is no shard that has the node {node_id!r}.", hint="Try again.")
        return part

    @property
    def taken_over(self) -> int:
        return sum(part.taken_over for part in self.parts)

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be appended to some sessions."""
        return any(part.is_read_only for part in self.parts)

    @property
    def is_connected(self) -> bool:
        """Whether the newest renewals of the leases reached all databases."""
        return all(part.is_connected for part in self.parts)

    def on_lease_lost(self, call: Callable[[Callable[[str], bool]], None]) -> Callable[[], None]:
        def lost_in(part: PostgresLog) -> Callable[[Callable[[str], bool]], None]:
            return lambda concerns: call(lambda session_id: self._of(session_id) is part)

        removes = [part.on_lease_lost(lost_in(part)) for part in self.parts]

        def remove() -> None:
            for each in removes:
                each()

        return remove

    async def claim(self, session_id: str) -> base.Claim:
        return await self._of(session_id).claim(session_id)

    async def append(
        self, session_id: str, events: Sequence[base.Pending], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        return await self._of(session_id).append(session_id, events, expected_last, generation)

    async def import_records(self, session_id: str, records: Sequence[base.Record], expected_last: int) -> None:
        await self._of(session_id).import_records(session_id, records, expected_last)

    def watch(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self._of(session_id).watch(session_id, wake)

    def watch_all(self, changed: Callable[[str], None]) -> Callable[[], None]:
        removes = [shard.watch_all(changed) for shard in self._shards.values()]

        def remove() -> None:
            for each in removes:
                each()

        return remove

    async def read(
        self, session_id: str, after: int = 0, limit: int = base.BATCH_EVENTS, *, deltas: bool = True
    ) -> list[base.LoggedEvent]:
        return await self._of(session_id).read(session_id, after, limit, deltas=deltas)

    async def read_raw(
        self, session_id: str, after: int = 0, limit: int = base.BATCH_EVENTS, *, deltas: bool = True
    ) -> list[base.Record]:
        return await self._of(session_id).read_raw(session_id, after, limit, deltas=deltas)

    async def last(self, session_id: str) -> int:
        return await self._of(session_id).last(session_id)

    async def session(self, session_id: str) -> base.SessionSummary | None:
        return await self._of(session_id).session(session_id)

    async def sessions(self, wanted: base.SessionFilter = base.NEWEST) -> list[base.SessionSummary]:
        found = await self._of_each_shard(lambda shard: shard.sessions(wanted))
        newest = sorted(_joined(found), key=lambda summary: (-summary.updated_ms, summary.session_id))
        return newest[: max(wanted.limit, 0)]

    async def pending_approvals(self) -> list[base.PendingApproval]:
        return _joined(await self._of_each_shard(lambda shard: shard.pending_approvals()))

    async def delete(self, session_id: str) -> bool:
        return await self._of(session_id).delete(session_id)

    async def checkpoint(self, session_id: str) -> base.Checkpoint | None:
        return await self._of(session_id).checkpoint(session_id)

    async def save_checkpoint(self, session_id: str, checkpoint: base.Checkpoint) -> None:
        await self._of(session_id).save_checkpoint(session_id, checkpoint)

    async def grants(self, folder: str | None) -> list[base.StoredGrant]:
        return await self._grants.of(folder)

    async def revoke(self, folder: str, rule: str) -> bool:
        return await self._grants.revoke(folder, rule)

    async def import_grants(self, grants: Sequence[base.StoredGrant]) -> None:
        """Each goes to the shard of the session that asked, whose later decisions replace it."""
        by_shard: dict[PostgresLog, list[base.StoredGrant]] = {}
        for grant in grants:
            by_shard.setdefault(self._of(grant.session_id), []).append(grant)
        for shard, its in by_shard.items():
            await shard.import_grants(its)

    async def trust(self, folder: str, trusted: bool, files: Sequence[base.TrustedFile] = ()) -> None:
        await self._first.trust(folder, trusted, files)

    async def trusted_files(self, folder: str) -> list[base.TrustedFile]:
        return await self._first.trusted_files(folder)

    async def is_trusted(self, folder: str) -> bool:
        return await self._first.is_trusted(folder)

    async def trusted_folders(self) -> list[base.TrustedFolder]:
        return await self._first.trusted_folders()

    async def tokens(self) -> list[base.StoredToken]:
        return await self._first.tokens()

    async def put_token(self, token: base.StoredToken) -> None:
        await self._first.put_token(token)

    async def revoke_token(self, token_id: str, now_ms: int) -> bool:
        return await self._first.revoke_token(token_id, now_ms)

    async def note_token_use(self, token_ids: Sequence[str], now_ms: int) -> None:
        await self._first.note_token_use(token_ids, now_ms)

    async def check(self) -> base.LogReport:
        def check_part(part: PostgresLog) -> Awaitable[base.LogReport]:
            return part.check(lambda session_id: self._of(session_id) is part)

        reports = await asyncio.gather(*(check_part(part) for part in self.parts))
        return base.LogReport(
            sessions=sum(report.sessions for report in reports),
            events=sum(report.events for report in reports),
            problems=tuple(problem for report in reports for problem in report.problems),
        )

    async def nodes(self) -> list[Node]:
        return await self._first.nodes()

    async def owner(self, session_id: str) -> Node | None:
        return await self._of(session_id).owner(session_id)

    async def drain(self) -> None:
        drained = await asyncio.gather(*(part.drain() for part in self.parts), return_exceptions=True)
        for answer in drained:
            if isinstance(answer, BaseException):
                raise answer

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._tasks.close(CLOSE_S)
        await asyncio.gather(*(part.close() for part in self.parts), return_exceptions=True)
        if self._lock is not None:
            self._lock.release()

    def _of(self, session_id: str) -> PostgresLog:
        return self._shards[shard_of(self._shards.keys(), session_id)]

    async def _of_each_shard(self, ask: Callable[[PostgresLog], Awaitable[T]]) -> list[T]:
        return await asyncio.gather(*(ask(shard) for shard in self._shards.values()))


class _Opening:
    """Joins the databases of a store, each after it was made sure that it is the right one."""

    def __init__(self, url: str, shards: Mapping[str, str], node: NodeSettings) -> None:
        self._addresses = dict(shards)
        self._node = node
        self._first = Database(url)
        self._url = url
        places = {name: _place(Database(shards[name])) for name in sorted(shards)}
        if len(set(places.values())) < len(places):
            raise InvalidRequest(
                "Two shards are the same database.", hint="Give each name in [store.shards] a database of its own."
            )
        self.shared = next((name for name, place in places.items() if place == _place(self._first)), None)
        """The shard whose database is the first one, too."""
        self._store_id = ""
        self._known: dict[str, str] = {}

    async def take_first(self) -> None:
        """Learn the map from the first database, before any other one is changed."""
        connection = await self._connect_to_first()
        try:
            with deadline(connection, PREPARE_S):
                await schema.migrate(connection)
                found = await shard_map.take_role(connection, self._role(self.shared or ""), "", None)
                self._known = await shard_map.shards_of(connection)
        except psycopg.Error as error:
            raise self._first.unavailable(error) from None
        finally:
            await connection.close()
        self._store_id = found.store_id

    async def join_first(self) -> PostgresLog:
        if self.shared is not None:
            return await self._join(self.shared, self._url, may_join_later=False)
        node = msgspec.structs.replace(self._node, shard="")
        return await PostgresLog.open(self._url, node)

    async def join(self, name: str) -> PostgresLog:
        return await self._join(name, self._addresses[name], may_join_later=name in self._known)

    async def _join(self, name: str, url: str, *, may_join_later: bool) -> PostgresLog:
        return await PostgresLog.open(
            url,
            msgspec.structs.replace(self._node, shard=name),
            prepare=partial(self._prepare, name),
            may_join_later=may_join_later,
        )

    async def _prepare(self, name: str, connection: Connection) -> None:
        await schema.migrate(connection)
        known = self._known.get(name)
        found = await shard_map.take_role(connection, self._role(name), self._store_id, known)
        if known is None:
            first = await self._connect_to_first()
            try:
                with deadline(first, PREPARE_S):
                    await shard_map.register(first, name, found.database_id)
            finally:
                await first.close()

    def _role(self, name: str) -> ShardRole:
        return ShardRole(name=name, is_first=name == (self.shared or ""), names=tuple(sorted(self._addresses)))

    async def _connect_to_first(self) -> Connection:
        try:
            return await self._first.connect()
        except psycopg.Error as error:
            raise self._first.unavailable(error) from None


def _place(database: Database) -> tuple[str, ...]:
    return tuple(
        database.settings.get(name, "") for name in ("host", "hostaddr", "port", "dbname", "options", "service")
    )


def _joined(lists: Iterable[list[T]]) -> list[T]:
    return [each for part in lists for each in part]
