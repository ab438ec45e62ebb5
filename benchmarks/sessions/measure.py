"""Starts the processes of the session benchmarks and collects what they print.

In: what to measure, and how much of it. Out: plain dictionaries, one per measurement; one that failed says why and has
no numbers.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import PEERS_PYTHON, ROOT, child_environment
from sessions.plan import Plan

CHILD_TIMEOUT_S = 600
STOP_DEADLINE_S = 10.0

Measured = dict[str, Any]


class FailedError(Exception):
    """A process ended without a result."""


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of a benchmark."""
    return subprocess.Popen(
        [PEERS_PYTHON, "-m", module, *map(str, arguments)],
        cwd=ROOT / "benchmarks",
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: subprocess.Popen[str]) -> Any:
    """What it printed last; waits for its end."""
    try:
        output, errors = process.communicate(timeout=CHILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise FailedError(f"did not end within {CHILD_TIMEOUT_S} s") from None
    if process.returncode != 0:
        raise FailedError(errors.strip().splitlines()[-1][:300] if errors.strip() else "no reason given")
    return json.loads(output.splitlines()[-1])


def run_child(module: str, *arguments: object) -> Any:
    """One process from beginning to end."""
    return result(start(module, *arguments))


@contextmanager
def serving(module: str, *arguments: object) -> Iterator[str]:
    """A server, until the block ends; yields its address as it printed it."""
    process = start(module, *arguments)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise FailedError(f"the server did not start: {process.communicate()[1][-300:]}")
        yield address
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def temporary_home() -> Iterator[Path]:
    """An empty MAKAI_HOME."""
    with tempfile.TemporaryDirectory(prefix="makai-bench-") as folder:
        yield Path(folder)


def attempt(name: str, measure: Callable[[], Measured]) -> Measured:
    """The measurement, or why there is none."""
    try:
        measured = measure()
    except FailedError as error:
        measured = {"error": str(error)}
    print(f"{name:44} {measured.get('error') or measured['told']}", flush=True)
    return measured


# ---------------------------------------------------------------- the session benchmark


def measure_all(plan: Plan) -> dict[str, Measured]:
    """Everything, one after the other."""
    measured = {
        "fan_out": attempt("to 10 followers in process", lambda: fan_out(plan)),
        "websockets": attempt("to 10 WebSocket clients", lambda: websockets(plan)),
        "pace": attempt("from delta to subscriber, 100 sessions", lambda: pace(plan)),
        "idling": attempt("idle sessions", lambda: idling(plan)),
    }
    with temporary_home() as home:
        measured["growth"] = attempt(f"growth to {plan.growth_events:,} events", lambda: growth(plan, home))
        measured["replaying"] = attempt("replay of that session", lambda: replaying(home))
        measured["opening"] = attempt("opening it", lambda: opening(plan, home, with_checkpoint=True))
        measured["opening_anew"] = attempt(
            "opening it without a checkpoint", lambda: opening(plan, home, with_checkpoint=False)
        )
    return measured


def fan_out(plan: Plan) -> Measured:
    """The best pass counts."""
    with temporary_home() as home:
        passes = run_child("sessions.child", "fan_out", home, plan.fan_out_events, plan.passes)["passes"]
    best = max(passes, key=lambda one: one["per_second"])
    return {**best, "passes": passes, "told": f"{best['per_second']:,.0f} events/s, {best['cpu_us']:.1f} us CPU each"}


def websockets(plan: Plan) -> Measured:
    """The best pass counts; every client of every pass must have got what the log has."""
    with temporary_home() as home:
        with serving("sessions.server", home, plan.max_behind) as address:
            passes = run_child("sessions.load", address, plan.clients, plan.websocket_events, plan.passes)["passes"]
        runs = run_child("sessions.child", "deltas_of_runs", home)["runs"]
    for one, logged in zip(passes, runs, strict=True):
        if any(got != logged for got in one.pop("got")):
            raise FailedError("a client got something else than the log has")
    best = max(passes, key=lambda one: one["per_second"])
    return {**best, "passes": passes, "told": f"{best['per_second']:,.0f} events/s, {best['cpu_us']:.1f} us CPU each"}


def pace(plan: Plan) -> Measured:
    """The disk is measured at the same time."""
    with temporary_home() as home:
        probe = start("sessions.fsync", home, plan.pace_seconds + 3)
        try:
            measured = run_child("sessions.child", "pace", home, plan.sessions, plan.pace_per_second, plan.pace_seconds)
        finally:
            times = result(probe)
    fsync_ms = statistics.median(times)
    told = f"median {measured['median_ms']:.2f} ms, p99 {measured['p99_ms']:.2f} ms, fsync {fsync_ms:.2f} ms"
    return {**measured, "fsync_ms": fsync_ms, "fsync_p99_ms": statistics.quantiles(times, n=100)[98], "told": told}


def idling(plan: Plan) -> Measured:
    with temporary_home() as home:
        measured = run_child("sessions.child", "idling", home, plan.sessions, plan.idle_deltas)
    return {**measured, "told": f"{measured['mb_each']:.2f} MB each"}


def growth(plan: Plan, home: Path) -> Measured:
    """The first and the last runs above a thousand events, each by their median."""
    measured = run_child("sessions.child", "growth", home, plan.growth_events)
    costs = [run["cpu_us"] for run in measured["runs"][1:]]
    sample = max(1, min(5, len(costs) // 3))
    first, last = statistics.median(costs[:sample]), statistics.median(costs[-sample:])
    told = f"{first:.1f} us CPU per event at first, {last:.1f} at the end"
    return {**measured, "first_us": first, "last_us": last, "ratio": last / first, "told": told}


def replaying(home: Path) -> Measured:
    measured = run_child("sessions.child", "replaying", home)
    return {**measured, "told": f"{measured['per_second']:,.0f} events/s"}


def opening(plan: Plan, home: Path, *, with_checkpoint: bool) -> Measured:
    """A fresh process each time; the median counts."""
    opened = [run_child("sessions.child", "opening", home, int(with_checkpoint)) for _ in range(plan.openings)]
    opened.sort(key=lambda one: one["total_ms"])
    median = opened[len(opened) // 2]
    return {**median, "worst_ms": opened[-1]["total_ms"], "told": f"{median['total_ms']:.0f} ms"}
