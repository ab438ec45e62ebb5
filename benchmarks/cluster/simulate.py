"""What a cluster needs for many live sessions: a simulation with the measured costs, and the arithmetic around it.

In: `results/cluster.json` and `results/sessions.json`, and the assumptions below. Out: Markdown, which replaces the
text between the marks in `docs/scale.md`; with `--check` nothing is written, and the exit code says whether it is
current. It needs no packages, and the same results give the same text.

The simulation is one shard: nodes that gather the events of their sessions and commit them in groups, one commit at a
time each, to a database with some cores and a disk. Shards have nothing in common, so a larger cluster is more of them.
Every node of a cluster is connected to every shard of it; past the connections that a primary can have, there are
several clusters that know nothing of each other, and a load balancer that divides people among them.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- simulated: begin -->\n", "<!-- simulated: end -->"
SEED = 17
STEPS = (1_000, 10_000, 100_000, 1_000_000)
WINDOW_S = 0.005
"""Nodes gather deltas for this long."""
DAY_S = 86_400
MAX_SHARDS = 1000


@dataclass(frozen=True)
class Assumptions:
    """What is not measured but chosen."""

    busy_share: float = 0.05
    """Of all live sessions, those whose model is saying something now; the others wait for their people."""
    deltas_per_s: float = 20.0
    """Of a busy session."""
    kept_events_share: float = 0.1
    """Of all events, those that stay when the deltas of ended runs are removed."""
    database_cores: int = 8
    standby_ms: float = 1.0
    """What the answer of a synchronous standby in the same data centre adds to a commit."""
    node_load: float = 0.6
    """How much of its one core a node uses before another node is added."""
    database_load: float = 0.6
    latency_ms: float = 50.0
    """The p99 of commits above which a shard counts as full."""
    connections_per_node: int = 7
    """One that appends, four that read, one for checkpoints, one for the lease."""
    max_connections: int = 500
    """Of one primary."""
    wal_mb_s: float = 100.0
    """Of one primary: what a disk and a replica's network take without becoming the subject themselves."""
    node_memory_gb: float = 4.0


@dataclass(frozen=True)
class Costs:
    """What was measured."""

    node_us: float
    """CPU of a node per delta, with the agent loop, the log and a follower."""
    log_us: float
    """Of that, what the log takes in a node when it is on PostgreSQL."""
    database_us: float
    """CPU of PostgreSQL per event."""
    commit_ms: float
    """A commit of one event: round trip and disk."""
    wal_bytes: float
    stored_bytes: float
    session_mb: float
    takeover_us: float
    """Database time per session that is taken over."""

    @classmethod
    def read(cls, folder: Path = RESULTS) -> Costs:
        cluster = json.loads((folder / "cluster.json").read_text())["measured"]
        sessions = json.loads((folder / "sessions.json").read_text())["measured"]
        one: Mapping[str, Any] = cluster["nodes"]["1"]
        takeover = cluster["takeover"]
        return cls(
            node_us=sessions["pace"]["cpu_us"],
            log_us=one["node_cpu_us"],
            database_us=one["database_cpu_us"],
            commit_ms=cluster["single"]["commit_ms"],
            wal_bytes=one["wal_bytes"],
            stored_bytes=one["stored_bytes"],
            session_mb=sessions["idling"]["mb_each"],
            takeover_us=takeover["database_cpu_ms"] * 1000 / takeover["claimed"],
        )


@dataclass(frozen=True)
class Shard:
    """What the simulation found about one database with its nodes."""

    nodes: int
    events_per_s: float
    per_commit: float
    """Events in a commit, median."""
    p50_ms: float
    p99_ms: float
    """From an event to the acknowledgement of its commit."""
    database_load: float


@cache
def simulated(costs: Costs, assumed: Assumptions, nodes: int, rate: float, seconds: float = 1.0) -> Shard:
    """Events arrive at random at nodes, which commit what has gathered; the cores of the database serve one commit
    each, and disk and standby are waited for without a core."""
    chance = random.Random(f"{SEED} {nodes} {rate:.3f}")
    per_node = rate / nodes
    cores = [0.0] * assumed.database_cores
    gathered_since = [chance.random() * WINDOW_S for _ in range(nodes)]
    commits = [(since + WINDOW_S, node) for node, since in enumerate(gathered_since)]
    heapq.heapify(commits)
    ages: list[float] = []
    sizes: list[int] = []
    busy = 0.0
    while commits[0][0] < seconds:
        begins, node = heapq.heappop(commits)
        waited = begins - gathered_since[node]
        size = max(1, round(chance.gauss(per_node * waited, math.sqrt(per_node * waited))))
        work = size * costs.database_us / 1e6
        free = heapq.heappop(cores)
        started = max(free, begins)
        heapq.heappush(cores, started + work)
        # A disk is late now and then; most commits take about the measured time.
        latency = (costs.commit_ms + assumed.standby_ms) / 1000 * chance.lognormvariate(0.0, 0.5)
        answered = started + work + latency
        busy += work
        sizes.append(size)
        ages += [answered - begins + waited * (1 - part / 4) for part in range(1, 5)]
        gathered_since[node] = begins
        heapq.heappush(commits, (max(answered, begins + WINDOW_S), node))
    cuts = statistics.quantiles(ages, n=100)
    return Shard(
        nodes=nodes,
        events_per_s=rate,
        per_commit=statistics.median(sizes),
        p50_ms=cuts[49] * 1000,
        p99_ms=cuts[98] * 1000,
        database_load=busy / seconds / assumed.database_cores,
    )


@dataclass(frozen=True)
class Size:
    """A cluster for some number of live sessions."""

    sessions: int
    events_per_s: float
    clusters: int
    """Each has its own nodes and shards."""
    nodes: int
    """Of all clusters."""
    shards: int
    """Of all clusters."""
    shard: Shard
    connections: int
    """Of one primary."""
    wal_mb_s: float
    wal_tb_day: float
    stored_tb_day: float
    kept_tb_day: float
    takeover_s: float
    """Database time when one node is lost."""
    first: str
    """The limit of a shard that is nearest."""


def sized(costs: Costs, assumed: Assumptions, sessions: int) -> Size:
    """The smallest cluster that is fine."""
    rate = sessions * assumed.busy_share * assumed.deltas_per_s
    nodes = max(2, node_count(costs, assumed, sessions))
    clusters = math.ceil(nodes * assumed.connections_per_node / assumed.max_connections)
    of_each = math.ceil(nodes / clusters)
    shards = 1
    while not (limits := _limits(costs, assumed, of_each, rate / clusters / shards))[0] and shards < MAX_SHARDS:
        shards += 1
    wal = rate * costs.wal_bytes
    return Size(
        sessions=sessions,
        events_per_s=rate,
        clusters=clusters,
        nodes=clusters * of_each,
        shards=clusters * shards,
        shard=simulated(costs, assumed, of_each, rate / clusters / shards),
        connections=of_each * assumed.connections_per_node,
        wal_mb_s=wal / 1e6,
        wal_tb_day=wal * DAY_S / 1e12,
        stored_tb_day=rate * costs.stored_bytes * DAY_S / 1e12,
        kept_tb_day=rate * costs.stored_bytes * DAY_S / 1e12 * assumed.kept_events_share,
        takeover_s=sessions / nodes * costs.takeover_us / 1e6,
        first=limits[1],
    )


def node_count(costs: Costs, assumed: Assumptions, sessions: int) -> int:
    """By CPU or by memory, whichever needs more."""
    rate = sessions * assumed.busy_share * assumed.deltas_per_s
    by_cpu = rate * costs.node_us / 1e6 / assumed.node_load
    by_memory = sessions * costs.session_mb / 1000 / assumed.node_memory_gb
    return math.ceil(max(by_cpu, by_memory))


def _limits(costs: Costs, assumed: Assumptions, nodes: int, rate: float) -> tuple[bool, str]:
    """Whether a shard that so many nodes send so many events to is fine, and which limit is nearest."""
    shard = simulated(costs, assumed, nodes, rate)
    used = {
        "CPU of the primary": shard.database_load / assumed.database_load,
        "commit latency": shard.p99_ms / assumed.latency_ms,
        "connections": nodes * assumed.connections_per_node / assumed.max_connections,
        "WAL of the primary": rate * costs.wal_bytes / 1e6 / assumed.wal_mb_s,
    }
    nearest = max(used, key=lambda name: used[name])
    del used["commit latency"]  # more shards do not make a disk faster
    return max(used.values()) <= 1, nearest


def breaking(costs: Costs, assumed: Assumptions) -> list[tuple[str, int, str]]:
    """In which order things are full as sessions are added: what, at how many live sessions, and what to do."""
    per_session = assumed.busy_share * assumed.deltas_per_s
    one_core = assumed.node_load * 1e6 / costs.node_us / per_session
    memory = assumed.node_memory_gb * 1000 / costs.session_mb
    primary = assumed.database_load * assumed.database_cores * 1e6 / costs.database_us / per_session
    wal = assumed.wal_mb_s * 1e6 / costs.wal_bytes / per_session
    connections = assumed.max_connections // assumed.connections_per_node * one_core
    found = [
        ("the core of one node", int(one_core), "add nodes: sessions are shared out among them"),
        ("the memory of one node", int(memory), "add nodes, or memory"),
        (
            "the connections of one primary",
            int(connections),
            "a second cluster; a load balancer divides people",
        ),
        ("the WAL of one primary (disk, replica, archive)", int(wal), "add databases, or faster disks"),
        ("the CPU of one primary", int(primary), "add databases, or cores"),
    ]
    return sorted(found, key=lambda row: row[1])


# ---------------------------------------------------------------- the page


def page_text(costs: Costs, assumed: Assumptions) -> str:
    """Everything between the marks."""
    sizes = [sized(costs, assumed, sessions) for sessions in STEPS]
    lines = ["### Measured", "", *_measured(costs), "", "### Assumed", "", *_assumed(assumed), ""]
    lines += ["### What each size needs", "", *_sizes(sizes), ""]
    lines += ["### What is full first", "", *_breaking(costs, assumed), ""]
    lines += ["### If the assumptions are wrong", "", *_variants(costs, assumed), ""]
    return "\n".join(lines)


def _measured(costs: Costs) -> list[str]:
    return [
        "| | |",
        "|---|---|",
        f"| CPU of a node per delta: model stream, agent loop, log, one follower | {costs.node_us:.0f} µs |",
        f"| of that, the log on PostgreSQL (batches of ten) | {costs.log_us:.0f} µs |",
        f"| CPU of PostgreSQL per event | {costs.database_us:.1f} µs |",
        f"| a commit of one event | {costs.commit_ms:.2f} ms |",
        f"| WAL per event | {costs.wal_bytes:.0f} bytes |",
        f"| stored per event, with indexes | {costs.stored_bytes:.0f} bytes |",
        f"| memory of an idle session | {costs.session_mb:.2f} MB |",
        f"| database time per session that is taken over | {costs.takeover_us:.0f} µs |",
    ]


def _assumed(assumed: Assumptions) -> list[str]:
    return [
        "| | |",
        "|---|---|",
        f"| live sessions whose model is answering at a given moment | {assumed.busy_share:.0%} |",
        f"| deltas of such a session | {assumed.deltas_per_s:.0f} per second |",
        f"| a node | one core used to {assumed.node_load:.0%}, {assumed.node_memory_gb:.0f} GB for sessions |",
        f"| a primary | {assumed.database_cores} cores used to {assumed.database_load:.0%}, "
        f"{assumed.max_connections} connections, {assumed.wal_mb_s:.0f} MB of WAL per second |",
        f"| a synchronous standby | adds {assumed.standby_ms:.0f} ms to a commit |",
        f"| connections of a node to its primary | {assumed.connections_per_node} |",
        f"| events that stay when deltas of old runs are removed | {assumed.kept_events_share:.0%} |",
    ]


def _sizes(sizes: list[Size]) -> list[str]:
    rows: list[tuple[str, list[str]]] = [
        ("events per second", [f"{size.events_per_s:,.0f}" for size in sizes]),
        ("clusters", [f"{size.clusters:,}" for size in sizes]),
        ("nodes (one core each)", [f"{size.nodes:,}" for size in sizes]),
        ("shards (a primary and its standby each)", [f"{size.shards:,}" for size in sizes]),
        ("connections per primary", [f"{size.connections:,}" for size in sizes]),
        ("events in a commit, median", [f"{size.shard.per_commit:.0f}" for size in sizes]),
        (
            "from event to acknowledgement, median and p99 (simulated)",
            [f"{size.shard.p50_ms:.1f}, {size.shard.p99_ms:.1f} ms" for size in sizes],
        ),
        ("CPU of a primary", [f"{size.shard.database_load:.0%}" for size in sizes]),
        ("WAL of all shards", [f"{size.wal_mb_s:,.1f} MB/s" for size in sizes]),
        ("WAL a day", [_terabytes(size.wal_tb_day) for size in sizes]),
        ("stored a day", [_terabytes(size.stored_tb_day) for size in sizes]),
        ("of that, without deltas of old runs", [_terabytes(size.kept_tb_day) for size in sizes]),
        ("database time when a node is lost", [f"{size.takeover_s * 1000:,.0f} ms" for size in sizes]),
        ("nearest limit of a shard", [size.first for size in sizes]),
    ]
    head = "| live sessions | " + " | ".join(f"{size.sessions:,}" for size in sizes) + " |"
    return [head, "|---" * (len(sizes) + 1) + "|", *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows)]


def _breaking(costs: Costs, assumed: Assumptions) -> list[str]:
    lines = ["| at live sessions | what is full | what to do |", "|---|---|---|"]
    return lines + [f"| {_rounded(count)} | {what} | {todo} |" for what, count, todo in breaking(costs, assumed)]


def _variants(costs: Costs, assumed: Assumptions) -> list[str]:
    million = STEPS[-1]
    variants = [
        ("as above", costs, assumed),
        ("twice as many models answering", costs, replace(assumed, busy_share=2 * assumed.busy_share)),
        ("makai twice as fast per delta", replace(costs, node_us=costs.node_us / 2), assumed),
        ("deltas joined to 5 a second before they are stored", costs, replace(assumed, deltas_per_s=5.0)),
        ("a primary of 32 cores and 400 MB/s", costs, replace(assumed, database_cores=32, wal_mb_s=400.0)),
    ]
    lines = [f"| {million:,} live sessions | nodes | shards | WAL a day |", "|---|---|---|---|"]
    for name, measured, chosen in variants:
        size = sized(measured, chosen, million)
        lines.append(f"| {name} | {size.nodes:,} | {size.shards:,} | {_terabytes(size.wal_tb_day)} |")
    return lines


def _terabytes(value: float) -> str:
    return f"{value:,.1f} TB" if value >= 1 else f"{value * 1000:,.1f} GB"


def _rounded(value: int) -> str:
    digits = max(0, len(str(value)) - 2)
    return f"{round(value, -digits):,}"


def main(check: bool) -> int:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    current, _, after = rest.partition(END)
    text = page_text(Costs.read(), Assumptions())
    if check:
        return int(current != text)
    PAGE.write_text(before + BEGIN + text + END + after, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
