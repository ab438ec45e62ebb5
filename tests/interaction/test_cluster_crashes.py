"""The process of a node is killed, or ended, while a client of another node works with its session. `make faults` does
this at 100 points (tests/faults/test_cluster_crashes.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cluster_trials import CrashReport, End, ended_owners


@pytest.mark.timeout(180)
@pytest.mark.parametrize("end", ["kill", "drain"])
async def test_clients_of_another_node_continue_when_the_owner_goes(tmp_path: Path, database: str, end: End) -> None:
    report = await ended_owners(tmp_path, database, 1, end, seed=17)

    assert report == CrashReport(
        rounds=1,
        acknowledged=report.acknowledged,
        lost=0,
        repeated=0,
        unlike_the_log=0,
        taken_over_by_others=0,
        resumed=1,
        interrupted=0,
        slowest_s=report.slowest_s,
    )
