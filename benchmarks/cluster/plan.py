"""How much of everything the cluster benchmark measures. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Counts of one run."""

    passes: int = 3
    nodes: tuple[int, ...] = (1, 2, 4)
    sessions: int = 100
    batch: int = 10
    events: int = 40_000
    """Of all nodes together."""
    single_commits: int = 2_000
    session_counts: tuple[int, ...] = (10, 100, 1_000, 10_000)
    reader_counts: tuple[int, ...] = (1, 10, 100, 1_000)
    reader_events: int = 2_000
    """Appended to one session and read by each of its readers."""
    pace_sessions: int = 50
    pace_per_second: int = 20
    pace_seconds: int = 10
    exchanged_sessions: int = 20
    """Of each of two nodes, whose clients are at the other one."""
    taken_over: int = 10_000


QUICK = Plan(
    passes=1,
    nodes=(1, 2),
    events=10_000,
    single_commits=300,
    session_counts=(10, 1_000),
    reader_counts=(1, 100),
    reader_events=500,
    pace_seconds=4,
    taken_over=1_000,
)


def plan(quick: bool) -> Plan:
    return QUICK if quick else Plan()
