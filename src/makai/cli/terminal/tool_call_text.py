"""Tool calls as people read them: one line and what came of it, and the question before it.

In: facts about calls. Out: styled lines. Pure. Whatever a model or a tool wrote is made harmless here; in a question it
is written out exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from makai.cli.terminal.diffs import counts, diff_lines
from makai.cli.terminal.styled_text import Line, Lines, Span, Style, line, lines_of
from makai.core.content import Image, Text
from makai.core.session_events import ApprovalDecided, ApprovalRequested, FileDiff, ToolCalled, ToolFinished
from makai.core.visible_text import exact, one_line, shown

INDENT: Final = "  "
MOST_OUTPUT_LINES: Final = 6
MOST_DIFF_LINES: Final = 40
MOST_ASKED_LINES: Final = 400
LONGEST_LINE: Final = 400
"""Of output, which nobody decides about: one line of minified code must not fill the screen."""
_COUNTED: Final = frozenset({"read", "search", "fetch"})
_ENGINE: Final = {
    "rule": "by a rule",
    "mode": "by the permission mode",
    "deadline": "because nobody answered in time",
    "abort": "because the run was stopped",
    "run_ended": "because the run ended",
}


def title_of(call: ToolCalled) -> str:
    """What the call is about, on one line."""
    title = one_line(call.title or call.name) or "a tool"
    if call.kind == "execute":
        return f"$ {title}"
    return title if call.title else f"{title}({one_line(call.arguments_json)[:100]})"


def finished_call(call: ToolCalled, result: ToolFinished, *, diff_was_shown: bool) -> tuple[Lines, Lines | None]:
    """The line of a call and the gist of its result; and all of the result, when the gist leaves something out."""
    failed = result.is_error
    head = line(
        Span("✗ " if failed else "✓ ", "bad" if failed else "good"),
        Span(title_of(call), "bold"),
        *_after_title(call, result),
    )
    body = _body(call, result, diff_was_shown=diff_was_shown)
    most = MOST_DIFF_LINES if result.diffs else MOST_OUTPUT_LINES
    if len(body) <= most:
        return Lines(lines=(head, *body)), None
    kept = _kept(body, most, last=call.kind == "execute")
    return Lines(lines=(head, *kept)), Lines(lines=(head, *body), gap=True)


def question(asked: ApprovalRequested, cwd: str | None) -> tuple[Lines, Lines | None]:
    """Exactly what would be done; and all of it, when it is too long to show unasked."""
    arguments = _arguments(asked.arguments_json)
    command = arguments.get("command") if asked.name == "shell" else None
    if isinstance(command, str):
        head, body = "Run this command?", _command(command, arguments, cwd)
        return Lines(lines=(_asking(head), *body), gap=True), None
    if asked.diffs:
        body = [each for diff in asked.diffs for each in diff_lines(diff)]
        head = f"{one_line(asked.title) or asked.name}?"
        if len(body) <= MOST_ASKED_LINES:
            return Lines(lines=(_asking(head), *body), gap=True), None
        left_out = line(Span(f"{INDENT}… {len(body) - MOST_ASKED_LINES:,} more lines: press v to see them all", "warn"))
        short = Lines(lines=(_asking(head), *body[:MOST_ASKED_LINES], left_out), gap=True)
        return short, Lines(lines=(_asking(head), *body), gap=True)
    head = f"{one_line(asked.title or asked.name)}?"
    body = [line(Span(f"{INDENT}{exact(asked.name)}", "bold")), *lines_of(_pretty(asked.arguments_json), "", INDENT)]
    return Lines(lines=(_asking(head), *body), gap=True), None


def decision(decided: ApprovalDecided, me: str) -> Lines:
    """Who said what about the question above."""
    who = "" if decided.by == me else f" {_ENGINE.get(decided.by) or 'by ' + one_line(decided.by)}"
    if decided.decision == "approve":
        scopes = {"once": "", "session": " for this session", "always": " always"}
        rule = f": {exact(decided.grant)}" if decided.grant else ""
        return Lines(lines=(line(Span(f"{INDENT}allowed{scopes[decided.scope]}{who}{rule}", "good")),))
    why = f": {one_line(decided.reason)}" if decided.reason and decided.by not in _ENGINE else ""
    return Lines(lines=(line(Span(f"{INDENT}denied{who}{why}", "bad")),))


def output_text(result: ToolFinished) -> str:
    """What a tool answered, as text."""
    return "\n".join(_content(part) for part in result.content).strip("\n")


def _asking(head: str) -> Line:
    return line(Span("? ", "warn"), Span(head, "warn"))


def _command(command: str, arguments: dict[str, Any], cwd: str | None) -> list[Line]:
    body = lines_of(exact(command), "bold", INDENT)
    directory = arguments.get("directory")
    place = directory if isinstance(directory, str) and directory != "." else cwd
    rest = [f"in {exact(place)}"] if place else []
    if isinstance(limit := arguments.get("timeout_s"), int | float):
        rest.append(f"for at most {limit:g} s")
    return [*body, line(Span(f"{INDENT}{', '.join(rest)}", "dim"))] if rest else body


def _arguments(arguments_json: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments_json, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _pretty(arguments_json: str) -> str:
    try:
        text = msgspec.json.format(arguments_json, indent=2)
    except msgspec.DecodeError:
        text = arguments_json
    return exact(text)


def _after_title(call: ToolCalled, result: ToolFinished) -> list[Span]:
    if result.diffs:
        return [Span(f"  {counts(result.diffs)}", "dim")]
    if result.interrupted:
        return [Span("  interrupted: what it did is unknown", "bad")]
    if result.exit_code:
        return [Span(f"  exit code {result.exit_code}", "bad")]
    if result.is_error or call.kind not in _COUNTED:
        return []
    count = len(output_text(result).splitlines())
    return [Span(f"  {count} line{'' if count == 1 else 's'}", "dim")]


def _body(call: ToolCalled, result: ToolFinished, *, diff_was_shown: bool) -> list[Line]:
    if result.diffs and not result.is_error:
        return [] if diff_was_shown else _diffs(result.diffs)
    if call.kind in _COUNTED and not result.is_error:
        return []
    style: Style = "bad" if result.is_error and call.kind != "execute" else "dim"
    text = shown(output_text(result))
    body = [line(Span(INDENT + each[:LONGEST_LINE], style)) for each in text.split("\n")] if text else []
    if result.spill_path:
        body.append(line(Span(f"{INDENT}all of it is in {one_line(result.spill_path)}", "dim")))
    return body


def _diffs(diffs: Sequence[FileDiff]) -> list[Line]:
    return [each for diff in diffs for each in diff_lines(diff)[1 if len(diffs) == 1 else 0 :]]


def _kept(body: list[Line], most: int, *, last: bool) -> list[Line]:
    left_out = line(Span(f"{INDENT}… {len(body) - most:,} more lines (Ctrl+O shows them)", "dim"))
    return [left_out, *body[-most:]] if last else [*body[:most], left_out]


def _content(part: Text | Image) -> str:
    return part.text if isinstance(part, Text) else "[image]"
