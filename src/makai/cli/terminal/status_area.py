"""The status area below the transcript: what the run is doing, the keys of an approval, and the footer. Pure."""

from __future__ import annotations

from typing import Final

from makai.cli.approval_keys import KeyHelp, Widths, key_lines
from makai.cli.session_selection import shown_agent
from makai.cli.terminal.styled_text import Line, Span, line
from makai.cli.terminal.tool_call_text import call_title
from makai.cli.terminal.transcript_view import OpenCall, TranscriptView
from makai.cli.terminal.usage_text import duration
from makai.core.approval_text import expiry_text
from makai.core.content import own_words
from makai.core.session_events import ApprovalRequested
from makai.core.visible_text import one_line, shown
from makai.sessions.state import Run, Waiting

MAX_THINKING_LINES: Final = 3
MAX_PROGRESS_LINES: Final = 4
MAX_CALLS: Final = 4
MAX_QUEUED: Final = 3
MAX_QUEUED_TEXT: Final = 60
MAX_WAIT_TEXT: Final = 200
STOPS: Final = "Esc stops"
FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_MS: Final = 200


def progress(view: TranscriptView, now_ms: int) -> list[Line]:
    """The end of what the model thinks and of what calls write; these lines are cut to the width."""
    return [*_thinking(view), *_calls(view, now_ms)]


def activity(view: TranscriptView, now_ms: int, *, editable: str | None = None) -> list[Line]:
    """What the run is doing and the key that stops it, then the queued messages. Up takes the message of the input id
    `editable` back. These lines are broken at words, so that no key is cut off."""
    queued = _queued(view.state.waiting, editable)
    return queued if view.state.active_run is None else [_run_line(view, view.state.active_run, now_ms), *queued]


def _run_line(view: TranscriptView, run: Run, now_ms: int) -> Line:
    spinner = FRAMES[now_ms // FRAME_MS % len(FRAMES)]
    if (waits := _wait_text(view, now_ms)) and run.status != "aborting" and not view.questions:
        return line(Span(f"{spinner} {waits}", "key"))
    took = duration((now_ms - run.started_at) / 1000)
    return line(Span(f"{spinner} {_doing(view, now_ms)}", "key"), Span(f"  {took}, {STOPS}", "dim"))


def approval_keys(
    asked: ApprovalRequested,
    widths: Widths,
    count: int,
    now_ms: int,
    width: int,
    *,
    ready: bool,
    focused: bool,
    is_long: bool,
) -> list[Line]:
    """The keys that answer an approval, each on a line of its own where the terminal is narrow. The lines are broken
    at words: a rule that is allowed must be seen whole. Before `ready` no key counts, because the user may have been
    typing."""
    if not focused:
        return [line(Span("  An approval is waiting: press Tab to answer it. Your line is kept.", "warn"))]
    if not ready:
        return [line(Span("  …", "warn"))]
    more = [expiry_text(asked.deadline_ms, now_ms), f"1 of {count} approvals" if count > 1 else ""]
    last = [line(Span(f"  {', '.join(filter(None, more))}", "dim"))] if any(more) else []
    keys = key_lines(widths, is_long=is_long, with_reason=True)
    return [*(each for line_keys in keys for each in _key_lines(line_keys, width)), *last]


def _key_lines(keys: list[KeyHelp], width: int) -> list[Line]:
    each: list[Line] = [(Span(f"  {key}", "key"), Span(f" {what}")) for key, what in keys]
    whole = tuple(span for spans in each for span in spans)
    return [whole] if sum(len(span.text) for span in whole) <= width else each


def _wait_text(view: TranscriptView, now_ms: int) -> str:
    """The wait before a request is sent again; "" when there is none."""
    if view.notice is None or view.notice.wait_ms is None:
        return ""
    left_s = max(0, view.noticed_at + view.notice.wait_ms - now_ms) / 1000
    return one_line(view.notice.waiting_text(left_s, stops=STOPS), MAX_WAIT_TEXT)


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
        return f"Waiting for {shown_agent(view.state)} ({waited})"
    return "Working"


def _thinking(view: TranscriptView) -> list[Line]:
    text = shown(view.thinking).strip()
    return [line(Span(f"· {each}", "dim")) for each in _last_lines(text, MAX_THINKING_LINES)]


def _calls(view: TranscriptView, now_ms: int) -> list[Line]:
    calls = [call for call in view.calls.values() if call.fact.call_id not in view.questions and not call.was_denied]
    lines = [drawn for call in calls[:MAX_CALLS] for drawn in _call(call, now_ms)]
    if (more := len(calls) - MAX_CALLS) > 0:
        lines.append(line(Span(f"  and {more} more call{'' if more == 1 else 's'}", "dim")))
    return lines


def _call(call: OpenCall, now_ms: int) -> list[Line]:
    began = call.started_at
    seconds = 0 if began is None else (now_ms - began) / 1000
    took = Span(f"  {duration(seconds)}" if seconds >= 1 else "", "dim")
    output = _last_lines(shown(call.output).rstrip("\n"), MAX_PROGRESS_LINES)
    head = line(Span("● " if began is not None else "○ ", "key"), Span(call_title(call.fact)), took)
    return [head, *(line(Span(f"  {each}", "dim")) for each in output)]


def _queued(waiting: tuple[Waiting, ...], editable: str | None) -> list[Line]:
    key = (Span("  ↑", "key"), Span(" edit", "dim"))
    lines = [(*_waiting(message), *(key if message.input_id == editable else ())) for message in waiting[:MAX_QUEUED]]
    if hidden := waiting[MAX_QUEUED:]:
        more = line(Span(f"  and {len(hidden)} more", "dim"))
        lines.append((*more, *(key if any(message.input_id == editable for message in hidden) else ())))
    return lines


def _waiting(message: Waiting) -> Line:
    how = "steers after this step" if message.delivery == "steer" else "queued"
    return line(Span(f"  {how}: {one_line(own_words(message.content), MAX_QUEUED_TEXT)}", "dim"))


def _last_lines(text: str, limit: int) -> list[str]:
    return [each for each in text.split("\n") if each.strip()][-limit:] if text else []
