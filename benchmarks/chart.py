"""A bar chart as SVG, without a plotting library.

In: a title and panels of named values. Out: SVG text: horizontal bars on a logarithmic scale. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 900
LABEL_WIDTH = 250
BAR_HEIGHT = 18
BAR_STEP = 24
PANEL_HEAD = 40
TOP = 60
OURS, THEIRS, INK, GRID = "#1f6feb", "#9aa4b2", "#24292f", "#e3e6ea"


@dataclass(frozen=True)
class Scale:
    """What the length of a bar means."""

    unit: str = "µs"
    low: float = 1.0
    high: float = 1000.0
    better: str = "shorter"


@dataclass(frozen=True)
class ChartBar:
    """One bar; `value` is in the unit of the scale, None when it was not measured."""

    label: str
    value: float | None
    ours: bool


@dataclass(frozen=True)
class Panel:
    """Bars that are compared with one another."""

    title: str
    bars: Sequence[ChartBar]


MICROSECONDS = Scale()


def bar_chart(title: str, panels: Sequence[Panel], scale: Scale = MICROSECONDS) -> str:
    """The chart; every panel has the same scale."""
    heights = [PANEL_HEAD + len(panel.bars) * BAR_STEP + 30 for panel in panels]
    height = TOP + sum(heights)
    body = [_text(20, 30, f"{title}, in {scale.unit} (logarithmic; {scale.better} is better)", size=17, bold=True)]
    for number, panel in enumerate(panels):
        body += _panel(panel, TOP + sum(heights[:number]), scale)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{escape(title)}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _panel(panel: Panel, top: int, scale: Scale) -> list[str]:
    bottom = top + PANEL_HEAD - 12 + len(panel.bars) * BAR_STEP
    parts = [_text(20, top + 16, panel.title, size=15, bold=True)]
    for power in range(round(math.log10(scale.low)), round(math.log10(scale.high)) + 1):
        x = _x(10.0**power, scale)
        parts.append(f'<line x1="{x:.1f}" y1="{top + 26}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(_text(x, bottom + 15, f"{10**power:,} {scale.unit}", size=11, anchor="middle"))
    for position, bar in enumerate(panel.bars):
        y = top + PANEL_HEAD - 10 + position * BAR_STEP
        parts.append(_text(LABEL_WIDTH - 8, y + 13, bar.label, anchor="end"))
        if bar.value is None:
            parts.append(_text(LABEL_WIDTH + 6, y + 13, "not measured"))
            continue
        end = _x(bar.value, scale)
        colour = OURS if bar.ours else THEIRS
        parts.append(
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{end - LABEL_WIDTH:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>'
        )
        parts.append(_text(end + 6, y + 13, _number(bar.value), bold=bar.ours))
    return parts


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _x(value: float, scale: Scale) -> float:
    low, high = math.log10(scale.low), math.log10(scale.high)
    share = (math.log10(min(max(value, scale.low), scale.high)) - low) / (high - low)
    return LABEL_WIDTH + share * (WIDTH - LABEL_WIDTH - 70)


def _text(x: float, y: float, words: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{INK}" text-anchor="{anchor}"{weight}>'
        f"{escape(words)}</text>"
    )
