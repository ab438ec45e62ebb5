"""The owner of the sessions is killed, and the other processes go on (issue: "others attach and can take over")."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.attach_trials import TakeoverReport, killed_owners
from support.machine import slack

if TYPE_CHECKING:
    from conftest import RecordMeasure

ROUNDS = 20


@pytest.mark.timeout(300)
def test_an_owner_is_killed_20_times_and_exactly_one_follower_takes_over(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = killed_owners(tmp_path / "home", rounds=ROUNDS)

    record_measure(f"takeover: owner killed {ROUNDS} times, slowest", "< 10 s", f"{report.slowest_takeover_s:.2f} s")
    assert report.acknowledged > ROUNDS
    assert report.slowest_takeover_s < 10 * slack()
    assert report == TakeoverReport(
        rounds=ROUNDS,
        takeovers=(1,) * ROUNDS,
        acknowledged=report.acknowledged,
        lost=0,
        repeated=0,
        unlike_the_log=(),
        problems=(),
        slowest_takeover_s=report.slowest_takeover_s,
    )
