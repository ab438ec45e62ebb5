"""One agent in one process: runs it, reports what a turn cost as one line of JSON.

In: arguments of the command line; the base URL is "-" for a model in process. Out: CPU and wall time per turn of every
pass, on stdout. CPU is user plus system time of this process, all threads, without the upstream.

Run as `python -m agent.child <agent> <loop> <base-url> <runs> <passes>`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from typing import Any

from agent.script import CHARACTERS, TURNS
from stream.child import cpu_seconds, loop_factory, peak_rss_mb
from stream.cores import take_core

AGENTS = {
    "makai": ("agent.makai_loops", "makai_loop"),
    "makai-session": ("agent.makai_loops", "makai_session"),
    "pydantic-ai": ("agent.pydantic_loops", "pydantic_ai_loop"),
}
"""Imported only in the process that measures them."""
WARM_UP_RUNS = 3


async def measure(agent: str, base_url: str, runs: int, passes: int) -> dict[str, Any]:
    """Warm up, then measure."""
    module, function = AGENTS[agent]
    open_agent = getattr(importlib.import_module(module), function)
    measured = []
    async with open_agent(None if base_url == "-" else base_url) as run_one:
        for _ in range(WARM_UP_RUNS):
            await run_one()
        for _ in range(passes):
            cpu, wall = cpu_seconds(), time.perf_counter()
            seen = [await run_one() for _ in range(runs)]
            turns = runs * TURNS
            cpu, wall = (cpu_seconds() - cpu) / turns, (time.perf_counter() - wall) / turns
            if any(characters != CHARACTERS for characters in seen):
                raise RuntimeError(f"{min(seen)} of {CHARACTERS} characters arrived")
            measured.append({"cpu_us": cpu * 1e6, "wall_us": wall * 1e6})
    return {"passes": measured, "peak_rss_mb": peak_rss_mb()}


def main() -> None:
    """Measure what the command line says."""
    take_core("client")
    agent, loop, base_url, *numbers = sys.argv[1:]
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        print(json.dumps(runner.run(measure(agent, base_url, *map(int, numbers)))))


if __name__ == "__main__":
    main()
