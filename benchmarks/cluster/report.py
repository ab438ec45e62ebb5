"""Measurements of the cluster -> bars, the Markdown page people read, and the charts. Pure. The bars are those of
issue 17."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bars import Bar, bar_table
from chart import ChartBar, Panel, Scale, bar_chart
from machine import description_lines

Measured = Mapping[str, Any]

HOW = """\
## How it was measured

Nodes are processes, and PostgreSQL is a server of its own, all on this machine: they share its cores and its disk.
Every commit waits for the disk (`fsync` and `synchronous_commit` are on); there is no standby.

- *Appended and followed*: 100 sessions, shared out among the nodes. Each appends ten events of about 300 bytes, waits
  until they are stored, and appends the next ten; a reader of each session on the same node reads every event as it is
  stored. The fastest of three passes counts. CPU time is that of the nodes and of PostgreSQL, per event; "per core" is
  what both together would reach on one core that does nothing else.
- *Raw*: one connection to PostgreSQL without makai: one statement per commit for the same 100 sessions, nothing read,
  checked or projected.
- *SQLite*: the same program and load with the store of a single machine.
- *Runs, followed at the other node*: two whole nodes with their agent loops, sessions and links. Each has 20 sessions
  whose model speaks as fast as it is listened to, and one client of each session of the other node. An event counts
  when that client has it.
- *Sessions*: one node; each session appends one event at a time, so that a commit carries many sessions.
- *Readers*: one session on one node, read by many.
- *From delta to subscriber*: one node owns sessions that get 20 deltas a second each; a client of the same or of
  another node reads them. A delta says when it was made. The calmest of three passes counts.
- *Takeover*: a node with 10,000 sessions that each have an active run is killed (kill -9). Another one waits for the
  end of its lease (15 s here, so that a busy machine does not lose it), takes the sessions away from it and claims them
  500 at a time. Database time is the sum that `pg_stat_statements` has for all statements meanwhile. Continuing the
  runs is not part of it.
"""


def cluster_bars(measured: Measured) -> list[Bar]:
    """Every bar, held or not."""
    two = measured["nodes"].get("2", {})
    across = measured.get("across", {})
    takeover = measured["takeover"]
    count = f"{takeover.get('claimed', 0):,}"
    exchanged = measured.get("exchanged", {})
    return [
        Bar("events appended and followed at two nodes, in the log", 12_000, two.get("per_second"), "/s", True),
        Bar("events of runs at two nodes, followed at the other", 12_000, exchanged.get("per_second"), "/s", True),
        Bar("delta to a subscriber on another node, median", 15, across.get("median_ms"), " ms"),
        Bar(f"database time of taking over {count} sessions", 1_000, takeover.get("database_ms"), " ms"),
    ]


def cluster_page(measured: Measured, bars: Sequence[Bar], machine: dict[str, Any]) -> str:
    """The whole page."""
    lines = ["# Cluster: several nodes on one PostgreSQL", "", *description_lines(machine)]
    lines += [f"PostgreSQL {machine['postgresql']}. Load average after it: {machine['load_after']}.", ""]
    lines += [
        "## Bars",
        "",
        *bar_table(bars),
        "",
        "![CPU per event](cluster.svg)",
        "",
        "![Events](cluster-rates.svg)",
        "",
    ]
    lines += ["## Appended and followed", "", *_appended(measured), ""]
    lines += ["## Growth", "", *_growth(measured), ""]
    lines += ["## Latency and takeover", "", *_latency(measured), "", HOW]
    if errors := [*_errors(measured)]:
        lines += ["## Errors", "", *errors]
    return "\n".join(lines).rstrip() + "\n"


def cluster_chart(measured: Measured) -> str:
    """CPU per event."""
    return bar_chart(
        "CPU time per event",
        [
            Panel(
                "Nodes and database together", [ChartBar(name, _both(one), ours) for name, one, ours in _rows(measured)]
            ),
            Panel("Nodes and database, by sessions of one node", _bars(measured["sessions"], "sessions", _both)),
            Panel("Node, per reader of one session", _bars(measured["readers"], "readers", _per_reader)),
        ],
    )


def rates_chart(measured: Measured) -> str:
    """Events per second."""
    panel = Panel(
        "100 sessions, ten events per append",
        [ChartBar(name, one.get("per_second"), ours) for name, one, ours in _rows(measured)],
    )
    scale = Scale("events/s", 1_000, 100_000, "longer")
    return bar_chart("Events appended and followed", [panel], scale)


def _rows(measured: Measured) -> list[tuple[str, Measured, bool]]:
    rows = [("raw psycopg, not followed", measured["raw"], False), ("one node, SQLite", measured["sqlite"], True)]
    for count, one in measured["nodes"].items():
        rows.append((f"{count} node{'s' if count != '1' else ''}, PostgreSQL", one, True))
    if "exchanged" in measured:
        rows.append(("2 nodes, runs followed at the other node", measured["exchanged"], True))
    return rows


def _bars(ones: Mapping[str, Measured], what: str, value: Any) -> list[ChartBar]:
    return [
        ChartBar(f"{int(count):,} {what if count != '1' else what[:-1]}", value(one), True)
        for count, one in ones.items()
    ]


def _both(one: Measured) -> float | None:
    return None if "error" in one else float(one["node_cpu_us"] + one.get("database_cpu_us", 0.0))


def _per_reader(one: Measured) -> float | None:
    return one.get("per_reader_us")


def _appended(measured: Measured) -> list[str]:
    columns = ("events/s", "per core", "CPU of the nodes", "CPU of PostgreSQL", "cores used", "WAL", "stored")
    lines = [f"| per event | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, one, _ in _rows(measured):
        if (both := _both(one)) is not None:
            cells = [f"{one['per_second']:,.0f}", f"{1e6 / both:,.0f}", f"{one['node_cpu_us']:.1f} µs"]
            cells += [_or_dash(one.get("database_cpu_us"), ".1f", " µs"), f"{one['cores']:.2f}"]
            cells += [_or_dash(one.get("wal_bytes"), ".0f", " B"), _or_dash(one.get("stored_bytes"), ".0f", " B")]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _growth(measured: Measured) -> list[str]:
    lines = ["| | events/s | CPU of the node | CPU of PostgreSQL | memory of the node |", "|---|---|---|---|---|"]
    for count, one in measured["sessions"].items():
        if "error" not in one:
            name = f"{int(count):,} sessions, one event per append"
            cells = [f"{one['per_second']:,.0f}", f"{one['node_cpu_us']:.1f} µs", f"{one['database_cpu_us']:.1f} µs"]
            lines.append(f"| {name} | {' | '.join(cells)} | {one['rss_mb']:.0f} MB |")
    for count, one in measured["readers"].items():
        if "error" not in one:
            name = f"{int(count):,} readers of one session"
            cells = [f"{one['per_second']:,.0f}", f"{one['per_reader_us']:.2f} µs per reader"]
            lines.append(f"| {name} | {' | '.join(cells)} | {one['database_cpu_us']:.1f} µs | - |")
    return lines


def _latency(measured: Measured) -> list[str]:
    lines = ["| | |", "|---|---|"]
    if "commit_ms" in (single := measured["single"]):
        lines.append(f"| a commit of one event, without makai | {single['commit_ms']:.2f} ms |")
    for name, title in (("beside", "the same node"), ("across", "another node")):
        one = measured.get(name, {})
        if "median_ms" in one:
            words = f"median {one['median_ms']:.2f} ms, p99 {one['p99_ms']:.2f} ms, {one['deltas']:,} deltas"
            lines.append(f"| delta to a subscriber on {title} | {words} |")
    takeover = measured["takeover"]
    if "error" not in takeover:
        words = f"{takeover['database_ms']:.0f} ms of database time, {takeover['database_cpu_ms']:.0f} ms of its CPU; "
        words += f"the lease had expired {takeover['waited_s']:.1f} s after the kill, and claiming took "
        words += f"{takeover['claiming_s']:.2f} s"
        lines.append(f"| taking over {takeover['claimed']:,} sessions | {words} |")
    return lines


def _errors(measured: Measured) -> list[str]:
    single = [(name, one) for name, one in measured.items() if "error" in one]
    many = [
        (f"{name} {count}", one)
        for name in ("nodes", "sessions", "readers")
        for count, one in measured[name].items()
        if "error" in one
    ]
    return [f"- {name}: {one['error']}" for name, one in (*single, *many)]


def _or_dash(value: float | None, form: str, unit: str) -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
