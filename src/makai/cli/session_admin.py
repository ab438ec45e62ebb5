"""What the commands of `makai sessions` change: forks, removal, repair, saved permissions and trusted folders."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from makai.cli.console import Paint, note, plain
from makai.cli.run_request import folder_from
from makai.cli.session_access import in_words, open_sessions, running_owner, usable_config
from makai.cli.session_selection import find_session
from makai.core.approval_text import diff_lines
from makai.core.config import ClusterConfig, StoreConfig
from makai.core.errors import InvalidRequest, StorageUnavailable
from makai.core.home import home_directory
from makai.core.visible_text import exact_line, one_line
from makai.sessions import requests as req
from makai.sessions.commands import Archive, SetTitle
from makai.sessions.log import repair, schema
from makai.sessions.log.base import LogReport, SessionSummary, StoredGrant, TrustedFolder
from makai.sessions.log.nodes import process_of
from makai.sessions.log.opening import is_postgres, open_beside, store_of

if TYPE_CHECKING:
    from makai.sessions.log.postgres.log import PostgresLog
    from makai.sessions.log.postgres.sharded import ShardedLog

_EMPTY: Final = LogReport(sessions=0, events=0, problems=())
_REPAIR: Final = "Run `makai sessions repair` to make every session readable again."


class ForkResult(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    forked_from: str
    forked_at: int | None


async def fork(given: str, at: int | None, title: str) -> ForkResult:
    async with open_sessions() as sessions:
        origin = await find_session(sessions, given)
        wanted = req.ForkSession(origin=origin.session_id, at=at, title=title or None)
        session_id = await sessions.dispatch(wanted)
    return ForkResult(session_id=session_id, forked_from=origin.session_id, forked_at=at or origin.events)


async def rename(given: str, title: str) -> str:
    """The id of the session that has this title now."""
    async with open_sessions() as sessions:
        session_id = (await find_session(sessions, given)).session_id
        await sessions.dispatch(req.RunCommand(session_id, SetTitle(now=0, title=title)))
        return session_id


async def archive(given: tuple[str, ...], *, archived: bool) -> list[str]:
    """The ids of sessions that are archived now, or are not any more. All are found before one is changed."""
    async with open_sessions() as sessions:
        chosen = list(dict.fromkeys([(await find_session(sessions, one)).session_id for one in given]))
        for session_id in chosen:
            await sessions.dispatch(req.RunCommand(session_id, Archive(now=0, archived=archived)))
        return chosen


async def remove(given: tuple[str, ...], *, is_sure: bool) -> list[str] | None:
    """The removed ids; None when the user declined. All sessions are found before one is removed."""
    async with open_sessions() as sessions:
        chosen = {summary.session_id: summary for summary in [await find_session(sessions, one) for one in given]}
        if not is_sure and not _confirmed(list(chosen.values())):
            return None
        return [session_id for session_id in chosen if await sessions.dispatch(req.DeleteSession(session_id))]


def _confirmed(chosen: list[SessionSummary]) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        unasked = "deleting needs your confirmation, and this is not a terminal."
        raise InvalidRequest(unasked, hint="Confirm with --yes.")
    for summary in chosen:
        running = " (a run is active)" if summary.status in ("starting", "running", "awaiting_approval") else ""
        title = exact_line(summary.title, 100) or "(no title)"
        note(f"  {summary.session_id}  {title}, {summary.events:,} events{running}")
    return click.confirm("Delete for good?", err=True)


async def examine(*, only_check: bool) -> tuple[LogReport, str]:
    """Check the log, through its owner when one runs; repair it, which needs that there is no owner. Returns also what
    helps against damage that is still there."""
    home = home_directory(os.environ)
    config = usable_config(home)
    store = store_of(home, config)
    try:
        if only_check:
            return await _checked(home, store, config.cluster), _REPAIR
        if is_postgres(store):
            async with _databases(store, config.cluster) as log:
                return await _repair_databases(log, home)
        return await asyncio.to_thread(repair.repair, home) if _has_file(home) else _EMPTY, ""
    except StorageUnavailable as error:
        raise in_words(error, home) from None


async def _checked(home: Path, store: StoreConfig, cluster: ClusterConfig) -> LogReport:
    async with running_owner(home) as sessions:
        if sessions:
            return await sessions.dispatch(req.CheckLog())
    if is_postgres(store):
        async with _databases(store, cluster) as log:
            return await log.check()
    return await asyncio.to_thread(repair.check, home) if _has_file(home) else _EMPTY


def _has_file(home: Path) -> bool:
    return (home / schema.FILE_NAME).exists()


@asynccontextmanager
async def _databases(store: StoreConfig, cluster: ClusterConfig) -> AsyncIterator[PostgresLog | ShardedLog]:
    log = await open_beside(store, cluster)
    try:
        yield log
    finally:
        await log.close()


async def _repair_databases(log: PostgresLog | ShardedLog, home: Path) -> tuple[LogReport, str]:
    me = process_of(log.node.node_id)
    others = [node.name for node in await log.nodes() if process_of(node.node_id) != me]
    if others:
        raise InvalidRequest(
            f"The sessions are used by {', '.join(map(one_line, others))}.",
            hint="Stop makai there and try again. `makai sessions repair --check` works while it runs.",
        )
    report = await log.check()
    if not report.problems:
        return report, ""
    from makai.sessions.log.postgres.repair_file import RepairFile

    kept = RepairFile(home)
    for part in log.parts:
        await part.repair(kept.keep)
    left = await log.check()
    if left.problems:
        return left, f"These are left. Restore the database from its backup. What was replaced is in {kept.path}."
    return msgspec.structs.replace(report, kept_as=str(kept.path)), ""


def report_lines(report: LogReport, next_step: str) -> list[str]:
    """What a check or a repair found; `next_step` as `examine` returns it."""
    read = f"{report.sessions:,} sessions with {report.events:,} events"
    if not report.problems:
        return [f"{read}: no damage found."]
    lines = [f"{read}: {len(report.problems)} problems."]
    for problem in report.problems:
        place = f"session {problem.session_id}" if problem.session_id else "the log"
        event = "" if problem.event_id is None else f", event {problem.event_id}"
        lines.append(f"  {one_line(place)}{event}: {one_line(problem.what)}")
    if report.kept_as:
        lines.append("Repaired: every session can be read again; notices replace the damaged events.")
        lines.append(f"What was damaged is kept as {report.kept_as}.")
    return [*lines, next_step] if next_step else lines


async def grants(folder: str, revoked: str | None, *, all_folders: bool) -> list[StoredGrant]:
    """Remove a permission if one is named, in running sessions too; then the saved ones of the folder, or of all."""
    async with open_sessions() as sessions:
        if revoked is not None and not await sessions.dispatch(req.RevokeGrant(folder, revoked)):
            hint = "List them: `makai sessions grants --all`."
            raise InvalidRequest(f"there is no saved permission {revoked!r} in {folder}.", hint=hint)
        return await sessions.dispatch(req.ListGrants(None if all_folders else folder))


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


async def trust(folder: str, trusted: bool | None, *, all_folders: bool) -> list[TrustedFolder]:
    """Set whether a folder is trusted, unless `trusted` is None; returns what holds for it, or for all folders. What is
    trusted is what is shown here."""
    place = folder_from(folder)
    async with open_sessions() as sessions:
        found = await sessions.dispatch(req.GetTrust(place))
        if trusted is not None or not all_folders:
            for diff in found.changed:
                note(f"{diff.path} is new or changed since you trusted it, so it is ignored until you do so again:")
                for line in diff_lines(diff):
                    note(f"  {line.text}")
            for wanted in found.wanted:
                note(wanted)
        if trusted is not None and not await sessions.dispatch(req.SetTrust(place, trusted, found.digests)):
            message = f"The project files of {place} changed while they were shown, so nothing was decided."
            raise InvalidRequest(message, hint="Run the command again and look at them.")
        if all_folders:
            return await sessions.dispatch(req.ListTrusted())
        return [TrustedFolder(place, found.trusted if trusted is None else trusted)]
