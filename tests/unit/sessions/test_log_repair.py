"""Damage on disk: found by its readers, confined to its session, and repaired."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.log_damage import Flip, cells, flip, flipped_bits
from support.log_events import pending, steps, words

if TYPE_CHECKING:
    from conftest import RecordMeasure

from makai.core.errors import HomeInUse, LogDamaged
from makai.core.session_events import ApprovalRequested, Logged, Notice, SessionCreated
from makai.sessions.log import schema
from makai.sessions.log.base import LogProblem, SessionSummary, replay
from makai.sessions.log.repair import check, repair
from makai.sessions.log.sqlite import SqliteLog

BITS = 100


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def filled(home: Path) -> None:
    log = await SqliteLog.open(home)
    for session_id in ("one", "two", "three"):
        await log.append(session_id, pending(SessionCreated(model_ref="m", title=session_id)), 0)
        await log.append(session_id, [*steps(50), *words("Hello"), *steps(50)], 1)
    await log.close()


def execute(home: Path, statement: str) -> None:
    with sqlite3.connect(home / schema.FILE_NAME) as database:
        assert database.execute(statement).rowcount == 1
    database.close()


async def outcomes(home: Path) -> dict[str, int | str]:
    """Of each session how many events could be read, or where it is damaged."""
    log = await SqliteLog.open(home)
    result: dict[str, int | str] = {}
    for session_id in ("one", "two", "three"):
        try:
            result[session_id] = len([logged async for logged in replay(log, session_id)])
        except LogDamaged as error:
            result[session_id] = f"damaged at {error.event_id}"
    await log.close()
    return result


KEY_OF_TWO = "session_key = (SELECT session_key FROM session WHERE session_id = 'two')"


@pytest.mark.parametrize(
    ("damage", "event_id"),
    [
        (f"UPDATE event SET line = replace(line, 'line', 'lime') WHERE {KEY_OF_TWO} AND event_id = 9", 9),
        (f"UPDATE event SET checksum = checksum + 1 WHERE {KEY_OF_TWO} AND event_id = 9", 9),
        (f"UPDATE event SET checksum = 'x' WHERE {KEY_OF_TWO} AND event_id = 9", 9),
        (f"UPDATE event SET line = x'ff0a00' WHERE {KEY_OF_TWO} AND event_id = 9", 9),
        (f"UPDATE event SET event_id = 900 WHERE {KEY_OF_TWO} AND event_id = 9", 900),
        (f"DELETE FROM event WHERE {KEY_OF_TWO} AND event_id = 9", 9),
        (f"DELETE FROM event WHERE {KEY_OF_TWO} AND event_id = 102", 102),
        (f"UPDATE event SET session_key = 99 WHERE {KEY_OF_TWO} AND event_id = 1", 1),
    ],
    ids=["line", "checksum", "type of checksum", "bytes", "number", "missing", "last missing", "first moved"],
)
async def test_a_damaged_event_is_never_shown_and_the_other_sessions_are_not_affected(
    home: Path, damage: str, event_id: int
) -> None:
    await filled(home)
    execute(home, damage)

    assert await outcomes(home) == {"one": 102, "two": f"damaged at {event_id}", "three": 102}


async def test_a_damaged_entry_in_the_list_is_shown_as_such(home: Path) -> None:
    await filled(home)
    execute(home, "UPDATE session SET projection = replace(projection, 'model', 'mode1') WHERE session_id = 'two'")

    log = await SqliteLog.open(home)
    shown = {summary.session_id: summary for summary in await log.sessions()}
    assert [(name, shown[name].damaged) for name in ("one", "two", "three")] == [
        ("one", False),
        ("two", True),
        ("three", False),
    ]
    assert shown["two"] == SessionSummary(session_id="two", damaged=True)
    with pytest.raises(LogDamaged):
        await log.append("two", steps(1), 102)
    assert await log.append("one", steps(1), 102) == (103, 103)
    await log.close()


async def test_the_question_of_a_damaged_session_is_not_asked(home: Path) -> None:
    log = await SqliteLog.open(home)
    for session_id in ("one", "two"):
        asked = ApprovalRequested(call_id="c", name="shell", arguments_json='{"command":"ls"}', digest="d")
        await log.append(session_id, pending(asked), 0)
    await log.close()
    execute(home, f"UPDATE event SET line = replace(line, 'ls', 'rm') WHERE {KEY_OF_TWO}")

    log = await SqliteLog.open(home)
    assert [question.session_id for question in await log.pending_approvals()] == ["one"]
    await log.close()


async def test_flipped_bits_are_found_and_confined_to_their_session(home: Path, record_measure: RecordMeasure) -> None:
    """In the lines, and in SQLite's own bytes before them: numbers, lengths, checksums."""
    await filled(home)
    database = home / schema.FILE_NAME
    chance = random.Random(3)
    places = cells(database)
    found: list[Flip] = []
    for _ in range(BITS):
        session_id, start, end = chance.choice(places)
        bit = chance.randrange(start * 8, end * 8)
        with flipped_bits(database, bit):
            read = await outcomes(home)
            report = check(home)
        found.append(flip(session_id, read, report))

    detected = sum(one.detected for one in found)
    record_measure(f"log: {BITS} flipped bits: detected", str(BITS), str(detected))
    confined = sum(one.confined for one in found)
    record_measure(f"log: {BITS} flipped bits: other sessions unaffected", str(BITS), str(confined))
    assert (detected, confined) == (BITS, BITS)


async def test_a_whole_log_has_no_problems_and_repair_leaves_it_alone(home: Path) -> None:
    await filled(home)
    before = (home / schema.FILE_NAME).read_bytes()

    assert (check(home).sessions, check(home).events, check(home).problems) == (3, 306, ())
    assert repair(home).kept_as is None
    assert (home / schema.FILE_NAME).read_bytes() == before


async def test_repair_puts_a_notice_in_the_place_of_what_is_damaged_and_keeps_the_old_file(home: Path) -> None:
    await filled(home)
    log = await SqliteLog.open(home)
    whole = {name: [logged async for logged in replay(log, name)] for name in ("one", "two", "three")}
    await log.close()
    execute(home, f"UPDATE event SET line = replace(line, 'line', 'lime') WHERE {KEY_OF_TWO} AND event_id = 9")
    execute(home, f"DELETE FROM event WHERE {KEY_OF_TWO} AND event_id = 102")
    execute(home, "UPDATE session SET session_id = 'thrfe' WHERE session_id = 'three'")
    execute(home, "UPDATE session SET updated_ms = 5 WHERE session_id = 'one'")
    damaged = (home / schema.FILE_NAME).read_bytes()

    report = repair(home)

    entry = "its entry in the list of sessions is damaged"
    assert report.problems == (
        LogProblem("one", None, entry),
        LogProblem("two", 9, "damaged or missing"),
        LogProblem("two", 102, "damaged or missing"),
        LogProblem("three", None, entry),
    )
    assert report.kept_as is not None
    assert (home / os.path.basename(report.kept_as)).read_bytes() == damaged
    assert check(home).problems == ()

    notice = Notice(level="error", code="event_damaged", message="What happened here was damaged on disk.")
    for number in (9, 102):
        whole["two"][number - 1] = Logged(event_id=number, ts=whole["two"][number - 2].ts, event=notice)
    log = await SqliteLog.open(home)
    assert {name: [logged async for logged in replay(log, name)] for name in whole} == whole
    assert [summary.title for summary in await log.sessions()] == ["one", "three", "two"]
    assert await log.append("two", steps(1), 102) == (103, 103)
    await log.close()


async def test_repair_needs_the_sessions_for_itself_and_check_does_not(home: Path) -> None:
    await filled(home)
    log = await SqliteLog.open(home)

    assert check(home).problems == ()
    with pytest.raises(HomeInUse):
        repair(home)
    await log.close()
