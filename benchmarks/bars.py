"""A bar: a number we promised, next to the number we measured.

In: names, limits and measurements. Out: Markdown. Nothing fails because of a missed bar; it is shown as missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """`measured` is None when there was nothing to measure."""

    name: str
    limit: float
    measured: float | None
    unit: str
    at_least: bool = False

    def verdict(self) -> str:
        """Whether the bar is held."""
        if self.measured is None:
            return "not measured"
        held = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        return "pass" if held else "**miss**"


def bar_table(bars: Sequence[Bar]) -> list[str]:
    """All bars as a Markdown table."""
    lines = ["| bar | limit | measured | |", "|---|---|---|---|"]
    for bar in bars:
        sign = "≥" if bar.at_least else "≤"
        measured = "-" if bar.measured is None else f"{bar.measured:.3g}{bar.unit}"
        lines.append(f"| {bar.name} | {sign} {bar.limit:g}{bar.unit} | {measured} | {bar.verdict()} |")
    return lines
