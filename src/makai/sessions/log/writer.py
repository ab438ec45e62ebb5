"""The one thread that writes: it commits the requests that have gathered and reports their outcomes, once per commit.

Group commit: a commit takes everything that came while the former one was under way. Appends of nothing but deltas wait
until 5 ms have passed since the former commit began, so that a stream of words costs 200 commits a second at most;
anything else is committed at once and takes the waiting deltas with it.

Checkpoints of sessions are kept between two commits, one at a time and without an fsync of their own, after all appends
were answered: the next append waits for the copying of one at most.

A commit that fails, in its fsync or before, is rolled back and none of it is acknowledged. SQLite writes the next one
over it, so a later success never rests on the failed one. If the process dies before that, the failed one may be found
whole in the WAL and count after all, as if the process had died just before acknowledging.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from makai.core.errors import MakaiError, OwnershipLost, StorageUnavailable
from makai.sessions.log import encoding, leases, permissions, projection, schema, store
from makai.sessions.log.base import Checkpoint, StoredGrant
from makai.sessions.log.heads import Head, Heads

WINDOW_S: Final = 0.005
CHECKPOINT_PAGES: Final = 1000
PURGE_EVENTS: Final = 2000
_PAGE_BYTES: Final = 4096
_PAGES_PER_COMMIT: Final = 3


class Append(msgspec.Struct, frozen=True, eq=False):
    session_id: str
    bodies: list[encoding.Body]
    expected_last: int
    generation: int
    weight: int
    is_urgent: bool
    may_change_grants: bool
    waiter: asyncio.Future[tuple[int, int]]


class Delete(msgspec.Struct, frozen=True, eq=False):
    may_change_grants: ClassVar[bool] = False
    is_urgent: ClassVar[bool] = True
    session_id: str
    waiter: asyncio.Future[bool]


class Change(msgspec.Struct, frozen=True, eq=False):
    """A durable change beside the events, in a transaction of its own."""

    may_change_grants: ClassVar[bool] = True
    is_urgent: ClassVar[bool] = True
    apply: Callable[[sqlite3.Connection], bool]
    waiter: asyncio.Future[bool]


class Save(msgspec.Struct, frozen=True, eq=False):
    may_change_grants: ClassVar[bool] = False
    is_urgent: ClassVar[bool] = False
    session_id: str
    checkpoint: Checkpoint
    waiter: asyncio.Future[bool]


Request: TypeAlias = Append | Delete | Change | Save


class _Batch(msgspec.Struct):
    heads: dict[str, Head] = {}
    events: list[tuple[int, encoding.Stored]] = []
    weight: int = 0
    grants: list[StoredGrant] = []
    runs: list[tuple[int, int, int]] = []


class Outcome(msgspec.Struct, frozen=True, eq=False):
    request: Request
    result: Any
    """What the request's waiter gets, or the `MakaiError` that it raises."""


class Writer:
    """Owns the connections that write, from `start` until `stop` has joined the thread. `submit` queues a request; the
    caller bounds how much is under way."""

    def __init__(self, path: Path, heads: Heads, settle: Callable[[list[Outcome]], None]) -> None:
        self._path = path
        self._connection = schema.open_writer(path)
        try:
            self.lease = leases.next_lease(self._connection)
            self._holds_lease = False
            # A full disk can still be read; the next commit retries.
            with contextlib.suppress(sqlite3.OperationalError):
                self._begin()
                self._end()
            self._next_key = store.next_key(self._connection)  # after the last commit of the former owner
        except BaseException:
            self._connection.close()
            raise
        self._unsynced: sqlite3.Connection | None = None
        self._heads = heads
        self._settle = settle
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        """None is the last."""
        self._saves: deque[tuple[int, Save]] = deque()
        self._stopping = False
        self._began = 0.0
        self._pages = 0
        self._may_have_deleted = True
        self._thread = threading.Thread(target=self._run, name="makai-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request) -> None:
        self._requests.put(request)

    def stop(self, timeout_s: float) -> bool:
        """Finish what is queued and close the connection; False when it is not done in time. Blocks."""
        self._requests.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with contextlib.closing(self._connection):
            while (group := self._next_group()) is not None:
                if group:
                    self._settle(self._carry_out(group))
                self._save_one()
                self._tidy()
            while self._saves:
                self._save_one()
            if self._unsynced is not None:
                self._unsynced.close()

    def _next_group(self) -> list[Request] | None:
        """What to commit next; empty when there is time to tidy up, None at the end."""
        group: list[Request] = []
        is_urgent = self._stopping
        while True:
            if is_urgent or (not group and (self._may_have_deleted or self._saves)):
                timeout_s: float | None = 0.0
            elif group:
                timeout_s = max(self._began + WINDOW_S - time.monotonic(), 0.0)
            else:
                timeout_s = None
            try:
                request = self._requests.get(timeout=timeout_s) if timeout_s != 0.0 else self._requests.get_nowait()
            except Empty:
                break
            if request is None:
                self._stopping = True
            else:
                group.append(request)
            is_urgent = is_urgent or request is None or request.is_urgent
        if group:
            self._began = time.monotonic()
        elif self._stopping:
            return None
        return group

    def _carry_out(self, group: list[Request]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        appends: list[Append] = []
        for request in group:
            if isinstance(request, Append):
                appends.append(request)
            elif isinstance(request, Save):
                outcomes += self._save_later(request)
            else:
                outcomes += self._append(appends)
                result = self._delete(request) if isinstance(request, Delete) else self._change(request.apply)
                outcomes.append(Outcome(request, result))
                appends = []
        return outcomes + self._append(appends)

    def _append(self, appends: list[Append]) -> list[Outcome]:
        """All of them in one transaction; those that conflict are left out of it."""
        outcomes: list[Outcome] = []
        batch = _Batch()
        try:
            for append in appends:
                try:
                    outcomes.append(Outcome(append, self._place(append, batch)))
                except MakaiError as refusal:
                    outcomes.append(Outcome(append, refusal))
            if batch.events:
                self._commit(batch)
        except OwnershipLost as lost:
            self._roll_back()
            self._heads.clear()  # the new owner may have appended since
            return [Outcome(append, lost) for append in appends]
        except Exception as error:  # nothing is stored, and every caller gets an answer
            self._roll_back()
            if len(appends) > 1 and not isinstance(error, sqlite3.OperationalError):
                # The pages of one session are damaged: the others must not suffer.
                return [outcome for append in appends for outcome in self._append([append])]
            return [Outcome(append, unavailable(error)) for append in appends]
        for session_id, head in batch.heads.items():
            self._heads.put(session_id, head)
        return outcomes

    def _place(self, append: Append, batch: _Batch) -> tuple[int, int]:
        session_id = append.session_id
        leases.check_generation(self.lease, append.generation)
        head = batch.heads.get(session_id) or self._heads.get(session_id) or self._load(session_id)
        if head.last != append.expected_last:
            raise encoding.conflict(session_id, append.expected_last, head.last)
        view, key = head.row.view, head.row.session_key
        stored = encoding.numbered(session_id, append.bodies, head.last, view.latest_ms)
        following, grants = projection.appended(view, append.bodies, stored)
        row = projection.SessionRow(key, following)
        batch.heads[session_id] = head.extended(row, stored)
        batch.events += [(key, event) for event in stored]
        batch.grants += grants
        batch.weight += append.weight
        if run := head.run_ended_by(stored):
            batch.runs.append((key, *run))
        return stored[0].record.event_id, stored[-1].record.event_id

    def _load(self, session_id: str) -> Head:
        try:
            row = store.load_session(self._connection, session_id)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            raise encoding.damaged(session_id, None) from None
        if row is None:
            row = projection.SessionRow(self._next_key, projection.empty(session_id))
            self._next_key += 1
        return Head(row, deltas_from=row.view.summary.events + 1)

    def _commit(self, batch: _Batch) -> None:
        self._begin()
        store.insert_events(self._connection, batch.events)
        store.put_sessions(self._connection, [head.row for head in batch.heads.values()])
        store.insert_runs(self._connection, batch.runs)
        permissions.put_grants(self._connection, batch.grants)
        self._end()
        self._pages += _PAGES_PER_COMMIT + len(batch.heads) + batch.weight // _PAGE_BYTES

    def _delete(self, request: Delete) -> bool | MakaiError:
        existed = self._change(lambda connection: store.doom(connection, request.session_id))
        if not isinstance(existed, MakaiError):
            self._heads.drop(request.session_id)
            self._may_have_deleted = True
        return existed

    def _change(self, apply: Callable[[sqlite3.Connection], bool]) -> bool | MakaiError:
        try:
            self._begin()
            result = apply(self._connection)
            self._end()
        except MakaiError as refused:
            self._roll_back()
            return refused
        except Exception as error:
            self._roll_back()
            return unavailable(error)
        self._pages += _PAGES_PER_COMMIT
        return result

    def _save_later(self, request: Save) -> list[Outcome]:
        """Note which session is meant: by the time it is saved, another one may have the name."""
        head = self._heads.get(request.session_id)
        try:
            key = head.row.session_key if head else store.key_of(self._connection, request.session_id)
        except Exception:
            key = None
        if key is None:
            return [Outcome(request, False)]
        self._saves.append((key, request))
        return []

    def _save_one(self) -> None:
        if not self._saves:
            return
        key, request = self._saves.popleft()
        try:
            if self._unsynced is None:
                self._unsynced = schema.open_unsynced(self._path)
            is_kept = store.put_checkpoint(self._unsynced, key, request.session_id, request.checkpoint)
        except Exception:  # the events are there: what is derived from them can be derived again
            is_kept = False
        self._pages += _PAGES_PER_COMMIT + len(request.checkpoint.data) // _PAGE_BYTES
        self._settle([Outcome(request, is_kept)])

    def _tidy(self) -> None:
        """Work without a waiting caller: what fails is left to the next deletion, checkpoint or start."""
        try:
            if self._may_have_deleted:
                self._connection.execute("BEGIN IMMEDIATE")
                self._may_have_deleted = store.purge(self._connection, PURGE_EVENTS)
                self._connection.execute("COMMIT")
                self._pages += self._may_have_deleted * PURGE_EVENTS // 10
            if self._pages >= CHECKPOINT_PAGES:
                self._pages = 0
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            self._may_have_deleted = False
            self._roll_back()

    def _begin(self) -> None:
        """Start a transaction of the owner; raises `OwnershipLost` in any other process than the newest owner's."""
        self._connection.execute("BEGIN IMMEDIATE")
        if self._holds_lease:
            leases.check_held(self._connection, self.lease)
        else:
            leases.take(self._connection, self.lease)

    def _end(self) -> None:
        self._connection.execute("COMMIT")
        self._holds_lease = True

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after most I/O errors; an error here leaves the same to the next BEGIN.
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def unavailable(error: Exception) -> StorageUnavailable:
    return StorageUnavailable(
        f"Sessions cannot be stored or read ({error}).",
        hint="Make sure that the disk has space and can be written to, then try again.",
    )
