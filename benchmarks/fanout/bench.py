"""The fan-out benchmark from beginning to end: one run to a thousand WebSocket clients; writes `results/fanout.*`.

In: nothing. Out: what a delivered message costs makai's server and a bare loop on the same HTTP library, and what one
client that does not read does to the others. The bars are those of issue 6.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import machine
from bars import Bar, bar_table
from sessions.measure import FailedError, Measured, attempt, run_child, serving, temporary_home

MAKAI, FLOOR = "makai", "floor"
TITLES = {MAKAI: "makai, MiniCodex session", FLOOR: "bare aiohttp, `send_str` to each"}
MAX_BEHIND = 50_000
"""What makai allows by default."""
MAX_SLOWER = 10.0
"""Percent of p99 (issue 6)."""
STALL_BEHIND = 100
"""So that a client that stalls is dropped within this benchmark."""


@dataclass(frozen=True)
class Plan:
    """Counts of one run."""

    clients: int = 1_000
    rounds: int = 3
    live: int = 250
    flat: int = 500
    stall_rounds: int = 8
    stall_deltas: int = 300


QUICK = Plan(clients=300, rounds=1, live=75, flat=200, stall_rounds=1, stall_deltas=300)

HOW = """\
## How it was measured

The server has a core to itself; all clients are in one process on another, recognise deltas by their first bytes and do
nothing else. The server's CPU time (user and system, all threads) comes from the kernel's `schedstat`; a message is any
text message a client got. Servers take turns, each fresh with a warm-up, and the median round counts.

- *makai* is its whole server: the run of the agent loop, the durable log, the session's view, a cursor per client.
  *Bare aiohttp* has a list of sockets and sends everyone the same text; it keeps nothing, and one client that does not
  read stops it for good.
- *Live*: 25 deltas a second, each of which wakes the server. *Flat out*: as fast as it goes; makai then gives a client
  several messages in one write.
- *Age*: from the moment the model said a delta (its text is that moment) to the moment a client had read it. It has
  makai's commit to the disk in it, and the time the one client process takes to read a thousand sockets.
- *Stalled client*: deltas of 800 characters and more to 999 clients, in turns without and with one more that stops
  reading; sockets send from small buffers (16 KB) and a client may be 100 events behind instead of 50,000, so that it
  is dropped in the middle of its round. It then resumes with the number of the last event it had read. The p99
  is that of all rounds together: in one round a few slow moments of the machine decide it.
  It is "not measured" when the two halves of the rounds without that client differ by more than the bar allows.
"""


def run(*, quick: bool) -> None:
    """Measure and report. A quick run has fewer clients and only prints."""
    if not Path("/proc/self/schedstat").exists():
        print("The fan-out benchmark needs Linux: it reads the CPU time of other processes from /proc.\n")
        return
    where = machine.describe()
    plan = QUICK if quick else Plan()
    rounds = [
        {name: attempt(TITLES[name], partial(cost, name, plan)) for name in (FLOOR, MAKAI)} for _ in range(plan.rounds)
    ]
    stalled = attempt("one stalled client", lambda: stall(plan))
    where["load_after"] = round(os.getloadavg()[0], 1)
    bars = fanout_bars(rounds, stalled, plan)
    print("\n" + "\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    record = {
        "machine": where,
        "rounds": rounds,
        "stalled": stalled,
        "bars": [asdict(bar) | {"verdict": bar.verdict().strip("*")} for bar in bars],
    }
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "fanout.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "fanout.md").write_text(page(rounds, stalled, bars, where))


# ---------------------------------------------------------------- measuring


def cost(name: str, plan: Plan) -> Measured:
    """A fresh server under both shapes."""
    with temporary_home() as home, _server(name, home, MAX_BEHIND) as address:
        measured: Measured = run_child("fanout.drain", address, "cost", plan.clients, plan.live, plan.flat)
    shapes = measured["shapes"]
    return {**measured, "told": ", ".join(f"{shape} {shapes[shape]['cpu_us']:.2f} us CPU/message" for shape in shapes)}


def _server(name: str, home: Path, max_behind: int) -> AbstractContextManager[str]:
    return serving("fanout.floor") if name == FLOOR else serving("sessions.server", home, max_behind)


def stall(plan: Plan) -> Measured:
    """The others' p99, and what became of the one that stalled."""
    with temporary_home() as home:
        with _server(MAKAI, home, STALL_BEHIND) as address:
            arguments = (plan.clients, plan.stall_deltas, plan.stall_rounds)
            measured = run_child("fanout.drain", address, "stall", *arguments)
        runs = run_child("sessions.child", "delta_ids", home)["runs"]
    returns = []
    for back in measured["returns"]:
        logged, events = runs[back.pop("run")], back.pop("events")
        wrong = {"missing": len(set(logged) - set(events)), "repeated": len(events) - len(set(events))}
        if events != sorted(events):
            raise FailedError("events came in the wrong order")
        returns.append({**back, "events": len(events), **wrong})
    slower = _more(measured["calm"], measured["stalled"])
    noise = [_more(*measured["calm_halves"])] if measured["calm_halves"] else []
    told = f"p99 of the others {slower:+.1f} % (noise {abs(noise[0]) if noise else math.nan:.1f} %)"
    return {**measured, "returns": returns, "slower": slower, "noise": noise, "told": told}


def _more(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """How much higher the second p99 is, in percent."""
    return (after["p99_ms"] / before["p99_ms"] - 1) * 100


# ---------------------------------------------------------------- reporting


def _cpu(rounds: Sequence[Mapping[str, Measured]], name: str, shape: str) -> float | None:
    found = [one[name]["shapes"][shape]["cpu_us"] for one in rounds if "error" not in one[name]]
    return statistics.median(found) if found else None


def ratio(rounds: Sequence[Mapping[str, Measured]], shape: str) -> float | None:
    """How many times the CPU of the bare loop makai needs."""
    ours, bare = _cpu(rounds, MAKAI, shape), _cpu(rounds, FLOOR, shape)
    return ours / bare if ours and bare else None


def fanout_bars(rounds: Sequence[Mapping[str, Measured]], stalled: Measured, plan: Plan) -> list[Bar]:
    """Every bar, held or not."""
    clients = f"{plan.clients:,} clients"
    good = "error" not in stalled
    # On a machine that differs from itself by more than the limit, nothing about the limit can be said.
    is_resolved = good and bool(stalled["noise"]) and abs(stalled["noise"][0]) <= MAX_SLOWER
    slower = stalled["slower"] if is_resolved else None
    dropped = float(sum(one["was_dropped"] for one in stalled["returns"])) if good else None
    gaps = float(sum(one["missing"] + one["repeated"] for one in stalled["returns"])) if good else None
    return [
        Bar(f"CPU per message, times bare aiohttp, live, {clients}", 3, ratio(rounds, "live"), "x"),
        Bar(f"CPU per message, times bare aiohttp, flat out, {clients}", 3, ratio(rounds, "flat"), "x"),
        Bar("a stalled client raises the others' p99 by", MAX_SLOWER, slower, " %"),
        Bar("stalled clients that were dropped", plan.stall_rounds, dropped, "", at_least=True),
        Bar("events they missed or got twice after resuming", 0, gaps, ""),
    ]


def page(
    rounds: Sequence[Mapping[str, Measured]], stalled: Measured, bars: Sequence[Bar], where: dict[str, Any]
) -> str:
    """The whole page."""
    lines = ["# Fan-out: one run to a thousand WebSocket clients", "", *machine.description_lines(where)]
    lines += [f"Load average after it: {where['load_after']}.", "", "## Bars", "", *bar_table(bars), ""]
    lines += ["## Cost and age", "", *_cost_table(rounds), "", "## One client that does not read", ""]
    lines += [*_stall_table(stalled), "", HOW]
    errors = [f"- {TITLES[name]}: {one['error']}" for both in rounds for name, one in both.items() if "error" in one]
    errors += [f"- stalled client: {stalled['error']}"] if "error" in stalled else []
    if errors:
        lines += ["## Errors", "", *errors]
    return "\n".join(lines).rstrip() + "\n"


def _cost_table(rounds: Sequence[Mapping[str, Measured]]) -> list[str]:
    lines = [
        "| | CPU µs per message, live | flat out | messages/s, flat out | age ms, live (median / p99) | RSS MB |",
        "|---|---|---|---|---|---|",
    ]
    for both in rounds:
        for name, one in both.items():
            if "error" not in one:
                live, flat = one["shapes"]["live"], one["shapes"]["flat"]
                lines.append(
                    f"| {TITLES[name]} | {live['cpu_us']:.2f} | {flat['cpu_us']:.2f} | {flat['per_second']:,.0f} | "
                    f"{live['median_ms']:.1f} / {live['p99_ms']:.1f} | {one['peak_rss_mb']:.0f} |"
                )
    return lines


def _stall_table(stalled: Measured) -> list[str]:
    if "error" in stalled:
        return ["Not measured."]
    lines = ["| age ms of the others | median | p99 |", "|---|---|---|"]
    rows = [("all rounds without it", stalled["calm"]), ("all rounds with it", stalled["stalled"])]
    rows += [(f"half {number} of those without it", half) for number, half in enumerate(stalled["calm_halves"], 1)]
    lines += [f"| {title} | {one['median_ms']:.1f} | {one['p99_ms']:.1f} |" for title, one in rows]
    for title, key in (("without", "calm_rounds"), ("with", "stalled_rounds")):
        lines.append(f"| single rounds {title} it | | {_p99s(stalled[key])} |")
    if stalled["noise"]:
        noise = abs(stalled["noise"][0])
        lines += ["", f"The two halves of the rounds without it differ by {noise:.1f} % in p99: less means nothing."]
    lines += [
        "",
        "| stalled client | dropped | events read before | in all | missing | twice |",
        "|---|---|---|---|---|---|",
    ]
    for number, back in enumerate(stalled["returns"], 1):
        dropped = "yes" if back["was_dropped"] else "no"
        counts = f"{back['read_before']} | {back['events']} | {back['missing']} | {back['repeated']}"
        lines.append(f"| round {number} | {dropped} | {counts} |")
    return lines


def _p99s(rounds: Sequence[Mapping[str, float]]) -> str:
    return ", ".join(f"{one['p99_ms']:.1f}" for one in rounds)
