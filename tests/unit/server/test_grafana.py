"""The Grafana dashboard shows metrics that exist, and the important ones are on it; the documentation lists all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from makai.server.observability import Observability

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "deploy" / "grafana" / "makai.json"
_METRIC = re.compile(r"\b(?:makai|process)_[a-z0-9_]+")
NOT_SHOWN = {
    "makai_compactions_total",
    "makai_connections_total",
    "makai_sessions_created_total",
    "makai_stream_events_total",
    "makai_streams_failed_total",
    "makai_streams_refused_total",
    "makai_streams_total",
    "process_start_time_seconds",
}
"""Those that need not be watched all the time."""


def test_every_metric_of_the_dashboard_exists_and_the_reverse() -> None:
    dashboard: Any = msgspec.json.decode(DASHBOARD.read_bytes())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    expressions += [one.get("definition", "") for one in dashboard["templating"]["list"]]
    shown = {re.sub("_(bucket|sum|count)$", "", name) for text in expressions for name in _METRIC.findall(text)}
    known = {metric.name for metric in Observability().metrics.metrics}
    assert shown == known - NOT_SHOWN
    assert known > NOT_SHOWN


def test_every_label_that_the_dashboard_groups_by_belongs_to_its_metric() -> None:
    dashboard: Any = msgspec.json.decode(DASHBOARD.read_bytes())
    labels = {metric.name: {*metric.labels, "le", "instance"} for metric in Observability().metrics.metrics}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            grouped = {label for found in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in found.split(", ")}
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            names = [re.sub("_(bucket|sum|count)$", "", name) for name in _METRIC.findall(target["expr"])]
            assert [name for name in names if not grouped | legend <= labels[name]] == [], panel["title"]


def test_the_documentation_lists_every_metric() -> None:
    text = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| `(makai|process)_", line)]
    assert rows == [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.text} |"
        for metric in Observability().metrics.metrics
    ]
