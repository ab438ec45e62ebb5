"""A server for half an hour with sessions that work, clients that die and a restart a minute: it keeps nothing that it
should let go of, and loses nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.machine import RecordMeasure
from support.soak_trials import soak

MINUTES = max(2, int(os.environ.get("MAKAI_SOAK_MINUTES", "30")))
SESSIONS = 50
FLAT = 5
SLOPE_MB = 1.0


@pytest.mark.proof("soak")
@pytest.mark.timeout(MINUTES * 60 * 4 + 900)
async def test_a_server_that_runs_for_long_neither_leaks_nor_loses(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    report = await soak(tmp_path, lives=MINUTES, life_minutes=1.0, sessions=SESSIONS, seed=23)

    name = (
        f"soak: {MINUTES} min, {SESSIONS} sessions at a time of {report.sessions}, {MINUTES - 1} restarts, "
        f"{report.client_kills} client kills"
    )
    found = f"{report.lost}, {report.unlike_the_log}, {report.not_once} of {report.events:,}, {report.messages:,}"
    record_measure(f"{name}: events lost, clients unlike the log, messages not once", "0, 0, 0", found)
    grown = {field: report.growth(field) for field in ("tasks", "descriptors", "children")}
    record_measure(f"soak: growth of {', '.join(grown)}", f"<= {FLAT} each", ", ".join(map(str, grown.values())))
    record_measure("soak: RSS from the first third of a life to its end, median", "-", f"+{report.rss_growth():.1f} MB")
    record_measure(
        "soak: slope of RSS over the ends of lives", f"< {SLOPE_MB} MB/min", f"{report.rss_slope():.2f} MB/min"
    )
    assert (report.lost, report.unlike_the_log, report.not_once) == (0, 0, 0)
    assert max(grown.values()) <= FLAT
    assert report.rss_slope() < SLOPE_MB
