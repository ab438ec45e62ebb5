"""Rows of one run -> the Markdown page people read.

In: rows, bars, machine and versions. Out: text. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bars import Bar, bar_table
from machine import description_lines
from stream.bars import find
from stream.measure import Row
from stream.plan import (
    CONFIGS,
    FIRST_DELTA,
    FLAT_1,
    FLAT_500,
    LIVE,
    LONG_ANSWER,
    MAKAI,
    NATIVE_LOOP,
    PEERS,
    SHORT_ANSWER,
    TITLES,
)

HOW = """\
## How it was measured

One upstream process on loopback (raw asyncio, bytes encoded beforehand) plays OpenAI chat completions and Anthropic
Messages. Every client runs in a process of its own, which counts its own user and system CPU time from just before the
streams start until the last has ended, after one warm-up stream. Each client must receive every delta that was sent.
The upstream has a core of its own.

- *Flat out*: eight deltas per write, as fast as the client reads. A bound on throughput, not what a chat looks like.
  The best pass counts (three; two at 500 streams, one there for any-llm and pydantic-ai).
- *Live*: 50 streams of 50 deltas per second, one delta per write, streams taking turns, so that nearly every delta
  wakes the client up. The median of three passes counts. A client that needs more than 400 µs per delta cannot keep up
  on one core and then reads several deltas at once, which flatters it.
- *First delta*: from the moment upstream writes its first delta (its text is that moment) to the moment the client
  hands it to the caller.
- makai runs its whole provider path: retries, time-outs, stall watchdog, cancellation, tool-call assembly, usage and
  cost, and the assembled message at the end. `create(stream=True)` of the SDKs assembles nothing.
- Numbers of one run belong together; other runs on a busy machine differ by up to a factor of two in the live shape.
"""


def stream_page(rows: Sequence[Row], bars: Sequence[Bar], machine: dict[str, Any], versions: dict[str, str]) -> str:
    """The whole page."""
    lines = ["# Streaming: CPU per delta, first delta, memory", "", *description_lines(machine), ""]
    lines += [", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]
    lines += ["![CPU per delta](stream.svg)", "", "## Bars", "", *bar_table(bars), ""]
    lines += ["## As shipped (makai on uvloop, the others on asyncio)", "", *_cost_table(rows), ""]
    lines += ["## First delta and memory", "", *_delay_table(rows), ""]
    lines += ["## Same event loop for everyone, CPU µs per delta", "", *_loop_table(rows), ""]
    lines += [*_long_answer(rows), HOW]
    errors = [f"- {TITLES[row.client]}, {row.loop}, {row.config}: {row.error}" for row in rows if row.error]
    if errors:
        lines += ["## Errors", "", *errors]
    return "\n".join(lines).rstrip() + "\n"


def _cost_table(rows: Sequence[Row]) -> list[str]:
    titles = " | ".join(config.title for config in CONFIGS)
    lines = [f"| CPU µs per delta | {titles} |", "|---|" + "---|" * len(CONFIGS)]
    for client in (*MAKAI, *PEERS):
        cells = []
        for config in CONFIGS:
            ours = find(rows, "makai-openai", config, "uvloop")
            row = find(rows, client, config, NATIVE_LOOP[client])
            times = f" ({row.cpu_us / ours.cpu_us:.1f}x)" if row and ours and client not in MAKAI else ""
            cells.append(f"{row.cpu_us:.1f}{times}" if row else "-")
        lines.append(f"| {TITLES[client]} | {' | '.join(cells)} |")
    return lines


def _delay_table(rows: Sequence[Row]) -> list[str]:
    shapes = (FIRST_DELTA, FLAT_1, LIVE)
    delays = " | ".join(f"first delta ms, {config.title} (median / max)" for config in shapes)
    lines = [f"| | {delays} | RSS MB when imported | 1 stream | 500 streams |", "|---|---|---|---|---|---|---|"]
    for client in (*MAKAI, *PEERS):
        late = [find(rows, client, config, NATIVE_LOOP[client]) for config in shapes]
        one, many = (find(rows, client, config, NATIVE_LOOP[client]) for config in (FLAT_1, FLAT_500))
        cells = [
            *(f"{row.first_delta_median_ms:.2f} / {row.first_delta_max_ms:.1f}" if row else "-" for row in late),
            f"{one.ready_rss_mb:.0f}" if one else "-",
            *(f"{row.peak_rss_mb:.0f}" if row else "-" for row in (one, many)),
        ]
        lines.append(f"| {TITLES[client]} | {' | '.join(cells)} |")
    return lines


def _loop_table(rows: Sequence[Row]) -> list[str]:
    columns = [(config, loop) for config in (FLAT_1, LIVE) for loop in ("asyncio", "uvloop")]
    titles = " | ".join(f"{config.title}, {loop}" for config, loop in columns)
    lines = [f"| | {titles} |", "|---|" + "---|" * len(columns)]
    for client in (*MAKAI, *PEERS):
        found = [find(rows, client, config, loop) for config, loop in columns]
        lines.append(f"| {TITLES[client]} | {' | '.join(f'{row.cpu_us:.1f}' if row else '-' for row in found)} |")
    return lines


def _long_answer(rows: Sequence[Row]) -> list[str]:
    short, long = (find(rows, "makai-openai", config) for config in (SHORT_ANSWER, LONG_ANSWER))
    if not short or not long or not long.text_length:
        return []
    return [
        "## One answer of 1,000,000 deltas (makai)",
        "",
        f"{long.text_length / 2**20:.1f} MB of text; peak memory {long.peak_rss_mb:.1f} MB, against "
        f"{short.peak_rss_mb:.1f} MB for an answer of 1,000 deltas; {long.cpu_us:.1f} µs CPU per delta.",
        "",
    ]
