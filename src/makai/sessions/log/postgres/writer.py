"""Group commit: one connection stores what came while the former commit was under way, in one statement.

The statement moves a session's `last` only where `last` and `generation` are the expected ones, and inserts only the
events of the sessions that it moved. A session that is missing from the answer met another writer; it is read to tell
which refusal its callers get, and the others are stored.

A commit whose answer is lost may be stored, may be under way, or may never have arrived. It is looked up on a new
connection, under the locks of its rows: a commit that still waits for its standby cannot be seen, and holds them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias
from zlib import crc32

import msgspec
import psycopg

from makai.aio.postgres import has_input, is_retryable
from makai.core.errors import LogConflict, LogDamaged, MakaiError
from makai.sessions.log import encoding, leases, projection
from makai.sessions.log.base import StoredGrant
from makai.sessions.log.heads import Head, Heads
from makai.sessions.log.postgres import arrays, rows
from makai.sessions.log.postgres.append_statement import APPEND, CHECKSUMS, LOOK
from makai.sessions.log.postgres.connecting import CONNECT_S, Connection, Database, deadline, of_unknown_outcome
from makai.sessions.log.postgres.membership import Membership, lease_lost
from makai.sessions.log.projection import SessionRow

log = logging.getLogger(__name__)

WINDOW_S: Final = 0.005
"""Appends of nothing but deltas wait until this has passed since the former commit began."""
MAX_COMMIT_BYTES: Final = 4 * 1024 * 1024
COMMIT_S: Final = 20.0
"""After this the connection is cut, and the outcome is looked up."""
PATIENCE_S: Final = 35.0
"""How long what was sent is looked up before its callers get an error: longer than a standby takes to become the
primary (27 s by Patroni's defaults). What was not sent is not stored, and waits no longer than this node's lease."""
MIN_ATTEMPT_S: Final = 5.0
"""How much longer each step of the last attempt may take."""
MAX_ATTEMPTS: Final = 200
_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 1.0
_SETTINGS: Final = b"""
SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; SET enable_mergejoin = off
"""
"""One plan for groups of all sizes, which finds rows by their keys however small the tables were when it was made.
Planning the statement for each group takes longer than carrying it out."""
ACTIVE: Final = frozenset({"starting", "running", "awaiting_approval", "aborting"})


class PendingAppend(msgspec.Struct, frozen=True, eq=False):
    session_id: str
    bodies: list[encoding.Body]
    expected_last: int
    generation: int
    weight: int
    is_urgent: bool
    waiter: asyncio.Future[tuple[int, int]]


class _Entry(msgspec.Struct):
    """What one commit does to one session."""

    head: Head
    """After it."""
    expected: int
    appends: list[tuple[PendingAppend, tuple[int, int]]] = []
    stored: list[encoding.Stored] = []
    grants: list[StoredGrant] = []

    @property
    def row(self) -> SessionRow:
        return self.head.row

    @property
    def session_id(self) -> str:
        return self.head.row.view.summary.session_id


_Result: TypeAlias = int | MakaiError
"""The key of a session that was stored, or why it was not."""


class GroupWriter:
    """Owns the connection that appends, from `start` until `stop`. Only one event loop uses it."""

    def __init__(
        self,
        database: Database,
        membership: Membership,
        heads: Heads,
        settled: Callable[[PendingAppend], None],
    ) -> None:
        """`settled` is called for each append after its caller got its answer."""
        self._database = database
        self._membership = membership
        self._heads = heads
        self._settled = settled
        self._connection: Connection | None = None
        self._queue: deque[PendingAppend] = deque()
        self._arrived = asyncio.Event()
        self._urgent = asyncio.Event()
        self._stopping = False
        self._began = 0.0
        self._forgotten: set[str] | None = set()
        """Sessions whose heads are not kept after the commit that is under way; None: those of all."""
        self._under_way: dict[int, PendingAppend] = {}
        """Appends of the current group without an answer, by identity."""
        self._is_away = False
        """Whether the database could not be reached the last time: the next group tries once."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="makai-postgres-writer")

    def submit(self, append: PendingAppend) -> None:
        self._queue.append(append)
        self._arrived.set()
        if append.is_urgent:
            self._urgent.set()

    async def stop(self) -> None:
        """Finish what is queued."""
        self._stopping = True
        self._arrived.set()
        self._urgent.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        await self._disconnect()

    def forget(self, session_ids: Iterable[str]) -> None:
        """Drop what is known about sessions that other nodes may write to from now on."""
        for session_id in session_ids:
            self._heads.drop(session_id)
            if self._forgotten is not None:
                self._forgotten.add(session_id)

    def lose_lease(self) -> None:
        """Forget all sessions, and refuse what was not sent: it is not stored. What was sent is looked up as before."""
        self._heads.clear()
        self._forgotten = None
        while self._queue:
            append = self._queue.popleft()
            if not append.waiter.done():
                append.waiter.set_exception(lease_lost())
            self._settled(append)

    async def _run(self) -> None:
        while (group := await self._next_group()) or not self._stopping:
            self._under_way = {id(append): append for append in group}
            try:
                await self._carry_out(group)
            except Exception as error:  # every caller gets an answer
                self.forget({append.session_id for append in group})
                await self._disconnect()
                for append in tuple(self._under_way.values()):
                    self._settle(append, error if isinstance(error, MakaiError) else self._database.unavailable(error))

    async def _next_group(self) -> list[PendingAppend]:
        """What to commit next; empty at the end, or when it was refused meanwhile."""
        loop = asyncio.get_running_loop()
        if not self._stopping or self._queue:
            await self._arrived.wait()
        if not self._urgent.is_set() and (left_s := self._began + WINDOW_S - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._urgent.wait()
        self._began = loop.time()
        group: list[PendingAppend] = []
        size = 0
        while self._queue and size < MAX_COMMIT_BYTES:
            group.append(self._queue.popleft())
            size += group[-1].weight
        if not self._queue and not self._stopping:
            self._arrived.clear()
            self._urgent.clear()
        return group

    async def _carry_out(self, group: list[PendingAppend]) -> None:
        self._forgotten = set()
        give_up = self._began + (0.0 if self._is_away else PATIENCE_S)
        entries = self._place(group, await self._load(group, give_up))
        results = await self._commit(list(entries.values()), give_up) if entries else {}
        for session_id, entry in entries.items():
            result = results[session_id]
            if isinstance(result, MakaiError):
                self.forget([session_id])
                for append, _ in entry.appends:
                    refusal = result
                    if isinstance(result, LogConflict):
                        refusal = encoding.conflict(session_id, append.expected_last, result.last)
                    self._settle(append, refusal)
                continue
            row = SessionRow(result, entry.row.view, entry.row.generation)
            if self._forgotten is not None and session_id not in self._forgotten:
                self._heads.put(session_id, msgspec.structs.replace(entry.head, row=row))
            for append, numbers in entry.appends:
                self._settle(append, numbers)

    def _place(self, group: list[PendingAppend], loaded: Mapping[str, SessionRow | LogDamaged]) -> dict[str, _Entry]:
        """Number the events. Appends that cannot succeed are refused at once."""
        entries: dict[str, _Entry] = {}
        for append in group:
            try:
                entry = entries.get(append.session_id) or self._entry(append, loaded)
                self._add(entry, append)
            except MakaiError as refusal:
                self._settle(append, refusal)
                continue
            entries[append.session_id] = entry
        return entries

    def _entry(self, append: PendingAppend, loaded: Mapping[str, SessionRow | LogDamaged]) -> _Entry:
        session_id = append.session_id
        head = self._known(append)
        if head is None:
            row = loaded.get(session_id) or SessionRow(0, projection.empty(session_id), append.generation)
            if isinstance(row, LogDamaged):
                raise row
            head = Head(row)
        return _Entry(head, head.last)

    def _add(self, entry: _Entry, append: PendingAppend) -> None:
        head, view = entry.head, entry.row.view
        if append.generation != entry.row.generation:
            raise leases.taken_over()
        if append.expected_last != head.last:
            raise encoding.conflict(append.session_id, append.expected_last, head.last)
        stored = encoding.numbered(append.session_id, append.bodies, head.last, view.latest_ms)
        following, grants = projection.appended(view, append.bodies, stored)
        entry.head = head.extended(SessionRow(entry.row.session_key, following, append.generation), stored)
        entry.stored += stored
        entry.grants += grants
        entry.appends.append((append, (stored[0].record.event_id, stored[-1].record.event_id)))

    def _known(self, append: PendingAppend) -> Head | None:
        head = self._heads.get(append.session_id)
        return head if head is not None and head.row.generation == append.generation else None

    async def _load(self, group: list[PendingAppend], give_up: float) -> Mapping[str, SessionRow | LogDamaged]:
        wanted = sorted({append.session_id for append in group if self._known(append) is None})
        if not wanted:
            return {}
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                connection = await self._connected(give_up)
                with deadline(connection, _attempt_s(COMMIT_S, give_up)):
                    return await rows.load_sessions(connection, wanted)
            except psycopg.Error as error:
                await self._recover(error, give_up, attempt, was_sent=False)
        raise AssertionError

    async def _commit(self, entries: list[_Entry], give_up: float) -> dict[str, _Result]:
        """Store all that can be stored. While the database stays away, the outcome may be that it is unknown."""
        results: dict[str, _Result] = {}
        was_tried = False
        for attempt in range(1, MAX_ATTEMPTS + 1):
            left = [entry for entry in entries if entry.session_id not in results]
            try:
                connection = await self._connected(give_up)
                with deadline(connection, _attempt_s(COMMIT_S, give_up)):
                    if was_tried:
                        results |= await self._look(connection, left, was_tried=True)
                        left = [entry for entry in left if entry.session_id not in results]
                    was_tried = was_tried or bool(left)
                    results |= await self._execute(connection, left)
                    left = [entry for entry in left if entry.session_id not in results]
                    results |= await self._look(connection, left, was_tried=attempt > 1, is_refused=True)
            except psycopg.Error as error:
                try:
                    await self._recover(error, give_up, attempt, was_sent=was_tried)
                except MakaiError as refusal:
                    return {entry.session_id: refusal for entry in entries} | results
                continue
            if len(results) == len(entries):
                self._is_away = False
                return results
        raise psycopg.OperationalError("the database answered, and stored nothing")

    async def _execute(self, connection: Connection, entries: list[_Entry]) -> dict[str, _Result]:
        """Send the statement; returns those that are stored."""
        if not entries:
            return {}
        has_new = any(entry.row.session_key == 0 for entry in entries)
        grants = [(number, grant) for number, entry in enumerate(entries) for grant in _newest(entry.grants)]
        node = self._membership.node
        values = _session_values(entries) | _event_values(entries)
        if has_new:
            values |= {"node_id": node.node_id, "place": node.labels[0]}
        if grants:
            values |= _grant_values(grants)
        found = await rows.fetch(connection, APPEND[has_new, bool(grants)], values)
        return {entries[number].session_id: key for number, key in found}

    async def _look(
        self, connection: Connection, entries: list[_Entry], *, was_tried: bool, is_refused: bool = False
    ) -> dict[str, _Result]:
        """What became of sessions: stored by an attempt whose answer was lost, or changed by another writer. Those that
        are as they were before are left out, and can be tried again."""
        if not entries:
            return {}
        async with connection.transaction():
            ids = [entry.session_id for entry in entries]
            found = {row[0]: row[1:] for row in await rows.fetch(connection, LOOK, (ids,))}
            ends = [(found[entry.session_id][0], entry.head.last) for entry in entries if entry.session_id in found]
            keys = [arrays.integers(column) for column in zip(*ends, strict=True)] if ends and was_tried else None
            sums = {row[:2]: row[2] for row in await rows.fetch(connection, CHECKSUMS, keys)} if keys else {}
        results: dict[str, _Result] = {}
        for entry in entries:
            key, last, generation, _ = found.get(entry.session_id, (0, 0, None, None))
            # Also when another node has taken over since: a caller that hears "nothing was stored" asks again.
            if sums.get((key, entry.head.last)) == entry.stored[-1].checksum:
                results[entry.session_id] = key
            elif generation is None and entry.expected == 0:
                if is_refused:  # the node is gone
                    self._membership.lose()
                    results[entry.session_id] = leases.taken_over()
            elif generation is not None and generation != entry.row.generation:
                results[entry.session_id] = leases.taken_over()
            elif last != entry.expected:
                results[entry.session_id] = encoding.conflict(entry.session_id, entry.expected, last)
        return results

    async def _connected(self, give_up: float) -> Connection:
        known = self._connection
        if known is not None and (known.closed or has_input(known.pgconn.socket)):
            await self._disconnect()  # it ended while it was idle: nothing that is sent now would arrive
        if self._connection is None:
            self._connection = await self._database.connect(_attempt_s(CONNECT_S, give_up))
            with deadline(self._connection, _attempt_s(CONNECT_S, give_up)):
                await self._connection.execute(_SETTINGS)
        return self._connection

    async def _recover(self, error: psycopg.Error, give_up: float, attempt: int, *, was_sent: bool) -> None:
        """Prepare the next attempt, or raise when there is none."""
        await self._disconnect()
        if not is_retryable(error):
            raise error
        if not was_sent:
            self._membership.check()
        if asyncio.get_running_loop().time() >= give_up or attempt == MAX_ATTEMPTS:
            self._is_away = True
            unavailable = self._database.unavailable(error)
            raise of_unknown_outcome(unavailable) if was_sent else unavailable
        if attempt == 1:
            log.warning("The database is tried again for up to %g s: %s", PATIENCE_S, self._database.text_of(error))
        await asyncio.sleep(min(_PAUSE_S * attempt, _MAX_PAUSE_S))

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def _settle(self, append: PendingAppend, result: tuple[int, int] | MakaiError) -> None:
        del self._under_way[id(append)]
        if not append.waiter.done():  # its caller was not cancelled
            if isinstance(result, MakaiError):
                append.waiter.set_exception(result)
            else:
                append.waiter.set_result(result)
        self._settled(append)


def _attempt_s(most_s: float, give_up: float) -> float:
    return min(most_s, max(give_up - asyncio.get_running_loop().time(), MIN_ATTEMPT_S))


def _newest(grants: list[StoredGrant]) -> Iterable[StoredGrant]:
    """Of several about one folder and rule the last one."""
    return {(grant.folder, grant.rule): grant for grant in grants}.values()


def _session_values(entries: list[_Entry]) -> dict[str, object]:
    views = [entry.row.view for entry in entries]
    summaries = [view.summary for view in views]
    encoded = [msgspec.json.encode(view) for view in views]
    sums = [projection.row_checksum(summary, view) for summary, view in zip(summaries, encoded, strict=True)]
    return {
        "numbers": arrays.integers(range(len(entries))),
        "keys": arrays.integers([entry.row.session_key for entry in entries]),
        "ids": arrays.texts([summary.session_id for summary in summaries]),
        "expected": arrays.integers([entry.expected for entry in entries]),
        "generations": arrays.integers([entry.row.generation for entry in entries]),
        "lasts": arrays.integers([summary.events for summary in summaries]),
        "actives": arrays.bools([summary.status in ACTIVE for summary in summaries]),
        "updated": arrays.integers([summary.updated_ms for summary in summaries]),
        "waiting": arrays.integers([summary.pending_approvals for summary in summaries]),
        "cwds": arrays.texts([summary.cwd for summary in summaries]),
        "archived": arrays.bools([summary.archived for summary in summaries]),
        "projections": arrays.blobs(encoded),
        "checksums": arrays.integers(sums),
    }


def _event_values(entries: list[_Entry]) -> dict[str, object]:
    events = [event for entry in entries for event in entry.stored]
    numbers = [number for number, entry in enumerate(entries) for _ in entry.stored]
    return {
        "event_numbers": arrays.integers(numbers),
        "event_ids": arrays.integers([event.record.event_id for event in events]),
        "event_checksums": arrays.integers([event.checksum for event in events]),
        "deltas": arrays.bools([event.is_delta for event in events]),
        "lines": arrays.blobs([event.record.line for event in events]),
    }


def _grant_values(grants: list[tuple[int, StoredGrant]]) -> dict[str, object]:
    encoded = [msgspec.json.encode(grant) for _, grant in grants]
    return {
        "grant_numbers": arrays.integers([number for number, _ in grants]),
        "folders": arrays.texts([grant.folder for _, grant in grants]),
        "rules": arrays.texts([grant.rule for _, grant in grants]),
        "grants": arrays.blobs(encoded),
        "grant_checksums": arrays.integers([crc32(data) for data in encoded]),
    }
