"""`makai sessions copy` as people and scripts use it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from support.cli import DEADLINE_S, Cli
from support.log_events import steps
from support.postgres import shared_server
from support.stores import sqlite_log

from makai.sessions.log.leases import HomeLock

SESSIONS, EVENTS = 4, 1500
INTERRUPTED = """
import os, signal, sys
from makai.cli.main import main
from makai.sessions.log.sqlite import SqliteLog

number, last, *arguments = sys.argv[1:]
imports = 0
import_records = SqliteLog.import_records

async def counted(*values):
    global imports
    imports += 1
    if imports == int(last):
        os.kill(os.getpid(), int(number))
    await import_records(*values)

SqliteLog.import_records = counted
main(arguments)
"""
"""A copy that gets a signal just before it stores a certain portion."""


@pytest.fixture
async def makai(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    async with sqlite_log(home) as log:
        for number in range(SESSIONS):
            await log.append(f"session-{number}", steps(EVENTS), 0)
    return Cli(home)


async def lines(home: Path) -> dict[str, list[bytes]]:
    async with sqlite_log(home) as log:
        return {
            summary.session_id: [record.line for record in await log.read_raw(summary.session_id, limit=2 * EVENTS)]
            for summary in await log.sessions()
        }


async def test_sessions_go_to_a_database_from_there_to_two_shards_and_back(makai: Cli, tmp_path: Path) -> None:
    url = shared_server().new_database()
    (makai.home / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
    back, shards = tmp_path / "back", tmp_path / "shards.toml"
    one, two = shared_server().new_schema(), shared_server().new_schema()
    shards.write_text(f'[store]\nurl = "{one}"\n[store.shards]\nc = "{one}"\nd = "{two}"\n')

    rehearsed = await makai("sessions", "copy", "sqlite", str(back), "--dry-run")
    there = await makai("sessions", "copy", "sqlite", "store", "--all", "--json")
    grown = await makai("sessions", "copy", url, str(shards))
    home = await makai("sessions", "copy", str(shards), str(back))
    again = await makai("sessions", "copy", "store", str(back))

    assert (rehearsed.code, rehearsed.out) == (0, "Would copy 4 sessions with 6,000 events.\n")
    assert there.code == 0, there.err
    assert [each["outcome"] for each in there.json()["sessions"]] == ["copied"] * SESSIONS
    assert (grown.code, grown.out) == (0, "Copied 4 sessions with 6,000 events.\n")
    assert (home.code, home.out) == (0, "Copied 4 sessions with 6,000 events.\n")
    assert (again.code, again.out) == (0, "Copied 0 sessions with 0 events.\n4 sessions were there already.\n")
    assert await lines(back) == await lines(makai.home)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
async def test_a_copy_that_is_killed_or_interrupted_is_completed_by_the_same_command(
    makai: Cli, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    target = tmp_path / "copy"
    command = ("sessions", "copy", "sqlite", str(target))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", INTERRUPTED, str(int(number)), "4", *command),
        env=makai.environment({}),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, said = await process.communicate()
    assert process.returncode == code, said
    before = await lines(target)
    assert 0 < sum(map(len, before.values())) < SESSIONS * EVENTS

    finished = await makai(*command)

    assert finished.code == 0, finished.err
    assert await lines(target) == await lines(makai.home)


async def test_what_was_not_copied_is_listed_and_fails(makai: Cli, tmp_path: Path) -> None:
    async with sqlite_log(tmp_path / "other") as log:
        await log.append("session-1", steps(1, "another beginning"), 0)
    refused = await makai("sessions", "copy", "sqlite", str(tmp_path / "other"))

    assert refused.code == 1
    assert refused.out.splitlines() == [
        "Copied 3 sessions with 4,500 events.",
        "Not copied:",
        "  session-1: the stores differ from event 1 on. Fork or delete one of the two, and copy again.",
    ]


async def test_a_store_that_is_in_use_missing_or_the_same_is_refused_with_the_next_step(
    makai: Cli, tmp_path: Path
) -> None:
    lock = HomeLock(makai.home)
    in_use = await makai("sessions", "copy", "sqlite", str(tmp_path / "copy"))
    lock.release()
    missing = await makai("sessions", "copy", str(tmp_path / "nothing"), "sqlite")
    same = await makai("sessions", "copy", "sqlite", str(makai.home))
    unknown = await makai("sessions", "copy", "sqlite", "mysql://user:secret@host/x")

    assert (in_use.code, missing.code, same.code, unknown.code) == (1, 2, 2, 2)
    assert "and try again: no other process may write to a store while it is copied." in in_use.err
    assert "There are no sessions in" in missing.err
    assert "FROM and TO are the same store." in same.err
    assert "'mysql' is no store of sessions." in unknown.err
    assert "secret" not in unknown.err
    assert not (tmp_path / "copy").exists()
