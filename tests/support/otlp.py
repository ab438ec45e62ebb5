"""A collector of traces: an HTTP server that takes OTLP as protobuf and keeps the spans."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class CollectedSpan(msgspec.Struct, frozen=True):
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    is_error: bool
    events: tuple[str, ...]


class Collector:
    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.resource: dict[str, Any] = {}
        self.bodies: list[bytes] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        body = await request.read()
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = _values(resource.resource.attributes)
            self.spans += [_collected(span) for scope in resource.scope_spans for span in scope.spans]
        return web.Response(body=b"", content_type="application/x-protobuf")

    def named(self, name: str) -> CollectedSpan:
        [span] = [span for span in self.spans if span.name == name]
        return span


def _collected(span: Any) -> CollectedSpan:
    return CollectedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        is_error=span.status.code == 2,
        events=tuple(event.name for event in span.events),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(one) for one in found.values] if kind == "array_value" else found


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        async with asyncio.timeout(10):
            await site.start()
        collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield collector
    finally:
        await runner.cleanup()
