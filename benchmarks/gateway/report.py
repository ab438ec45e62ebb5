"""Rows of one run -> the Markdown page people read.

In: rows, bars, machine and versions. Out: text. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bars import Bar, bar_table
from gateway.bars import find
from gateway.measure import Row
from gateway.plan import CONFIGS, FLAT_1, FLAT_500, GATEWAYS, LITELLM, LIVE, Gateway
from machine import description_lines

HOW = """\
## How it was measured

One upstream process on loopback plays OpenAI chat completions, as in the [streaming benchmark](stream.md). Each gateway
is started as its users start it (`makai serve`; `litellm --config` with one worker and a master key), again for every
cell, and has a core to itself. One load generator, on the core of the upstream, opens the streams, recognises deltas by
their first bytes and checks that every stream delivered every delta. The gateway's CPU time (user and system, all
threads and children, from the kernel's `schedstat`) is read before the streams and 0.3 s after the last one has ended;
three warm-up streams come beforehand.

- *makai* speaks its own protocol in proxy encoding: over WebSocket with up to 100 streams per connection (the limit),
  over WebSocket with a connection per stream, and over SSE, where every stream is a connection. *LiteLLM* speaks
  OpenAI's, a connection per stream.
- *Flat out*: upstream writes eight deltas at a time, as fast as they are read; the best pass counts. *Live*: 50
  streams of 50 deltas per second, one delta per write, streams taking turns; the median pass counts. makai has two
  passes before and two after LiteLLM, which has three (one with 500 streams), because a shared machine is not always
  equally fast. A gateway that needs more than 400 µs per delta cannot keep up on one core;
  it then reads several deltas at once, which flatters it.
- *Added time to first delta*: from the moment upstream writes its first delta (its text is that moment) to the moment
  the load generator has it, in the live shape.
- Much of a live number is the price of waking up a process, which depends on what else the machine does: makai, which
  sleeps between deltas, pays it for each of them; LiteLLM, which is saturated, does not. Other work on the machine
  therefore lowers the live ratio. The *bare relay* (`gateway/floor.py`, no product) shows what the HTTP library and the
  machine cost anyone: its live ratio is about what a gateway that does nothing reaches on this library in that run.
"""


def gateway_page(rows: Sequence[Row], bars: Sequence[Bar], machine: dict[str, Any], versions: dict[str, str]) -> str:
    """The whole page."""
    lines = ["# Gateway: makai's server and LiteLLM's proxy in front of the same model API", ""]
    lines += [*description_lines(machine), f"Load average after it: {machine['load_after']}.", ""]
    lines += [", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]
    lines += ["![Server CPU per delta](gateway.svg)", "", "## Bars", "", *bar_table(bars), ""]
    lines += ["## CPU", "", *_cost_table(rows), ""]
    lines += ["## First delta, throughput and memory", "", *_other_table(rows), "", HOW]
    errors = [f"- {row.gateway}, {row.config}: {row.error}" for row in rows if row.error]
    if errors:
        lines += ["## Errors", "", *errors]
    return "\n".join(lines).rstrip() + "\n"


def _cost_table(rows: Sequence[Row]) -> list[str]:
    titles = " | ".join(config.title for config in CONFIGS)
    lines = [f"| server CPU µs per delta (all passes) | {titles} |", "|---|" + "---|" * len(CONFIGS)]
    for gateway in GATEWAYS:
        cells = []
        for config in CONFIGS:
            row, theirs = find(rows, gateway, config), find(rows, LITELLM, config)
            cells.append(_cost(row, theirs if gateway is not LITELLM else None))
        lines.append(f"| {gateway.title} | {' | '.join(cells)} |")
    return lines


def _cost(row: Row | None, theirs: Row | None) -> str:
    if row is None:
        return "-"
    passes = ", ".join(f"{value:.3g}" for value in row.all_cpu_us)
    times = f", {theirs.cpu_us / row.cpu_us:.1f}x less" if theirs else ""
    return f"**{row.cpu_us:.1f}**{times} ({passes})"


def _other_table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| | added ms to first delta, live (median / max) | deltas/s delivered, live | deltas/s, flat out, 500 streams "
        "| RSS MB after 3 streams | 500 streams |",
        "|---|---|---|---|---|---|",
    ]
    return lines + [f"| {gateway.title} | {' | '.join(_other(rows, gateway))} |" for gateway in GATEWAYS]


def _other(rows: Sequence[Row], gateway: Gateway) -> list[str]:
    live, many = find(rows, gateway, LIVE), find(rows, gateway, FLAT_500)
    ready = find(rows, gateway, FLAT_1) or many
    return [
        f"{live.first_delta_median_ms:.2f} / {live.first_delta_max_ms:.1f}" if live else "-",
        f"{live.deltas_per_second:,.0f}" if live else "-",
        f"{many.deltas_per_second:,.0f}" if many else "-",
        f"{ready.ready_rss_mb:.0f}" if ready else "-",
        f"{many.peak_rss_mb:.0f}" if many else "-",
    ]
