"""Long output of a command costs no memory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from support.machine import RecordMeasure
from support.orphan_trials import Silent, shell_tool

MAX_RSS_KB = 20 * 1024


def resident_kb() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.proof("T7", "limit-output")
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
