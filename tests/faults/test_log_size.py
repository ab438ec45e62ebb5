"""The log with a million events, and with bits flipped anywhere in its file."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from support.log_damage import flipped_bits
from support.log_events import steps, words
from support.machine import RecordMeasure

from makai.core.errors import StorageUnavailable
from makai.sessions.log import schema
from makai.sessions.log.base import Record, replay
from makai.sessions.log.sqlite import SqliteLog

MILLION = 1_000_000
PER_APPEND = 100


async def grow(log: SqliteLog, last: int, end: int) -> float:
    """Append up to `end`; microseconds of CPU time per event, of all threads. Every second event is a delta."""
    start = time.process_time()
    count = end - last
    alternating = [pending for _ in range(PER_APPEND // 2) for pending in (*words("some words"), *steps(1))]
    while last < end:
        _, last = await log.append("long", alternating, last)
    return (time.process_time() - start) / count * 1_000_000


@pytest.mark.alone
@pytest.mark.proof("limit-log")
async def test_a_session_of_a_million_events(home: Path, record_measure: RecordMeasure) -> None:
    log = await SqliteLog.open(home)
    await grow(log, 0, 1000)
    early = await grow(log, 1000, 51_000)
    await grow(log, 51_000, MILLION - 50_000)
    late = await grow(log, MILLION - 50_000, MILLION)
    await log.close()
    record_measure("log: CPU us per event from 1k on and up to 1M", "flat: <= x1.5", f"{early:.1f} and {late:.1f}")

    start = time.perf_counter()
    log = await SqliteLog.open(home)
    last = await log.last("long")
    newest = await log.read("long", last - 1000)
    opened = time.perf_counter() - start
    record_measure("log: opening 1M events, newest 1000 read", "< 1 s", f"{opened * 1000:.0f} ms")

    start = time.process_time()
    count = 0
    async for _ in replay(log, "long"):
        count += 1
    rate = count / (time.process_time() - start)
    record_measure("log: replay of 1M events", ">= 100000 per s of CPU", f"{rate:,.0f}/s")

    start = time.perf_counter()
    lasting = 0
    async for _ in replay(log, "long", deltas=False):
        lasting += 1
    seconds = time.perf_counter() - start
    record_measure("log: replay of 1M events without their 500k deltas", "-", f"{seconds:.2f} s")

    start = time.perf_counter()
    await log.delete("long")
    deleted = time.perf_counter() - start
    record_measure("log: deleting 1M events, until it is gone for everyone", "-", f"{deleted * 1000:.0f} ms")
    await log.close()

    assert (last, len(newest), count, lasting) == (MILLION, 1000, MILLION, MILLION // 2)
    assert late <= 1.5 * early
    assert opened < 1
    assert rate >= 100_000


@pytest.mark.proof("D11")
async def test_no_flipped_bit_in_the_file_changes_what_is_read(home: Path, record_measure: RecordMeasure) -> None:
    """Headers, indexes, free space and all: a session is read as it was written, or refused."""
    names = [f"session-{number}" for number in range(5)]
    log = await SqliteLog.open(home)
    for name in names:
        await log.append(name, steps(200), 0)
    written = {name: await log.read_raw(name) for name in names}
    await log.close()
    database = home / schema.FILE_NAME
    chance = random.Random(8)
    size = len(database.read_bytes())

    wrong, refused = 0, 0
    for _ in range(500):
        with flipped_bits(database, chance.randrange(size * 8)):
            read = await read_all(home, names)
        wrong += sum(records not in (None, written[name]) for name, records in read.items())
        refused += any(records is None for records in read.values())

    record_measure("log: 500 bits flipped anywhere: sessions read wrongly", "0", str(wrong))
    record_measure("log: 500 bits flipped anywhere: noticed by readers", "-", str(refused))
    assert wrong == 0


async def read_all(home: Path, names: list[str]) -> dict[str, list[Record] | None]:
    """What a reader gets of each session; None where it is refused."""
    try:
        log = await SqliteLog.open(home)
    except StorageUnavailable:
        return dict.fromkeys(names)
    read: dict[str, list[Record] | None] = {}
    for name in names:
        try:
            read[name] = await log.read_raw(name)
        except StorageUnavailable:
            read[name] = None
    await log.close()
    return read
