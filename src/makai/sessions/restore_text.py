"""What an undo or a redo would do, and what a session changed, in words for people."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from makai.core.approval_text import ExactLine, diff_lines
from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff, RestoreDirection
from makai.core.visible_text import exact_line, one_line
from makai.sessions.commands import RestoreFiles
from makai.sessions.requests import PreviewRestore, RestorePlan

NO_CHANGES: Final = "The tools of this session changed no file, or everything was undone."
_NUMBER: Final = re.compile(r"(#?)([0-9]{1,15})")
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
    nothing, a number of messages, `#` and the event of a message; files, quoted as in a shell; `yes` at the end."""
    words = _words(direction, argument)
    is_sure = bool(words) and words[-1].lower() == "yes"
    rest = words[:-1] if is_sure else words
    count, to = 1, None
    if rest and (numbered := _NUMBER.fullmatch(rest[0])):
        number = int(numbered[2])
        if number < 1:
            raise _unclear(direction, argument)
        count, to = (1, number) if numbered[1] else (number, None)
        rest = rest[1:]
    return PreviewRestore("", direction, count, to, paths=tuple(rest)), is_sure


def _words(direction: RestoreDirection, argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError:
        raise _unclear(direction, argument) from None


def _unclear(direction: RestoreDirection, argument: str) -> InvalidRequest:
    hint = (
        f"Write /{direction}, /{direction} 2 for two messages, /{direction} #EVENT for one by its event, "
        f"or /{direction} FILE for single files."
    )
    return InvalidRequest(f"/{direction} {one_line(argument, 60)} is unclear.", hint=hint)


def restore_command(wanted: PreviewRestore, plan: RestorePlan) -> RestoreFiles:
    """The command that carries out exactly this plan."""
    return RestoreFiles(
        now=0,
        direction=wanted.direction,
        count=wanted.count,
        to=wanted.to,
        paths=wanted.paths,
        plan_id=plan.plan_id,
    )


def session_diff_lines(diffs: Sequence[FileDiff]) -> list[ExactLine]:
    return [line for diff in diffs for line in diff_lines(diff)]
