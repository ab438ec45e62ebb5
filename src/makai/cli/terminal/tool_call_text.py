"""Tool calls in the transcript: one line per call with the gist of its result, and the approval before it. Pure.

Text of models and tools is made safe to show here; an approval is shown exactly (`core.approval_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from makai.cli.terminal.styled_text import Line, Lines, Span, Style, line
from makai.core.approval_text import ApprovalText, ExactLine, LineKind, approval_text, diff_counts, diff_lines
from makai.core.content import words_of
from makai.core.session_events import ApprovalDecided, ApprovalRequested, ToolCalled, ToolFinished
from makai.core.visible_text import exact, one_line, shown

INDENT: Final = "  "
MAX_OUTPUT_LINES: Final = 6
MAX_DIFF_LINES: Final = 40
MAX_OUTPUT_COLUMNS: Final = 400
"""One line of minified output must not fill the screen."""
_COUNTED: Final = frozenset({"read", "search", "fetch"})
_AUTOMATIC: Final = {
    "rule": "by a rule",
    "mode": "by the permission mode",
    "deadline": "because it expired",
    "abort": "because the run was stopped",
    "run_ended": "because the run ended",
}
_STYLES: Final[dict[LineKind, Style]] = {
    "command": "bold",
    "argument": "",
    "detail": "dim",
    "opened": "warn",
    "file": "bold",
    "context": "dim",
    "added": "added",
    "removed": "removed",
    "omitted": "warn",
}


def call_title(call: ToolCalled) -> str:
    title = one_line(call.title or call.name) or "a tool"
    if call.kind == "execute":
        return f"$ {title}"
    return title if call.title else f"{title}({one_line(call.arguments_json, 100)})"


def finished_call(call: ToolCalled, result: ToolFinished, *, diff_was_shown: bool) -> tuple[Lines, Lines | None]:
    """The line of a call and the gist of its result; and the whole result, when the gist leaves something out."""
    failed = result.is_error
    head = line(
        Span("✗ " if failed else "✓ ", "bad" if failed else "good"),
        Span(call_title(call), "bold"),
        *_after_title(call, result),
    )
    body = _body(call, result, diff_was_shown=diff_was_shown)
    limit = MAX_DIFF_LINES if result.diffs else MAX_OUTPUT_LINES
    if len(body) <= limit + 1:  # the mark takes a line too
        short = tuple(map(_clipped, body))
        return Lines(lines=(head, *short)), Lines(lines=(head, *body), gap=True) if short != tuple(body) else None
    mark = line(Span(f"{INDENT}… {len(body) - limit:,} more lines (Ctrl+O shows them)", "dim"))
    kept = [mark, *map(_clipped, body[-limit:])] if call.kind == "execute" else [*map(_clipped, body[:limit]), mark]
    return Lines(lines=(head, *kept)), Lines(lines=(head, *body), gap=True)


def approval_question(asked: ApprovalRequested, cwd: str | None) -> tuple[Lines, Callable[[], Lines] | None]:
    """The exact approval; and what makes the whole of it, when the first leaves out lines and says so."""
    text = approval_text(asked, cwd)
    return _question(text, text.excerpt()), (lambda: _question(text, text.lines)) if text.is_long else None


def _question(text: ApprovalText, lines: Iterable[ExactLine]) -> Lines:
    head = line(Span("? ", "warn"), Span(text.question, "warn"))
    return Lines(lines=(head, *map(_styled, lines)), gap=True)


def _styled(each: ExactLine) -> Line:
    text = Span(each.text, _STYLES[each.kind])
    return line(Span(f"{INDENT}{each.gutter} ", "dim"), text) if each.gutter else line(Span(INDENT), text)


def decision(decided: ApprovalDecided, me: str) -> Lines:
    who = "" if decided.by == me else f" {_AUTOMATIC.get(decided.by) or 'by ' + one_line(decided.by)}"
    if decided.decision == "approve":
        scopes = {"once": "", "session": " for this session", "always": " always"}
        rule = f": {exact(decided.grant)}" if decided.grant else ""
        return Lines(lines=(line(Span(f"{INDENT}allowed{scopes[decided.scope]}{who}{rule}", "good")),))
    why = f": {one_line(decided.reason)}" if decided.reason and decided.by not in _AUTOMATIC else ""
    return Lines(lines=(line(Span(f"{INDENT}denied{who}{why}", "bad")),))


def _after_title(call: ToolCalled, result: ToolFinished) -> list[Span]:
    if result.diffs:
        return [Span(f"  {diff_counts(result.diffs)}", "dim")]
    if result.interrupted:
        return [Span("  interrupted: what it did is unknown", "bad")]
    if result.exit_code:
        return [Span(f"  exit code {result.exit_code}", "bad")]
    if result.is_error or call.kind not in _COUNTED:
        return []
    count = len(_output(result).splitlines())
    return [Span(f"  {count} line{'' if count == 1 else 's'}", "dim")]


def _body(call: ToolCalled, result: ToolFinished, *, diff_was_shown: bool) -> list[Line]:
    if result.diffs and not result.is_error:
        skipped = 1 if len(result.diffs) == 1 else 0  # the title names the only file
        return [] if diff_was_shown else [_styled(each) for diff in result.diffs for each in diff_lines(diff)[skipped:]]
    if call.kind in _COUNTED and not result.is_error:
        return []
    style: Style = "bad" if result.is_error and call.kind != "execute" else "dim"
    text = shown(_output(result))
    body = [line(Span(INDENT + each, style)) for each in text.split("\n")] if text else []
    if result.spill_path:
        body.append(line(Span(f"{INDENT}the whole output is in {one_line(result.spill_path)}", "dim")))
    return body


def _clipped(shown_line: Line) -> Line:
    """A very long line is cut with a mark, as lines are folded."""
    *before, last = shown_line
    if len(last.text) <= MAX_OUTPUT_COLUMNS:
        return shown_line
    left_out = len(last.text) - MAX_OUTPUT_COLUMNS
    mark = Span(f"… {left_out:,} more characters (Ctrl+O shows them)", "dim")
    return (*before, Span(last.text[:MAX_OUTPUT_COLUMNS], last.style), mark)


def _output(result: ToolFinished) -> str:
    return words_of(result.content).strip("\n")
