"""Two nodes on one PostgreSQL: the owner of a session is killed at random points, with clients on the other node."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cluster_trials import CrashReport, ended_owners
from support.machine import RecordMeasure
from support.postgres import database as database

ROUNDS = 100
MAX_TAKEOVER_S = 10.0


@pytest.mark.timeout(3600)
async def test_the_owner_is_killed_at_a_hundred_points_and_nothing_is_lost(
    tmp_path: Path, database: str, record_measure: RecordMeasure
) -> None:
    report = await ended_owners(tmp_path, database, ROUNDS, "kill", seed=1)

    name = f"cluster: owner killed {ROUNDS} times"
    record_measure(
        f"{name}: {report.acknowledged} acknowledged: lost, twice", "0, 0", f"{report.lost}, {report.repeated}"
    )
    record_measure(f"{name}: clients whose events are not the log", "0", str(report.unlike_the_log))
    record_measure(f"{name}: runs resumed, interrupted", f"{ROUNDS}, 0", f"{report.resumed}, {report.interrupted}")
    record_measure(f"{name}: slowest takeover", f"<= {MAX_TAKEOVER_S:g} s", f"{report.slowest_s:.2f} s")
    assert report.slowest_s <= MAX_TAKEOVER_S
    assert report == CrashReport(
        rounds=ROUNDS,
        acknowledged=report.acknowledged,
        lost=0,
        repeated=0,
        unlike_the_log=0,
        taken_over_by_others=0,
        resumed=ROUNDS,
        interrupted=0,
        slowest_s=report.slowest_s,
    )
