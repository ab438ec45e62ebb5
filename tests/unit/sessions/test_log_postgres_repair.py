"""Damage in a database: confined to its session, and repaired without changing any number."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psycopg
import pytest
from support.log_events import NOW_MS, pending, steps, words
from support.postgres import shared_server
from support.postgres_trials import opened

from makai.core.errors import LogDamaged, StorageUnavailable
from makai.core.session_events import ApprovalRequested, Logged, Notice, SessionCreated
from makai.sessions.log.base import Checkpoint, StoredToken, replay
from makai.sessions.log.postgres.repair_file import RepairFile
from makai.sessions.log.postgres.repairing import DamagedRow

OF_TWO = "session_key = (SELECT session_key FROM session WHERE session_id = 'two')"
EVENTS = 103


async def filled() -> str:
    """The address of a database with three sessions."""
    url = shared_server().new_schema()
    async with opened(url) as log:
        for session_id in ("one", "two", "three"):
            await log.append(session_id, pending(SessionCreated(model_ref="m", title=session_id)), 0)
            asked = pending(ApprovalRequested(call_id="c", name="shell", arguments_json="{}", digest="d"))
            await log.append(session_id, [*steps(50), *words("Hello"), *steps(50), *asked], 1)
            await log.save_checkpoint(session_id, Checkpoint(50, 1, b"folded"))
        await log.put_token(
            StoredToken(token_id="t", name="t", scope="admin", digest="d", created_ms=NOW_MS, expires_ms=NOW_MS)
        )
        await log.trust("/trusted", True)
    return url


def change(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.mark.parametrize(
    ("damage", "replaced", "kept"),
    [
        (f"UPDATE event SET line = '\\x7b7d' WHERE {OF_TWO} AND event_id = 9", [9], [9, None]),
        (f"UPDATE event SET checksum = checksum + 1 WHERE {OF_TWO} AND event_id = 1", [1], [1, None]),
        (f"UPDATE event SET line = '' WHERE {OF_TWO} AND event_id IN (9, 50)", [9, 50], [None]),
        (f"UPDATE event SET event_id = 110 WHERE {OF_TWO} AND event_id = 103", list(range(103, 111)), [110, None]),
        (f"DELETE FROM event WHERE {OF_TWO} AND event_id = 9", [9], [None]),
        (f"DELETE FROM event WHERE {OF_TWO} AND event_id > 100", [101, 102, 103], [None]),
        (f"UPDATE session SET projection = '\\x7b7d' WHERE {OF_TWO}", [], [None]),
        (f"UPDATE session SET cwd = '/elsewhere', waiting = 7 WHERE {OF_TWO}", [], [None]),
        (f"UPDATE session SET last = last + 1 WHERE {OF_TWO}", [], [None]),
    ],
)
async def test_damage_is_replaced_under_the_same_numbers_and_other_sessions_stay_as_they_are(
    damage: str, replaced: list[int], kept: list[int | None]
) -> None:
    url, rows = await filled(), list[DamagedRow]()

    async def keep(given: Sequence[DamagedRow]) -> None:
        rows.extend(given)

    async with opened(url) as log:
        before = {name: await log.read_raw(name, limit=1_000) for name in ("one", "two", "three")}
    change(url, damage)
    async with opened(url, "again") as log:
        found = await log.check()
        assert {problem.session_id for problem in found.problems} == {"two"}
        await log.repair(keep)
        after = await log.check()
        assert (after.sessions, after.problems) == (3, ())
        assert [row.event_id for row in rows] == kept
        for name in ("one", "three"):
            assert await log.read_raw(name, limit=1_000) == before[name]
            assert await log.checkpoint(name) == Checkpoint(50, 1, b"folded")
        assert await log.checkpoint("two") is None
        events = [logged async for logged in replay(log, "two")]
        assert [logged.event_id for logged in events] == list(range(1, max([EVENTS, *replaced]) + 1))
        notices = [
            logged.event_id for logged in events if isinstance(logged, Logged) and isinstance(logged.event, Notice)
        ]
        assert notices == replaced
        summary = await log.session("two")
        assert summary is not None
        assert (summary.events, summary.damaged) == (len(events), False)
        assert summary.pending_approvals == (0 if 103 in replaced else 1)
        assert await log.append("two", steps(1), len(events)) == (len(events) + 1, len(events) + 1)


async def test_rows_that_belong_to_nothing_or_do_not_verify_are_removed_and_kept() -> None:
    url, rows = await filled(), list[DamagedRow]()

    async def keep(given: Sequence[DamagedRow]) -> None:
        rows.extend(given)

    change(url, "DELETE FROM session WHERE session_id = 'two'")
    change(url, "UPDATE token SET data = '\\x7b7d'")
    change(url, "UPDATE trusted_folder SET folder = '/other'")
    async with opened(url, "again") as log:
        assert len((await log.check()).problems) == 3
        await log.repair(keep)
        assert ((await log.check()).problems, await log.tokens(), await log.trusted_folders()) == ((), [], [])
    assert len(rows) == EVENTS + 2
    assert [row.what for row in rows[:2]] == ["trusted_folder: /other", "token: t"]


async def test_nothing_is_replaced_that_cannot_be_kept(tmp_path: Path) -> None:
    url = await filled()
    change(url, f"UPDATE event SET line = '\\x7b7d' WHERE {OF_TWO} AND event_id = 9")
    async with opened(url, "again") as log:
        with pytest.raises(StorageUnavailable, match="nothing was repaired"):
            await log.repair(RepairFile(tmp_path / "missing").keep)
        with pytest.raises(LogDamaged):
            await log.read("two")
        file = RepairFile(tmp_path)
        await log.repair(file.keep)
        assert (await log.check()).problems == ()
    kept = [msgspec.json.decode(line, type=DamagedRow) for line in file.path.read_bytes().splitlines()]
    assert [(row.session_id, row.event_id, row.data) for row in kept[:1]] == [("two", 9, b"{}")]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
