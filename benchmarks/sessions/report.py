"""Measurements of the session layer -> bars, and the Markdown page people read.

In: measurements and the machine. Out: bars and text. Pure. The bars are those of issue 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bars import Bar, bar_table
from machine import description_lines
from sessions.measure import Measured

COMMIT_WINDOW_MS = 5.0
"""`sessions.log.writer.WINDOW_S`."""

HOW = """\
## How it was measured

Everything goes through `OwnedSessions` over its SQLite log (WAL, `synchronous=FULL`): a run of the agent loop on a
model that says words as fast as they are taken, or at a pace. The words belong to two blocks that take turns, because
consecutive deltas of one block would be stored as one event. Every follower must get every event, in order, and what it
got is compared with the log by checksum.

- *In process*: one run to ten followers; the process, its writing thread included, is pinned to one core. Model and
  agent loop are part of the cost. The best pass counts.
- *WebSockets*: makai's server in its own process and on its own core, ten MiniCodex clients with `streaming` and
  `makai.1` on another; what each client got is compared with the log afterwards.
- *From delta to subscriber*: 100 sessions, 20 deltas a second each, a follower each; a delta's text is the moment at
  which the model said it. A second process fsyncs 4 KB to the same disk ten times a second meanwhile.
- *Growth*: runs of 10,000 deltas with one follower, until there are a million events; CPU time of the process per
  event, medians of the first and the last five of these runs. Reading the conversation at the start of each run is
  part of it. The issue says "flat"; that up to 1.2 times counts as flat is our reading.
- *Replay*: every event of that session is read, verified and decoded in order, on one core.
- *Opening*: a fresh process opens the log and the session and makes the view and the snapshot a browser asks for first;
  imports are not counted, and the file is in the page cache. Without a checkpoint, the engine's state is read from the
  events, deltas left out.
- *Idle sessions*: each had a run of 500 deltas and is shown to one MiniCodex client (without its socket).
"""


def session_bars(measured: Mapping[str, Measured]) -> list[Bar]:
    """Every bar, held or not."""

    def number(name: str, key: str, scale: float = 1.0) -> float | None:
        value = measured[name].get(key)
        return None if value is None else value * scale

    fsync_ms = number("pace", "fsync_ms")
    late_ms = COMMIT_WINDOW_MS + 2 * (fsync_ms or 0.0)
    disk = f"commit window + 2 fsyncs of {fsync_ms:.2f} ms" if fsync_ms is not None else "commit window + 2 fsyncs"
    growth = measured["growth"].get("events", 0)
    return [
        Bar(
            "events appended and followed by 10 in process, one core",
            20_000,
            number("fan_out", "per_second"),
            "/s",
            True,
        ),
        Bar("events to 10 WebSocket clients, received = log", 5_000, number("websockets", "per_second"), "/s", True),
        Bar(f"delta to subscriber, median ({disk})", round(late_ms, 2), number("pace", "median_ms"), " ms"),
        Bar("delta to subscriber, p99 (5 times that)", round(5 * late_ms, 1), number("pace", "p99_ms"), " ms"),
        Bar("events replayed", 100_000, number("replaying", "per_second"), "/s", True),
        Bar(f"opening a session of {growth:,} events", 1_000, number("opening", "total_ms"), " ms"),
        Bar(f"CPU per event, at {growth:,} events and at 1,000", 1.2, number("growth", "ratio"), "x"),
        Bar("memory of an idle session", 1, number("idling", "mb_each"), " MB"),
    ]


def session_page(measured: Mapping[str, Measured], bars: Sequence[Bar], machine: dict[str, Any]) -> str:
    """The whole page."""
    lines = ["# Sessions: append, follow, replay, open", "", *description_lines(machine)]
    lines += [f"Load average after it: {machine['load_after']}.", "", "## Bars", "", *bar_table(bars), ""]
    lines += ["## More numbers", "", *_more(measured), "", HOW]
    if errors := [f"- {name}: {one['error']}" for name, one in measured.items() if "error" in one]:
        lines += ["## Errors", "", *errors]
    return "\n".join(lines).rstrip() + "\n"


def _more(measured: Mapping[str, Measured]) -> list[str]:
    lines = ["| | |", "|---|---|"]
    for name, title in (("fan_out", "in process, 10 followers"), ("websockets", "10 WebSocket clients")):
        lines += [
            f"| {title} | {one['per_second']:,.0f} events/s, {one['cpu_us']:.1f} µs CPU per event |"
            for one in measured[name].get("passes", ())
        ]
    if "cpu_us" in (pace := measured["pace"]):
        lines.append(
            f"| 100 sessions of 20 deltas/s | median {pace['median_ms']:.2f} ms, p99 {pace['p99_ms']:.2f} ms, "
            f"max {pace['max_ms']:.1f} ms, {pace['cpu_us']:.0f} µs CPU per delta; fsync median "
            f"{pace['fsync_ms']:.2f} ms, p99 {pace['fsync_p99_ms']:.2f} ms |"
        )
    if "runs" in (growth := measured["growth"]):
        lines += [
            f"| growth, run after {run['after']:,} events | {run['cpu_us']:.1f} µs CPU per event |"
            for run in _samples(growth["runs"])
        ]
        lines.append(f"| growth, disk | {growth['bytes_per_event']:.0f} bytes per event |")
    if "per_second" in (replay := measured["replaying"]):
        lines.append(f"| replay, as stored | {replay['raw_per_second']:,.0f} events/s |")
        lines.append(f"| replay, decoded | {replay['per_second']:,.0f} events/s |")
        lines.append(f"| replay, decoded and folded | {replay['folded_per_second']:,.0f} events/s |")
    for name, title in (("opening", "with"), ("opening_anew", "without")):
        if "total_ms" in (one := measured[name]):
            lines.append(
                f"| opening {title} a checkpoint | log {one['log_ms']:.0f} ms, state {one['state_ms']:.0f} ms, view "
                f"{one['view_ms']:.0f} ms, snapshot {one['snapshot_ms']:.1f} ms ({one['snapshot_bytes']:,} bytes); "
                f"worst total {one['worst_ms']:.0f} ms |"
            )
    if "rss_mb" in (idle := measured["idling"]):
        lines.append(f"| {idle['sessions']} idle sessions | {idle['rss_mb']:.0f} MB for the whole process |")
    return lines


def _samples(runs: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """A few runs along the way, about ten times apart."""
    chosen = [runs[0]]
    for run in runs[1:]:
        if run["after"] >= 8 * chosen[-1]["after"]:
            chosen.append(run)
    return chosen if chosen[-1] is runs[-1] else [*chosen, runs[-1]]
