"""Sessions that survive: connections that break, servers that are killed, tools that do not want to end, nonsense, and
a full disk. Small here, in full size with `make faults`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from support import server_trials as trials
from support.log_disk import mounted_disk
from support.machine import RecordMeasure
from support.minicodex_client import BOTH
from support.profiles import FAULTS
from support.serving import serving

from makai.protocols.minicodex.vocabulary import ErrorCode

DROPS = 1_000 if FAULTS else 60
ANSWERS = 20 if FAULTS else 3
KILLS = 200 if FAULTS else 10
ABORTS = 200 if FAULTS else 12
FRAMES = 10_000 if FAULTS else 500


@pytest.mark.proof("D5")
@pytest.mark.req("MC-RESUME-001", "MC-ENV-006")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_a_client_that_is_dropped_again_and_again_receives_the_log(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = await trials.dropped_connections(tmp_path, DROPS, seed=3)
    found = f"{report.gaps}, {report.repeated}, {report.unlike_the_log} of {report.received}"
    record_measure(f"{DROPS} disconnects: gaps, repeated, unlike the log", "0, 0, 0", found)
    assert report == trials.DropReport(drops=DROPS, received=report.received, gaps=0, repeated=0, unlike_the_log=0)
    assert report.received > DROPS


@pytest.mark.proof("D10")
@pytest.mark.req("MC-APPR-009")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_an_approval_asked_before_a_kill_and_given_after_it_runs_the_tool_once(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    ran = await trials.approvals_over_a_kill(tmp_path, ANSWERS)
    record_measure(
        "approval, kill -9, restart, answer: ran once", f"{ANSWERS} of {ANSWERS}", f"{ran.count(1)} of {ANSWERS}"
    )
    assert ran == [1] * ANSWERS


@pytest.mark.proof("D2")
@pytest.mark.scaled
@pytest.mark.timeout(1800)
async def test_a_server_killed_at_any_moment_of_a_run_loses_nothing_and_does_nothing_twice(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = await trials.killed_servers(tmp_path, KILLS, seed=7)
    found = [len(report.unsettled), report.gaps, report.lost, report.ran_twice, report.said_to_have_run_and_did_not]
    name = f"{KILLS} kill -9 in a run: unsettled, gaps, lost, twice, untrue"
    record_measure(name, "0, 0, 0, 0, 0", ", ".join(map(str, found)))
    record_measure("slowest start and recovery of a killed server", "-", f"{report.slowest_recovery_s:.1f} s")
    assert report == trials.KillReport(KILLS, (), 0, 0, 0, 0, report.slowest_recovery_s)


@pytest.mark.proof("T7")
@pytest.mark.req("MC-RUN-009")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_an_aborted_run_leaves_no_process_behind(tmp_path: Path, record_measure: RecordMeasure) -> None:
    report = await trials.aborted_sessions(tmp_path, ABORTS, seed=11)
    record_measure(f"{ABORTS} aborted runs: processes left after 1 s", "0", str(len(report.left)))
    record_measure(f"{ABORTS} aborted runs: slowest end", "-", f"{report.slowest_s:.2f} s")
    assert report == trials.AbortedRuns(runs=ABORTS, left=(), slowest_s=report.slowest_s)


@pytest.mark.proof("E1")
@pytest.mark.req("MC-CMD-007", "MC-CMD-008", "MC-CMD-009", "MC-ENV-003")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_frames_that_mean_nothing_are_each_answered_and_change_nothing(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = await trials.fuzzed_frames(tmp_path, FRAMES, seed=13)
    found = f"{FRAMES - report.unanswered}, {report.changes}"
    record_measure("fuzzed frames over WebSocket: refused, changes", f"{FRAMES}, 0", found)
    assert report == trials.FuzzReport(frames=FRAMES, codes=report.codes, unanswered=0, changes=0)
    assert set(report.codes) <= set(get_args(ErrorCode))


@pytest.mark.proof("D4")
@pytest.mark.sqlite_file("fills the disk of the file")
@pytest.mark.timeout(120)
async def test_a_full_disk_is_told_reading_goes_on_and_the_session_recovers(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    with mounted_disk(tmp_path, megabytes=24) as disk:
        async with serving(disk.folder, "say: Hello.") as site:
            session_id = await site.session()
            client = await site.client(session_id, *BOTH)
            await client.ask("send", text="hi")
            await client.until_over()
            ballast = disk.fill()
            # A little may still fit into pages that the log has already.
            answers = [await client.ask("send", text="x" * 100_000, client_msg_id=f"m-{n}") for n in range(20)]
            assert answers[-1] == "STORAGE_UNAVAILABLE"
            again = await site.client(session_id, *BOTH)  # reads go on
            assert again.of_type("snapshot")[0]["transcript"][0]["text"] == "hi"
            status, answer = await site.ask("POST", "/api/sessions", {"model_ref": "scripted/scenario", "cwd": "/"})
            assert (status, answer["error"]["code"]) == (503, "storage_unavailable")
            ballast.unlink()
            recovered = await client.ask("send", text="x" * 100_000, client_msg_id="m-19")
            record_measure("disk full: answer, then with space again", "STORAGE_UNAVAILABLE, accepted",
                           f"{answers[-1]}, {recovered}")  # fmt: skip
            assert recovered == "accepted"
            await client.until_over()
