"""The owner of the sessions is killed, and the other processes continue."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.attach_trials import TakeoverReport, killed_owners
from support.machine import RecordMeasure, slack
from support.profiles import FAULTS

ROUNDS = 200 if FAULTS else 20


@pytest.mark.alone
@pytest.mark.proof("D8")
@pytest.mark.scaled
@pytest.mark.timeout(1800 if FAULTS else 300)
def test_a_killed_owner_is_followed_by_exactly_one_other(tmp_path: Path, record_measure: RecordMeasure) -> None:
    report = killed_owners(tmp_path / "home", rounds=ROUNDS)

    took_over_once = sum(count == 1 for count in report.takeovers)
    name = f"takeover: owner killed {ROUNDS} times"
    record_measure(f"{name}: exactly one takes over", f"{ROUNDS}", f"{took_over_once}")
    record_measure(f"{name}: slowest", "< 10 s", f"{report.slowest_takeover_s:.2f} s")
    record_measure(f"{name}: {report.acknowledged} acked: lost, twice", "0, 0", f"{report.lost}, {report.repeated}")
    record_measure(f"{name}: programs whose events are not the log", "0", str(len(report.unlike_the_log)))
    assert report.acknowledged > ROUNDS
    assert report.slowest_takeover_s < (10 if FAULTS else 10 * slack())
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
