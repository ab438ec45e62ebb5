"""What the durable log keeps beside the events, on its disk: older formats, damage, repair, and what it costs."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.log_events import NOW_MS, pending, steps, words
from support.machine import RecordMeasure
from support.stores import change_row, sqlite_log

from makai.core.errors import StorageUnavailable
from makai.core.session_events import ApprovalDecided, SessionCreated
from makai.sessions.log import permissions, schema, sqlite, store, writer
from makai.sessions.log.base import Checkpoint, LogProblem, Pending, StoredGrant
from makai.sessions.log.heads import MIN_DELTA_RUN
from makai.sessions.log.repair import check, repair
from makai.sessions.log.sqlite import SqliteLog

FIRST_FORMAT = schema.MIGRATIONS[:1]
GRANT = StoredGrant(folder="/project", rule="Edit", allow=True, session_id="one", event_id=2, ts=NOW_MS, by="editor")


@pytest.fixture
async def log(home: Path) -> AsyncIterator[SqliteLog]:
    async with sqlite_log(home) as opened:
        yield opened


def granting() -> list[Pending]:
    decided = ApprovalDecided(call_id="c", decision="approve", by="editor", scope="always", grant="Edit")
    return pending(SessionCreated(model_ref="m", cwd="/project"), decided)


def run_of_deltas(count: int = MIN_DELTA_RUN) -> list[Pending]:
    """Deltas that are not joined, and the event that ends their run."""
    return [*(delta for number in range(count) for delta in words("word", content_index=number % 2)), *steps(1)]


async def filled(home: Path) -> None:
    async with sqlite_log(home) as log:
        await log.append("one", granting(), 0)
        await log.append("one", run_of_deltas(), 2)
        await log.save_checkpoint("one", Checkpoint(5, 1, b"what the events lead to"))
        await log.trust("/project", True)
        await log.trust("/project/vendor", False)


@pytest.fixture
async def full(home: Path) -> Path:
    """A home with these sessions."""
    await filled(home)
    return home


async def lasting(log: SqliteLog) -> list[int]:
    return [record.event_id for record in await log.read_raw("one", deltas=False)]


# ---------------------------------------------------------------- formats


def make_first_format(home: Path) -> None:
    """A file as the first version left it: its tables, and the rows that its statements wrote."""
    new = home.with_name("new")
    asyncio.run(filled(new))
    home.mkdir(mode=0o700)
    schema.open_writer(home / schema.FILE_NAME, FIRST_FORMAT).close()
    with sqlite3.connect(home / schema.FILE_NAME) as database:
        database.execute("ATTACH ? AS new", (str(new / schema.FILE_NAME),))
        for table in ("session", "event"):
            columns = ", ".join(row[1] for row in database.execute(f"PRAGMA main.table_info({table})"))
            database.execute(f"INSERT INTO main.{table} SELECT {columns} FROM new.{table}")
    database.close()


def test_a_database_of_the_first_format_opens_and_has_everything(home: Path) -> None:
    make_first_format(home)
    assert check(home).problems == ()  # beside an owner of the former version, which has no such tables

    async def use() -> None:
        async with sqlite_log(home) as log:
            runs = await log._read(None, lambda reader: reader.execute("SELECT first, last FROM sound_run").fetchall())
            assert runs == [(3, MIN_DELTA_RUN + 2)]
            assert await lasting(log) == [1, 2, MIN_DELTA_RUN + 3]
            assert (await log.checkpoint("one"), await log.grants(None), await log.is_trusted("/project")) == (
                None,
                [],
                False,
            )
            await log.append("one", granting()[1:], MIN_DELTA_RUN + 3)
            await log.save_checkpoint("one", Checkpoint(4, 1, b"new"))
            await log.trust("/project", True)
            assert len(await log.grants("/project")) == 1

    asyncio.run(use())
    assert check(home).problems == ()


async def test_everything_beside_the_events_is_there_after_a_restart(full: Path) -> None:
    async with sqlite_log(full) as log:
        assert await log.checkpoint("one") == Checkpoint(5, 1, b"what the events lead to")
        assert await log.grants("/project") == [GRANT]
        assert [await log.is_trusted(folder) for folder in ("/project/src", "/project/vendor")] == [True, False]
    assert check(full).problems == ()


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE checkpoint SET data = replace(data, 'lead', 'lean')",
        "UPDATE checkpoint SET data = 5",
        "UPDATE checkpoint SET event_id = 4",
        "UPDATE checkpoint SET event_id = 'x'",
        "UPDATE checkpoint SET format = 2",
        "UPDATE checkpoint SET format = 1.5",
        "UPDATE checkpoint SET checksum = checksum + 1",
        "UPDATE checkpoint SET session_key = 7",
        "DELETE FROM checkpoint",
    ],
)
async def test_a_damaged_checkpoint_is_none_and_can_be_saved_again(full: Path, damage: str) -> None:
    change_row(full, damage)

    async with sqlite_log(full) as log:
        assert await log.checkpoint("one") is None
        await log.save_checkpoint("one", Checkpoint(6, 1, b"again"))
        assert await log.checkpoint("one") == Checkpoint(6, 1, b"again")
    assert check(full).problems == ()


async def test_a_table_of_checkpoints_that_cannot_be_read_holds_none(full: Path) -> None:
    async with sqlite_log(full) as log:
        with sqlite3.connect(full / schema.FILE_NAME) as database:
            database.execute("DROP TABLE checkpoint")
        database.close()

        assert await log.checkpoint("one") is None
        await log.save_checkpoint("one", Checkpoint(1, 1, b""))
        assert await log.append("one", steps(1), await log.last("one")) == (MIN_DELTA_RUN + 4, MIN_DELTA_RUN + 4)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE permission_grant SET data = replace(data, 'true', 'TRUE')",
        "UPDATE permission_grant SET rule = 'Edis'",
        "UPDATE permission_grant SET folder = '/'",
        "UPDATE permission_grant SET checksum = 0",
        "UPDATE permission_grant SET data = 5",
    ],
)
async def test_a_damaged_grant_allows_nothing_and_repair_forgets_it(full: Path, damage: str) -> None:
    change_row(full, damage)

    async with sqlite_log(full) as log:
        assert await log.grants(None) == []
    assert repair(full).problems == (LogProblem("", None, "1 grants or words of trust are damaged"),)
    assert check(full).problems == ()


@pytest.mark.parametrize(
    "damage",
    ["SET trusted = 1", "SET trusted = 2", "SET checksum = 0", "SET trusted = 'x'"],
)
async def test_a_folder_whose_word_is_damaged_is_not_trusted_whatever_is_above_it(full: Path, damage: str) -> None:
    change_row(full, f"UPDATE trusted_folder {damage} WHERE folder = '/project/vendor'")

    async with sqlite_log(full) as log:
        assert [await log.is_trusted(folder) for folder in ("/project/vendor/x", "/project")] == [False, True]
    assert [problem.what for problem in check(full).problems] == ["1 grants or words of trust are damaged"]


@pytest.mark.parametrize("damage", ["SET last = last + 1", "SET first = first - 2", "SET seal = seal + 1"])
async def test_a_damaged_run_of_deltas_hides_nothing(full: Path, damage: str) -> None:
    change_row(full, f"UPDATE delta_run {damage}")

    async with sqlite_log(full) as log:
        assert await lasting(log) == [1, 2, MIN_DELTA_RUN + 3]


async def test_a_run_that_would_hide_events_is_found_and_repaired(full: Path) -> None:
    change_row(
        full, f"UPDATE delta_run SET (last, seal) = (SELECT last + 1, {schema.SEAL.replace('last', '(last + 1)')})"
    )

    assert repair(full).problems == (LogProblem("", None, "1 events are noted as deltas and are none"),)
    assert check(full).problems == ()
    async with sqlite_log(full) as log:
        assert await lasting(log) == [1, 2, MIN_DELTA_RUN + 3]


async def test_repair_keeps_grants_and_trust_and_leaves_checkpoints_behind(full: Path) -> None:
    async with sqlite_log(full) as log:
        await log.append("gone", pending(SessionCreated(model_ref="m", cwd="/other"), granting()[1].event), 0)
        await log.append("two", granting(), 0)  # the same rule: its session is the one that is named now
        await log.delete("gone")
    change_row(full, "UPDATE event SET line = x'ff' WHERE session_key = 1 AND event_id = 2")

    report = repair(full)

    assert report.problems == (LogProblem("one", 2, "damaged or missing"),)
    async with sqlite_log(full) as log:
        assert [(grant.folder, grant.session_id) for grant in await log.grants(None)] == [
            ("/other", "gone"),
            ("/project", "two"),
        ]
        assert [await log.is_trusted(folder) for folder in ("/project/src", "/project/vendor")] == [True, False]
        assert await log.checkpoint("one") is None
        assert await lasting(log) == [1, 2, MIN_DELTA_RUN + 3]


async def test_repair_does_not_bring_back_what_was_revoked(full: Path) -> None:
    async with sqlite_log(full) as log:
        await log.revoke("/project", "Edit")
    change_row(full, "UPDATE event SET line = x'ff' WHERE event_id = 9")

    repair(full)

    async with sqlite_log(full) as log:
        assert await log.grants(None) == []


# ---------------------------------------------------------------- the writer


async def test_grants_are_stored_with_their_events_or_not_at_all(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "put_grants", lambda connection, grants: 1 / 0)
    with pytest.raises(StorageUnavailable):
        await log.append("one", granting(), 0)
    monkeypatch.undo()

    assert (await log.last("one"), await log.grants(None)) == (0, [])
    await log.append("one", granting(), 0)
    assert await log.grants(None) == [GRANT]


async def test_a_checkpoint_that_cannot_be_saved_disturbs_no_append(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append("one", steps(3), 0)
    await log.save_checkpoint("one", Checkpoint(2, 1, b"former"))
    monkeypatch.setattr(store, "put_checkpoint", lambda *arguments: 1 / 0)

    await log.save_checkpoint("one", Checkpoint(3, 1, b"lost"))
    assert await log.append("one", steps(1), 3) == (4, 4)
    assert await log.checkpoint("one") == Checkpoint(2, 1, b"former")


async def test_a_locked_database_delays_no_append_by_way_of_a_checkpoint(log: SqliteLog, home: Path) -> None:
    await log.append("one", steps(3), 0)
    await log.save_checkpoint("one", Checkpoint(1, 1, b"former"))
    with sqlite3.connect(home / schema.FILE_NAME, isolation_level=None) as another:
        another.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(60):  # a write that waits for the lock does so for ten seconds
            await log.save_checkpoint("one", Checkpoint(3, 1, b"lost"))
        another.execute("ROLLBACK")
    another.close()

    assert await log.checkpoint("one") == Checkpoint(1, 1, b"former")


async def test_appends_are_told_before_checkpoints_are_saved(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await log.append("one", steps(1), 0)
    held = threading.Event()
    put = store.put_checkpoint

    def slowly(*arguments: object) -> bool:
        assert held.wait(10)
        return put(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "put_checkpoint", slowly)
    monkeypatch.setattr(writer, "WINDOW_S", 3600)  # the append finds them waiting
    saves = [asyncio.ensure_future(log.save_checkpoint("one", Checkpoint(1, 1, b"%d" % n))) for n in range(3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert await log.append("two", steps(1), 0) == (1, 1)
    held.set()
    await asyncio.gather(*saves)

    assert await log.checkpoint("one") == Checkpoint(1, 1, b"2")


async def test_a_checkpoint_of_a_session_that_was_made_again_meanwhile_is_forgotten(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append("one", steps(5), 0)
    held = threading.Event()
    commit = writer.Writer._commit
    monkeypatch.setattr(writer.Writer, "_commit", lambda self, batch: (held.wait(10), commit(self, batch)))
    requests = [
        asyncio.ensure_future(log.append("two", steps(1), 0)),
        asyncio.ensure_future(log.save_checkpoint("one", Checkpoint(5, 1, b"former life"))),
        asyncio.ensure_future(log.delete("one")),
        asyncio.ensure_future(log.append("one", steps(9), 0)),
    ]
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(*requests)

    assert (await log.last("one"), await log.checkpoint("one")) == (9, None)


async def test_closing_saves_the_checkpoints_that_wait_and_a_closed_log_refuses(home: Path) -> None:
    log = await SqliteLog.open(home)
    await asyncio.gather(*(log.append(f"session-{number}", steps(2), 0) for number in range(20)))
    saves = [
        asyncio.ensure_future(log.save_checkpoint(f"session-{number}", Checkpoint(2, 1, b"%d" % number)))
        for number in range(20)
    ]
    await asyncio.sleep(0)
    await log.close()
    await asyncio.gather(*saves)
    refused = (
        log.checkpoint("one"),
        log.save_checkpoint("one", Checkpoint(1, 1, b"")),
        log.grants(None),
        log.revoke("/", "Edit"),
        log.trust("/", True),
        log.is_trusted("/"),
    )
    for request in refused:
        with pytest.raises(StorageUnavailable, match="closed"):
            await request

    log = await SqliteLog.open(home)
    kept = [await log.checkpoint(f"session-{number}") for number in range(20)]
    assert kept == [Checkpoint(2, 1, b"%d" % number) for number in range(20)]
    await log.close()


async def test_checkpoints_wait_for_room_of_their_own(log: SqliteLog) -> None:
    large = Checkpoint(1, 1, b"x" * (sqlite.MAX_CHECKPOINT_BYTES // 2 + 1))
    await log.append("one", steps(1), 0)
    first = asyncio.ensure_future(log.save_checkpoint("one", large))
    second = asyncio.ensure_future(log.save_checkpoint("one", large))
    await asyncio.sleep(0)

    assert (log._checkpoints._used, log._queue._used) == (len(large.data), 0)
    await asyncio.gather(first, second)
    assert await log.checkpoint("one") == large
    assert log._checkpoints._used == 0


async def test_the_runs_and_the_checkpoint_of_a_deleted_session_leave_the_disk(log: SqliteLog) -> None:
    await log.append("one", granting(), 0)
    await log.append("one", run_of_deltas(), 2)
    await log.save_checkpoint("one", Checkpoint(1, 1, b""))
    await log.delete("one")

    left: list[tuple[int, ...]] = []
    counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in ("event", "deleted", "delta_run", "checkpoint"))
    async with asyncio.timeout(60):
        while left != [(0, 0, 0, 0)]:
            left = await log._read(None, lambda reader: reader.execute(f"SELECT {counts}").fetchall())


# ---------------------------------------------------------------- speed


async def test_reading_without_deltas_does_not_read_them(log: SqliteLog, record_measure: RecordMeasure) -> None:
    """Counted in the steps that SQLite takes: a scan of the deltas takes several for each."""
    last, answers, deltas = 0, 20, 2500
    for _ in range(answers):
        _, last = await log.append("one", run_of_deltas(deltas), last)
    ticks = 0

    def count() -> None:
        nonlocal ticks
        ticks += 1

    def read(reader: sqlite3.Connection) -> int:
        reader.set_progress_handler(count, 100)
        try:
            return len(store.read_records(reader, "one", 0, 1000, False))
        finally:
            reader.set_progress_handler(None, 0)

    start = time.perf_counter()
    assert await log._read("one", read) == answers
    seconds = time.perf_counter() - start
    record_measure(
        f"log: {answers} events among {answers * deltas} deltas read", "< 10000 steps",
        f"{ticks * 100} steps, {seconds * 1000:.1f} ms",
    )  # fmt: skip
    assert ticks * 100 < 10_000
