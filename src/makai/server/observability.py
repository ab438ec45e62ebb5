"""What a server shows its operator, put together: metrics always, lines about runs with structured logs, traces when
they are wanted."""

from __future__ import annotations

from makai.core.observation import Observer, Observers
from makai.server.log_json import RunLog
from makai.server.log_output import LogFormat
from makai.server.metrics import Metrics
from makai.server.metrics_process import process_metrics
from makai.server.metrics_sessions import SessionMetrics


class Observability:
    def __init__(self, log_format: LogFormat = "text") -> None:
        counted = SessionMetrics()
        observers: list[Observer] = [counted]
        if log_format == "json":
            observers.append(RunLog())
        self.metrics = Metrics([*counted.metrics, *process_metrics()])
        self.observer = Observers(*observers)
