"""The encoding benchmark from beginning to end: count bytes, print, write `results/proxy.*`.

Nothing here depends on the speed of the machine: the same recordings give the same numbers everywhere, but for a few
bytes of the compressed ones, because message ids are random.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import machine
from bars import Bar, bar_table

COLUMNS = ("full", "full_deflated", "proxy", "proxy_deflated")
GROUPS = {"short": "recordings of the tests (7 to 120 deltas)", "ordinary": "answers of ordinary length (340 to 400)"}


def run(*, quick: bool) -> None:
    """Count and report. A quick run only prints."""
    counted = subprocess.run(
        [machine.PEERS_PYTHON, "-m", "proxy.sizes"],
        cwd=machine.ROOT / "benchmarks",
        env=machine.child_environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    sizes: list[dict[str, Any]] = json.loads(counted.stdout)
    bars = proxy_bars(sizes)
    print("\n".join(bar_table(bars)) + "\n")
    if quick:
        return
    record = {"recordings": sizes, "bars": [asdict(bar) | {"verdict": bar.verdict().strip("*")} for bar in bars]}
    machine.RESULTS.mkdir(exist_ok=True)
    (machine.RESULTS / "proxy.json").write_text(json.dumps(record, indent=1) + "\n")
    (machine.RESULTS / "proxy.md").write_text(page(sizes, bars))


def proxy_bars(sizes: Sequence[dict[str, Any]]) -> list[Bar]:
    """The promises about the proxy encoding (issue 3, "Bars")."""
    bars = []
    for group, title in GROUPS.items():
        total = summed([one for one in sizes if one["group"] == group])
        name = f"proxy smaller than full, {title}"
        bars.append(Bar(name, 70, saved(total), " %", at_least=True))
    most = max(one["most_beyond_text"] for one in sizes)
    return [*bars, Bar("bytes of a proxy delta beyond its text, the largest", 350, most, "")]


def summed(sizes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several recordings as if they were one."""
    return {key: sum(one[key] for one in sizes) for key in ("deltas", "text_bytes", *COLUMNS)}


def saved(one: dict[str, Any], *, deflated: bool = False) -> float:
    """How much smaller proxy is than full, in percent."""
    suffix = "_deflated" if deflated else ""
    return 100.0 * (1 - one[f"proxy{suffix}"] / one[f"full{suffix}"])


HOW = """\
Recorded answers of llama.cpp's server (chat completions, Responses, Messages; text, JSON and tool calls) go through
makai's adapters and through the server side of its protocol. Counted is everything the server sends for one answer,
from `ack` to `result`, as JSON text without the few bytes of WebSocket framing. *full* repeats the message so far in
every event, so its size grows with the square of the answer's length; *proxy* does not, so it saves more the longer
an answer is. The tests' recordings are short, and in a short answer both encodings are mostly envelope: ids, sequence
and time stamp, about 240 bytes a message, are the same in both. *deflate* compresses every
message with permessage-deflate, keeping the window between messages, at zlib's default level. makai's own server
compresses only messages of 1 kB and more: the small ones of the proxy encoding cost more CPU to compress than all else
that is done to them. That proxy loses nothing is tested in `tests/unit/protocols`.
"""


def page(sizes: Sequence[dict[str, Any]], bars: Sequence[Bar]) -> str:
    """The Markdown page people read."""
    lines = ["# Proxy encoding: bytes on the wire", "", *bar_table(bars), "", HOW]
    lines += [
        "| recording | deltas | text | full | proxy | smaller | full, deflate | proxy, deflate | smaller |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for group, title in GROUPS.items():
        of_group = [one for one in sizes if one["group"] == group]
        lines += [table_row(one["name"], one) for one in of_group]
        lines.append(table_row(f"**{title}**", summed(of_group)))
    sums = summed(sizes)
    overhead = (sums["proxy"] - sums["text_bytes"]) / sums["deltas"]
    lines += ["", f"Bytes. Everything in proxy beyond the text, spread over the deltas: {overhead:.0f} bytes each."]
    return "\n".join(lines) + "\n"


def table_row(name: str, one: dict[str, Any]) -> str:
    """One line of the table."""
    plain = [f"{one[key]:,}" for key in ("deltas", "text_bytes", "full", "proxy")]
    deflated = [f"{one[key]:,}" for key in ("full_deflated", "proxy_deflated")]
    cells = [*plain, f"{saved(one):.0f} %", *deflated, f"{saved(one, deflated=True):.0f} %"]
    return f"| {name} | {' | '.join(cells)} |"
