"""What a server shows its operator, put together: metrics always, lines about runs with structured logs, and traces
when the configuration or OpenTelemetry's variables ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from makai.core.config import ObservabilityConfig
from makai.core.errors import InvalidRequest
from makai.core.observation import Observer, Observers
from makai.server.log_json import RunLog
from makai.server.log_output import LogFormat
from makai.server.metrics import Metrics
from makai.server.metrics_process import process_metrics
from makai.server.metrics_sessions import SessionMetrics

if TYPE_CHECKING:
    from makai.server.tracing import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Observability:
    def __init__(
        self,
        log_format: LogFormat = "text",
        config: ObservabilityConfig | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Raises `InvalidRequest` when traces are wanted and OpenTelemetry is not installed."""
        counted = SessionMetrics()
        self._tracing = _tracing(config or ObservabilityConfig(), environ or {})
        further = (RunLog(),) if log_format == "json" else ()
        tracing: tuple[Observer, ...] = () if self._tracing is None else (self._tracing,)
        self.metrics = Metrics([*counted.metrics, *process_metrics()])
        self.observer = Observers(counted, *further, *tracing)

    async def close(self) -> None:
        """Send the traces that wait, for a bounded time."""
        if self._tracing is not None:
            await self._tracing.close()


def _tracing(config: ObservabilityConfig, environ: Mapping[str, str]) -> Tracing | None:
    by_variable = any(environ.get(name) for name in _ENDPOINTS)
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or not (config.otlp_endpoint or by_variable):
        return None
    try:
        from makai.server.tracing import Tracing
    except ImportError:
        raise InvalidRequest(
            "Traces need OpenTelemetry, which is not installed.", hint="Install it: pip install 'makai[otel]'."
        ) from None
    endpoint = None if by_variable else f"{config.otlp_endpoint.rstrip('/')}/v1/traces"
    service_name = environ.get("OTEL_SERVICE_NAME") or config.service_name
    return Tracing(endpoint, service_name=service_name, capture_content=config.capture_content)
