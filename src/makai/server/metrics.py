"""The metrics of a server: connections and model requests are counted here, everything else by the parts that it is
made with. Light, because `makai stdio` imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from makai.server.metrics_registry import Counter, Gauge, LabelledGauge, Metric, rendered


class PendingWrites(Protocol):
    """What a connection has yet to write."""

    @property
    def pending_bytes(self) -> int: ...


class Metrics:
    def __init__(self, further: Sequence[Metric] = ()) -> None:
        self._further = further
        self._open: dict[str, set[PendingWrites]] = {}
        self.streams_open = 0
        self.connections_open = LabelledGauge(
            "makai_connections_open", "Connections open now.", "protocol", lambda: self._per_protocol(lambda _: 1)
        )
        self.connections = Counter("makai_connections_total", "Connections accepted.", ("protocol",))
        self.outbound = LabelledGauge(
            "makai_outbound_bytes",
            "What waits to be written to clients.",
            "protocol",
            lambda: self._per_protocol(lambda outbox: outbox.pending_bytes),
        )
        self.streams_gauge = Gauge("makai_streams_open", "Model requests running now.", lambda: self.streams_open)
        self.streams = Counter("makai_streams_total", "Model requests accepted.")
        self.streams_failed = Counter("makai_streams_failed_total", "Accepted model requests that ended in an error.")
        self.streams_refused = Counter(
            "makai_streams_refused_total", "Model requests refused before anything was sent upstream."
        )
        self.stream_events = Counter("makai_stream_events_total", "Events of model requests sent to clients.")
        self.replayed = Counter("makai_replayed_events_total", "Events that clients read again after a gap.")
        self.resyncs = Counter("makai_resyncs_total", "Clients that were too far behind to continue from their cursor.")

    @contextmanager
    def connected(self, protocol: str, outbox: PendingWrites) -> Iterator[None]:
        """Count a connection while it is open."""
        self.connections.add(protocol)
        connections = self._open.setdefault(protocol, set())
        connections.add(outbox)
        try:
            yield
        finally:
            connections.discard(outbox)

    @property
    def metrics(self) -> list[Metric]:
        return [*(value for value in vars(self).values() if isinstance(value, Metric)), *self._further]

    def render(self) -> str:
        return rendered(self.metrics)

    def _per_protocol(self, measure: Callable[[PendingWrites], int]) -> dict[str, float]:
        return {protocol: sum(map(measure, outboxes)) for protocol, outboxes in self._open.items()}
