"""Many clients at once, owners that close or die meanwhile: the log stays one story that everyone was told alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.machine import RecordMeasure
from support.owner_trials import Trial
from support.profiles import FAULTS

SEEDS = range(200) if FAULTS else range(10)


@pytest.mark.proof("E2")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
async def test_sessions_in_disorder_stay_what_their_log_says(
    tmp_path: Path, record_measure: RecordMeasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # where sessions leave their scratch files
    events = runs = tools = owners = watched = 0
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        report = await Trial(folder, seed).run(clients=6, actions=80, restarts=5)
        events, runs, tools = events + report.events, runs + report.runs, tools + report.tools
        owners, watched = owners + report.owners, watched + report.watched
    happened = f"0 of {events:,} events, {runs:,} runs, {tools:,} tools, {watched:,} readers, {owners} owners"
    record_measure(f"sessions in disorder, {len(SEEDS)} times: lost, doubled, unsettled", "0", happened)
    assert tools
    assert watched
