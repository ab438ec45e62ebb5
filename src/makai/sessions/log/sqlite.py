"""The log of a MAKAI_HOME: one SQLite file, one thread that writes, and readers that never wait for it. Only the event
loop that opened it may use it. Appends that wait for their commit hold at most `MAX_QUEUED_BYTES`; past that, `append`
itself waits. Checkpoints have a limit of their own, so that no append waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar, get_args

from makai.core.errors import LogDamaged, MakaiError, StorageUnavailable
from makai.core.session_events import ApprovalDecided, Delta
from makai.sessions.log import base, encoding, permissions, repair, schema, store, tokens
from makai.sessions.log.heads import Heads
from makai.sessions.log.leases import HomeLock
from makai.sessions.log.room import Room
from makai.sessions.log.watchers import Watchers
from makai.sessions.log.writer import Append, Change, Delete, Outcome, Save, Writer, unavailable

T = TypeVar("T")

MAX_QUEUED_BYTES: Final = 32 * 1024 * 1024
MAX_CHECKPOINT_BYTES: Final = 8 * 1024 * 1024
PATIENCE_S: Final = 30.0
READERS: Final = 2
MAX_CACHED_FOLDERS: Final = 256
_EVENT_OVERHEAD_BYTES: Final = 200
_CLOSED: Final = "The log is closed."
_DELTAS: Final = frozenset(get_args(Delta))


class SqliteLog:
    """Durable, numbered events of all sessions of a MAKAI_HOME. Make one by `open`."""

    def __init__(self, home: Path) -> None:
        """Blocks; `open` does not."""
        self._path = home / schema.FILE_NAME
        self._lock = HomeLock(home)
        self._heads = Heads()
        try:
            self._writer = Writer(self._path, self._heads, self._settle_later)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, sqlite3.Error | OSError):
                raise unavailable(error) from None
            raise
        self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="makai-log-reader")
        self._idle_readers: deque[sqlite3.Connection] = deque()
        self._watchers = Watchers()
        self._queue = Room(MAX_QUEUED_BYTES)
        self._checkpoints = Room(MAX_CHECKPOINT_BYTES)
        self._grants: dict[str | None, tuple[base.StoredGrant, ...]] = {}
        """What `grants` found, until a commit may have changed it."""
        self._grants_version = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    @classmethod
    async def open(cls, home: Path) -> SqliteLog:
        log = await asyncio.to_thread(cls, home)
        log._loop = asyncio.get_running_loop()
        log._writer.start()
        return log

    @property
    def lease(self) -> base.Lease:
        return self._writer.lease

    async def claim(self, session_id: str) -> base.Claim:
        return base.Claim(self.lease.generation)

    async def append(
        self, session_id: str, events: Sequence[base.Pending], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        held = self.lease.generation if generation is None else generation
        return await self._append(session_id, encoding.encoded(events), expected_last, held)

    async def import_records(self, session_id: str, records: Sequence[base.Record], expected_last: int) -> None:
        bodies = encoding.imported(records, expected_last)
        await self._append(session_id, bodies, expected_last, self.lease.generation)

    async def _append(
        self, session_id: str, bodies: list[encoding.Body], expected_last: int, generation: int
    ) -> tuple[int, int]:
        encoding.check_session_id(session_id)
        weight = sum([len(body.event) + _EVENT_OVERHEAD_BYTES for body in bodies])
        kinds = {type(body.fact) for body in bodies}
        if not self._queue.try_enter(weight):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._queue.enter(weight)
            except TimeoutError:
                raise StorageUnavailable("The disk is too slow for what is to be stored.", hint="Try again.") from None
        if self._closing:
            self._queue.leave(weight)
            raise StorageUnavailable(_CLOSED)
        waiter: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        is_urgent, may_grant = not kinds <= _DELTAS, ApprovalDecided in kinds
        self._writer.submit(Append(session_id, bodies, expected_last, generation, weight, is_urgent, may_grant, waiter))
        return await waiter  # as long as the disk takes: giving up would not tell whether it is stored

    def watch(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self._watchers.add(session_id, wake)

    def watch_all(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._watchers.add_to_all(changed)

    async def read(
        self, session_id: str, after: int = 0, limit: int = base.BATCH_EVENTS, *, deltas: bool = True
    ) -> list[base.LoggedEvent]:
        if (records := self._from_tail(session_id, after, limit, deltas)) is not None:
            return encoding.decoded(records)
        wanted = (session_id, after, limit, deltas)
        return await self._read(session_id, lambda reader: encoding.decoded(store.read_records(reader, *wanted)))

    async def read_raw(
        self, session_id: str, after: int = 0, limit: int = base.BATCH_EVENTS, *, deltas: bool = True
    ) -> list[base.Record]:
        if (records := self._from_tail(session_id, after, limit, deltas)) is not None:
            return records
        return await self._read(session_id, lambda reader: store.read_records(reader, session_id, after, limit, deltas))

    async def last(self, session_id: str) -> int:
        summary = await self.session(session_id)
        return summary.events if summary else 0

    async def session(self, session_id: str) -> base.SessionSummary | None:
        if head := self._heads.get(session_id):
            return head.row.view.summary
        row = await self._read(session_id, lambda reader: store.load_session(reader, session_id))
        return row.view.summary if row else None

    async def sessions(self, wanted: base.SessionFilter = base.NEWEST) -> list[base.SessionSummary]:
        return await self._read(None, lambda reader: store.list_sessions(reader, wanted))

    async def pending_approvals(self) -> list[base.PendingApproval]:
        return await self._read(None, store.list_approvals)

    async def delete(self, session_id: str) -> bool:
        waiter = self._new_waiter()
        self._writer.submit(Delete(session_id, waiter))
        return await waiter

    async def checkpoint(self, session_id: str) -> base.Checkpoint | None:
        return await self._read(session_id, lambda reader: store.load_checkpoint(reader, session_id))

    async def save_checkpoint(self, session_id: str, checkpoint: base.Checkpoint) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._checkpoints.enter(len(checkpoint.data))
        except TimeoutError:
            return
        try:
            waiter = self._new_waiter()
        except StorageUnavailable:
            self._checkpoints.leave(len(checkpoint.data))
            raise
        self._writer.submit(Save(session_id, checkpoint, waiter))
        await waiter

    async def grants(self, folder: str | None) -> list[base.StoredGrant]:
        if folder in self._grants:  # every call of a tool asks
            return list(self._grants[folder])
        version = self._grants_version
        found = await self._read(None, lambda reader: permissions.list_grants(reader, folder))
        if version == self._grants_version and len(self._grants) < MAX_CACHED_FOLDERS:
            self._grants[folder] = tuple(found)
        return found

    async def revoke(self, folder: str, rule: str) -> bool:
        return await self._change(lambda connection: permissions.revoke(connection, folder, rule))

    async def import_grants(self, grants: Sequence[base.StoredGrant]) -> None:
        await self._change(lambda connection: permissions.import_grants(connection, grants))

    async def trust(self, folder: str, trusted: bool, files: Sequence[base.TrustedFile] = ()) -> None:
        word = base.TrustedFolder(permissions.checked_folder(folder), trusted)
        await self._change(lambda connection: permissions.put_trust(connection, word, files))

    async def trusted_files(self, folder: str) -> list[base.TrustedFile]:
        return await self._read(None, lambda reader: permissions.trusted_files(reader, folder))

    async def is_trusted(self, folder: str) -> bool:
        covering = permissions.itself_and_above(folder)
        return await self._read(None, lambda reader: permissions.is_trusted(reader, covering))

    async def trusted_folders(self) -> list[base.TrustedFolder]:
        return await self._read(None, permissions.list_trusted)

    async def tokens(self) -> list[base.StoredToken]:
        return await self._read(None, tokens.list_tokens)

    async def put_token(self, token: base.StoredToken) -> None:
        await self._change(lambda connection: tokens.put_token(connection, token))

    async def revoke_token(self, token_id: str, now_ms: int) -> bool:
        return await self._change(lambda connection: tokens.revoke(connection, token_id, now_ms))

    async def note_token_use(self, token_ids: Sequence[str], now_ms: int) -> None:
        await self._change(lambda connection: tokens.note_use(connection, token_ids, now_ms))

    async def check(self) -> base.LogReport:
        return await asyncio.to_thread(repair.check, self._path.parent)

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._watchers.wake_all()
        is_done = await asyncio.to_thread(self._writer.stop, PATIENCE_S)
        await asyncio.to_thread(self._reading.shutdown)
        while self._idle_readers:
            self._idle_readers.pop().close()
        if is_done:  # else the thread still writes: the lock stays until this process ends
            self._lock.release()

    def _new_waiter(self) -> asyncio.Future[bool]:
        """For the outcome of a request to the writer, while it takes requests."""
        if self._closing:
            raise StorageUnavailable(_CLOSED)
        return asyncio.get_running_loop().create_future()

    async def _change(self, apply: Callable[[sqlite3.Connection], bool]) -> bool:
        waiter = self._new_waiter()
        self._writer.submit(Change(apply, waiter))
        return await waiter

    def _from_tail(self, session_id: str, after: int, limit: int, deltas: bool) -> list[base.Record] | None:
        """What followers of a live session ask for, without a thread; None when the store has to be asked."""
        if after < 0 or (head := self._heads.get(session_id)) is None or (records := head.after(after)) is None:
            return None
        if not deltas:
            records = tuple(record for record in records if not encoding.is_delta(record))
        return list(records[: max(limit, 0)])

    async def _read(self, session_id: str | None, ask: Callable[[sqlite3.Connection], T]) -> T:
        if self._closing:
            raise StorageUnavailable(_CLOSED)
        return await asyncio.get_running_loop().run_in_executor(self._reading, self._ask, session_id, ask)

    def _ask(self, session_id: str | None, ask: Callable[[sqlite3.Connection], T]) -> T:
        """On a thread of readers. A connection that failed is not used again."""
        try:
            reader = self._idle_readers.pop() if self._idle_readers else schema.open_reader(self._path)
            try:
                answer = ask(reader)
            except BaseException:
                reader.close()
                raise
        except sqlite3.OperationalError as error:
            raise unavailable(error) from None
        except sqlite3.DatabaseError as error:
            if session_id is None:
                raise LogDamaged(f"The sessions cannot be listed ({error}).", session_id="") from None
            raise encoding.damaged(session_id, None) from None
        self._idle_readers.append(reader)
        return answer

    def _settle_later(self, outcomes: list[Outcome]) -> None:
        """Called by the writer, once per commit."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(self._settle, outcomes)

    def _settle(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            request, result = outcome.request, outcome.result
            if request.may_change_grants:
                self._grants.clear()
                self._grants_version += 1
            if isinstance(request, Append):
                self._queue.leave(request.weight)
            elif isinstance(request, Save):
                self._checkpoints.leave(len(request.checkpoint.data))
            if not request.waiter.done():  # its caller was not cancelled
                if isinstance(result, MakaiError):
                    request.waiter.set_exception(result)
                else:
                    request.waiter.set_result(result)
            if isinstance(request, Append | Delete):
                self._watchers.wake(request.session_id)
