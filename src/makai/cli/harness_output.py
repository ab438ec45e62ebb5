"""What `makai harness run` prints: events as lines, the progress of several runs, and results."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO, assert_never

import msgspec

from makai.cli.console import Paint, clip, harmless, note, painter, say, say_json, terminal_width
from makai.client.runner.tasks import RunTask
from makai.core.visible_text import shown
from makai.harness.contract.events import (
    AgentErrorEvent,
    AssistantTextEvent,
    Event,
    InitEvent,
    ResultEvent,
    SystemEvent,
    ToolProgressEvent,
    ToolResultEvent,
    ToolUseEvent,
    encode_event,
)
from makai.harness.contract.result import Result
from makai.harness.contract.shapes import encode

_MAX_LINE_CHARS = 200
_SUBJECTS = ("command", "file_path", "path", "pattern", "url", "query", "description")


def event_line(event: Event, paint: Paint) -> str:
    """One event for a person. Empty for those that only programs need."""
    match event:
        case InitEvent(session_id=session_id):
            return paint(f"session {session_id}", dim=True)
        case AssistantTextEvent(text=text):
            return text.strip()
        case ToolUseEvent(tool_name=name, input=values):
            return paint(_clipped(f"→ {name} {_subject(values)}".rstrip()), fg="cyan")
        case ToolResultEvent(content=content, is_error=True):
            return paint(_clipped(f"  failed: {content.strip()}"), fg="red")
        case SystemEvent(subtype=subtype, message=message):
            return paint(_clipped(f"[{subtype}] {message}".rstrip()), dim=True)
        case ResultEvent() | ToolResultEvent() | ToolProgressEvent():
            return ""
        case AgentErrorEvent(message=message):
            return paint(f"failed: {message}", fg="red")
        case _:
            assert_never(event)


def _subject(values: Mapping[str, Any]) -> str:
    """The argument that tells most about a call."""
    for name in _SUBJECTS:
        if isinstance(values.get(name), str):
            return str(values[name])
    return msgspec.json.encode(values).decode() if values else ""


def _clipped(text: str) -> str:
    return clip(" ".join(text.split()), _MAX_LINE_CHARS)


class EventPrinter:
    """Prints the events of one run, as lines or as JSON lines, and steps of the runner on standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._paint = painter(sys.stdout)

    def event(self, event: Event) -> None:
        if self._as_json:
            sys.stdout.buffer.write(encode_event(event) + b"\n")
            sys.stdout.buffer.flush()
        elif line := event_line(event, self._paint):
            say(harmless(line, sys.stdout))

    def step(self, text: str) -> None:
        if not self._as_json:
            note(shown(f"· {text}"), dim=True)

    def result(self, result: Result) -> None:
        if self._as_json:
            sys.stdout.buffer.write(encode(result) + b"\n")
            sys.stdout.buffer.flush()
            return
        for line in result_lines(result):
            note(shown(line))


def result_lines(result: Result) -> list[str]:
    """The result for a person, with what to do next."""
    facts: list[str] = [result.status]
    facts += [f"work result: {result.work_result}"] if result.work_result else []
    facts += [cost] if (cost := cost_text(result)) != "-" else []
    lines = ["", ", ".join(facts)]
    if result.error:
        lines.append(f"{result.failure_mode or 'error'}: {result.error}")
    if (quality := result.quality_report) is not None:
        lines.append(f"checks: {quality_text(result)}")
    if result.backstop_report is not None and result.backstop_report.diagnostics:
        lines.append(result.backstop_report.diagnostics)
    if result.pull_request_url:
        lines.append(f"pull request: {result.pull_request_url}")
    if result.worktree_path:
        lines.append(
            f"worktree: {result.worktree_path}" + (f" at {result.commit_sha[:12]}" if result.commit_sha else "")
        )
        lines += _next_steps(result)
    return lines if quality is None or not quality.blocked_promotion else [*lines, "The work is not promoted."]


def _next_steps(result: Result) -> list[str]:
    place = result.worktree_path
    if result.status == "completed":
        return [f"look at it: git -C {place} log --stat -3", f"remove it:  git worktree remove {place}"]
    return [f"continue:   makai harness run --resume {place}"]


def cost_text(result: Result) -> str:
    """ "-" when the agent did not say what it cost: in the contract that is a cost of 0."""
    usd = result.cost.total_cost_usd if result.cost is not None else 0.0
    return f"${usd:.2f}" if usd else "-"


def quality_text(result: Result) -> str:
    report = result.quality_report
    if report is None:
        return "-"
    if not report.baseline_captured:
        return "no baseline"
    deltas = {"tests": report.test_delta, "types": report.type_delta, "lint": report.lint_delta}
    changed = [f"{name} {delta:+d}" for name, delta in deltas.items() if delta]
    return ", ".join(changed) or "unchanged"


class ProgressBoard:
    """The state of several runs: one line each that is drawn again on a terminal, and a line per change elsewhere."""

    def __init__(self, tasks: Sequence[RunTask], stream: TextIO, *, as_json: bool) -> None:
        self._lines = {task.name: "waiting" for task in tasks}
        self._width = max((len(task.name) for task in tasks), default=0)
        self._stream, self._as_json = stream, as_json
        self._is_live = stream.isatty() and not as_json
        self._drawn = 0

    def event(self, name: str, event: Event) -> None:
        if self._as_json:
            say_json({"task": name, "event": msgspec.Raw(encode_event(event))})
        elif self._is_live and (line := event_line(event, lambda text, **_: text)):
            self.show(name, line)

    def show(self, name: str, text: str) -> None:
        text = shown(" ".join(text.split()))
        if text == self._lines[name]:
            return
        self._lines[name] = text
        if self._is_live:
            self._draw()
        elif not self._as_json:
            self._stream.write(f"{name}: {text}\n")
            self._stream.flush()

    def done(self, name: str, result: Result) -> None:
        if self._as_json:
            say_json({"task": name, "result": msgspec.Raw(encode(result))})
        self.show(name, f"{result.status}{': ' + result.error if result.error else ''}")

    def _draw(self) -> None:
        width = terminal_width() or 120
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        rows = [clip(f"{name:<{self._width}}  {text}", width - 1) for name, text in self._lines.items()]
        self._stream.write(up + "".join(f"\r\x1b[2K{row}\n" for row in rows))
        self._stream.flush()
        self._drawn = len(rows)


def results_table(results: Mapping[str, Result]) -> list[str]:
    """One row per run, for the end of several."""
    header = ("TASK", "STATUS", "WORK", "CHECKS", "COST", "COMMIT", "WORKTREE")
    rows = [
        (
            name,
            result.failure_mode or result.status,
            result.work_result or "-",
            quality_text(result),
            cost_text(result),
            result.commit_sha[:12] or "-",
            result.worktree_path or "-",
        )
        for name, result in results.items()
    ]
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]
