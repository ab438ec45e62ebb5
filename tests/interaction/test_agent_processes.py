"""Processes of command-line agents that resist their end, are killed, or outlive makai. Small here, in full size with
`make faults`."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from support import agent_processes as trials
from support.machine import RecordMeasure, slack
from support.profiles import FAULTS

CYCLES, AT_ONCE = (200, 10) if FAULTS else (6, 3)
KILLS = 5 if FAULTS else 1
AGENTS = 6
ASKING_KILLS = 10 if FAULTS else 1
CUTS = 1_000 if FAULTS else 3


@pytest.mark.alone
@pytest.mark.req("DM-PROV-003", "DM-PROV-011")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_agents_that_fork_and_ignore_every_request_to_end_are_gone_when_stop_returns(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = await trials.stopped_agents(tmp_path, CYCLES, AT_ONCE)
    first, most = report.open_files
    record_measure(f"agents: {CYCLES} spawns and stops: processes left", "0", str(len(report.left)))
    record_measure(f"agents: {CYCLES} spawns and stops: more open files", "0", str(most - first))
    times = f"{report.slowest_s:.2f} s, {report.quickest_kill_s:.2f} s"
    record_measure(f"agents: slowest of {CYCLES} stops, quickest with a kill", "<= 6 s", times)
    assert (report.left, report.unlawful) == ([], 0)
    assert most <= first
    assert report.slowest_s <= 6 * slack()
    assert 4 <= report.quickest_kill_s <= 6


@pytest.mark.alone
@pytest.mark.req("ACP-CLIENT-010")
@pytest.mark.scaled
@pytest.mark.timeout(600)
async def test_nothing_of_six_agents_is_left_two_seconds_after_a_kill_of_makai(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    reports = [await trials.killed_makai(tmp_path / str(n), AGENTS, deadline_s=2 * slack()) for n in range(KILLS)]
    slowest = max(report.gone_after_s or float("inf") for report in reports)
    name = f"agents: {KILLS} kill -9 of makai with {AGENTS} agents: all processes gone after"
    record_measure(name, "<= 2 s", f"{slowest:.2f} s")
    assert [report for report in reports if report.gone_after_s is None] == []


@pytest.mark.alone
@pytest.mark.req("DM-PROV-003", "ACP-CLIENT-010")
@pytest.mark.scaled
@pytest.mark.timeout(600)
@pytest.mark.parametrize("driver", trials.DRIVERS)
async def test_a_run_settles_once_when_its_agent_is_killed_while_a_person_decides(
    driver: str, tmp_path: Path, record_measure: RecordMeasure
) -> None:
    found = [await trials.agent_killed_while_it_asks(tmp_path / str(n), driver) for n in range(ASKING_KILLS)]
    check_settled(f"{ASKING_KILLS} kills while a person decides", driver, found, record_measure)


@pytest.mark.alone
@pytest.mark.req("DM-PROV-003", "ACP-CLIENT-010")
@pytest.mark.scaled
@pytest.mark.timeout(600)
@pytest.mark.parametrize("driver", trials.DRIVERS)
async def test_a_run_settles_once_when_its_agent_ends_after_any_line_or_in_the_middle_of_one(
    driver: str, tmp_path: Path, record_measure: RecordMeasure
) -> None:
    every = [(line, kept) for line in range(trials.OUTPUT_LINES[driver]) for kept in (0, 40)]
    cuts = Random(14).sample(every, min(CUTS, len(every)))
    found = [await trials.agent_cut_off(tmp_path / str(number), driver, cut) for number, cut in enumerate(cuts)]
    check_settled(f"{len(cuts)} ends at a line", driver, found, record_measure)


def check_settled(what: str, driver: str, found: list[trials.SettleReport], record_measure: RecordMeasure) -> None:
    slowest = max(report.after_s for report in found)
    record_measure(f"{driver}: {what}: slowest settlement", "<= 6 s", f"{slowest:.2f} s")
    assert [(report.settlements, report.left) for report in found] == [(["run_failed"], [])] * len(found)
    assert slowest <= 6 * slack()
