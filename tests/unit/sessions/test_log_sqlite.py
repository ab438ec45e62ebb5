"""The durable log: its owner, its groups of commits, its refusals, its recovery, its speed."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from support.log_events import pending, steps, words
from support.log_trials import CrashReport, killed_writers
from support.machine import RecordMeasure, slack
from support.stores import sqlite_log

from makai.core.errors import HomeInUse, LogConflict, StorageUnavailable
from makai.core.session_events import ApprovalRequested, AssistantTextDelta, Logged, SessionCreated
from makai.sessions.log import encoding, heads, projection, schema, sqlite, store, writer
from makai.sessions.log.base import Checkpoint, Record, UnknownLogged, replay
from makai.sessions.log.heads import TAIL_BYTES
from makai.sessions.log.sqlite import SqliteLog

APPEND_BAR = 20_000
REPLAY_BAR = 100_000
Change: TypeAlias = Callable[[SqliteLog], Awaitable[None]]
READS: Final[dict[str, Callable[[SqliteLog], Awaitable[Any]]]] = {
    "session": lambda log: log.session("one"),
    "sessions": lambda log: log.sessions(),
    "events": lambda log: log.read("one"),
    "lines": lambda log: log.read_raw("one"),
    "events without deltas": lambda log: log.read("one", deltas=False),
    "approvals": lambda log: log.pending_approvals(),
    "checkpoint": lambda log: log.checkpoint("one"),
    "check": lambda log: log.check(),
}


@pytest.fixture
async def log(home: Path) -> AsyncIterator[SqliteLog]:
    async with sqlite_log(home) as opened:
        yield opened


@contextmanager
def files_that_cannot_grow(largest: int) -> Iterator[None]:
    """Writes past `largest` fail with EFBIG, as ENOSPC does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# ---------------------------------------------------------------- the owner


async def test_a_home_has_one_owner_and_the_second_is_told_who_it_is(home: Path) -> None:
    async with sqlite_log(home) as log:
        with pytest.raises(HomeInUse, match=f"process {os.getpid()}") as caught:
            await SqliteLog.open(home)
        assert caught.value.pid == os.getpid()
        await log.append("one", steps(1), 0)

    async with sqlite_log(home) as successor:
        assert await successor.last("one") == 1


async def test_only_the_user_can_read_the_sessions(log: SqliteLog, home: Path) -> None:
    await log.append("one", steps(1), 0)

    assert modes_below(home) == {
        "home": 0o700,
        "sessions.lock": 0o600,
        "sessions.db": 0o600,
        "sessions.db-wal": 0o600,
        "sessions.db-shm": 0o600,
    }


def modes_below(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}


async def test_a_closed_log_refuses(home: Path) -> None:
    log = await SqliteLog.open(home)
    await log.close()
    await log.close()

    for refused in (log.append("one", steps(1), 0), log.read("one"), log.delete("one"), log.sessions()):
        with pytest.raises(StorageUnavailable, match="closed"):
            await refused


async def test_closing_finishes_what_was_appended(home: Path) -> None:
    log = await SqliteLog.open(home)
    appends = [asyncio.ensure_future(log.append(f"session-{number}", steps(3), 0)) for number in range(50)]
    await asyncio.sleep(0)
    await log.close()

    assert await asyncio.gather(*appends) == [(1, 3)] * 50


# ---------------------------------------------------------------- groups


async def test_a_commit_takes_everything_that_was_appended_meanwhile(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    insert = store.insert_events

    def counting(connection: sqlite3.Connection, events: list[tuple[int, encoding.Stored]]) -> None:
        groups.append(len(events))
        insert(connection, events)

    monkeypatch.setattr(store, "insert_events", counting)

    await asyncio.gather(*(log.append(f"session-{number}", steps(2), 0) for number in range(100)))

    assert sum(groups) == 200
    assert len(groups) <= 5


async def test_deltas_wait_for_the_window_and_anything_else_takes_them_along(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append("one", steps(1), 0)
    monkeypatch.setattr(writer, "WINDOW_S", 3600)

    delta = asyncio.ensure_future(log.append("one", words("a"), 1))
    await asyncio.sleep(0)
    assert await log.append("two", steps(1), 0) == (1, 1)
    async with asyncio.timeout(60):
        assert await delta == (2, 2)


async def test_one_append_that_conflicts_does_not_disturb_its_group(log: SqliteLog) -> None:
    results = await asyncio.gather(
        log.append("one", steps(2), 0), log.append("one", steps(2), 0), log.append("two", steps(2), 0),
        return_exceptions=True,
    )  # fmt: skip

    assert (results[0], results[2]) == ((1, 2), (1, 2))
    assert isinstance(results[1], LogConflict)
    assert (await log.last("one"), await log.last("two")) == (2, 2)


async def test_a_cancelled_append_leaves_numbers_in_order(log: SqliteLog) -> None:
    append = asyncio.ensure_future(log.append("one", steps(2), 0))
    await asyncio.sleep(0)
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    await log.append("two", steps(1), 0)  # a later group: the cancelled one is settled

    last = await log.last("one")
    assert await log.append("one", steps(1), last) == (last + 1, last + 1)


async def test_appends_wait_for_room_when_the_disk_is_slower_than_they_are(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_QUEUED_BYTES", 10_000)
    held = threading.Event()
    commit = writer.Writer._commit
    monkeypatch.setattr(writer.Writer, "_commit", lambda self, batch: (held.wait(10), commit(self, batch)))
    async with sqlite_log(home) as log:
        appends = [asyncio.ensure_future(log.append(f"session-{n}", steps(1, "x" * 3000), 0)) for n in range(20)]
        await asyncio.sleep(0)

        assert log._queue._used <= 10_000
        appends[-1].cancel()
        held.set()
        assert await asyncio.gather(*appends[:-1]) == [(1, 1)] * 19
        monkeypatch.setattr(sqlite, "PATIENCE_S", 0.01)
        held.clear()
        first = asyncio.ensure_future(log.append("slow-1", steps(1, "x" * 10_000), 0))
        await asyncio.sleep(0)
        with pytest.raises(StorageUnavailable, match="slow"):
            await log.append("slow-2", steps(1, "x" * 10_000), 0)
        held.set()
        monkeypatch.undo()
        assert await first == (1, 1)


# ---------------------------------------------------------------- followers and readers


async def test_a_follower_reads_the_newest_events_without_the_store(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append("one", steps(10), 0)
    expected = await log._read("one", lambda reader: store.read_records(reader, "one", 4, 1000, True))
    monkeypatch.setattr(store, "read_records", None)

    assert await log.read_raw("one", 4) == expected
    assert await log.read_raw("one", 10) == []


async def test_what_followers_read_from_is_bounded_and_the_store_has_the_rest(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = 0
    for _ in range(40):
        _, last = await log.append("one", steps(1, "x" * (TAIL_BYTES // 10)), last)
    head = log._heads.get("one")
    assert head is not None
    assert sum(len(record.line) for record in head.tail) == head.tail_bytes <= TAIL_BYTES
    monkeypatch.setattr(heads, "MAX_TAILS_BYTES", head.tail_bytes)
    await log.append("other", steps(1), 0)
    head = log._heads.get("one")
    assert head is not None
    assert (head.tail, head.last) == ((), 40)
    monkeypatch.setattr(heads, "MAX_SESSIONS", 10)
    await asyncio.gather(*(log.append(f"session-{number}", steps(1), 0) for number in range(10)))

    assert (len(log._heads), log._heads.get("one")) == (10, None)
    assert [record.event_id async for record in replay(log, "one")] == list(range(1, 41))
    assert await log.append("one", steps(1), 40) == (41, 41)


async def test_reading_does_not_wait_for_writing(log: SqliteLog, home: Path) -> None:
    await log.append("one", steps(10), 0)
    with sqlite3.connect(home / schema.FILE_NAME, isolation_level=None) as another:
        another.execute("BEGIN IMMEDIATE")
        append = asyncio.ensure_future(log.append("one", steps(1), 10))
        async with asyncio.timeout(2):
            assert len(await log._read("one", lambda reader: store.read_records(reader, "one", 0, 1000, True))) == 10
            assert [summary.events for summary in await log.sessions()] == [10]
        assert not append.done()
        another.execute("ROLLBACK")
    another.close()

    assert await append == (11, 11)


@pytest.mark.proof("D9")
async def test_types_this_version_does_not_know_are_kept_and_passed_on(log: SqliteLog, home: Path) -> None:
    await log.append("one", steps(1), 0)
    await log.close()
    line = b'{"event_id":2,"ts":7,"event":{"type":"from_the_future","x":[1]},"run_id":"r"}'
    record = Record(2, line)
    with sqlite3.connect(home / schema.FILE_NAME) as database:
        database.text_factory = bytes
        row = store.load_session(database, "one")
        assert row is not None
        checksum = encoding.checksum_of("one", record)
        store.insert_events(database, [(row.session_key, encoding.Stored(record, 7, checksum, False))])
        database.execute(
            "UPDATE session SET last = 2, projection = replace(projection, '\"events\":1', '\"events\":2')"
        )
        view = database.execute("SELECT projection FROM session").fetchone()[0]
        database.execute("UPDATE session SET checksum = ?", (projection.row_checksum(row.view.summary, view),))
        database.execute("UPDATE session SET projection = CAST(projection AS BLOB)")
    database.close()

    async with sqlite_log(home) as reopened:
        known, unknown = await reopened.read("one")
        assert isinstance(known, Logged)
        assert unknown == UnknownLogged(event_id=2, ts=7, type="from_the_future", run_id="r", line=line)
        assert await reopened.append("one", steps(1), 2) == (3, 3)
        assert (await reopened.read_raw("one"))[1] == record


async def created(log: SqliteLog) -> None:
    question = ApprovalRequested(call_id="call", name="shell", arguments_json="{}", title="ls", digest="d")
    await log.append("one", [*pending(SessionCreated(model_ref="m"), question), *steps(4), *words("Hello")], 0)
    await log.save_checkpoint("one", Checkpoint(2, 1, b"state"))


async def appended(log: SqliteLog) -> None:
    await log.append("one", steps(1), await log.last("one"))


async def replaced(log: SqliteLog) -> None:
    """Delete the session and a part of its events, or make another one of the same name."""
    if await log.delete("one"):
        await log.trust("/somewhere", True)  # is carried out after a part of the events was removed
    else:
        await created(log)


@pytest.mark.parametrize("undisturbed", range(3))
@pytest.mark.parametrize("change", [appended, replaced])
@pytest.mark.parametrize("kind", READS)
async def test_a_read_shows_one_moment_of_the_log(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: str, change: Change, undisturbed: int
) -> None:
    """With a commit before each further statement of a read, the answer is that of one moment between two commits."""
    read, purge, opened, loop = READS[kind], store.purge, schema.open_reader, asyncio.get_running_loop()
    statements, is_counting = 0, False

    async def disturb() -> None:
        await change(log)
        moments.append(await read(log))

    def before_statement(statement: str) -> None:
        nonlocal statements, is_counting
        statements += is_counting
        if is_counting and statements > undisturbed:
            is_counting = False
            asyncio.run_coroutine_threadsafe(disturb(), loop).result(30)
            is_counting = True

    def open_traced(path: Path) -> sqlite3.Connection:
        reader = opened(path)
        reader.set_trace_callback(before_statement)
        return reader

    monkeypatch.setattr(store, "purge", lambda connection, most: purge(connection, 3) and False)
    monkeypatch.setattr(schema, "open_reader", open_traced)
    async with sqlite_log(home) as log:
        await created(log)
    async with sqlite_log(home) as log:  # a new owner: nothing is answered from memory
        moments = [await read(log)]
        is_counting = True
        answer = await read(log)
        is_counting = False

    assert (statements > 0, len(moments)) == (True, 1 + max(statements - undisturbed, 0))
    assert answer in moments


# ---------------------------------------------------------------- deletion, formats


async def test_the_events_of_a_deleted_session_leave_the_disk_piece_by_piece(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PURGE_EVENTS", 7)
    async with sqlite_log(home) as log:
        await log.append("one", steps(30), 0)
        await log.append("two", steps(3), 0)
        await log.delete("one")
        left: list[tuple[int, int]] = []
        async with asyncio.timeout(60):
            while left != [(3, 0)]:
                left = await log._read(
                    None,
                    lambda reader: reader.execute(
                        "SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM deleted)"
                    ).fetchall(),
                )
        assert await log.append("one", steps(1), 0) == (1, 1)


async def test_a_database_of_a_newer_makai_is_left_alone(home: Path) -> None:
    log = await SqliteLog.open(home)
    await log.close()
    with sqlite3.connect(home / schema.FILE_NAME) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()

    with pytest.raises(StorageUnavailable, match="newer makai"):
        await SqliteLog.open(home)


def test_a_migration_is_done_once_and_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    schema.open_writer(path).close()
    second = "CREATE TABLE more (x); INSERT INTO more VALUES (1)"

    with pytest.raises(sqlite3.OperationalError):
        schema.open_writer(path, (*schema.MIGRATIONS, f"{second}; SELECT * FROM nowhere"))
    for _ in range(2):
        connection = schema.open_writer(path, (*schema.MIGRATIONS, second))
        assert connection.execute("SELECT x FROM more").fetchall() == [(1,)]
        connection.close()


async def test_a_file_that_is_no_database_is_refused(home: Path) -> None:
    await (await SqliteLog.open(home)).close()
    database = home / schema.FILE_NAME
    database.write_bytes(b"not a database " * 1000)

    with pytest.raises(StorageUnavailable, match="not a database"):
        await SqliteLog.open(home)
    database.unlink()
    await (await SqliteLog.open(home)).close()  # the refusal gave the lock up


# ---------------------------------------------------------------- storage that fails


async def test_what_cannot_be_written_is_refused_and_everything_else_continues(log: SqliteLog, home: Path) -> None:
    await log.append("one", steps(10), 0)
    with files_that_cannot_grow((home / "sessions.db-wal").stat().st_size):
        for _ in range(3):
            with pytest.raises(StorageUnavailable) as caught:
                await log.append("one", steps(100, "x" * 1000), 10)
            assert caught.value.code == "storage_unavailable"
        with pytest.raises(StorageUnavailable):
            await log.append("new", steps(100, "x" * 1000), 0)
        assert await log.last("one") == 10
        assert len(await log.read("one")) == 10
        assert len(await log._read("one", lambda reader: store.read_records(reader, "one", 0, 99, True))) == 10

    assert await log.append("one", steps(100, "x" * 1000), 10) == (11, 110)
    assert await log.append("new", steps(1), 0) == (1, 1)


async def test_an_internal_error_leaves_no_caller_waiting(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "put_sessions", lambda connection, sessions: 1 / 0)
    with pytest.raises(StorageUnavailable, match="division"):
        await log.append("one", steps(1), 0)
    monkeypatch.undo()

    assert await log.append("one", steps(1), 0) == (1, 1)


async def test_a_read_only_database_can_be_read(home: Path) -> None:
    async with sqlite_log(home) as log:
        await log.append("one", steps(3), 0)
    with unwritable(home / schema.FILE_NAME):
        async with sqlite_log(home) as log:
            with pytest.raises(StorageUnavailable, match="readonly"):
                await log.append("one", steps(1), 3)
            assert len(await log.read("one")) == 3


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """Permissions do not stop root; the immutable flag does."""
    if os.geteuid() != 0:
        path.chmod(0o400)
        yield
        path.chmod(0o600)
        return
    try:
        subprocess.run(["chattr", "+i", path], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nothing stops root from writing here: {error}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], check=True, timeout=10)


# ---------------------------------------------------------------- crashes and speed


@pytest.mark.proof("D2")
def test_kill_9_loses_nothing_that_was_acknowledged(home: Path, record_measure: RecordMeasure) -> None:
    points = 10
    report = killed_writers(home, points=points)

    record_measure(f"log: kill -9 at {points} points, {report.acknowledged} acked: lost", "0", str(report.lost))
    assert report.acknowledged > points
    assert report.slowest_open_s < 2 * slack()
    assert report == CrashReport(points, report.acknowledged, 0, 0, (), report.slowest_open_s)


async def test_appending_is_fast(log: SqliteLog, record_measure: RecordMeasure) -> None:
    """A hundred sessions append ten events at a time; CPU time of all threads, because the machine has other work."""

    async def one_session(session_id: str) -> None:
        last = 0
        for _ in range(20):
            _, last = await log.append(session_id, steps(10), last)

    async def rate(trial: int) -> float:
        start = time.process_time()
        await asyncio.gather(*(one_session(f"session-{trial}-{number}") for number in range(100)))
        return 20_000 / (time.process_time() - start)

    best = max([await rate(trial) for trial in range(3)])
    record_measure("log: appended, 100 sessions x 10 events", f">= {APPEND_BAR}/CPU s", f"{best:,.0f}/CPU s")
    assert best * slack() >= APPEND_BAR


async def test_replaying_is_fast(log: SqliteLog, record_measure: RecordMeasure) -> None:
    last = 0
    for _ in range(10):
        _, last = await log.append("one", steps(2500), last)

    async def rate() -> float:
        start = time.process_time()
        assert len([logged async for logged in replay(log, "one")]) == 25_000
        return 25_000 / (time.process_time() - start)

    best = max([await rate() for _ in range(3)])
    record_measure("log: replayed", f">= {REPLAY_BAR}/CPU s", f"{best:,.0f}/CPU s")
    assert best * slack() >= REPLAY_BAR


async def test_words_reach_the_disk_within_the_window(log: SqliteLog, record_measure: RecordMeasure) -> None:
    await log.append("one", pending(SessionCreated(model_ref="m")), 0)
    last, waits = 1, []
    for number in range(100):
        start = time.perf_counter()
        _, last = await log.append("one", pending(AssistantTextDelta(content_index=0, delta=f"word {number}")), last)
        waits.append(time.perf_counter() - start)

    median_ms = sorted(waits)[50] * 1000
    record_measure("log: a delta is durable after (median)", "<= 15 ms", f"{median_ms:.1f} ms")
    assert median_ms <= 15 * slack()
