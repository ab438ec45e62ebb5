"""The streaming benchmark from beginning to end: run, print, write `results/stream.*`."""

from __future__ import annotations

import json
from dataclasses import asdict

import machine
from bars import bar_table
from stream.bars import stream_bars
from stream.measure import run_jobs
from stream.plan import jobs
from stream.plot import stream_chart
from stream.report import stream_page


def run(*, quick: bool) -> None:
    """Measure and report. A quick run only prints: its numbers are too rough to keep."""
    where = machine.describe()
    rows = run_jobs(jobs(quick))
    bars = stream_bars(rows)
    print("\n" + "\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    versions = peer_versions()
    record = {
        "machine": where,
        "versions": versions,
        "rows": [asdict(row) for row in rows],
        "bars": [asdict(bar) | {"verdict": bar.verdict().strip("*")} for bar in bars],
    }
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "stream.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "stream.md").write_text(stream_page(rows, bars, where, versions))
    (machine.RESULTS / "stream.svg").write_text(stream_chart(rows))


def peer_versions() -> dict[str, str]:
    """What was compared. The second environment has its own, older openai."""
    found = machine.versions(
        machine.PEERS_PYTHON, ("aiohttp", "msgspec", "uvloop", "openai", "anthropic", "pydantic-ai-slim")
    )
    if machine.PINNED_PEERS_PYTHON.exists():
        pinned = machine.versions(machine.PINNED_PEERS_PYTHON, ("litellm", "any-llm-sdk", "openai"))
        older_openai = pinned.pop("openai", "?")
        found |= {name: f"{version} (on openai {older_openai})" for name, version in pinned.items()}
    return found
