"""What the commands of `makai sessions` do.

In: what was asked for. Out: sessions, transcripts, files, and what was changed. Reading touches nothing: a run that was
left behind by a crash is not resumed because somebody looks at it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import click
import msgspec

from makai.cli.console import has_colour, note, say
from makai.cli.model_table import painter
from makai.cli.run_request import folder_from
from makai.cli.session_access import in_words, open_sessions
from makai.cli.sessions_find import LIST_HINT, every_session, find_session
from makai.cli.sessions_text import grant_lines, session_table
from makai.core.errors import InvalidRequest, StorageUnavailable
from makai.core.home import home_directory
from makai.sessions.export import jsonl, markdown
from makai.sessions.history import TranscriptItem, history
from makai.sessions.log import permissions, repair, schema
from makai.sessions.log.base import Record, SessionSummary, StoredGrant
from makai.sessions.log.encoding import decoded_one
from makai.sessions.log.sqlite import SqliteLog
from makai.sessions.markdown_text import one_line
from makai.sessions.service import NewSession, Sessions


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions a list shows."""

    sessions: tuple[SessionSummary, ...]
    known_ids: tuple[str, ...]
    """Of all sessions, so that ids can be cut where they stay unique."""
    folder: str | None
    left_out: int
    only_waiting: bool = False


class Found(msgspec.Struct, frozen=True):
    """A session with its whole log."""

    summary: SessionSummary
    records: tuple[Record, ...]


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """A new session, and where it comes from."""

    session_id: str
    forked_from: str
    forked_at: int | None


class Trusted(msgspec.Struct, frozen=True, kw_only=True):
    """How a folder stands."""

    folder: str
    trusted: bool


# ---------------------------------------------------------------- reading


async def list_now(*, all_folders: bool, waiting: bool, limit: int) -> Listed:
    """The newest sessions of this folder, or of all."""
    folder = None if all_folders else folder_from(None)
    async with open_sessions() as sessions:
        known = await every_session(sessions)
    wanted = [
        session
        for session in known
        if (folder is None or session.cwd == folder or session.damaged)
        and (not waiting or session.pending_approvals > 0)
    ]
    shown = wanted[:limit] if limit else wanted
    return Listed(
        sessions=tuple(shown),
        known_ids=tuple(session.session_id for session in known),
        folder=folder,
        left_out=len(wanted) - len(shown),
        only_waiting=waiting,
    )


def print_list(listed: Listed) -> None:
    """The table, or what to do when there is none."""
    if not listed.sessions and listed.only_waiting:
        note("No session waits for an approval.")
        return
    if not listed.sessions:
        where = f" of {listed.folder}" if listed.folder else ""
        elsewhere = f" {LIST_HINT}" if listed.folder and listed.known_ids else ""
        note(f'There is no session{where} yet: `makai run "…"` or `makai` begins one.{elsewhere}')
        return
    lines = session_table(
        listed.sessions,
        now_ms=time.time_ns() // 1_000_000,
        known_ids=listed.known_ids,
        folders=listed.folder is None,
        paint=painter(has_colour(sys.stdout)),
        width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None,
    )
    say("\n".join(lines))
    if listed.left_out:
        note(f"{listed.left_out} more; --limit 0 shows all.", dim=True)


async def read_session(given: str) -> Found:
    """A session and its log."""
    async with open_sessions() as sessions:
        summary = await find_session(sessions, given)
        return Found(summary, tuple(await _records(sessions, summary.session_id)))


async def _records(sessions: Sessions, session_id: str) -> list[Record]:
    records: list[Record] = []
    while page := await sessions.read(session_id, records[-1].event_id if records else 0):
        records += page
    return records


def transcript(found: Found) -> tuple[TranscriptItem, ...]:
    """What was said and done, for scripts."""
    return history(map(decoded_one, found.records)).items()


def print_transcript(found: Found) -> None:
    """The session as Markdown; drawn, where this is a terminal."""
    text = markdown(found.summary, found.records)
    if not has_colour(sys.stdout):
        say(text, end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def exported(found: Found, form: str) -> Iterable[bytes]:
    """The session as a file holds it."""
    return jsonl(found.records) if form == "jsonl" else [markdown(found.summary, found.records).encode()]


def write(pieces: Iterable[bytes], path: Path | None) -> None:
    """To a file that only its owner can read, whole or not at all; else to standard output."""
    if path is None:
        sys.stdout.flush()
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.writelines(pieces)
        os.replace(fresh, path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise StorageUnavailable(
            f"{path} cannot be written ({error.strerror}).", hint="Name another file with -o."
        ) from None


# ---------------------------------------------------------------- changing


async def fork(given: str, at: int | None, title: str) -> Forked:
    """A session that continues another one."""
    async with open_sessions() as sessions:
        origin = await find_session(sessions, given)
        wanted = NewSession(model_ref="", forked_from=origin.session_id, forked_at=at, title=title)
        session_id = await sessions.create(wanted)
    return Forked(session_id=session_id, forked_from=origin.session_id, forked_at=at or origin.events)


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


# ---------------------------------------------------------------- grants and trust


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
        say("\n".join(grant_lines(grants, painter(has_colour(sys.stdout)))))
    else:
        note("Nothing was decided for ever." if folder is None else f"Nothing was decided for ever in {folder}.")


async def trust(folder: str, trusted: bool | None) -> Trusted:
    """A person's word about a folder, or what it was."""
    place = folder_from(folder)
    async with open_sessions() as sessions:
        if trusted is not None:
            await sessions.trust(place, trusted)
        return Trusted(folder=place, trusted=await sessions.is_trusted(place))
