"""Damage on disk: found by its readers, confined to its session, and repaired."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.log_damage import Flip, cells, flip, flipped_bits
from support.log_events import pending, steps, words
from support.machine import RecordMeasure
from support.stores import change_row, sqlite_log

from makai.core.errors import HomeInUse, LogDamaged
from makai.core.session_events import ApprovalRequested, Logged, Notice, SessionCreated
from makai.sessions.log import schema
from makai.sessions.log.base import LogProblem, SessionSummary, replay
from makai.sessions.log.repair import check, repair

BITS = 100


async def filled(home: Path) -> None:
    async with sqlite_log(home) as log:
        for session_id in ("one", "two", "three"):
            await log.append(session_id, pending(SessionCreated(model_ref="m", title=session_id)), 0)
            await log.append(session_id, [*steps(50), *words("Hello"), *steps(50)], 1)


@pytest.fixture
async def full(home: Path) -> Path:
    """A home with these sessions."""
    await filled(home)
    return home


async def outcomes(home: Path) -> dict[str, int | str]:
    """Of each session how many events could be read, or where it is damaged."""
    async with sqlite_log(home) as log:
        result: dict[str, int | str] = {}
        for session_id in ("one", "two", "three"):
            try:
                result[session_id] = len([logged async for logged in replay(log, session_id)])
            except LogDamaged as error:
                result[session_id] = f"damaged at {error.event_id}"
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
    full: Path, damage: str, event_id: int
) -> None:
    change_row(full, damage)

    assert await outcomes(full) == {"one": 102, "two": f"damaged at {event_id}", "three": 102}


async def test_a_damaged_entry_in_the_list_is_shown_as_such(full: Path) -> None:
    change_row(full, "UPDATE session SET projection = replace(projection, 'model', 'mode1') WHERE session_id = 'two'")

    async with sqlite_log(full) as log:
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


async def test_the_question_of_a_damaged_session_is_not_asked(home: Path) -> None:
    async with sqlite_log(home) as log:
        for session_id in ("one", "two"):
            asked = ApprovalRequested(call_id="c", name="shell", arguments_json='{"command":"ls"}', digest="d")
            await log.append(session_id, pending(asked), 0)
    change_row(home, f"UPDATE event SET line = replace(line, 'ls', 'rm') WHERE {KEY_OF_TWO}")

    async with sqlite_log(home) as log:
        assert [question.session_id for question in await log.pending_approvals()] == ["one"]


@pytest.mark.proof("D11")
async def test_flipped_bits_are_found_and_confined_to_their_session(full: Path, record_measure: RecordMeasure) -> None:
    """In the lines, and in SQLite's own bytes before them: numbers, lengths, checksums."""
    database = full / schema.FILE_NAME
    chance = random.Random(3)
    places = cells(database)
    found: list[Flip] = []
    for _ in range(BITS):
        session_id, start, end = chance.choice(places)
        bit = chance.randrange(start * 8, end * 8)
        with flipped_bits(database, bit):
            read = await outcomes(full)
            report = check(full)
        found.append(flip(session_id, read, report))

    detected = sum(one.detected for one in found)
    record_measure(f"log: {BITS} flipped bits: detected", str(BITS), str(detected))
    confined = sum(one.confined for one in found)
    record_measure(f"log: {BITS} flipped bits: other sessions unaffected", str(BITS), str(confined))
    assert (detected, confined) == (BITS, BITS)


async def test_a_whole_log_has_no_problems_and_repair_leaves_it_alone(full: Path) -> None:
    before = (full / schema.FILE_NAME).read_bytes()

    assert (check(full).sessions, check(full).events, check(full).problems) == (3, 306, ())
    assert repair(full).kept_as is None
    assert (full / schema.FILE_NAME).read_bytes() == before


async def test_repair_puts_a_notice_in_the_place_of_what_is_damaged_and_keeps_the_old_file(full: Path) -> None:
    async with sqlite_log(full) as log:
        whole = {name: [logged async for logged in replay(log, name)] for name in ("one", "two", "three")}
    change_row(full, f"UPDATE event SET line = replace(line, 'line', 'lime') WHERE {KEY_OF_TWO} AND event_id = 9")
    change_row(full, f"DELETE FROM event WHERE {KEY_OF_TWO} AND event_id = 102")
    change_row(full, "UPDATE session SET session_id = 'thrfe' WHERE session_id = 'three'")
    change_row(full, "UPDATE session SET updated_ms = 5 WHERE session_id = 'one'")
    damaged = (full / schema.FILE_NAME).read_bytes()

    report = repair(full)

    entry = "its entry in the list of sessions is damaged"
    assert report.problems == (
        LogProblem("one", None, entry),
        LogProblem("two", 9, "damaged or missing"),
        LogProblem("two", 102, "damaged or missing"),
        LogProblem("three", None, entry),
    )
    assert report.kept_as is not None
    assert (full / os.path.basename(report.kept_as)).read_bytes() == damaged
    assert check(full).problems == ()

    notice = Notice(level="error", code="event_damaged", message="What happened here was damaged on disk.")
    for number in (9, 102):
        whole["two"][number - 1] = Logged(event_id=number, ts=whole["two"][number - 2].ts, event=notice)
    async with sqlite_log(full) as log:
        assert {name: [logged async for logged in replay(log, name)] for name in whole} == whole
        assert [summary.title for summary in await log.sessions()] == ["one", "three", "two"]
        assert await log.append("two", steps(1), 102) == (103, 103)


async def test_repair_needs_the_sessions_for_itself_and_check_does_not(full: Path) -> None:
    async with sqlite_log(full):
        assert check(full).problems == ()
        with pytest.raises(HomeInUse):
            repair(full)
