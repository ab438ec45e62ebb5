"""What `/metrics` says: the text format, its bounds, and the figures of a run as a client made it happen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.minicodex_client import BOTH
from support.prometheus import read_metrics
from support.serving import Site, serving

from makai.core import session_events as ev
from makai.core.observation import Observer, Observers
from makai.server.metrics_registry import MAX_SERIES, Counter, Gauge, Histogram, rendered
from makai.server.metrics_sessions import SessionMetrics
from makai.sessions.requests import ForkSession

SCENARIO = """
tool: read {"path": "notes.txt"}
usage: input=10 output=5 cache_read=3
---
say: Done.
usage: input=20 output=7
---
fail: auth_required No key.
"""


async def metrics_of(site: Site) -> dict[str, float]:
    status, text = await site.ask("GET", "/metrics")
    assert status == 200
    return read_metrics(text)


def of(metrics: dict[str, float], *names: str) -> dict[str, float]:
    """The samples of these metrics."""
    return {key: value for key, value in metrics.items() if key.partition("{")[0] in names}


def test_label_values_are_escaped_and_histograms_add_up() -> None:
    counter = Counter("calls_total", "A \\ and\na break.", ("tool",))
    counter.add('a"b\\c\nd')
    counter.add('a"b\\c\nd', by=2)
    histogram = Histogram("seconds", "Time.", (0.1, 1))
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value)
    text = rendered([counter, histogram, Gauge("absent", "Nothing to read.", lambda: None)])
    assert text == (
        "# HELP calls_total A \\\\ and\\na break.\n# TYPE calls_total counter\n"
        'calls_total{tool="a\\"b\\\\c\\nd"} 3\n'
        "# HELP seconds Time.\n# TYPE seconds histogram\n"
        'seconds_bucket{le="0.1"} 2\nseconds_bucket{le="1"} 3\nseconds_bucket{le="+Inf"} 4\n'
        "seconds_sum 7.65\nseconds_count 4\n"
        "# HELP absent Nothing to read.\n# TYPE absent gauge\n"
    )
    assert read_metrics(text)['calls_total{tool=a"b\\c\nd}'] == 3


def test_names_from_outside_cannot_make_the_metrics_grow_without_bound() -> None:
    counter = Counter("calls_total", "Calls.", ("tool", "outcome"))
    for number in range(10 * MAX_SERIES):
        counter.add(f"tool-{number}", "ok" if number % 2 else "error")
    found = read_metrics(rendered([counter]))
    assert len(found) == MAX_SERIES + 2
    assert sum(found.values()) == 10 * MAX_SERIES
    assert found["calls_total{tool=other,outcome=ok}"] == found["calls_total{tool=other,outcome=error}"]


async def test_the_runs_of_a_client_are_counted_by_what_happened(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("milk", encoding="utf-8")
    async with serving(tmp_path, SCENARIO) as site:
        before = await metrics_of(site)
        session_id = await site.session(cwd=folder)
        client = await site.client(session_id, *BOTH)
        await client.ask("send", text="Look.")
        await client.until_over()
        first = await metrics_of(site)
        await client.ask("send", text="Again.")
        await client.until("error")
        await site.sessions.dispatch(ForkSession(origin=session_id))
        after = await metrics_of(site)
        assert await client.resume(100_000) == "RESYNC_REQUIRED"
        behind = await metrics_of(site)
        await client.close()

    model = "scripted/scenario"
    assert of(before, "makai_runs_started_total", "makai_log_events_total") == {
        "makai_runs_started_total": 0,
        "makai_log_events_total": 0,
    }
    assert of(first, "makai_turns_total", "makai_tokens_total", "makai_tool_calls_total", "makai_cost_usd_total") == {
        f"makai_turns_total{{model={model}}}": 2,
        f"makai_tokens_total{{model={model},kind=input}}": 30,
        f"makai_tokens_total{{model={model},kind=output}}": 12,
        f"makai_tokens_total{{model={model},kind=cache_read}}": 3,
        "makai_tool_calls_total{tool=read,outcome=ok}": 1,
    }
    assert of(
        after,
        "makai_runs_started_total",
        "makai_runs_finished_total",
        "makai_runs_failed_total",
        "makai_runs_active",
        "makai_sessions_created_total",
        "makai_upstream_requests_total",
        "makai_upstream_errors_total",
        "makai_connections_open",
        "makai_connections_total",
    ) == {
        "makai_runs_started_total": 2,
        "makai_runs_finished_total{stop_reason=end_turn}": 1,
        "makai_runs_failed_total{code=auth_required}": 1,
        "makai_runs_active": 0,
        "makai_sessions_created_total": 2,
        "makai_upstream_requests_total{provider=scripted}": 3,
        "makai_upstream_errors_total{provider=scripted,code=auth_required}": 1,
        "makai_connections_open{protocol=minicodex}": 1,
        "makai_connections_total{protocol=minicodex}": 1,
    }
    commits = after["makai_commit_seconds_count"]
    assert commits == after["makai_commit_events_count"] == after["makai_commit_seconds_bucket{le=+Inf}"] > 2
    assert after["makai_commit_events_sum"] == after["makai_log_events_total"]
    assert (after["makai_resyncs_total"], behind["makai_resyncs_total"]) == (0, 1)
    assert after["process_resident_memory_bytes"] > 10_000_000
    assert after["process_open_fds"] > 3


async def test_an_approval_that_waits_is_a_figure_until_it_is_decided(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    async with serving(tmp_path, 'tool: write {"path": "a.txt", "content": "x"}\n---\nsay: Done.') as site:
        client = await site.client(await site.session(cwd=folder), *BOTH)
        await client.ask("send", text="Write.")
        asked = (await client.until("approval_pending"))[-1]
        waiting = await metrics_of(site)
        await client.ask("deny", call_id=asked["call_id"])
        await client.until_over()
        decided = await metrics_of(site)
        await client.close()
    names = ("makai_approvals_waiting", "makai_runs_active", "makai_approvals_total")
    assert of(waiting, *names) == {"makai_approvals_waiting": 1, "makai_runs_active": 1}
    assert of(decided, *names) == {
        "makai_approvals_waiting": 0,
        "makai_runs_active": 0,
        "makai_approvals_total{decision=deny_continue}": 1,
    }


def test_what_an_agent_without_turns_consumed_is_counted_with_the_end_of_its_run() -> None:
    metrics = SessionMetrics()
    usage = msgspec.convert(
        {"input": 7, "output": 2, "cost_usd": 0.25}, type(ev.RunFinished(stop_reason="end_turn").usage)
    )
    facts: list[ev.SessionEvent] = [
        ev.RunStarted(run_number=1, model_ref="agent/x@y", without_turns=True),
        ev.RunFinished(stop_reason="end_turn", usage=usage),
    ]
    metrics.committed(
        "s", [ev.Logged(event_id=n, ts=n, event=fact, run_id="r") for n, fact in enumerate(facts, 1)], 0.1
    )
    assert of(read_metrics(rendered(metrics.metrics)), "makai_tokens_total", "makai_cost_usd_total") == {
        "makai_tokens_total{model=agent/x@y,kind=input}": 7,
        "makai_tokens_total{model=agent/x@y,kind=output}": 2,
        "makai_cost_usd_total{model=agent/x@y}": 0.25,
    }


def test_an_observer_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def lease_lost(self) -> None:
            raise ValueError

    metrics = SessionMetrics()
    Observers(Broken(), metrics).lease_lost()
    assert metrics.leases_lost.value() == 1
    assert [record.message for record in caplog.records] == ["an observer failed"]
