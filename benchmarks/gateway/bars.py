"""The promises about the server, computed from the rows of one run. They are about the WebSocket."""

from __future__ import annotations

from collections.abc import Sequence

from bars import Bar
from gateway.measure import Row
from gateway.plan import FLAT_50, FLAT_500, FLOOR, LITELLM, LIVE, WEBSOCKET, Config, Gateway


def find(rows: Sequence[Row], gateway: Gateway, config: Config) -> Row | None:
    """The good row of a gateway under one traffic."""
    for row in rows:
        if row.gateway == gateway.key and row.config == config.key and row.error is None:
            return row
    return None


def ratio(rows: Sequence[Row], config: Config) -> float | None:
    """How many times the CPU of makai LiteLLM needs."""
    ours, theirs = find(rows, WEBSOCKET, config), find(rows, LITELLM, config)
    return theirs.cpu_us / ours.cpu_us if ours and theirs else None


def gateway_bars(rows: Sequence[Row]) -> list[Bar]:
    """Every bar, held or not. A gateway that lost a delta has no good row and holds none."""
    bars = []
    for config in (FLAT_50, FLAT_500):
        ours = find(rows, WEBSOCKET, config)
        bars.append(Bar(f"CPU per delta, {config.title}", 15, ours.cpu_us if ours else None, " µs"))
    for config, limit in ((FLAT_50, 50), (FLAT_500, 50), (LIVE, 12)):
        name = f"times less CPU than LiteLLM proxy, {config.title}"
        bars.append(Bar(name, limit, ratio(rows, config), "x", at_least=True))
    live, many = find(rows, WEBSOCKET, LIVE), find(rows, WEBSOCKET, FLAT_500)
    floor = find(rows, FLOOR, LIVE)
    above_floor = live.cpu_us / floor.cpu_us if live and floor else None
    bars.append(Bar(f"CPU of the bare relay on aiohttp, {LIVE.title}", 1.15, above_floor, "x"))
    delivered = 100.0 if live else None
    bars.append(Bar(f"deltas delivered, {LIVE.title}", 100, delivered, " %", at_least=True))
    late = live.first_delta_median_ms if live else None
    bars.append(Bar(f"added time to first delta, {LIVE.title}, median", 2, late, " ms"))
    bars.append(Bar("memory, 500 streams at once", 150, many.peak_rss_mb if many else None, " MB"))
    return bars
