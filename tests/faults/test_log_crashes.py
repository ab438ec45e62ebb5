"""The log in full size under kill -9, power cuts, failing system calls and a full disk (reliability.md D1 to D4)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.log_disk import Disk, mounted_disk
from support.log_events import steps
from support.log_trials import CrashReport, TracedReport, killed_writers, power_cuts, tampered
from support.machine import RecordMeasure

from makai.core.errors import StorageUnavailable
from makai.sessions.log.sqlite import SqliteLog

APPENDS = 40
POINTS = 60


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted_disk(tmp_path, megabytes=128) as mounted:
        yield mounted


@pytest.fixture
def _strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: failing system calls were not tried")


def assert_nothing_lost(report: CrashReport, rounds: int) -> None:
    assert report.acknowledged > rounds
    assert report == CrashReport(rounds, report.acknowledged, 0, 0, (), report.slowest_open_s)


@pytest.mark.proof("D2")
def test_kill_9_at_200_points(home: Path, record_measure: RecordMeasure) -> None:
    report = killed_writers(home, points=200)

    record_measure(f"log: kill -9 at 200 points, {report.acknowledged} acked: lost", "0", str(report.lost))
    record_measure(
        "log: kill -9 at 200 points: reused numbers, problems", "0, 0", f"{report.reused}, {len(report.problems)}"
    )
    record_measure("log: slowest open after kill -9", "< 2 s", f"{report.slowest_open_s * 1000:.0f} ms")
    assert report.slowest_open_s < 2
    assert_nothing_lost(report, 200)


@pytest.mark.proof("D1")
def test_the_power_goes_away_100_times(disk: Disk, record_measure: RecordMeasure) -> None:
    report = power_cuts(disk, rounds=100)

    record_measure(f"log: 100 power cuts, {report.acknowledged} acked: lost", "0", str(report.lost))
    record_measure("log: 100 power cuts: reused numbers, problems", "0, 0", f"{report.reused}, {len(report.problems)}")
    assert_nothing_lost(report, 100)


@pytest.mark.proof("D1")
def test_power_cuts_are_noticed_when_commits_are_not_synced(disk: Disk, record_measure: RecordMeasure) -> None:
    """The control: without the fsync the same trial loses events, so it can tell."""
    report = power_cuts(disk, rounds=8, careless=True)

    record_measure(f"control: 8 power cuts without fsync, {report.acknowledged} acked: lost", "> 0", str(report.lost))
    assert report.lost > 0


@pytest.mark.proof("D3")
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_process_killed_in_a_system_call_loses_nothing(
    tmp_path: Path, record_measure: RecordMeasure, call: str
) -> None:
    reports = [
        tampered(tmp_path / f"home-{number}", f"{call}:signal=KILL:when={number}", appends=APPENDS)
        for number in range(1, POINTS + 1)
    ]

    crashes = [report.crash for report in reports]
    died = sum(report.acknowledged < APPENDS * 8 for report in reports)
    lost = sum(crash.lost for crash in crashes)
    record_measure(f"log: died in {call} 1 to {POINTS} ({died} times): lost", "0", str(lost))
    assert died >= POINTS // 2
    assert lost == 0
    assert [problem for crash in crashes for problem in crash.problems] == []


@pytest.mark.proof("D4")
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize(
    "injection", ["fdatasync:error=EIO:when=20..23", "pwrite64:error=ENOSPC:when=60..90", "pwrite64:error=EIO:when=70"]
)
def test_a_failing_system_call_is_an_error_once(tmp_path: Path, record_measure: RecordMeasure, injection: str) -> None:
    report = tampered(tmp_path / "home", injection, appends=APPENDS)

    record_measure(
        f"log: {injection}: lost; acked after it", "0; > 0", f"{report.crash.lost}; {report.acknowledged_after_refusal}"
    )
    assert report.acknowledged_after_refusal > 0
    assert report == TracedReport(
        acknowledged=report.acknowledged,
        refused=("storage_unavailable",),
        unreadable=0,
        acknowledged_after_refusal=report.acknowledged_after_refusal,
        crash=CrashReport(1, report.crash.acknowledged, 0, 0, (), report.crash.slowest_open_s),
    )


@pytest.mark.proof("D4")
async def test_a_full_disk_refuses_until_there_is_space_again(tmp_path: Path, record_measure: RecordMeasure) -> None:
    with mounted_disk(tmp_path, megabytes=16) as disk:
        log = await SqliteLog.open(disk.folder / "home")
        _, last = await log.append("one", steps(100), 0)
        ballast = disk.fill()
        refusals = 0
        for _ in range(50):
            try:
                _, last = await log.append("one", steps(50, "x" * 1000), last)
            except StorageUnavailable:
                refusals += 1
                assert await log.last("one") == last
                assert [record.event_id for record in await log.read_raw("one", 0, 100)] == list(range(1, 101))
        ballast.unlink()
        _, last = await log.append("one", steps(50, "x" * 1000), last)
        await log.close()

        reopened = await SqliteLog.open(disk.folder / "home")
        assert await reopened.last("one") == last
        await reopened.close()

    record_measure("log: full disk: refused, then recovered", "> 0", str(refusals))
    assert refusals > 0
