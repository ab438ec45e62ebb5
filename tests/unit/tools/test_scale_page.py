"""The tables of docs/scale.md are what the simulation makes of the benchmark's results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_tables_are_calculated_from_the_results_that_are_checked_in() -> None:
    """When this fails: `python benchmarks/cluster/simulate.py`."""
    command = [sys.executable, "benchmarks/cluster/simulate.py", "--check"]

    assert subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode == 0
