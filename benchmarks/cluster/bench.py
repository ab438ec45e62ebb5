"""The cluster benchmark from beginning to end: run, print, write `results/cluster*`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import machine
from bars import bar_table
from cluster.database import database, installed
from cluster.measure import measure_all
from cluster.plan import plan
from cluster.report import cluster_bars, cluster_chart, cluster_page, rates_chart


def run(*, quick: bool) -> None:
    """Measure and report. A quick run only prints: its numbers are too rough to keep."""
    try:
        installed()
    except FileNotFoundError as error:
        print(f"SKIPPED: {error}; the cluster was not measured.\n")
        return
    if not machine.CLUSTER_PYTHON.exists():
        print("SKIPPED: .venv is not there, run `make test` once; the cluster was not measured.\n")
        return
    where = machine.describe()
    with database() as server:
        where["postgresql"] = server.version()
        measured = measure_all(plan(quick), server)
    where["load_after"] = round(os.getloadavg()[0], 1)
    bars = cluster_bars(measured)
    print("\n" + "\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    record = {
        "machine": where,
        "measured": measured,
        "bars": [asdict(bar) | {"verdict": bar.verdict().strip("*")} for bar in bars],
    }
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "cluster.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "cluster.md").write_text(cluster_page(measured, bars, where))
    (machine.RESULTS / "cluster.svg").write_text(cluster_chart(measured))
    (machine.RESULTS / "cluster-rates.svg").write_text(rates_chart(measured))
