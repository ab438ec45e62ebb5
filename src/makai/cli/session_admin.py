"""What the commands of `makai sessions` change: forks, removal, repair, saved permissions and trusted folders."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing

import click
import msgspec

from makai.cli.console import Paint, note, painter, plain, say
from makai.cli.run_request import folder_from
from makai.cli.session_access import in_words, open_sessions
from makai.cli.session_selection import find_session
from makai.core.errors import InvalidRequest, StorageUnavailable
from makai.core.home import home_directory
from makai.sessions.log import permissions, repair, schema
from makai.sessions.log.base import SessionSummary, StoredGrant
from makai.sessions.log.repair import Report
from makai.sessions.log.sqlite import SqliteLog
from makai.sessions.markdown_text import one_line
from makai.sessions.service import NewSession


class ForkResult(msgspec.Struct, frozen=True, kw_only=True):
    """A new session, and where it comes from."""

    session_id: str
    forked_from: str
    forked_at: int | None


class FolderTrust(msgspec.Struct, frozen=True, kw_only=True):
    """How a folder stands."""

    folder: str
    trusted: bool


async def fork(given: str, at: int | None, title: str) -> ForkResult:
    """A session that continues another one."""
    async with open_sessions() as sessions:
        origin = await find_session(sessions, given)
        wanted = NewSession(model_ref="", forked_from=origin.session_id, forked_at=at, title=title)
        session_id = await sessions.create(wanted)
    return ForkResult(session_id=session_id, forked_from=origin.session_id, forked_at=at or origin.events)


async def remove(given: tuple[str, ...], *, is_sure: bool) -> list[str] | None:
    """The ids of those that were removed; None when the person did not want to. All are found before one is removed."""
    async with open_sessions() as sessions:
        chosen = {summary.session_id: summary for summary in [await find_session(sessions, one) for one in given]}
        if not is_sure and not _confirmed(list(chosen.values())):
            return None
        return [session_id for session_id in chosen if await sessions.delete(session_id)]


def _confirmed(chosen: list[SessionSummary]) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest("nobody can be asked whether to remove this for good.", hint="Say so with --yes.")
    for summary in chosen:
        running = " (a run is active)" if summary.status in ("starting", "running", "awaiting_approval") else ""
        note(
            f"  {summary.session_id}  {one_line(summary.title, 60) or '(no title)'}, {summary.events:,} events{running}"
        )
    return click.confirm("Remove for good?", err=True)


def examine(*, only_check: bool) -> repair.Report:
    """Look for damage, and repair it unless told not to."""
    home = home_directory(os.environ)
    if not (home / schema.FILE_NAME).exists():
        return repair.Report(sessions=0, events=0, problems=())
    try:
        return repair.check(home) if only_check else repair.repair(home)
    except StorageUnavailable as error:
        raise in_words(error, home) from None


def report_lines(report: Report, *, repaired: bool) -> list[str]:
    """What a check of the log found, and what was done about it."""
    read = f"{report.sessions:,} sessions with {report.events:,} events"
    if not report.problems:
        return [f"{read}: nothing is damaged."]
    lines = [f"{read}: {len(report.problems)} problems."]
    for problem in report.problems:
        place = f"session {problem.session_id}" if problem.session_id else "the file"
        event = "" if problem.event_id is None else f", event {problem.event_id}"
        lines.append(f"  {one_line(place)}{event}: {one_line(problem.what)}")
    if repaired:
        lines.append("Repaired: every session can be read again, and what was damaged says so in its place.")
        lines.append(f"The damaged file is kept as {report.kept_as}.")
    else:
        lines.append("`makai sessions repair` makes every session readable again.")
    return lines


def grants_now(folder: str | None) -> list[StoredGrant]:
    """What was decided for ever, in this folder or, for None, in all. Read beside whoever owns the sessions."""
    path = home_directory(os.environ) / schema.FILE_NAME
    if not path.exists():
        return []
    try:
        with closing(schema.open_reader(path)) as connection:
            return permissions.list_grants(connection, folder)
    except sqlite3.Error as error:
        raise StorageUnavailable(
            f"{path} cannot be read ({error}).", hint="`makai sessions repair --check` says more."
        ) from None


async def revoke(folder: str, rule: str) -> None:
    """Forget a rule of a folder. Needs the sessions for itself, as whoever runs a session has read its rules."""
    home = home_directory(os.environ)
    try:
        log = await SqliteLog.open(home)
    except StorageUnavailable as error:
        raise in_words(error, home) from None
    try:
        if not await log.revoke(folder, rule):
            raise InvalidRequest(
                f"there is no grant {rule!r} in {folder}.", hint="`makai sessions grants --all` shows all of them."
            )
    finally:
        await log.close()


def print_grants(grants: list[StoredGrant], folder: str | None) -> None:
    """The rules, or that there are none."""
    if grants:
        say("\n".join(grant_lines(grants, painter(sys.stdout))))
    else:
        note("Nothing was decided for ever." if folder is None else f"Nothing was decided for ever in {folder}.")


def grant_lines(grants: Sequence[StoredGrant], paint: Paint = plain) -> list[str]:
    """What was allowed or refused for ever, by folder."""
    lines: list[str] = []
    folder: str | None = None
    for grant in grants:
        if grant.folder != folder:
            folder = grant.folder
            lines += [*([""] if lines else []), paint(one_line(folder) or "(no folder)", bold=True)]
        verdict = paint("allow", fg="green") if grant.allow else paint("deny ", fg="red")
        lines.append(f"  {verdict}  {one_line(grant.rule)}  (by {one_line(grant.by)}, session {grant.session_id[:8]})")
    return lines


async def trust(folder: str, trusted: bool | None) -> FolderTrust:
    """A person's word about a folder, or what it was."""
    place = folder_from(folder)
    async with open_sessions() as sessions:
        if trusted is not None:
            await sessions.trust(place, trusted)
        return FolderTrust(folder=place, trusted=await sessions.is_trusted(place))
