"""Counters for operators, in the Prometheus text format."""

from __future__ import annotations


class Metrics:
    """Named counters and gauges with a line of help each."""

    def __init__(self) -> None:
        self.connections_open = 0
        self.connections_total = 0
        self.streams_open = 0
        self.streams_total = 0
        self.streams_failed = 0
        self.streams_refused = 0
        self.events_total = 0

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
