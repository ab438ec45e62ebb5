"""The owner of the sessions is killed 200 times while others follow and talk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.attach_trials import TakeoverReport, killed_owners

if TYPE_CHECKING:
    from conftest import RecordMeasure

ROUNDS = 200


@pytest.mark.timeout(1800)
def test_an_owner_is_killed_200_times_and_exactly_one_follower_takes_over(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = killed_owners(tmp_path / "home", rounds=ROUNDS)

    took_over_once = sum(count == 1 for count in report.takeovers)
    record_measure("takeover: exactly one takes over", f"{ROUNDS} of {ROUNDS}", f"{took_over_once} of {ROUNDS}")
    record_measure("takeover: slowest", "< 10 s", f"{report.slowest_takeover_s:.2f} s")
    record_measure(
        f"takeover: {report.acknowledged} words acked: lost, twice", "0, 0", f"{report.lost}, {report.repeated}"
    )
    record_measure("takeover: programs whose events are not the log", "0", str(len(report.unlike_the_log)))
    assert report.acknowledged > ROUNDS
    assert report.slowest_takeover_s < 10
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
