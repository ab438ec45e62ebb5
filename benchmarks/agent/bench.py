"""The agent benchmark from beginning to end: run, print, write `results/agent.*`.

In: nothing. Out: what a turn of the agent loop costs, in makai and in pydantic-ai, on the same script: over HTTP, and
with a model in process, where nothing but the loop is left.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import machine
from agent.script import CALLS, TURNS, WORDS
from sessions.measure import FailedError, run_child, serving

HTTP, IN_PROCESS = "over HTTP", "model in process"
LOOP, SESSION, PEER = "makai", "makai-session", "pydantic-ai"
TITLES = {
    LOOP: "makai, the loop alone",
    SESSION: "makai, a session: durable log, permissions, a follower",
    PEER: "pydantic-ai, Agent.run with an event stream handler",
}
NATIVE_LOOP = {LOOP: "uvloop", SESSION: "uvloop", PEER: "asyncio"}
"""The event loop a user gets without asking."""

HOW = f"""\
## How it was measured

One run is {TURNS} turns: {CALLS} times the model says {len(WORDS)} words and calls a tool that squares a number, then
it answers. *Over HTTP* the model is one process on loopback that streams OpenAI chat completions, each answer in one
write; *in process* it is `FunctionModel(stream_function=...)` for pydantic-ai and a provider of the same deltas for
makai. Every agent runs in a process of its own, counts its own CPU time (user and system, all threads) and must have
seen every word; three runs come before the first pass. The median pass counts.

- *The loop alone* keeps its facts in a list. *A session* is the whole of makai: every fact is decided by the engine and
  stored in SQLite with `synchronous=FULL`, permissions are judged, no tool starts before its start is on the disk, the
  tool is a client's own, and a follower reads and decodes everything. pydantic-ai stores nothing.
- pydantic-ai reaches the model through the openai SDK, makai through its own provider path.
"""


@dataclass(frozen=True)
class Row:
    """One agent with one model on one event loop. Times are per turn."""

    agent: str
    model: str
    loop: str
    cpu_us: float = 0.0
    wall_us: float = 0.0
    all_cpu_us: tuple[float, ...] = ()
    peak_rss_mb: float = 0.0
    error: str | None = None


def run(*, quick: bool) -> None:
    """Measure and report. A quick run only prints."""
    where = machine.describe()
    rows = measure(runs=10 if quick else 50, passes=1 if quick else 5, same_loop=not quick)
    where["load_after"] = round(os.getloadavg()[0], 1)
    print("\n" + "\n".join(cost_table(rows)) + "\n")
    if quick:
        return
    versions = machine.versions(machine.PEERS_PYTHON, ("aiohttp", "msgspec", "uvloop", "pydantic-ai-slim", "openai"))
    record = {"machine": where, "versions": versions, "rows": [asdict(row) for row in rows]}
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "agent.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "agent.md").write_text(page(rows, where, versions))


def measure(*, runs: int, passes: int, same_loop: bool) -> list[Row]:
    """Every agent with both models; also all on asyncio, when that is wanted."""
    rows = []
    with upstream() as url:
        for model, base_url in ((HTTP, url), (IN_PROCESS, "-")):
            for agent in TITLES:
                rows.append(_row(agent, model, NATIVE_LOOP[agent], base_url, runs, passes))
                if same_loop and NATIVE_LOOP[agent] != "asyncio":
                    rows.append(_row(agent, model, "asyncio", base_url, runs, passes))
    return rows


@contextmanager
def upstream() -> Iterator[str]:
    """The model API; yields its URL."""
    with serving("agent.upstream") as port:
        yield f"http://127.0.0.1:{port}"


def _row(agent: str, model: str, loop: str, base_url: str, runs: int, passes: int) -> Row:
    try:
        measured = run_child("agent.child", agent, loop, base_url, runs, passes)
    except FailedError as error:
        row = Row(agent, model, loop, error=str(error))
    else:
        cpu = tuple(one["cpu_us"] for one in measured["passes"])
        wall = statistics.median(one["wall_us"] for one in measured["passes"])
        row = Row(agent, model, loop, statistics.median(cpu), wall, cpu, measured["peak_rss_mb"])
    print(f"{TITLES[agent]:56} {model:18} {loop:8} {row.error or f'{row.cpu_us:8.0f} us CPU per turn'}", flush=True)
    return row


def find(rows: Sequence[Row], agent: str, model: str, loop: str) -> Row | None:
    """A good row."""
    for row in rows:
        if (row.agent, row.model, row.loop) == (agent, model, loop) and row.error is None:
            return row
    return None


def cost_table(rows: Sequence[Row]) -> list[str]:
    """CPU per turn, and how many times more pydantic-ai needs."""
    lines = ["| CPU µs per turn | event loop | over HTTP | model in process |", "|---|---|---|---|"]
    for agent, loop in dict.fromkeys((row.agent, row.loop) for row in rows):
        cells = [_cell(rows, agent, model, loop) for model in (HTTP, IN_PROCESS)]
        lines.append(f"| {TITLES[agent]} | {loop} | {' | '.join(cells)} |")
    return lines


def _cell(rows: Sequence[Row], agent: str, model: str, loop: str) -> str:
    row, peer = find(rows, agent, model, loop), find(rows, PEER, model, "asyncio")
    if row is None:
        return "-"
    times = f", {peer.cpu_us / row.cpu_us:.1f}x less" if peer and agent != PEER else ""
    return f"**{row.cpu_us:,.0f}**{times}"


def other_table(rows: Sequence[Row]) -> list[str]:
    """Wall time, memory and every pass."""
    lines = ["| | model | event loop | wall µs per turn | RSS MB | CPU µs of all passes |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.error is None:
            passes = ", ".join(f"{value:,.0f}" for value in row.all_cpu_us)
            figures = f"{row.wall_us:,.0f} | {row.peak_rss_mb:.0f} | {passes}"
            lines.append(f"| {TITLES[row.agent]} | {row.model} | {row.loop} | {figures} |")
    return lines


def page(rows: Sequence[Row], where: dict[str, Any], versions: dict[str, str]) -> str:
    """The whole page."""
    lines = ["# Agent: what a turn of the loop costs", "", *machine.description_lines(where)]
    lines += [f"Load average after it: {where['load_after']}.", ""]
    lines += [", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]
    lines += ["## CPU", "", *cost_table(rows), "", "## Time and memory", "", *other_table(rows), "", HOW]
    if errors := [f"- {TITLES[row.agent]}, {row.model}, {row.loop}: {row.error}" for row in rows if row.error]:
        lines += ["## Errors", "", *errors]
    return "\n".join(lines).rstrip() + "\n"
