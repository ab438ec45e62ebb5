"""What `makai sessions undo`, `redo` and `diff` do."""

from __future__ import annotations

import sys

import click
import msgspec

from makai.cli.console import note, painter, say
from makai.cli.session_access import open_sessions
from makai.cli.session_selection import find_session
from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff, RestoreDirection
from makai.core.visible_text import shown
from makai.sessions import requests as req
from makai.sessions.restore_text import NO_CHANGES, plan_lines, restore_command, session_diff_lines

_COLOURS = {"added": "green", "removed": "red"}


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    restored: bool
    """False for a dry run, a refusal, and when the user declined."""
    plan: req.RestorePlan


async def restore(
    given: str,
    direction: RestoreDirection,
    *,
    count: int,
    to: int | None,
    paths: tuple[str, ...],
    dry_run: bool,
    is_sure: bool,
    is_shown: bool,
) -> RestoreResult:
    """Show the plan unless it is printed as JSON, ask, and carry it out."""
    async with open_sessions() as sessions:
        session_id = (await find_session(sessions, given)).session_id
        wanted = req.PreviewRestore(session_id, direction, count, to, paths)
        plan = await sessions.dispatch(wanted)
        if is_shown:
            for line in plan_lines(plan):
                say(shown(line))
        is_wanted = not dry_run and not plan.is_refused and (is_sure or _confirmed(direction))
        if is_wanted:
            await sessions.dispatch(req.RunCommand(session_id, restore_command(wanted, plan)))
    return RestoreResult(session_id=session_id, restored=is_wanted, plan=plan)


def _confirmed(direction: RestoreDirection) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest(
            "restoring files needs your confirmation, and this is not a terminal.",
            hint="Look with --dry-run, confirm with --yes.",
        )
    return click.confirm(f"{direction.capitalize()} this?", err=True)


async def session_diff(given: str) -> list[FileDiff]:
    async with open_sessions() as sessions:
        session_id = (await find_session(sessions, given)).session_id
        return await sessions.dispatch(req.GetSessionDiff(session_id))


def print_diff(diffs: list[FileDiff]) -> None:
    if not diffs:
        note(NO_CHANGES)
        return
    paint = painter(sys.stdout)
    for line in session_diff_lines(diffs):
        say(paint(f"{line.gutter} {line.text}".rstrip(), fg=_COLOURS.get(line.kind), bold=line.kind == "file"))
