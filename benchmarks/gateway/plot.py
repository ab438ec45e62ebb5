"""Rows of one run -> a bar chart: one panel per traffic, one bar per gateway. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from chart import ChartBar, Panel, bar_chart
from gateway.bars import find
from gateway.measure import Row
from gateway.plan import CONFIGS, GATEWAYS, MAKAI, Config


def gateway_chart(rows: Sequence[Row]) -> str:
    """The chart of a run."""
    return bar_chart("Server CPU per streamed delta", [_panel(rows, config) for config in CONFIGS])


def _panel(rows: Sequence[Row], config: Config) -> Panel:
    measured = {row.gateway for row in rows if row.config == config.key}
    found = [(gateway, find(rows, gateway, config)) for gateway in GATEWAYS if gateway.key in measured]
    bars = [ChartBar(gateway.title, row.cpu_us if row else None, gateway in MAKAI) for gateway, row in found]
    return Panel(config.title, bars)
