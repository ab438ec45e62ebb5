"""The status area below the transcript: what the run is doing, the keys of an approval, and the footer. Pure."""

from __future__ import annotations

from typing import Final

from makai.cli.approval_keys import KeyHelp, Widths, key_lines
from makai.cli.session_selection import short_model
from makai.cli.terminal.styled_text import Line, Span, line
from makai.cli.terminal.tool_call_text import call_title
from makai.cli.terminal.transcript_view import OpenCall, TranscriptView
from makai.cli.terminal.usage_text import context_share, duration, money
from makai.core.approval_text import expiry_text
from makai.core.content import words_of
from makai.core.session_events import ApprovalRequested
from makai.core.visible_text import one_line, shown
from makai.sessions.state import Waiting

MAX_THINKING_LINES: Final = 3
MAX_PROGRESS_LINES: Final = 4
MAX_CALLS: Final = 4
MAX_QUEUED: Final = 3
FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_MS: Final = 200
_SANDBOXES: Final = {"read-only": "read-only sandbox", "full-access": "NO SANDBOX"}
"""The usual one is not mentioned."""


def activity(view: TranscriptView, now_ms: int) -> list[Line]:
    """Thinking, running calls, queued messages, and one line about what the run is doing."""
    lines = [*_thinking(view), *_calls(view, now_ms)]
    if (run := view.state.active_run) is not None:
        spinner = FRAMES[now_ms // FRAME_MS % len(FRAMES)]
        doing = f"{spinner} {_doing(view, now_ms)}"
        took = f"  {duration((now_ms - run.started_at) / 1000)}, Esc stops"
        lines.append(line(Span(doing, "key"), Span(took, "dim")))
    return [*lines, *_queued(view.state.waiting)]


def approval_keys(
    asked: ApprovalRequested,
    widths: Widths,
    count: int,
    now_ms: int,
    *,
    ready: bool,
    focused: bool,
    is_long: bool,
) -> list[Line]:
    """The keys that answer an approval. Before `ready` no key counts, because the user may have been typing."""
    if not focused:
        return [line(Span("  An approval is waiting: press Tab to answer it. Your line is kept.", "warn"))]
    if not ready:
        return [line(Span("  …", "warn"))]
    more = [expiry_text(asked.deadline_ms, now_ms), f"1 of {count} approvals" if count > 1 else ""]
    last = [line(Span(f"  {', '.join(filter(None, more))}", "dim"))] if any(more) else []
    keys = key_lines(widths, is_long=is_long, with_reason=True)
    return [*map(_key_line, keys), *last]


def _key_line(keys: list[KeyHelp]) -> Line:
    return line(*(span for key, what in keys for span in (Span(f"  {key}", "key"), Span(f" {what}"))))


def footer(view: TranscriptView) -> Line:
    usage = view.usage
    cost = usage.total.cost_usd if usage is not None else view.state.usage.cost_usd
    sandbox = _SANDBOXES.get(view.state.terms.sandbox, "") if view.state.terms.builtin_tools else ""
    model = short_model(view.state.model_ref)
    parts = [view.state.mode, sandbox, model, context_share(usage), money(cost) if cost else ""]
    return line(Span("  " + " · ".join(filter(None, parts)), "dim"))


def _doing(view: TranscriptView, now_ms: int) -> str:
    run = view.state.active_run
    assert run is not None
    if run.status == "aborting":
        return "Stopping"
    if view.questions:
        return "Waiting for your approval"
    if view.notice is not None and view.notice.level != "info":
        return one_line(view.notice.message)[:60]
    if view.text:
        return "Answering"
    if view.thinking:
        return "Thinking"
    if running := [call for call in view.calls.values() if call.started_at is not None]:
        return "Running a tool" if len(running) == 1 else f"Running {len(running)} tools"
    if run.purpose == "compaction":
        return "Summarising"
    if view.waits_since is not None and now_ms - view.waits_since > 2_000:
        waited = duration((now_ms - view.waits_since) / 1000)
        return f"Waiting for {short_model(run.model_ref)} ({waited})"
    return "Working"


def _thinking(view: TranscriptView) -> list[Line]:
    text = shown(view.thinking).strip()
    return [line(Span(f"· {each}", "dim")) for each in _last_lines(text, MAX_THINKING_LINES)]


def _calls(view: TranscriptView, now_ms: int) -> list[Line]:
    calls = [call for call in view.calls.values() if call.fact.call_id not in view.questions and not call.was_denied]
    lines = [drawn for call in calls[:MAX_CALLS] for drawn in _call(call, now_ms)]
    if len(calls) > MAX_CALLS:
        lines.append(line(Span(f"  and {len(calls) - MAX_CALLS} more calls", "dim")))
    return lines


def _call(call: OpenCall, now_ms: int) -> list[Line]:
    began = call.started_at
    seconds = 0 if began is None else (now_ms - began) / 1000
    took = Span(f"  {duration(seconds)}" if seconds >= 1 else "", "dim")
    output = _last_lines(shown(call.output).rstrip("\n"), MAX_PROGRESS_LINES)
    head = line(Span("● " if began is not None else "○ ", "key"), Span(call_title(call.fact)), took)
    return [head, *(line(Span(f"  {each}", "dim")) for each in output)]


def _queued(waiting: tuple[Waiting, ...]) -> list[Line]:
    lines = [_waiting(message) for message in waiting[:MAX_QUEUED]]
    if len(waiting) > MAX_QUEUED:
        lines.append(line(Span(f"  and {len(waiting) - MAX_QUEUED} more", "dim")))
    return lines


def _waiting(message: Waiting) -> Line:
    how = "steers after this step" if message.delivery == "steer" else "queued"
    return line(Span(f"  {how}: {one_line(words_of(message.content))}", "dim"))


def _last_lines(text: str, limit: int) -> list[str]:
    return [each for each in text.split("\n") if each.strip()][-limit:] if text else []
