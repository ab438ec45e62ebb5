"""The gateway benchmark from beginning to end: run, print, write `results/gateway.*`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import machine
from bars import bar_table
from gateway.bars import gateway_bars
from gateway.measure import run_jobs
from gateway.plan import jobs
from gateway.plot import gateway_chart
from gateway.report import gateway_page


def run(*, quick: bool) -> None:
    """Measure and report. A quick run only prints: its numbers are too rough to keep."""
    if not Path("/proc/self/schedstat").exists():
        print("The gateway benchmark needs Linux: it reads the CPU time of other processes from /proc.\n")
        return
    where = machine.describe()
    rows = run_jobs(jobs(quick))
    where["load_after"] = round(os.getloadavg()[0], 1)
    bars = gateway_bars(rows)
    print("\n" + "\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    versions = gateway_versions()
    record = {
        "machine": where,
        "versions": versions,
        "rows": [asdict(row) for row in rows],
        "bars": [asdict(bar) | {"verdict": bar.verdict().strip("*")} for bar in bars],
    }
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "gateway.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "gateway.md").write_text(gateway_page(rows, bars, where, versions))
    (machine.RESULTS / "gateway.svg").write_text(gateway_chart(rows))


def gateway_versions() -> dict[str, str]:
    """What was compared."""
    found = machine.versions(machine.PEERS_PYTHON, ("aiohttp", "msgspec", "uvloop"))
    if machine.PINNED_PEERS_PYTHON.exists():
        found |= machine.versions(machine.PINNED_PEERS_PYTHON, ("litellm", "fastapi", "uvicorn"))
    return found
