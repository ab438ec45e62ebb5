"""Where and with what a benchmark ran: enough to judge the numbers, nothing that identifies the machine.

In: nothing, or interpreters to ask. Out: plain dictionaries and lines of text. No paths, no host names.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
"""makai, openai, anthropic, pydantic-ai."""
PINNED_PEERS_PYTHON = ROOT / ".venv-bench-litellm" / "bin" / "python"
"""litellm and any-llm, which insist on older versions of the openai and anthropic SDKs."""

CLUSTER_PYTHON = ROOT / ".venv" / "bin" / "python"
"""makai with its extra `postgres`: the environment of the tests."""


def child_environment() -> dict[str, str]:
    """What every measured process gets: makai's source, and nothing of the user's keys, proxies and settings."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return kept | {
        "PYTHONPATH": str(ROOT / "src"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or litellm downloads a price list while it is imported
    }


def describe() -> dict[str, Any]:
    """Date, machine and interpreter."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load_before": round(os.getloadavg()[0], 1),
    }


def description_lines(machine: dict[str, Any]) -> list[str]:
    """The same for a Markdown page."""
    return [
        f"{machine['date']}, {machine['cores']} cores of {machine['cpu']}, {machine['kernel']}, {machine['python']}. "
        f"Load average before the run: {machine['load_before']}."
    ]


def versions(python: Path, packages: Sequence[str]) -> dict[str, str]:
    """The versions of those packages that an interpreter has."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "have = {d.name.lower().replace('_', '-'): d.version for d in m.distributions()}\n"
        "print(json.dumps({p: have[p] for p in sys.argv[1:] if p in have}))"
    )
    output = subprocess.run([python, "-c", code, *packages], check=True, capture_output=True, text=True).stdout
    found: dict[str, str] = json.loads(output)
    return found


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
