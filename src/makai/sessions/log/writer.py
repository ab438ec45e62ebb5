"""The one thread that writes: it takes what has gathered, commits it, and says so.

In: appends and deletions, from the event loop. Out: for each its outcome, after its commit, in one call per commit.
Knows no event's meaning except that deltas can wait.

Group commit: a commit takes everything that came while the former one was under way. Appends of nothing but deltas wait
until 5 ms have passed since the former commit began, so that a stream of words costs 200 commits a second at most;
anything else is committed at once and takes the waiting deltas with it.

A commit that fails, in its fsync or before, is rolled back and none of it is acknowledged. SQLite writes the next one
over it, so a later success never rests on the failed one. If the process dies before that, the failed one may be found
whole in the WAL and count after all: stored though nobody was told, as if it had died just before acknowledging.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from makai.core.errors import MakaiError, StorageUnavailable
from makai.sessions.log import encoding, projection, store
from makai.sessions.log.heads import Head, Heads

WINDOW_S: Final = 0.005
CHECKPOINT_PAGES: Final = 1000
PURGE_EVENTS: Final = 2000
_PAGE_BYTES: Final = 4096
_PAGES_PER_COMMIT: Final = 3


class Append(msgspec.Struct, frozen=True, eq=False):
    """Events to store, and who waits for it."""

    session_id: str
    bodies: list[encoding.Body]
    expected_last: int
    weight: int
    waiter: asyncio.Future[tuple[int, int]]

    @property
    def can_wait(self) -> bool:
        return all(body.is_delta for body in self.bodies)


class Delete(msgspec.Struct, frozen=True, eq=False):
    """A session to forget."""

    session_id: str
    waiter: asyncio.Future[bool]


class Outcome(msgspec.Struct, frozen=True, eq=False):
    """What came of a request: numbers or a flag, or why not."""

    request: Append | Delete
    result: tuple[int, int] | bool | MakaiError


Settle: TypeAlias = Callable[[list[Outcome]], None]


class Writer:
    """Owns the connection that writes, from `start` until `stop` has joined the thread."""

    def __init__(self, connection: sqlite3.Connection, heads: Heads, settle: Settle) -> None:
        self._connection = connection
        self._heads = heads
        self._settle = settle
        self._next_key = store.next_key(connection)
        self._changed = threading.Condition()
        self._requests: deque[Append | Delete] = deque()
        self._urgent = 0
        self._stopping = False
        self._began = 0.0
        self._pages = 0
        self._may_have_deleted = True
        self._thread = threading.Thread(target=self._run, name="makai-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Append | Delete) -> None:
        """Queue a request. Whoever calls bounds how much is under way."""
        urgent = isinstance(request, Delete) or not request.can_wait
        with self._changed:
            self._requests.append(request)
            self._urgent += urgent
            if urgent or len(self._requests) == 1:
                self._changed.notify()

    def stop(self, timeout_s: float) -> bool:
        """Finish what is queued and close the connection; False when it is not done in time. Blocks."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        with contextlib.closing(self._connection):
            while (group := self._next_group()) is not None:
                if group:
                    self._settle(self._carry_out(group))
                self._tidy()

    def _next_group(self) -> list[Append | Delete] | None:
        """What to commit next; empty when there is time to tidy up, None at the end."""
        with self._changed:
            while not self._requests and not self._stopping:
                if self._may_have_deleted:
                    return []
                self._changed.wait()
            while self._requests and not self._urgent and not self._stopping:
                remaining = self._began + WINDOW_S - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            if not self._requests:
                return None
            group = list(self._requests)
            self._requests.clear()
            self._urgent = 0
        self._began = time.monotonic()
        return group

    def _carry_out(self, group: list[Append | Delete]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        appends: list[Append] = []
        for request in group:
            if isinstance(request, Append):
                appends.append(request)
                continue
            outcomes += self._append(appends)
            outcomes.append(Outcome(request, self._delete(request)))
            appends = []
        return outcomes + self._append(appends)

    def _append(self, appends: list[Append]) -> list[Outcome]:
        """All of them in one transaction; those that conflict are left out of it."""
        outcomes: list[Outcome] = []
        changed: dict[str, Head] = {}
        events: list[tuple[int, encoding.Stored]] = []
        try:
            for append in appends:
                try:
                    outcomes.append(Outcome(append, self._place(append, changed, events)))
                except MakaiError as refusal:
                    outcomes.append(Outcome(append, refusal))
            if events:
                self._commit(events, changed)
        except Exception as error:  # whatever it was: nothing is stored, and nobody may wait for ever
            self._roll_back()
            if len(appends) > 1 and not isinstance(error, sqlite3.OperationalError):
                # The pages of one session are damaged: the others must not suffer.
                return [outcome for append in appends for outcome in self._append([append])]
            return [Outcome(append, unavailable(error)) for append in appends]
        for session_id, head in changed.items():
            self._heads.put(session_id, head)
        return outcomes

    def _place(
        self, append: Append, changed: dict[str, Head], events: list[tuple[int, encoding.Stored]]
    ) -> tuple[int, int]:
        session_id = append.session_id
        head = changed.get(session_id) or self._heads.get(session_id) or self._load(session_id)
        if head.last != append.expected_last:
            raise encoding.conflict(session_id, append.expected_last, head.last)
        view, key = head.row.view, head.row.session_key
        stored = encoding.numbered(session_id, append.bodies, head.last, view.summary.updated_ms)
        row = store.SessionRow(key, projection.appended(view, append.bodies, stored))
        changed[session_id] = head.extended(row, [event.record for event in stored])
        events += [(key, event) for event in stored]
        return stored[0].record.event_id, stored[-1].record.event_id

    def _load(self, session_id: str) -> Head:
        try:
            row = store.load_session(self._connection, session_id)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            raise encoding.damaged(session_id, None) from None
        if row is None:
            row = store.SessionRow(self._next_key, projection.empty(session_id))
            self._next_key += 1
        return Head(row)

    def _commit(self, events: list[tuple[int, encoding.Stored]], changed: dict[str, Head]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        store.insert_events(self._connection, events)
        store.put_sessions(self._connection, [head.row for head in changed.values()])
        self._connection.execute("COMMIT")
        written = sum(len(event.record.line) for _, event in events)
        self._pages += _PAGES_PER_COMMIT + len(changed) + written // _PAGE_BYTES

    def _delete(self, request: Delete) -> bool | MakaiError:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            existed = store.doom(self._connection, request.session_id)
            self._connection.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            return unavailable(error)
        self._heads.drop(request.session_id)
        self._may_have_deleted = True
        return existed

    def _tidy(self) -> None:
        """Work that nobody waits for: what fails is left to the next deletion, checkpoint or start."""
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

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after most I/O errors; an error here leaves the same to the next BEGIN.
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def unavailable(error: Exception) -> StorageUnavailable:
    """Why the store refuses, for people."""
    return StorageUnavailable(
        f"Sessions cannot be stored or read ({error}).",
        hint="Make sure that the disk has space and can be written to, then try again.",
    )
