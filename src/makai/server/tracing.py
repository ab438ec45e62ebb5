"""OpenTelemetry traces of runs, with the attributes of the GenAI semantic conventions.

A trace is a view of the log: a run is a span from `run_started` to its end, a turn is the call of a model in it, a tool
call runs from its start to its result, and what a sub-agent does is below the call that started it. Only this module
imports OpenTelemetry, and it is imported only when traces are on. What people and models say is not part of a span
unless `capture_content` asks for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from makai.catalog.model_ref import parse_model_ref
from makai.core import session_events as ev
from makai.core.errors import ModelRefError
from makai.core.observation import Observer, StreamReport
from makai.core.usage import Usage
from makai.core.version import __version__

MAX_RUNS: Final = 10_000
MAX_CONTENT: Final = 20_000
"""Characters of a text in a span."""
FLUSH_S: Final = 5.0

_PROVIDERS: Final = {
    "google": "gcp.gemini",
    "google-gemini-cli": "gcp.gemini",
    "azure": "azure.ai.openai",
    "openai-codex": "openai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Names of the conventions that differ from makai's; others are the same."""
Attributes: TypeAlias = dict[str, str | int | float | bool | Sequence[str]]


class _RunSpans(msgspec.Struct):
    span: Span
    model_ref: str
    turns: dict[str, Span] = {}
    """Open ones, by the call of the sub-agent that takes them; "" for the agent itself."""
    tools: dict[str, Span] = {}
    calls: dict[str, ev.ToolCalled] = {}
    """Called and not finished."""
    said: list[str] = []

    def parent(self, call_id: str) -> Span:
        return self.tools.get(call_id, self.span)


class Tracing(Observer):
    def __init__(self, endpoint: str | None, *, service_name: str, capture_content: bool) -> None:
        """`endpoint` is the address for traces of an OTLP collector over HTTP; None for what OpenTelemetry's variables
        say, which also hold its headers, certificates and sampling."""
        facts = {"service.name": service_name, "service.version": __version__}
        self._provider = TracerProvider(resource=Resource.create(facts), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer("makai", __version__)
        self._capture_content = capture_content
        self._runs: dict[str, _RunSpans] = {}

    async def close(self) -> None:
        """End what is open and send what waits, for a bounded time: a collector that is gone must not keep a server."""
        for run in self._runs.values():
            _end_all(run, None)
        self._runs.clear()
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def send() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the event loop did not wait for it
                loop.call_soon_threadsafe(done.set)

        # A daemon: a thread of the event loop's pool would be waited for at the end of the process.
        threading.Thread(target=send, name="makai-traces", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await done.wait()

    def committed(self, session_id: str, events: Sequence[ev.Logged], seconds: float) -> None:
        for logged in events:
            if logged.run_id is not None and (step := _STEPS.get(type(logged.event))) is not None:
                step(self, session_id, logged.run_id, _nanoseconds(logged.ts), logged.event)

    def streamed(self, report: StreamReport) -> None:
        attributes = {**_model(report.provider, report.model, "chat"), **_usage(report.usage)}
        span = self._tracer.start_span(
            f"chat {report.model}",
            _context(report.trace_parent),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=_nanoseconds(report.began_ms),
        )
        _end(span, _nanoseconds(report.ended_ms), report.stop_reason, report.error_code)

    def _start_run(self, session_id: str, run_id: str, at: int, model_ref: str, trace_parent: str = "") -> _RunSpans:
        if len(self._runs) >= MAX_RUNS:
            _end_all(self._runs.pop(next(iter(self._runs))), at)
        attributes: Attributes = {
            **_model(*_parts(model_ref), "invoke_agent"),
            "gen_ai.agent.name": "makai",
            "gen_ai.conversation.id": session_id,
            "makai.run.id": run_id,
        }
        span = self._tracer.start_span(
            "invoke_agent makai", _context(trace_parent), attributes=attributes, start_time=at
        )
        run = self._runs[run_id] = _RunSpans(span, model_ref)
        return run

    def _on_started(self, session_id: str, run_id: str, at: int, event: ev.RunStarted) -> None:
        run = self._start_run(session_id, run_id, at, event.model_ref, event.terms.trace_parent)
        if event.purpose != "input":
            run.span.set_attribute("makai.run.purpose", event.purpose)

    def _on_resumed(self, session_id: str, run_id: str, at: int, event: ev.RunResumed) -> None:
        """Its first part was traced by the process that ended."""
        if run_id not in self._runs:
            self._start_run(session_id, run_id, at, "").span.set_attribute("makai.run.resumed", True)

    def _on_input(self, session_id: str, run_id: str, at: int, event: ev.UserInput) -> None:
        run = self._runs.get(run_id)
        if run is not None and self._capture_content:
            text = event.content if isinstance(event.content, str) else msgspec.json.encode(event.content).decode()
            run.span.set_attribute("gen_ai.input.messages", _message("user", text))

    def _on_text(self, session_id: str, run_id: str, at: int, event: ev.AssistantText) -> None:
        run = self._runs.get(run_id)
        if run is not None and self._capture_content and not event.parent_call_id:
            run.said = [event.text]  # the answer is what was said last

    def _on_turn_started(self, session_id: str, run_id: str, at: int, event: ev.TurnStarted) -> None:
        if (run := self._runs.get(run_id)) is None:
            return
        provider, model = _parts(event.model_ref or run.model_ref)
        attributes: Attributes = {**_model(provider, model, "chat"), "gen_ai.conversation.id": session_id}
        parent = trace.set_span_in_context(run.parent(event.parent_call_id))
        run.turns[event.parent_call_id] = self._tracer.start_span(
            f"chat {model}".strip(), parent, kind=SpanKind.CLIENT, attributes=attributes, start_time=at
        )

    def _on_turn_ended(self, session_id: str, run_id: str, at: int, event: ev.TurnEnded) -> None:
        run = self._runs.get(run_id)
        span = run.turns.pop(event.parent_call_id, None) if run is not None else None
        if span is not None:
            span.set_attributes(_usage(event.usage))
            _end(span, at, event.stop_reason, "provider_error" if event.stop_reason == "error" else "")

    def _on_called(self, session_id: str, run_id: str, at: int, event: ev.ToolCalled) -> None:
        if (run := self._runs.get(run_id)) is not None:
            run.calls[event.call_id] = event

    def _on_decided(self, session_id: str, run_id: str, at: int, event: ev.ApprovalDecided) -> None:
        run = self._runs.get(run_id)
        if run is not None and (call := run.calls.get(event.call_id)) is not None:
            facts = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.call_id, "decision": event.decision}
            run.span.add_event("makai.approval", facts, timestamp=at)

    def _on_tool_started(self, session_id: str, run_id: str, at: int, event: ev.ToolStarted) -> None:
        run = self._runs.get(run_id)
        if run is not None and (call := run.calls.get(event.call_id)) is not None:
            self._open_tool(run, call, at)

    def _open_tool(self, run: _RunSpans, call: ev.ToolCalled, at: int) -> Span:
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.call_id,
            "gen_ai.tool.type": "function",
        }
        if self._capture_content:
            attributes["gen_ai.tool.call.arguments"] = call.arguments_json[:MAX_CONTENT]
        parent = trace.set_span_in_context(run.parent(call.parent_call_id))
        span = self._tracer.start_span(f"execute_tool {call.name}", parent, attributes=attributes, start_time=at)
        run.tools[call.call_id] = span
        return span

    def _on_tool_finished(self, session_id: str, run_id: str, at: int, event: ev.ToolFinished) -> None:
        run = self._runs.get(run_id)
        call = run.calls.pop(event.call_id, None) if run is not None else None
        if run is None or call is None:
            return
        span = run.tools.pop(event.call_id, None) or self._open_tool(run, call, at)  # refused before it started
        run.tools.pop(event.call_id, None)
        if self._capture_content:
            text = msgspec.json.encode(event.content).decode(errors="replace")
            span.set_attribute("gen_ai.tool.call.result", text[:MAX_CONTENT])
        _end(span, at, "", "interrupted" if event.interrupted else "tool_error" if event.is_error else "")

    def _on_finished(self, session_id: str, run_id: str, at: int, event: ev.RunFinished) -> None:
        self._settle(run_id, at, event.usage, event.stop_reason)

    def _on_failed(self, session_id: str, run_id: str, at: int, event: ev.RunFailed) -> None:
        self._settle(run_id, at, event.usage, "", event.code)

    def _settle(self, run_id: str, at: int, usage: Usage, stop_reason: str, code: str = "") -> None:
        if (run := self._runs.pop(run_id, None)) is None:
            return
        if run.said:
            run.span.set_attribute("gen_ai.output.messages", _message("assistant", run.said[-1]))
        run.span.set_attributes(_usage(usage))
        _end_all(run, at, stop_reason, code)


_Step: TypeAlias = Callable[[Tracing, str, str, int, Any], None]
_STEPS: Final[dict[type, _Step]] = {
    ev.RunStarted: Tracing._on_started,
    ev.RunResumed: Tracing._on_resumed,
    ev.UserInput: Tracing._on_input,
    ev.AssistantText: Tracing._on_text,
    ev.TurnStarted: Tracing._on_turn_started,
    ev.TurnEnded: Tracing._on_turn_ended,
    ev.ToolCalled: Tracing._on_called,
    ev.ApprovalDecided: Tracing._on_decided,
    ev.ToolStarted: Tracing._on_tool_started,
    ev.ToolFinished: Tracing._on_tool_finished,
    ev.RunFinished: Tracing._on_finished,
    ev.RunFailed: Tracing._on_failed,
}


def _end_all(run: _RunSpans, at: int | None, stop_reason: str = "", code: str = "") -> None:
    for span in (*run.turns.values(), *run.tools.values()):
        _end(span, at, "", "interrupted")
    _end(run.span, at, stop_reason, code)


def _end(span: Span, at: int | None, stop_reason: str, code: str) -> None:
    """`code` is that of an error, whose text is not sent: it may repeat a prompt or an answer."""
    if stop_reason:
        span.set_attribute("gen_ai.response.finish_reasons", [stop_reason])
    if code:
        span.set_attribute("error.type", code)
        span.set_status(Status(StatusCode.ERROR))
    span.end(at)


def _context(trace_parent: str) -> Any:
    carrier: Mapping[str, str] = {"traceparent": trace_parent} if trace_parent else {}
    return TraceContextTextMapPropagator().extract(carrier)


def _model(provider: str, model: str, operation: str) -> Attributes:
    attributes: Attributes = {"gen_ai.operation.name": operation}
    if provider:
        attributes["gen_ai.provider.name"] = _PROVIDERS.get(provider, provider)
    if model:
        attributes["gen_ai.request.model"] = model
    return attributes


def _parts(model_ref: str) -> tuple[str, str]:
    try:
        ref = parse_model_ref(model_ref)
    except ModelRefError:
        provider, _, model = model_ref.partition("/")  # of a test or an agent
        return (provider, model) if model else ("", provider)
    return ref.provider_id, ref.model_id


def _usage(usage: Usage) -> Attributes:
    """The conventions count cached tokens as input too."""
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "gen_ai.usage.output_tokens": usage.output,
    }
    more = {
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    attributes |= {name: count for name, count in more.items() if count}
    if usage.cost_usd is not None:
        attributes["makai.usage.cost_usd"] = usage.cost_usd
    return attributes


def _message(role: str, text: str) -> str:
    message = {"role": role, "parts": [{"type": "text", "content": text[:MAX_CONTENT]}]}
    return msgspec.json.encode([message]).decode(errors="replace")


def _nanoseconds(milliseconds: int) -> int:
    return milliseconds * 1_000_000
