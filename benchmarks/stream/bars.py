"""The promises about streaming (issue 2, "Bars"), computed from the rows of one run.

A ratio compares makai on uvloop, as it ships, with the peer on whichever event loop made the peer faster.
"""

from __future__ import annotations

from collections.abc import Sequence

from bars import Bar
from stream.measure import Row
from stream.plan import FIRST_DELTA, FLAT_1, FLAT_50, FLAT_500, LIVE, LONG_ANSWER, SHORT_ANSWER, TITLES, Config


def find(rows: Sequence[Row], client: str, config: Config, loop: str | None = None) -> Row | None:
    """The cheapest good row of a client in a configuration, on one loop or on any."""
    found = [
        row
        for row in rows
        if row.client == client and row.config == config.key and row.error is None and loop in (None, row.loop)
    ]
    return min(found, key=lambda row: row.cpu_us, default=None)


def stream_bars(rows: Sequence[Row]) -> list[Bar]:
    """Every bar, held or not."""
    bars = []
    for client, api in (("makai-openai", "chat completions"), ("makai-anthropic", "Messages")):
        one, many = find(rows, client, FLAT_1, "uvloop"), find(rows, client, FLAT_500, "uvloop")
        calm = find(rows, client, FIRST_DELTA, "uvloop")
        first_delta = calm.first_delta_median_ms if calm else None
        bars += [
            Bar(f"{api}: CPU per delta, flat out, 1 stream", 10, one.cpu_us if one else None, " µs"),
            Bar(f"{api}: CPU per delta, flat out, 500 streams", 14, many.cpu_us if many else None, " µs"),
            Bar(f"{api}: first delta after upstream's, live, 1 stream, median of 20", 1, first_delta, " ms"),
            Bar(f"{api}: memory, 500 streams at once", 120, many.peak_rss_mb if many else None, " MB"),
        ]
    for config, peer, limit in (
        (FLAT_1, "openai", 15),
        (FLAT_1, "litellm", 40),
        (FLAT_500, "openai", 15),
        (FLAT_500, "litellm", 40),
        (LIVE, "openai", 3),
        (LIVE, "litellm", 6),
    ):
        name = f"chat completions: times less CPU than {peer}, {config.title}"
        bars.append(Bar(name, limit, ratio(rows, peer, config), "x", at_least=True))
    bars += connect_bars(rows)
    bars.append(Bar("memory of a 1,000,000-delta answer, relative to its text", 3, growth(rows), "x"))
    return bars


def connect_bars(rows: Sequence[Row]) -> list[Bar]:
    """The public path, `makai.connect()` and `client.provider.stream`, against `ModelRuntime.stream` and the SDKs."""
    bars = []
    for config in (FLAT_1, FLAT_50):
        for client, path, peer, limit in (
            ("connect-openai", "runtime-openai", "openai", 30),
            ("connect-anthropic", "runtime-anthropic", "anthropic-raw", 10),
        ):
            ours, provider = find(rows, client, config, "uvloop"), find(rows, path, config, "uvloop")
            times = ours.cpu_us / provider.cpu_us if ours and provider else None
            bars.append(Bar(f"{TITLES[client]}: CPU of the provider path, {config.title}", 1.4, times, "x"))
            name = f"{TITLES[client]}: times less CPU than {TITLES[peer]}, {config.title}"
            bars.append(Bar(name, limit, ratio(rows, peer, config, client), "x", at_least=True))
    return bars


def ratio(rows: Sequence[Row], peer: str, config: Config, client: str = "makai-openai") -> float | None:
    """How many times the CPU of makai a peer needs."""
    ours, theirs = find(rows, client, config, "uvloop"), find(rows, peer, config)
    return theirs.cpu_us / ours.cpu_us if ours and theirs else None


def growth(rows: Sequence[Row]) -> float | None:
    """Peak memory that a very long answer adds to that of a short one, over the bytes of its (ASCII) text."""
    short, long = find(rows, "makai-openai", SHORT_ANSWER), find(rows, "makai-openai", LONG_ANSWER)
    if not short or not long or not long.text_length:
        return None
    return (long.peak_rss_mb - short.peak_rss_mb) * 2**20 / long.text_length
