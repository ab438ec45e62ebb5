"""Rows of one run -> a bar chart: one panel per traffic shape, one bar per client. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from chart import ChartBar, Panel, bar_chart
from stream.bars import find
from stream.measure import Row
from stream.plan import CONFIGS, FLAT_50, MAKAI, NATIVE_LOOP, PEERS, TITLES, Config


def stream_chart(rows: Sequence[Row]) -> str:
    """The chart of a run."""
    panels = [_panel(rows, config) for config in CONFIGS if config is not FLAT_50]
    return bar_chart("CPU per streamed delta", panels)


def _panel(rows: Sequence[Row], config: Config) -> Panel:
    found = {client: find(rows, client, config, NATIVE_LOOP[client]) for client in (*MAKAI, *PEERS)}
    bars = [ChartBar(TITLES[client], row.cpu_us if row else None, client in MAKAI) for client, row in found.items()]
    return Panel(config.title, bars)
