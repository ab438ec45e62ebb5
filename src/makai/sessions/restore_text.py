"""What an undo or a redo would do, and what a session changed, in words for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from makai.core.approval_text import ExactLine, diff_lines
from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff, RestoreDirection
from makai.core.visible_text import exact_line, one_line
from makai.sessions.commands import RestoreFiles
from makai.sessions.requests import PreviewRestore, RestorePlan

NO_CHANGES: Final = "The tools of this session changed no file, or everything was undone."
_KINDS: Final = {"create": "make again", "change": "restore", "remove": "remove", "keep": "keep"}


def plan_lines(plan: RestorePlan) -> list[str]:
    """The message, a line for each file, and what is not undone."""
    verb = "Undo" if plan.direction == "undo" else "Redo"
    lines = [f'{verb} the file changes since the message "{plan.text}":']
    for file in plan.files:
        counts = f"+{file.added} -{file.removed}"
        why = f"  ✗ {exact_line(file.refusal, 300)}" if file.refusal else ""
        lines.append(f"  {_KINDS[file.kind]:<10}  {exact_line(file.path, 300)}  {counts}{why}")
    lines += plan.notes
    if plan.is_refused:
        lines.append(f"This cannot be {'undone' if plan.direction == 'undo' else 'redone'}. Nothing is changed.")
    return lines


def parsed_restore(direction: RestoreDirection, argument: str) -> tuple[PreviewRestore, bool]:
    """What the words after /undo or /redo mean, for a session that is still to be named, and whether they confirm it:
    nothing, a number of messages, `#` and the event of a message; `yes`."""
    words = argument.lower().split()
    is_sure = "yes" in words
    rest = [word for word in words if word != "yes"]
    if not rest:
        return PreviewRestore("", direction), is_sure
    number = rest[0].removeprefix("#")
    if len(rest) > 1 or not number.isdecimal() or int(number) < 1:
        hint = f"Write /{direction}, /{direction} 2 for two messages, or /{direction} #EVENT for one by its event."
        raise InvalidRequest(f"/{direction} {one_line(argument, 60)} is unclear.", hint=hint)
    if rest[0].startswith("#"):
        return PreviewRestore("", direction, to=int(number)), is_sure
    return PreviewRestore("", direction, count=int(number)), is_sure


def restore_command(wanted: PreviewRestore, plan: RestorePlan) -> RestoreFiles:
    """The command that carries out exactly this plan."""
    return RestoreFiles(now=0, direction=wanted.direction, count=wanted.count, to=wanted.to, plan_id=plan.plan_id)


def session_diff_lines(diffs: Sequence[FileDiff]) -> list[ExactLine]:
    return [line for diff in diffs for line in diff_lines(diff)]
