"""The bars of the shell tool in full size: nothing survives an abort, and long output costs no memory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.orphan_trials import Silent, aborted_runs, shell_tool

if TYPE_CHECKING:
    from conftest import RecordMeasure

MAX_RSS_KB = 20 * 1024


def resident_kb() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


async def test_200_aborted_runs_leave_no_process(tmp_path: Path, record_measure: RecordMeasure) -> None:
    report = await aborted_runs(tmp_path, 200, seed=5)

    record_measure("abort, 200 runs: processes left after 1 s", "0", str(len(report.left)))
    record_measure("abort, 200 runs: slowest end", "<= 1 s", f"{report.slowest_s:.2f} s")
    assert report.left == []
    assert report.slowest_s <= 1


@pytest.mark.timeout(300)
async def test_1_gb_of_output_costs_at_most_20_mb(tmp_path: Path, record_measure: RecordMeasure) -> None:
    tool = shell_tool(tmp_path)
    await tool.run({"command": "echo warm"}, Silent())
    before = most = resident_kb()
    call = asyncio.create_task(tool.run({"command": "yes 0123456 | head -c 1000000000", "timeout_s": 250}, Silent()))
    while not call.done():
        await asyncio.wait([call], timeout=0.02)
        most = max(most, resident_kb())
    outcome = call.result()

    record_measure("1 GB of tool output: RSS", "<= 20 MB", f"+{(most - before) / 1024:.1f} MB")
    assert most - before <= MAX_RSS_KB
    assert outcome.omitted_bytes == 1_000_000_000 - 256 * 1024
    assert os.path.getsize(str(outcome.spill_path)) == 1_000_000_000  # noqa: ASYNC240 - nothing else runs
