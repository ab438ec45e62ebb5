"""An editor that cancels, goes away or is left by its agent, at any moment. Small here, in full size with
`make faults`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import acp_trials as trials
from support.machine import RecordMeasure, slack
from support.profiles import FAULTS

CANCELS = 200 if FAULTS else 8
ENDS = 50 if FAULTS else 5
KILLS = 50 if FAULTS else 2


@pytest.mark.alone
@pytest.mark.proof("E6")
@pytest.mark.req("ACP-PROMPT-007", "ACP-PROMPT-008")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_a_cancel_in_any_state_is_answered_within_a_second_after_all_updates(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = await trials.cancelled_prompts(tmp_path, CANCELS, seed=5)
    record_measure(f"acp: {CANCELS} cancels: wrong answers, late updates", "0", str(len(report.wrong)))
    record_measure(f"acp: slowest of {CANCELS} cancels", "< 1 s", f"{report.slowest_s * 1000:.0f} ms")
    assert report.wrong == []
    assert report.slowest_s < 1 * slack()


@pytest.mark.alone
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_the_end_of_input_in_any_state_ends_the_agent_and_everything_it_started_within_a_second(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = await trials.ended_inputs(tmp_path, ENDS)
    record_measure(f"acp: {ENDS} ends of input: processes left", "0", str(len(report.left)))
    record_measure(f"acp: slowest exit of {ENDS} after the end of input", "< 1 s", f"{report.slowest_s * 1000:.0f} ms")
    assert (report.left, report.codes) == ([], {0: ENDS})
    assert report.slowest_s < 1 * slack()


@pytest.mark.alone
@pytest.mark.req("ACP-SESS-009")
@pytest.mark.scaled
@pytest.mark.timeout(1800)
async def test_an_agent_killed_in_the_middle_of_a_prompt_loses_no_update_and_runs_no_tool_twice(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = await trials.killed_agents(tmp_path, KILLS, seed=11)
    name = f"acp: {KILLS} kill -9 in a prompt, {report.received} updates received: lost, tools run twice"
    record_measure(name, "0, 0", f"{len(report.lost)}, {report.ran_twice}")
    assert (report.lost, report.ran_twice) == ([], 0)
    assert report.received > KILLS
