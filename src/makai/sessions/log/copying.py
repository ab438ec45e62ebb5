"""Copies sessions from one store to another as they are. A session that is there in part is continued, so that a copy
that was interrupted can be repeated; one that differs is left alone.

A commit ends where no run is active, unless a run is very long: so what an interrupted copy leaves behind is not taken
for a session whose run has to be resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from makai.core.errors import InvalidRequest, LogConflict, LogDamaged, SessionElsewhere
from makai.sessions.log import encoding, projection
from makai.sessions.log.base import BATCH_EVENTS, EventLog, Record, SessionSummary, every_session
from makai.sessions.log.permissions import newer_grants

MAX_COMMIT_BYTES: Final = 8 * 1024 * 1024
_ENDED: Final = frozenset({"idle", "closed", "finished", "error"})

CopyOutcome: TypeAlias = Literal["copied", "continued", "same", "ahead", "differs", "damaged", "in_use"]
"""`same` and `ahead` were there already, `ahead` with more events; the last three were not copied."""
NOT_COPIED: Final = frozenset({"differs", "damaged", "in_use"})


class CopiedSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    session_id: str
    outcome: CopyOutcome
    events: int = 0
    """How many were copied."""
    event_id: int | None = None
    """The first event that differs, or is damaged."""
    is_active: bool = False
    """It has a run that has not ended."""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    sessions: tuple[CopiedSession, ...]
    tokens: int = 0
    trusted_folders: int = 0
    grants: int = 0
    """Saved permissions."""
    refused_tokens: tuple[str, ...] = ()
    """Names that are taken by other tokens in the second store."""
    dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        return not self.refused_tokens and all(each.outcome not in NOT_COPIED for each in self.sessions)


async def copy_sessions(
    source: EventLog,
    target: EventLog,
    progress: Callable[[int, int, int], None],
    *,
    dry_run: bool = False,
    patience_s: float = 0.0,
) -> CopyReport:
    """Copy all sessions. `progress` is called after each with how many are done, how many there are, and the number of
    events that were copied. Sessions that another process owns are tried once more after `patience_s`: it may be a
    copy that was killed, whose lease has not expired."""
    summaries = [summary async for summary in every_session(source)]
    done: dict[str, CopiedSession] = {}
    events = 0

    async def copy(chosen: Sequence[SessionSummary]) -> list[SessionSummary]:
        nonlocal events
        for summary in chosen:
            outcome = done[summary.session_id] = await copy_session(source, target, summary, dry_run=dry_run)
            events += outcome.events
            progress(len(done), len(summaries), events)
        return [summary for summary in chosen if done[summary.session_id].outcome == "in_use"]

    if (in_use := await copy(summaries)) and patience_s:
        await asyncio.sleep(patience_s)
        await copy(in_use)
    return CopyReport(sessions=tuple(done.values()), dry_run=dry_run)


async def copy_session(source: EventLog, target: EventLog, summary: SessionSummary, *, dry_run: bool) -> CopiedSession:
    """What became of one session. Raises when a store cannot be read or written at all."""
    session_id = summary.session_id
    try:
        there, here = await target.last(session_id), await source.last(session_id)
        if (different := await _first_difference(source, target, session_id, min(there, here))) is not None:
            return CopiedSession(session_id=session_id, outcome="differs", event_id=different)
        if there >= here:
            return CopiedSession(session_id=session_id, outcome="ahead" if there > here else "same")
        if not dry_run:
            here = await _copy_rest(source, target, session_id, there)
    except LogDamaged as error:
        return CopiedSession(session_id=session_id, outcome="damaged", event_id=error.event_id)
    except (LogConflict, SessionElsewhere):
        return CopiedSession(session_id=session_id, outcome="in_use")
    return CopiedSession(
        session_id=session_id,
        outcome="continued" if there else "copied",
        events=here - there,
        is_active=summary.status not in _ENDED,
    )


async def copy_beside(source: EventLog, target: EventLog, report: CopyReport) -> CopyReport:
    """Copy the tokens of callers, which folders are trusted, and saved permissions. What the second store has is left
    as it is, but for a permission that was decided later in the first one."""
    tokens, refused = 0, []
    present = {token.token_id for token in await target.tokens()}
    for token in await source.tokens():
        if token.token_id not in present:
            try:
                if not report.dry_run:
                    await target.put_token(token)
                tokens += 1
            except InvalidRequest:
                refused.append(token.name)
    decided = {folder.folder for folder in await target.trusted_folders()}
    folders = [folder for folder in await source.trusted_folders() if folder.folder not in decided]
    for word in () if report.dry_run else folders:
        await target.trust(word.folder, word.trusted, await source.trusted_files(word.folder))
    grants = newer_grants(await target.grants(None), await source.grants(None))
    if grants and not report.dry_run:
        await target.import_grants(grants)
    return msgspec.structs.replace(
        report,
        tokens=tokens,
        trusted_folders=len(folders),
        grants=len(grants),
        refused_tokens=tuple(refused),
    )


async def _first_difference(source: EventLog, target: EventLog, session_id: str, last: int) -> int | None:
    """The number of the first event up to `last` that is not the same in both stores."""
    after = 0
    while after < last:
        limit = min(BATCH_EVENTS, last - after)
        ours = await source.read_raw(session_id, after, limit)
        theirs = await target.read_raw(session_id, after, limit)
        both = list(zip(ours, theirs, strict=False))  # one may end earlier, by the sizes of its events
        for one, other in both:
            if one.line != other.line:
                return one.event_id
        if not both:
            raise encoding.damaged(session_id, after + 1)
        after += len(both)
    return None


async def _copy_rest(source: EventLog, target: EventLog, session_id: str, after: int) -> int:
    """Copy what follows an event; returns the number of the last one."""
    view = projection.empty(session_id)
    if summary := await target.session(session_id):
        view = projection.Projection(summary)
    waiting: list[Record] = []
    last = after
    while batch := await source.read_raw(session_id, last):
        last = batch[-1].event_id
        complete = 0
        for number, (record, logged) in enumerate(zip(batch, encoding.decoded(batch), strict=True), len(waiting) + 1):
            view = projection.followed(view, logged)
            complete = number if view.summary.status in _ENDED else complete
            waiting.append(record)
        if _is_full(waiting):
            complete = len(waiting)
        if complete:
            await target.import_records(session_id, waiting[:complete], waiting[0].event_id - 1)
            waiting = waiting[complete:]
    if waiting:
        await target.import_records(session_id, waiting, waiting[0].event_id - 1)
    return last


def _is_full(records: Sequence[Record]) -> bool:
    """Whether the next batch would exceed one commit."""
    size = sum(len(record.line) for record in records)
    return size >= MAX_COMMIT_BYTES or len(records) + BATCH_EVENTS > encoding.MAX_EVENTS
