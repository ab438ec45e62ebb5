"""What the commands of `makai sessions` change: forks, removal, repair, saved permissions and trusted folders."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import click
import msgspec

from makai.cli.console import Paint, note, painter, plain, say
from makai.cli.run_request import folder_from
from makai.cli.session_access import in_words, open_sessions, running_owner
from makai.cli.session_selection import find_session
from makai.core.errors import InvalidRequest, StorageUnavailable
from makai.core.home import home_directory
from makai.core.visible_text import one_line
from makai.sessions.log import repair, schema
from makai.sessions.log.base import LogReport, SessionSummary, StoredGrant, TrustedFolder
from makai.sessions.requests import (
    CheckLog,
    DeleteSession,
    ForkSession,
    IsTrusted,
    ListGrants,
    ListTrusted,
    RevokeGrant,
    SetTrust,
)


class ForkResult(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    forked_from: str
    forked_at: int | None


async def fork(given: str, at: int | None, title: str) -> ForkResult:
    async with open_sessions() as sessions:
        origin = await find_session(sessions, given)
        wanted = ForkSession(origin=origin.session_id, at=at, title=title or None)
        session_id = await sessions.dispatch(wanted)
    return ForkResult(session_id=session_id, forked_from=origin.session_id, forked_at=at or origin.events)


async def remove(given: tuple[str, ...], *, is_sure: bool) -> list[str] | None:
    """The removed ids; None when the user declined. All sessions are found before one is removed."""
    async with open_sessions() as sessions:
        chosen = {summary.session_id: summary for summary in [await find_session(sessions, one) for one in given]}
        if not is_sure and not _confirmed(list(chosen.values())):
            return None
        return [session_id for session_id in chosen if await sessions.dispatch(DeleteSession(session_id))]


def _confirmed(chosen: list[SessionSummary]) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest(
            "deleting needs your confirmation, and this is not a terminal.", hint="Confirm with --yes."
        )
    for summary in chosen:
        running = " (a run is active)" if summary.status in ("starting", "running", "awaiting_approval") else ""
        note(
            f"  {summary.session_id}  {one_line(summary.title, 60) or '(no title)'}, {summary.events:,} events{running}"
        )
    return click.confirm("Delete for good?", err=True)


async def examine(*, only_check: bool) -> LogReport:
    """Check the log, through its owner when one runs; repair it, which needs that there is no owner."""
    home = home_directory(os.environ)
    if not (home / schema.FILE_NAME).exists():
        return LogReport(sessions=0, events=0, problems=())
    try:
        if not only_check:
            return await asyncio.to_thread(repair.repair, home)
        async with running_owner(home) as sessions:
            return await (sessions.dispatch(CheckLog()) if sessions else asyncio.to_thread(repair.check, home))
    except StorageUnavailable as error:
        raise in_words(error, home) from None


def report_lines(report: LogReport, *, repaired: bool) -> list[str]:
    """What a check of the log found, and what was done about it."""
    read = f"{report.sessions:,} sessions with {report.events:,} events"
    if not report.problems:
        return [f"{read}: no damage found."]
    lines = [f"{read}: {len(report.problems)} problems."]
    for problem in report.problems:
        place = f"session {problem.session_id}" if problem.session_id else "the file"
        event = "" if problem.event_id is None else f", event {problem.event_id}"
        lines.append(f"  {one_line(place)}{event}: {one_line(problem.what)}")
    if repaired:
        lines.append("Repaired: every session can be read again; notices replace the damaged events.")
        lines.append(f"The damaged file is kept as {report.kept_as}.")
    else:
        lines.append("Run `makai sessions repair` to make every session readable again.")
    return lines


async def grants_now(folder: str | None) -> list[StoredGrant]:
    """The saved permissions of a folder, or of all."""
    async with open_sessions() as sessions:
        return await sessions.dispatch(ListGrants(folder))


async def revoke(folder: str, rule: str) -> None:
    """Remove a saved permission; running sessions ask again, too."""
    async with open_sessions() as sessions:
        if not await sessions.dispatch(RevokeGrant(folder, rule)):
            raise InvalidRequest(
                f"there is no saved permission {rule!r} in {folder}.", hint="List them: `makai sessions grants --all`."
            )


def print_grants(grants: list[StoredGrant], folder: str | None) -> None:
    if grants:
        say("\n".join(grant_lines(grants, painter(sys.stdout))))
    else:
        note("No permissions are saved." if folder is None else f"No permissions are saved for {folder}.")


def grant_lines(grants: Sequence[StoredGrant], paint: Paint = plain) -> list[str]:
    lines: list[str] = []
    folder: str | None = None
    for grant in grants:
        if grant.folder != folder:
            folder = grant.folder
            lines += [*([""] if lines else []), paint(one_line(folder) or "(no folder)", bold=True)]
        verdict = paint("allow", fg="green") if grant.allow else paint("deny ", fg="red")
        lines.append(f"  {verdict}  {one_line(grant.rule)}  (by {one_line(grant.by)}, session {grant.session_id[:8]})")
    return lines


async def trust(folder: str, trusted: bool | None) -> TrustedFolder:
    """Set whether a folder is trusted, unless `trusted` is None; returns what holds."""
    place = folder_from(folder)
    async with open_sessions() as sessions:
        if trusted is not None:
            await sessions.dispatch(SetTrust(place, trusted))
        return TrustedFolder(place, await sessions.dispatch(IsTrusted(place)))


async def trusted_folders() -> list[TrustedFolder]:
    """Every folder about which you decided."""
    async with open_sessions() as sessions:
        return await sessions.dispatch(ListTrusted())
