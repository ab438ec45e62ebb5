"""The session benchmark from beginning to end: run, print, write `results/sessions.*`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import machine
from bars import bar_table
from sessions.measure import measure_all
from sessions.plan import plan
from sessions.report import session_bars, session_page


def run(*, quick: bool) -> None:
    """Measure and report. A quick run only prints: its numbers are too rough to keep."""
    if not Path("/proc/self/schedstat").exists():
        print("The session benchmark needs Linux: it pins processes and reads their CPU time from /proc.\n")
        return
    where = machine.describe()
    measured = measure_all(plan(quick))
    where["load_after"] = round(os.getloadavg()[0], 1)
    bars = session_bars(measured)
    print("\n" + "\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    record = {
        "machine": where,
        "measured": measured,
        "bars": [asdict(bar) | {"verdict": bar.verdict().strip("*")} for bar in bars],
    }
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "sessions.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "sessions.md").write_text(session_page(measured, bars, where))
