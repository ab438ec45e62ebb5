"""Undo and redo of a session's file changes: reads the log, looks at the files, and restores them.

    plan (log, files) ─► files_restoring (durable) ─► files are restored, all or none ─► files_restored

What a process that died left behind is not continued: the files are looked at, and the log then says what is so.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from makai.agent.workbench import hidden_folders
from makai.aio.tasks import BackgroundTasks
from makai.core.approval_text import diff_counts
from makai.core.errors import MakaiError, SessionRefused
from makai.core.session_events import FileDiff, RestoredFile, RestoreDirection
from makai.core.visible_text import one_line
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.file_changes import CLAIMED, MAX_FILES, FileChanges, FileTarget, FileVersion, Selection
from makai.sessions.live import LiveSession
from makai.sessions.log.base import EventLog, replay
from makai.sessions.placement import check_folder
from makai.sessions.restore_rules import check_not_restoring
from makai.sessions.state import SessionState
from makai.tools.restoring import FileState, Replacement, RestorableFiles

MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
MAX_SHOWN_CHARACTERS: Final = 8 * 1024 * 1024
"""Of the diffs of a preview."""
INTERRUPTED: Final = "The server ended while files were restored."
CHANGED: Final = "it was changed since"


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with the contents that carry it out."""

    plan: req.RestorePlan
    events: tuple[int, ...]
    files: tuple[RestoredFile, ...]
    replacements: tuple[Replacement, ...]
    diffs: tuple[FileDiff, ...]


class FileUndo:
    def __init__(
        self,
        home: Path,
        log: EventLog,
        tasks: BackgroundTasks,
        clock: Callable[[], int],
        session: Callable[[str], Awaitable[LiveSession]],
    ) -> None:
        """`session` finds a session by its id."""
        self._session = session
        self._home = home
        self._log = log
        self._tasks = tasks
        self._clock = clock
        self._active: set[str] = set()
        """Sessions whose files are being restored by a task of this process."""

    async def preview(self, wanted: req.PreviewRestore) -> req.RestorePlan:
        session = await self._session(wanted.session_id)
        check_folder(session)
        prepared = await self._prepare(session, wanted)
        diffs = _shown(prepared.diffs) if wanted.with_diffs else ()
        return msgspec.structs.replace(prepared.plan, diffs=diffs)

    async def diff(self, wanted: req.GetSessionDiff) -> list[FileDiff]:
        await self._session(wanted.session_id)
        changes = await self._changes(wanted.session_id)
        return [target.diff for target in changes.net()]

    async def restore(self, session: LiveSession, wanted: cmd.RestoreFiles) -> None:
        """Carry out an undo or a redo. Raises `SessionRefused` when nothing was changed."""
        if session.state.active_run is not None:
            raise SessionRefused("BUSY", "A run is active.", hint="Wait for it, or abort it first.")
        prepared = await self._prepare(session, wanted)
        plan = prepared.plan
        if plan.is_refused:
            raise SessionRefused("INVALID_COMMAND", refusal_text(plan))
        if wanted.plan_id not in ("", plan.plan_id):
            message = f"What would be {_done(plan.direction)} is not what you were shown. Nothing was changed."
            raise SessionRefused("INVALID_COMMAND", message, hint="Look at it again.")
        begin = msgspec.structs.replace(wanted, message=plan.message, events=prepared.events, files=prepared.files)
        # From the first event to the last it belongs to no caller: one that is gone does not leave half of it.
        failures: list[MakaiError] = []
        work = self._carry_out(session, begin, prepared, failures)
        await asyncio.shield(self._tasks.start(work, f"makai-undo-{session.session_id}", may_finish=True))
        if failures:
            raise failures[0]

    async def recover(self, session: LiveSession) -> None:
        """Settle what this process, or one before it, could not log."""
        is_open = session.state.restoring is not None and session.session_id not in self._active
        if is_open and session.claim.is_here:
            await self.settle(session, INTERRUPTED)

    async def settle(self, session: LiveSession, problem: str) -> None:
        """Log how the files of the open `files_restoring` are now."""
        begun = session.state.restoring
        if begun is None:
            return
        files = await asyncio.to_thread(self._outcomes, session.state, begun.files)
        is_whole = all(file.outcome == "restored" for file in files)
        await session.submit(cmd.SettleRestore(now=self._clock(), files=files, problem="" if is_whole else problem))

    async def _carry_out(
        self, session: LiveSession, begin: cmd.RestoreFiles, prepared: _Prepared, failures: list[MakaiError]
    ) -> None:
        self._active.add(session.session_id)
        try:
            await session.submit(begin)
            problem = ""
            try:
                await asyncio.to_thread(_files(session.state, self._home).restore, prepared.replacements)
            except (MakaiError, OSError) as error:
                problem = f"{_reason(error)}. What was restored before was taken back."
                failures.append(SessionRefused("INVALID_COMMAND", problem))
            await self.settle(session, problem)
        except MakaiError as error:
            failures.append(error)
        finally:
            self._active.discard(session.session_id)

    async def _prepare(self, session: LiveSession, wanted: req.PreviewRestore | cmd.RestoreFiles) -> _Prepared:
        await self.recover(session)
        state = session.state
        check_not_restoring(state)
        if state.cwd is None and not state.roots:
            raise SessionRefused("INVALID_COMMAND", "This session has no folder.")
        if len(wanted.paths) > MAX_FILES:
            raise SessionRefused("BAD_ARGUMENT", f"At most {MAX_FILES:,} files can be named.")
        paths = _absolute(wanted.paths, state)
        changes = await self._changes(session.session_id)
        selection = changes.select(wanted.direction, wanted.count, wanted.to, paths)
        return await asyncio.to_thread(_prepared, selection, _files(state, self._home))

    async def _changes(self, session_id: str) -> FileChanges:
        changes = FileChanges()
        async for logged in replay(self._log, session_id, deltas=False):
            changes.apply(logged)
        return changes

    def _outcomes(self, state: SessionState, files: tuple[RestoredFile, ...]) -> tuple[RestoredFile, ...]:
        try:
            folders = _files(state, self._home)
        except MakaiError:
            return tuple(msgspec.structs.replace(file, outcome="unknown") for file in files)
        return tuple(_with_outcome(file, folders) for file in files)


def refusal_text(plan: req.RestorePlan) -> str:
    """Why nothing is done, for people."""
    refused = [file for file in plan.files if file.refusal]
    named = "; ".join(f"{one_line(file.path)}: {file.refusal}" for file in refused[:10])
    more = f"; and {len(refused) - 10} more files" if len(refused) > 10 else ""
    return f"Nothing was {_done(plan.direction)}. {named}{more}."


def _done(direction: RestoreDirection) -> str:
    return "undone" if direction == "undo" else "redone"


def _absolute(paths: tuple[str, ...], state: SessionState) -> list[str]:
    """As the log names them. Nothing is looked up: a path that is not in the log is refused."""
    return [os.path.normpath(os.path.join(state.cwd or "/", path)) for path in paths]


def _files(state: SessionState, home: Path) -> RestorableFiles:
    folders = [Path(folder) for folder in dict.fromkeys((*([state.cwd] if state.cwd else []), *state.roots))]
    return RestorableFiles(folders, hidden_folders(state.terms.sandbox, home, os.environ, folders))


def _prepared(selection: Selection, files: RestorableFiles) -> _Prepared:
    plans: list[req.FileRestorePlan] = []
    restored: list[RestoredFile] = []
    replacements: list[Replacement] = []
    diffs: list[FileDiff] = []
    total = 0
    for target in selection.targets():
        state, target, refusal = _looked_at(target, files)
        total += len(state.content) if state is not None else 0
        if not refusal and (len(plans) >= MAX_FILES or total > MAX_TOTAL_BYTES):
            refusal = f"these are more than {MAX_FILES:,} files or {MAX_TOTAL_BYTES:,} bytes"
        diffs.append(target.diff)
        added, removed = (int(each[1:]) for each in diff_counts(diffs[-1:]).split())
        plans.append(
            req.FileRestorePlan(path=target.path, kind=target.kind, added=added, removed=removed, refusal=refusal)
        )
        then = None
        if target.then.digest:
            mode = target.then.mode if target.then.mode is not None else (state.mode if state is not None else None)
            then = FileState(content=(target.then.text or "").encode("utf-8", "surrogatepass"), mode=mode)
        restored.append(
            RestoredFile(
                path=target.path,
                kind=target.kind,
                from_digest=state.digest if state is not None else "",
                from_mode=(state.mode if state is not None else None) or 0,
                to_digest=target.then.digest,
                to_mode=(then.mode if then is not None else None) or 0,
            )
        )
        removed_folders = target.folders if selection.direction == "undo" and then is None else ()
        made_folders = target.folders if selection.direction == "redo" else ()
        replacements.append(
            Replacement(
                path=target.path,
                before=state,
                after=then,
                removed_folders=removed_folders,
                made_folders=made_folders,
            )
        )
    plan = req.RestorePlan(
        direction=selection.direction,
        message=selection.message,
        text=selection.text,
        files=tuple(plans),
        notes=selection.notes,
    )
    plan_id = hashlib.sha256(msgspec.json.encode((plan, restored))).hexdigest()[:16]
    return _Prepared(
        plan=msgspec.structs.replace(plan, plan_id=plan_id),
        events=selection.events,
        files=tuple(restored),
        replacements=tuple(replacements),
        diffs=tuple(diffs),
    )


def _shown(diffs: tuple[FileDiff, ...]) -> tuple[FileDiff, ...]:
    """Those that are not too much to show."""
    sizes = accumulate(len(diff.old_text or "") + len(diff.new_text) for diff in diffs)
    return tuple(diff for diff, size in zip(diffs, sizes, strict=True) if size <= MAX_SHOWN_CHARACTERS)


def _looked_at(target: FileTarget, files: RestorableFiles) -> tuple[FileState | None, FileTarget, str]:
    """The file as it is, the target, and why it cannot be reached."""
    try:
        state = files.look(target.path)
        files.check(target.path)
    except (MakaiError, OSError) as error:
        return None, target, _reason(error)
    if target.is_claimed and state is None and target.now.text == "":
        # An agent reports the removal of a file as an empty text.
        target = msgspec.structs.replace(target, now=FileVersion(digest=""))
    if target.refusal:
        return state, target, target.refusal
    if not target.now.fits(state):
        return state, target, CLAIMED if target.is_claimed else CHANGED
    return state, target, ""


def _reason(error: MakaiError | OSError) -> str:
    """As the end of a sentence that begins with the path."""
    return (error.message if isinstance(error, MakaiError) else error.strerror or "it cannot be read").rstrip(".")


def _with_outcome(file: RestoredFile, files: RestorableFiles) -> RestoredFile:
    try:
        state = files.look(file.path)
    except (MakaiError, OSError):
        return msgspec.structs.replace(file, outcome="unknown")
    digest = state.digest if state is not None else ""
    mode = (state.mode if state is not None else None) or 0
    if digest == file.to_digest and (mode == file.to_mode or not file.to_mode):
        return msgspec.structs.replace(file, outcome="restored")
    if (digest, mode) == (file.from_digest, file.from_mode):
        return msgspec.structs.replace(file, outcome="unchanged")
    return msgspec.structs.replace(file, outcome="unknown")
