"""How much of everything is measured.

In: whether the run is a quick one. Out: a `Plan`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Counts of one run of the session benchmark."""

    passes: int = 3
    fan_out_events: int = 60_000
    clients: int = 10
    websocket_events: int = 30_000
    max_behind: int = 50_000
    sessions: int = 100
    pace_per_second: int = 20
    pace_seconds: int = 15
    idle_deltas: int = 500
    growth_events: int = 1_000_000
    openings: int = 5


QUICK = Plan(passes=1, fan_out_events=20_000, websocket_events=10_000, pace_seconds=4, growth_events=50_000, openings=1)


def plan(quick: bool) -> Plan:
    """What a run measures."""
    return QUICK if quick else Plan()
