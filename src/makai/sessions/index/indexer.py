"""Keeps an index up to date with the log, and answers requests from it.

It works in the background of the process that owns the sessions: in a durable owner from its start, in others once
something is searched. Changed sessions come first, a little after they changed, so that a run that is under way is not
slowed down; then the backlog, from the newest session to the oldest. An index that is damaged, missing or of another
version is built again.

Several nodes share one index when their log is in a database: each adds what it appends itself. What a node that died
did not add, another one adds after it found the same session behind twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from makai.aio.tasks import BackgroundTasks
from makai.core.errors import InvalidRequest, LogDamaged, MakaiError, StorageUnavailable
from makai.sessions.index import extraction, search_text
from makai.sessions.index.base import (
    MAX_DAYS,
    MAX_HITS,
    FoundSession,
    IndexCursor,
    IndexDamaged,
    IndexPage,
    SearchAnswer,
    SearchHit,
    SearchScope,
    SessionIndex,
    SharedIndex,
    UsageAnswer,
)
from makai.sessions.log.base import EventLog, SessionFilter, SessionSummary

if TYPE_CHECKING:
    from makai.sessions.log.postgres.connecting import Database
    from makai.sessions.requests import GetUsage, SearchSessions

log = logging.getLogger(__name__)

INDEX_NAME: Final = "search.db"
START_S: Final = 2.0
"""How long the first look at all sessions waits, so that they are recovered first."""
SETTLE_S: Final = 0.5
"""How long a changed session waits for more changes, unless something is searched meanwhile."""
MAX_WAIT_S: Final = 30.0
_LIVE_WAIT_S: Final = 0.05
"""How long every search waits for sessions that have just changed."""
_BATCH_SESSIONS: Final = 64
_BATCH_ENTRIES: Final = 2_000
_MAX_PAUSE_S: Final = 0.25
_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 60.0
_ERASE_WAIT_S: Final = 2.0
COMPARE_EVERY_S: Final = 10.0
"""How often a shared index is compared with the log."""
COMPARE_SHARE: Final = 20
"""It takes a twentieth of the time at most."""
_COMPARE_LEASE_S: Final = 30.0
"""How long a node that died while it compared keeps others from it."""
_CLOCKS_DIFFER_MS: Final = 60_000
"""How much the clocks of nodes may differ, so that no session is overlooked."""
_FIRST_PORTION: Final = 50
_MAX_PORTION: Final = 500
_FIRST_POLL_S: Final = 0.02
_MAX_POLL_S: Final = 0.5
_MS_PER_DAY: Final = 86_400_000
MAX_TZ_MINUTES: Final = 14 * 60


@runtime_checkable
class HasDatabase(Protocol):
    """A log whose database can hold views of the log, too, for all nodes."""

    @property
    def database(self) -> Database: ...


def open_index(events: EventLog, path: Path | None) -> SessionIndex:
    """The index in the database of the log when it has one, else in this file, or in memory. Only this function knows
    which implementations there are."""
    if isinstance(events, HasDatabase):
        from makai.sessions.index.postgres import PostgresIndex

        return PostgresIndex(events.database)
    from makai.sessions.index.sqlite import SqliteIndex  # most processes never search

    return SqliteIndex(path)


class Indexer:
    def __init__(self, events: EventLog, path: Path | None, tasks: BackgroundTasks, clock: Callable[[], int]) -> None:
        self._log = events
        self._path = path
        self._tasks = tasks
        self._clock = clock
        self._opened: SessionIndex | None = None
        self._changed: dict[str, None] = {}
        self._backlog: list[str] = []
        """Ids, the newest session last."""
        self._is_built = False
        self._is_damaged = False
        self._caught_up = asyncio.Event()
        self._news = asyncio.Event()
        self._hurry = asyncio.Event()
        """Something is searched: changed sessions do not wait."""
        self._unwatch: Callable[[], None] | None = None
        self._next_compare = 0.0
        """When to compare again, by the clock of the event loop."""
        self._behind: frozenset[str] | None = None
        """Sessions of a shared index that were behind at the last comparison; None when everything that is behind has
        to be added."""
        self._erasing_now: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow the log from now on; may be repeated."""
        if self._unwatch is None and not self._tasks.closing:
            self._unwatch = self._log.watch_all(self._on_change)
            self._tasks.start(self._run(), "makai-index")

    async def search(self, request: SearchSessions) -> SearchAnswer:
        query = search_text.parsed(request.query)
        scope = SearchScope(
            limit=min(max(request.limit, 1), MAX_HITS),
            now_ms=self._clock(),
            archived=request.archived,
            cwd=request.cwd,
            session_id=request.session_id,
        )
        complete = await self._catch_up(request.wait_s)
        if not query.terms:
            return SearchAnswer(complete=complete)
        try:
            found = await self._index.find(query, scope)
        except IndexDamaged:
            self._renew()
            return SearchAnswer(complete=False)
        hits = await asyncio.gather(*(self._hit(one, scope) for one in found))
        return SearchAnswer(hits=tuple(hit for hit in hits if hit is not None), complete=complete)

    async def usage(self, request: GetUsage) -> UsageAnswer:
        if abs(request.tz_minutes) > MAX_TZ_MINUTES:
            raise InvalidRequest(f"tz_minutes is from -{MAX_TZ_MINUTES} to {MAX_TZ_MINUTES}.")
        days, shift = min(max(request.days, 1), MAX_DAYS), request.tz_minutes * 60_000
        today = (self._clock() + shift) // _MS_PER_DAY
        since_ms = (today - days + 1) * _MS_PER_DAY - shift
        complete = await self._catch_up(request.wait_s)
        try:
            rows = await self._index.usage(since_ms, request.tz_minutes, request.session_id)
        except IndexDamaged:
            self._renew()
            return UsageAnswer(complete=False)
        return UsageAnswer(rows=tuple(rows), complete=complete)

    async def forget(self, session_id: str) -> None:
        """Purge a deleted session. Waits a moment for its text to be erased from the file; that is carried on, also by
        the next owner, when it takes longer."""
        try:
            await self._index.forget([session_id])
        except (IndexDamaged, StorageUnavailable) as error:
            log.warning("the text of deleted session %s is still in the search index: %s", session_id, error)
            if isinstance(error, IndexDamaged) or not isinstance(self._index, SharedIndex):
                self._renew()
            else:
                self._on_change(session_id)  # others use the index meanwhile
            return
        await asyncio.wait({self._erasing()}, timeout=_ERASE_WAIT_S)

    async def close(self) -> None:
        """After the tasks of the owner have ended."""
        if self._unwatch is not None:
            self._unwatch()
        if self._opened is not None:
            await self._opened.close()

    @property
    def _index(self) -> SessionIndex:
        if self._opened is None:
            self._opened = open_index(self._log, self._path)
        return self._opened

    def _on_change(self, session_id: str) -> None:
        self._changed[session_id] = None
        self._caught_up.clear()
        self._news.set()

    def _renew(self) -> None:
        """Let a damaged index be built again."""
        self._is_damaged, self._is_built = True, False
        self._caught_up.clear()
        self._news.set()

    async def _catch_up(self, wait_s: float) -> bool:
        """Whether the index has everything that the log has now; waits for it a moment, or as long as asked."""
        self.start()
        await asyncio.sleep(0)  # an append that has returned may be about to say so
        if self._caught_up.is_set() and not isinstance(self._index, SharedIndex):
            return True
        self._hurry.set()
        until = asyncio.get_running_loop().time() + min(max(wait_s, _LIVE_WAIT_S), MAX_WAIT_S)
        try:
            async with asyncio.timeout_at(until):
                await self._caught_up.wait()
        except TimeoutError:
            return False
        return self._is_built and await self._others_caught_up(until)

    async def _hit(self, found: FoundSession, scope: SearchScope) -> SearchHit | None:
        """What the log says about a session now; None when it is gone, or not asked for any more."""
        summary = await self._log.session(found.session_id)
        wants_archived = scope.archived == "with" or (summary and summary.archived == (scope.archived == "only"))
        if summary is None or not wants_archived:
            return None
        return SearchHit(
            session_id=summary.session_id,
            title=summary.title,
            cwd=summary.cwd,
            harness=summary.harness,
            model_ref=summary.model_ref,
            updated_ms=summary.updated_ms,
            archived=summary.archived,
            matches=found.matches,
        )

    async def _run(self) -> None:
        await self._pause(START_S)
        retry_s = 0.0
        while True:
            try:
                await self._follow()
            except IndexDamaged as damage:
                log.warning("the search index is built again: %s", damage)
            except StorageUnavailable as error:
                if self._tasks.closing:
                    return
                log.warning("%s", error)
            retry_s = 0.0 if self._is_built else retry_s  # it worked since the last failure
            self._is_built = False
            self._caught_up.clear()
            await asyncio.sleep(retry_s)
            retry_s = min(max(2 * retry_s, _FIRST_RETRY_S), _MAX_RETRY_S)

    async def _follow(self) -> None:
        if self._is_damaged:
            self._is_damaged = False
            await self._index.reset()
        self._next_compare, self._behind = 0.0, None
        try:
            while True:
                if asyncio.get_running_loop().time() >= self._next_compare:
                    await self._compare()
                await self._work_off()
                self._is_built = True
                if not self._changed:
                    self._caught_up.set()
                await self._wait_for_news()
                if self._is_damaged:
                    raise IndexDamaged("a search found damage")
                await self._pause(SETTLE_S)
        except IndexDamaged:
            self._is_damaged = True
            raise

    async def _wait_for_news(self) -> None:
        """Until something changed, or it is time to compare."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._next_compare if isfinite(self._next_compare) else None):
                await self._news.wait()
        self._news.clear()

    async def _pause(self, seconds: float) -> None:
        """Wait, unless something is searched."""
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()

    async def _compare(self) -> None:
        """Find out which sessions the index does not know, not wholly, or though they are gone."""
        index, began = self._index, asyncio.get_running_loop().time()
        if not isinstance(index, SharedIndex):
            await self._find_backlog(0)
            self._next_compare = inf
            await index.erase()
            return
        self._erasing()
        now_ms = self._clock()
        since_ms = await index.begin_compare(_COMPARE_LEASE_S)
        if since_ms is not None:
            behind = await self._find_backlog(0 if self._behind is None else since_ms)
            if self._behind is not None and since_ms:
                self._backlog = [session_id for session_id in self._backlog if session_id in self._behind]
            await self._work_off()
            is_mine = await index.begin_compare(_COMPARE_LEASE_S) is not None
            await index.end_compare(now_ms - _CLOCKS_DIFFER_MS if is_mine else None)
            self._behind = behind
        took_s = asyncio.get_running_loop().time() - began
        self._next_compare = began + took_s + max(COMPARE_EVERY_S, COMPARE_SHARE * took_s)

    async def _find_backlog(self, since_ms: int) -> frozenset[str]:
        """Put the sessions that are behind into the backlog, of those that were updated since then; returns their ids.
        When all are compared, those that are gone are forgotten."""
        cursors: Mapping[str, IndexCursor] = {} if since_ms else await self._index.cursors()
        gone = set(cursors)
        self._backlog = []
        async for some in _portions(self._log, since_ms):
            if since_ms:
                cursors = await self._index.cursors([summary.session_id for summary in some])
            for summary in some:
                gone.discard(summary.session_id)
                if _is_behind(summary, cursors):
                    self._backlog.append(summary.session_id)
        self._backlog.reverse()
        # A list that others change meanwhile may lack one that is there.
        if lost := [session_id for session_id in sorted(gone) if await self._log.session(session_id) is None]:
            await self._index.forget(lost)
        return frozenset(self._backlog)

    async def _others_caught_up(self, until: float) -> bool:
        """Whether a shared index has what other nodes appended; waits for it until this time of the event loop."""
        pause_s = _FIRST_POLL_S
        while isinstance(self._index, SharedIndex) and not await self._has_all(self._index):
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0:
                return False
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _MAX_POLL_S)
        return True

    async def _has_all(self, index: SharedIndex) -> bool:
        try:
            since_ms = await index.compared_ms()
            if not since_ms:
                return False
            async for some in _portions(self._log, since_ms):
                cursors = await index.cursors([summary.session_id for summary in some])
                for summary in some:
                    if _is_behind(summary, cursors) and await self._has_more(summary, cursors):
                        return False
        except IndexDamaged:
            self._renew()
            return False
        return True

    async def _has_more(self, summary: SessionSummary, cursors: Mapping[str, IndexCursor]) -> bool:
        """Whether there is more than deltas, which are not indexed."""
        after = extraction.resumed(summary, cursors.get(summary.session_id)).last
        try:
            return bool(await self._log.read(summary.session_id, after, 1, deltas=False))
        except LogDamaged:
            return False

    async def _work_off(self) -> None:
        while self._changed or self._backlog:
            began = time.monotonic()
            if self._changed:
                ids = list(self._changed)[:_BATCH_SESSIONS]
                for session_id in ids:
                    del self._changed[session_id]
                unfinished = await self._add(ids, is_backlog=False)
                self._changed |= dict.fromkeys(unfinished)
            else:
                ids = self._backlog[-_BATCH_SESSIONS:][::-1]
                del self._backlog[-_BATCH_SESSIONS:]
                unfinished = await self._add(ids, is_backlog=True)
                self._backlog += reversed(unfinished)
                await asyncio.sleep(min(time.monotonic() - began, _MAX_PAUSE_S))
                if isinstance(self._index, SharedIndex) and await self._index.begin_compare(_COMPARE_LEASE_S) is None:
                    self._backlog.clear()  # another node took over

    async def _add(self, session_ids: Iterable[str], *, is_backlog: bool) -> list[str]:
        """Add the next page of each session; returns those that have more, or did not fit into the batch."""
        session_ids = list(session_ids)
        cursors = await self._index.cursors(session_ids)
        pages: list[IndexPage] = []
        unfinished: list[str] = []
        entries = 0
        for session_id in session_ids:
            if entries >= _BATCH_ENTRIES:
                unfinished.append(session_id)
                continue
            summary = await self._log.session(session_id)
            if summary is None:
                await self._index.forget([session_id])
                self._erasing()
            elif (page := await self._page(summary, cursors.get(session_id))) is not None:
                pages.append(page)
                entries += len(page.entries)
                if page.cursor.last < summary.events:
                    unfinished.append(session_id)
        if pages:
            await self._index.add(pages, is_backlog=is_backlog)
        return unfinished

    async def _page(self, summary: SessionSummary, known: IndexCursor | None) -> IndexPage | None:
        """The next page of a session; None at its end, and for what cannot be read."""
        before = extraction.resumed(summary, known)
        try:
            events = await self._log.read(summary.session_id, before.last, deltas=False)
        except LogDamaged as damage:
            log.warning("session %s cannot be searched from event %d on: %s", summary.session_id, before.last, damage)
            return None
        return await asyncio.to_thread(extraction.page_of, summary, before, events) if events else None

    def _erasing(self) -> asyncio.Task[None]:
        """The task that erases what was forgotten; one at a time."""
        if self._erasing_now is None or self._erasing_now.done():
            self._erasing_now = self._tasks.start(self._erase(), "makai-index-erasing", may_finish=True)
        return self._erasing_now

    async def _erase(self) -> None:
        try:
            await self._index.erase()
        except (IndexDamaged, MakaiError) as error:
            log.warning("deleted text is still in the search index, and is erased later: %s", error)


def _is_behind(summary: SessionSummary, cursors: Mapping[str, IndexCursor]) -> bool:
    known = cursors.get(summary.session_id)
    return not summary.damaged and (known is None or extraction.resumed(summary, known).last < summary.events)


async def _portions(events: EventLog, since_ms: int) -> AsyncIterator[list[SessionSummary]]:
    """Sessions that were updated since then, the newest first. One that changes meanwhile may be left out."""
    before: int | None = None
    seen: set[str] = set()
    limit = _FIRST_PORTION
    while True:
        page = await events.sessions(SessionFilter(limit=limit, updated_before_ms=before))
        new = [summary for summary in page if summary.session_id not in seen and summary.updated_ms >= since_ms]
        seen.update(summary.session_id for summary in new)
        if new:
            yield new
        if len(page) < limit or page[-1].updated_ms < since_ms:
            return
        before = page[-1].updated_ms + 1  # others may be of the same millisecond
        limit = min(2 * limit, _MAX_PORTION) if new else 2 * limit
