"""makai as the agent of another makai: a process of `makai acp` that sessions of `folder/makai-home` can be run by."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from makai.providers.scripted import SCENARIO_VARIABLE
from support.live_sessions import SCENARIO_MODEL

HARNESS = "acp:inner"


def add_driven_makai(folder: Path, scenario: str) -> None:
    """Make `HARNESS` known to the sessions of this folder; its model follows the scenario, and its home is its own."""
    inner, home, script = folder / "inner", folder / "makai-home", folder / "inner-scenario.txt"
    for each in (inner, home):
        each.mkdir(mode=0o700, exist_ok=True)
    script.write_text(scenario, encoding="utf-8")
    variables = [f"MAKAI_HOME={inner}", f"{SCENARIO_VARIABLE}={script}"]
    command = ["env", *variables, sys.executable, "-P", "-m", "makai", "acp", "-m", SCENARIO_MODEL]
    (home / "config.toml").write_text(f"[agents.inner]\ncommand = {json.dumps(command)}\n", encoding="utf-8")
