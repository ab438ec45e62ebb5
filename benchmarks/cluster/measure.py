"""Starts the nodes of the cluster benchmark and collects what they measured.

In: how much of everything. Out: plain dictionaries, one per measurement; one that failed says why and has no numbers.
All nodes of a measurement begin at the same moment; what counts is the time from the first beginning to the last end.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cluster.database import Database
from cluster.plan import Plan
from machine import CLUSTER_PYTHON, ROOT, child_environment
from sessions.measure import FailedError, Measured, attempt, temporary_home

PORTION = 500
"""Sessions that a node claims at once when it takes over."""
DEADLINE_S = 600.0


class Child:
    """One process that speaks the protocol of `cluster.node`."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `end`)
        self._process = subprocess.Popen(
            [CLUSTER_PYTHON, "-m", module, *map(str, arguments)],
            cwd=ROOT / "benchmarks",
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> str:
        """What it says then."""
        return self._line().strip()

    def tell(self, what: str = "") -> None:
        """The next step may begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def result(self) -> Measured:
        measured: Measured = json.loads(self._line())
        return measured

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Let it close its log; kill it when it does not."""
        try:
            self._process.communicate("\n", timeout=60)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            self.kill()
        self._errors.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(timeout=DEADLINE_S)
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines()
            raise FailedError(said[-1][:300] if said else "no reason given")
        return line


@contextmanager
def children(*starts: Sequence[object]) -> Iterator[list[Child]]:
    """Processes that are ready, until the block ends."""
    with ExitStack() as stack:
        started = []
        for module, *arguments in starts:
            child = Child(str(module), *arguments)
            stack.callback(child.end)
            started.append(child)
        for child in started:
            child.wait_until_ready()
        yield started


def together(nodes: Sequence[Child], server: Database | None) -> Measured:
    """Let all begin, and sum up what they did."""
    cpu = server.cpu_seconds() if server else 0.0
    wal = server.wal_bytes() if server else 0
    for node in nodes:
        node.tell()
    results = [node.result() for node in nodes]
    events = sum(result["events"] for result in results)
    wall = max(result["ended"] for result in results) - min(result["began"] for result in results)
    nodes_us = sum(result["cpu_s"] for result in results) / events * 1e6
    measured = {"events": events, "per_second": events / wall, "node_cpu_us": nodes_us}
    if server:
        measured["database_cpu_us"] = (server.cpu_seconds() - cpu) / events * 1e6
        measured["wal_bytes"] = (server.wal_bytes() - wal) / events
    cores = (nodes_us + measured.get("database_cpu_us", 0.0)) * events / wall / 1e6
    return {**measured, "cores": cores}


def best_of(passes: Sequence[Measured]) -> Measured:
    """The fastest pass counts."""
    best = max(passes, key=lambda one: one["per_second"])
    return {**best, "passes": list(passes), "told": _told(best)}


def _told(one: Measured) -> str:
    words = f"{one['per_second']:,.0f} events/s, {one['node_cpu_us']:.0f} us CPU each"
    return words + (f", database {one['database_cpu_us']:.0f} us" if "database_cpu_us" in one else "")


def measure_all(plan: Plan, server: Database) -> dict[str, Any]:
    """Everything, one after the other."""
    measured: dict[str, Any] = {"raw": attempt("raw appends, one connection", lambda: raw(plan, server))}
    measured["single"] = attempt("raw appends of one event", lambda: single(plan, server))
    measured["sqlite"] = attempt("one node, SQLite", lambda: sqlite(plan))
    measured["nodes"] = {
        str(count): attempt(f"{count} nodes, PostgreSQL", lambda count=count: appending(plan, server, count))
        for count in plan.nodes
    }
    measured["sessions"] = {
        str(count): attempt(f"one node, {count:,} sessions", lambda count=count: sessions(plan, server, count))
        for count in plan.session_counts
    }
    measured["readers"] = {
        str(count): attempt(f"one session, {count:,} readers", lambda count=count: readers(plan, server, count))
        for count in plan.reader_counts
    }
    measured["exchanged"] = attempt("runs at two nodes, each followed at the other", lambda: exchanged(plan, server))
    measured["beside"] = attempt(
        "delta to a reader on the same node", lambda: _calmest(plan, lambda: beside(plan, server))
    )
    measured["across"] = attempt(
        "delta to a reader on another node", lambda: _calmest(plan, lambda: across(plan, server))
    )
    measured["takeover"] = attempt(f"taking over {plan.taken_over:,}", lambda: takeover(plan, server))
    return measured


def raw(plan: Plan, server: Database) -> Measured:
    passes = []
    for _ in range(plan.passes):
        with children(("cluster.raw", server.new(), plan.sessions, plan.batch, plan.events)) as nodes:
            passes.append(together(nodes, server))
    return best_of(passes)


def single(plan: Plan, server: Database) -> Measured:
    """How long one commit takes that nothing is grouped with."""
    with children(("cluster.raw", server.new(), 1, 1, plan.single_commits)) as nodes:
        one = together(nodes, server)
    commit_ms = 1000 / one["per_second"]
    return {**one, "commit_ms": commit_ms, "told": f"{commit_ms:.2f} ms each"}


def sqlite(plan: Plan) -> Measured:
    passes = []
    for _ in range(plan.passes):
        with temporary_home() as home:
            start = ("cluster.node", "appending", home, "one", plan.sessions, plan.batch, plan.events)
            with children(start) as nodes:
                passes.append(together(nodes, None))
    return best_of(passes)


def appending(plan: Plan, server: Database, count: int) -> Measured:
    """The same sessions and events, shared out among the nodes."""
    passes = []
    for _ in range(plan.passes):
        url = server.new()
        numbers = (plan.sessions // count, plan.batch, plan.events // count)
        starts = [("cluster.node", "appending", url, f"node{number}", *numbers) for number in range(count)]
        with children(*starts) as nodes:
            one = together(nodes, server)
        server.sql("CHECKPOINT")
        passes.append({**one, "stored_bytes": server.stored_bytes(url) / one["events"]})
    return best_of(passes)


def sessions(plan: Plan, server: Database, count: int) -> Measured:
    """Single events, so that a commit has as many sessions as there are."""
    events = max(plan.events // 3, count)
    with children(("cluster.node", "appending", server.new(), "one", count, 1, events)) as nodes:
        one = together(nodes, server)
        one["rss_mb"] = rss_mb(nodes[0].pid)
    return {**one, "told": _told(one) + f", {one['rss_mb']:.0f} MB"}


def readers(plan: Plan, server: Database, count: int) -> Measured:
    """CPU is per event that a reader got."""
    with children(("cluster.node", "reading", server.new(), "one", count, plan.batch, plan.reader_events)) as nodes:
        one = together(nodes, server)
    each = one["node_cpu_us"] / count
    return {**one, "per_reader_us": each, "told": f"{each:.2f} us CPU per event and reader"}


def exchanged(plan: Plan, server: Database) -> Measured:
    """Two whole nodes: each carries out runs as fast as it can, and has the clients of the other one's runs."""
    passes = []
    for _ in range(plan.passes):
        url = server.new()
        numbers = (plan.exchanged_sessions, plan.events // plan.exchanged_sessions // 2)
        with temporary_home() as folder, ExitStack() as stack:
            nodes = []
            for name in ("one", "other"):
                nodes.append(Child("cluster.served", "exchanging", url, folder, name, *numbers))
                stack.callback(nodes[-1].end)
            ids = [node.wait_until_ready() for node in nodes]
            for node, others in zip(nodes, reversed(ids), strict=True):
                node.tell(others)
            for node in nodes:
                node.wait_until_ready()
            passes.append(together(nodes, server))
    return best_of(passes)


def _calmest(plan: Plan, measure: Callable[[], Measured]) -> Measured:
    """The pass with the smallest median counts."""
    passes = [measure() for _ in range(plan.passes)]
    best = min(passes, key=lambda one: one["median_ms"])
    return {**best, "passes": passes}


def beside(plan: Plan, server: Database) -> Measured:
    """Sessions at the pace of models, read where they run."""
    with temporary_home() as folder, children(_owner(plan, server.new(), folder, read=True)) as (owner,):
        owner.tell()
        return _told_ages(plan, owner.result())


def across(plan: Plan, server: Database) -> Measured:
    """The same sessions, read by a client of another node."""
    url = server.new()
    with temporary_home() as folder, ExitStack() as stack:
        _, *arguments = _owner(plan, url, folder, read=False)
        owner = Child("cluster.served", *arguments)
        stack.callback(owner.end)
        ids = owner.wait_until_ready()
        (reader,) = stack.enter_context(children(("cluster.served", "following", url, folder, "reader", ids, 1)))
        reader.tell()
        owner.tell()
        return _told_ages(plan, reader.result())


def _owner(plan: Plan, url: str, folder: Path, *, read: bool) -> tuple[object, ...]:
    deltas = plan.pace_per_second * plan.pace_seconds
    numbers = (plan.pace_sessions, deltas, plan.pace_per_second, int(read))
    return ("cluster.served", "owning", url, folder, "owner", *numbers)


def _told_ages(plan: Plan, measured: Measured) -> Measured:
    expected = plan.pace_sessions * plan.pace_per_second * plan.pace_seconds
    if measured["deltas"] != expected:
        raise FailedError(f"{measured['deltas']} of {expected} deltas arrived")
    return {**measured, "told": f"median {measured['median_ms']:.2f} ms, p99 {measured['p99_ms']:.2f} ms"}


def takeover(plan: Plan, server: Database) -> Measured:
    """kill -9 of a node with many active sessions; the other one waits for the end of its lease."""
    url = server.new()
    count = plan.taken_over
    with ExitStack() as stack:
        (first,) = stack.enter_context(children(("cluster.node", "owning", url, "first", count)))
        connections = server.connections(url)
        (second,) = stack.enter_context(children(("cluster.node", "taking_over", url, "second", count, PORTION)))
        first.kill()
        killed = time.monotonic()
        server.wait_for_end(url, connections)
        server.forget_statements()
        cpu = server.cpu_seconds()
        second.tell()
        measured = second.result()
        measured["total_s"] = time.monotonic() - killed
        measured["database_ms"] = server.statement_ms(url)
        measured["database_cpu_ms"] = (server.cpu_seconds() - cpu) * 1000
    told = f"{measured['database_ms']:.0f} ms of database time ({measured['database_cpu_ms']:.0f} ms CPU)"
    return {**measured, "told": told}


def rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
