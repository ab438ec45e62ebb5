"""Counters for operators, in the Prometheus text format."""

from __future__ import annotations

import msgspec


class Metrics(msgspec.Struct):
    connections_open: int = 0
    connections_total: int = 0
    streams_open: int = 0
    streams_total: int = 0
    streams_failed: int = 0
    streams_refused: int = 0
    events_total: int = 0

    def render(self) -> str:
        return "".join(
            f"# HELP makai_{name} {text}\n# TYPE makai_{name} {kind}\nmakai_{name} {getattr(self, name)}\n"
            for name, kind, text in _CATALOGUE
        )


_CATALOGUE = (
    ("connections_open", "gauge", "Protocol connections open now."),
    ("connections_total", "counter", "Protocol connections accepted since start."),
    ("streams_open", "gauge", "Model requests running now."),
    ("streams_total", "counter", "Model requests accepted since start."),
    ("streams_failed", "counter", "Accepted model requests that ended in an error."),
    ("streams_refused", "counter", "Model requests refused before anything was sent upstream."),
    ("events_total", "counter", "Stream events sent to clients."),
)
