"""Counts what happens in the sessions of this process, from the events that were committed.

Which model a turn asked and which tool a call names is said once, in the event that begins it; it is remembered until
the run is over. What a run consumed is counted with each turn, and what its end says beyond that with its end: agents
without turns say it only there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from makai.core import session_events as ev
from makai.core.observation import Observer, SessionLoad, StoreHealth
from makai.core.usage import Usage
from makai.server.metrics_registry import Counter, Gauge, Histogram, Metric, ReadCounter

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_UPSTREAM_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_EVENTS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_TOKEN_KINDS: Final = ("input", "output", "cache_read", "cache_write", "reasoning")
MAX_RUNS: Final = 10_000
"""Runs that are remembered; one that never ends, because its session went to another process, must not stay."""


class _CountedRun(msgspec.Struct):
    model: str = ""
    models: dict[str, str] = {}
    """Of open turns, by the call of the sub-agent that takes them; "" for the agent itself."""
    tools: dict[str, str] = {}
    """Of open calls."""
    counted: Usage = Usage()


class SessionMetrics(Observer):
    def __init__(self) -> None:
        self.runs_started = Counter("makai_runs_started_total", "Runs started.")
        self.runs_resumed = Counter("makai_runs_resumed_total", "Runs that continued after their process ended.")
        self.runs_finished = Counter("makai_runs_finished_total", "Runs that ended without an error.", ("stop_reason",))
        self.runs_failed = Counter("makai_runs_failed_total", "Runs that ended in an error, by its code.", ("code",))
        self.turns = Counter("makai_turns_total", "Answers of models in runs.", ("model",))
        self.tokens = Counter("makai_tokens_total", "Tokens that runs consumed.", ("model", "kind"))
        self.cost = Counter("makai_cost_usd_total", "US dollars that runs cost, where prices are known.", ("model",))
        self.approvals = Counter("makai_approvals_total", "Decisions about tool calls.", ("decision",))
        self.tool_calls = Counter("makai_tool_calls_total", "Tool calls that ended.", ("tool", "outcome"))
        self.sessions_created = Counter("makai_sessions_created_total", "Sessions created.")
        self.compactions = Counter("makai_compactions_total", "Conversations that were summarised.")
        self.log_events = Counter("makai_log_events_total", "Events appended to the log.")
        self.commit_seconds = Histogram("makai_commit_seconds", "Time until an append was durable.", _SECONDS)
        self.commit_events = Histogram("makai_commit_events", "Events in one append.", _EVENTS)
        self.commits_failed = Counter("makai_commits_failed_total", "Appends that failed, by error code.", ("code",))
        self.loads = Counter("makai_sessions_loaded_total", "Sessions read from the log into memory.")
        self.loaded_events = Counter("makai_loaded_events_total", "Events read for that, after checkpoints.")
        self.asked = Counter("makai_upstream_requests_total", "Requests to providers.", ("provider",))
        self.retried = Counter("makai_upstream_retries_total", "Requests that were sent again.", ("provider",))
        self.refused = Counter("makai_upstream_errors_total", "Requests that failed.", ("provider", "code"))
        self.upstream_seconds = Histogram(
            "makai_upstream_seconds", "Time from a request to the end of its answer.", _UPSTREAM_SECONDS, ("provider",)
        )
        self.leases_lost = Counter("makai_leases_lost_total", "Leases that this node could not renew in time.")
        self._runs: dict[str, _CountedRun] = {}
        self._load: Callable[[], SessionLoad] = SessionLoad
        self._health: Callable[[], StoreHealth | None] = lambda: None
        self._gauges = self._make_gauges()

    def _make_gauges(self) -> list[Metric]:
        def load(name: str, text: str, field: str) -> Gauge:
            return Gauge(f"makai_{name}", text, lambda: float(getattr(self._load(), field)))

        def health(name: str, text: str, field: str, kind: type[Gauge] = Gauge) -> Gauge:
            def read() -> float | None:
                found = self._health()
                return None if found is None else float(getattr(found, field))

            return kind(f"makai_{name}", text, read)

        return [
            load("sessions_live", "Sessions in memory.", "live"),
            load("runs_active", "Runs that have not ended.", "active_runs"),
            load("approvals_waiting", "Tool calls that wait for a decision.", "approvals_waiting"),
            load("inputs_queued", "Messages that wait for a run.", "queued_inputs"),
            load("inbox_facts", "Facts of runs that wait for their commit.", "pending_facts"),
            load("followers", "Readers that follow sessions.", "followers"),
            health("store_reachable", "Whether this node reaches its database: 1 or 0.", "is_reachable"),
            health("lease_held", "Whether this node holds its lease: 1 or 0.", "holds_lease"),
            health("takeovers_total", "Sessions of ended nodes that this node took over.", "takeovers", ReadCounter),
        ]

    @property
    def metrics(self) -> list[Metric]:
        return [*(value for value in vars(self).values() if isinstance(value, Metric)), *self._gauges]

    def committed(self, session_id: str, events: Sequence[ev.Logged], seconds: float) -> None:
        self.commit_seconds.observe(seconds)
        self.commit_events.observe(len(events))
        self.log_events.add(by=len(events))
        for logged in events:
            step = _STEPS.get(type(logged.event))
            if step is not None:
                step(self, logged.run_id or "", logged.event)

    def commit_failed(self, session_id: str, code: str) -> None:
        self.commits_failed.add(code)

    def session_loaded(self, session_id: str, events: int) -> None:
        self.loads.add()
        self.loaded_events.add(by=events)

    def sessions_opened(self, load: Callable[[], SessionLoad]) -> None:
        self._load = load

    def model_asked(self, provider: str) -> None:
        self.asked.add(provider)

    def model_retried(self, provider: str) -> None:
        self.retried.add(provider)

    def model_ended(self, provider: str, outcome: str, seconds: float) -> None:
        self.upstream_seconds.observe(seconds, provider)
        if outcome not in ("ok", "aborted"):
            self.refused.add(provider, outcome)

    def store_joined(self, health: Callable[[], StoreHealth | None]) -> None:
        self._health = health

    def lease_lost(self) -> None:
        self.leases_lost.add()

    def _run(self, run_id: str) -> _CountedRun:
        run = self._runs.get(run_id)
        if run is None:
            if len(self._runs) >= MAX_RUNS:
                del self._runs[next(iter(self._runs))]
            run = self._runs[run_id] = _CountedRun()
        return run

    def _on_run_started(self, run_id: str, event: ev.RunStarted) -> None:
        self.runs_started.add()
        self._run(run_id).model = event.model_ref

    def _on_run_finished(self, run_id: str, event: ev.RunFinished) -> None:
        self.runs_finished.add(event.stop_reason)
        self._settle(run_id, event.usage)

    def _on_run_failed(self, run_id: str, event: ev.RunFailed) -> None:
        self.runs_failed.add(event.code)
        self._settle(run_id, event.usage)

    def _settle(self, run_id: str, usage: Usage) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None:  # of a run that began elsewhere, most was counted there
            self._consume(run.model, usage, run.counted)

    def _on_turn_started(self, run_id: str, event: ev.TurnStarted) -> None:
        run = self._run(run_id)
        run.models[event.parent_call_id] = event.model_ref or run.model

    def _on_turn_ended(self, run_id: str, event: ev.TurnEnded) -> None:
        run = self._run(run_id)
        model = run.models.pop(event.parent_call_id, run.model)
        self.turns.add(model)
        self._consume(model, event.usage)
        run.counted += event.usage

    def _consume(self, model: str, usage: Usage, counted: Usage = Usage()) -> None:  # noqa: B008 (it is frozen)
        for kind in _TOKEN_KINDS:
            if (number := getattr(usage, kind) - getattr(counted, kind)) > 0:
                self.tokens.add(model, kind, by=number)
        if (cost := (usage.cost_usd or 0.0) - (counted.cost_usd or 0.0)) > 0:
            self.cost.add(model, by=cost)

    def _on_tool_called(self, run_id: str, event: ev.ToolCalled) -> None:
        self._run(run_id).tools[event.call_id] = event.name

    def _on_tool_finished(self, run_id: str, event: ev.ToolFinished) -> None:
        outcome = "interrupted" if event.interrupted else "error" if event.is_error else "ok"
        self.tool_calls.add(self._run(run_id).tools.pop(event.call_id, "unknown"), outcome)


_STEPS: Final[dict[type, Callable[[SessionMetrics, str, Any], None]]] = {
    ev.SessionCreated: lambda metrics, run_id, event: metrics.sessions_created.add(),
    ev.RunStarted: SessionMetrics._on_run_started,
    ev.RunResumed: lambda metrics, run_id, event: metrics.runs_resumed.add(),
    ev.RunFinished: SessionMetrics._on_run_finished,
    ev.RunFailed: SessionMetrics._on_run_failed,
    ev.TurnStarted: SessionMetrics._on_turn_started,
    ev.TurnEnded: SessionMetrics._on_turn_ended,
    ev.ToolCalled: SessionMetrics._on_tool_called,
    ev.ToolFinished: SessionMetrics._on_tool_finished,
    ev.ApprovalDecided: lambda metrics, run_id, event: metrics.approvals.add(event.decision),
    ev.Compacted: lambda metrics, run_id, event: metrics.compactions.add(),
}
