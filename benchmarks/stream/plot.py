"""Rows of one run -> a bar chart as SVG, without a plotting library.

In: rows. Out: SVG text: one panel per traffic shape, one horizontal bar per client, logarithmic scale. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from stream.bars import find
from stream.measure import Row
from stream.plan import CONFIGS, FLAT_50, MAKAI, NATIVE_LOOP, PEERS, TITLES, Config

PANELS = tuple(config for config in CONFIGS if config is not FLAT_50)
WIDTH = 900
LABEL_WIDTH = 250
BAR_HEIGHT = 18
BAR_STEP = 24
PANEL_HEAD = 40
TOP = 60
SCALE_US = (1.0, 1000.0)
OURS, THEIRS, INK, GRID = "#1f6feb", "#9aa4b2", "#24292f", "#e3e6ea"


def stream_chart(rows: Sequence[Row]) -> str:
    """The chart of a run."""
    clients = (*MAKAI, *PEERS)
    panel_height = PANEL_HEAD + len(clients) * BAR_STEP + 30
    height = TOP + panel_height * len(PANELS)
    body = [_text(20, 30, "CPU per streamed delta, in µs (logarithmic; shorter is better)", size=17, bold=True)]
    for number, config in enumerate(PANELS):
        body += _panel(rows, clients, config, TOP + number * panel_height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="CPU per streamed delta">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _panel(rows: Sequence[Row], clients: Sequence[str], config: Config, top: int) -> list[str]:
    bottom = top + PANEL_HEAD - 12 + len(clients) * BAR_STEP
    parts = [_text(20, top + 16, config.title, size=15, bold=True)]
    for power in range(round(math.log10(SCALE_US[0])), round(math.log10(SCALE_US[1])) + 1):
        x = _x(10.0**power)
        parts.append(f'<line x1="{x:.1f}" y1="{top + 26}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(_text(x, bottom + 15, f"{10**power:,} µs", size=11, anchor="middle"))
    for position, client in enumerate(clients):
        y = top + PANEL_HEAD - 10 + position * BAR_STEP
        parts.append(_text(LABEL_WIDTH - 8, y + 13, TITLES[client], anchor="end"))
        row = find(rows, client, config, NATIVE_LOOP[client])
        if row is None:
            parts.append(_text(LABEL_WIDTH + 6, y + 13, "not measured"))
            continue
        end = _x(row.cpu_us)
        colour = OURS if client in MAKAI else THEIRS
        parts.append(
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{end - LABEL_WIDTH:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>'
        )
        parts.append(_text(end + 6, y + 13, f"{row.cpu_us:.3g}", bold=client in MAKAI))
    return parts


def _x(cpu_us: float) -> float:
    low, high = (math.log10(limit) for limit in SCALE_US)
    share = (math.log10(min(max(cpu_us, SCALE_US[0]), SCALE_US[1])) - low) / (high - low)
    return LABEL_WIDTH + share * (WIDTH - LABEL_WIDTH - 70)


def _text(x: float, y: float, words: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{INK}" text-anchor="{anchor}"{weight}>'
        f"{escape(words)}</text>"
    )
