"""The sessions of a MAKAI_HOME in the process that owns them.

In: commands, cursors, a log and models. Out: `service.Sessions`. It finds, loads, recovers and forgets live sessions;
what happens inside one is `live`'s business.

Recovery (DESIGN §6): a session whose log says that a run is active, and that no task of ours runs, was left by a
process that died or let go. It is recovered when it is first touched, or, by a durable owner, right away.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from makai.agent.host import Models
from makai.aio.tasks import BackgroundTasks
from makai.core.errors import MakaiError, SessionRefused, StorageUnavailable
from makai.harness.base import Harness, ToolAnswer, ToolRequest
from makai.harness.client_tools import ToolExecutor, ToolExecutors
from makai.harness.native.harness import NativeHarness
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.harness.registry import HarnessRegistry
from makai.sessions.commands import Abort, Create, Recovered
from makai.sessions.following import LiveFollower
from makai.sessions.forking import copied
from makai.sessions.live import ABORT_S, STATE_FORMAT, LiveSession
from makai.sessions.log.base import (
    BATCH_EVENTS,
    NEWEST,
    EventLog,
    PendingApproval,
    Record,
    SessionFilter,
    SessionSummary,
    replay,
)
from makai.sessions.service import Execute, NewSession, Receipt, UserCommand
from makai.sessions.state import SessionState, evolve, unpacked
from makai.tools.scratch import remove_scratch

log = logging.getLogger(__name__)

MOST_LIVE: Final = 256
"""Sessions that are kept in memory although nobody uses them."""
CLOSE_S: Final = 10.0
_PAGE: Final = 500
_CLOSING: Final = "The sessions are being closed."
_ACTIVE: Final = frozenset({"starting", "running", "awaiting_approval", "aborting"})


def unix_ms() -> int:
    """Now, for logs and people."""
    return time.time_ns() // 1_000_000


class OwnedSessions:
    """`service.Sessions`. Make one by `open`, inside the event loop that uses it."""

    def __init__(
        self,
        home: Path,
        log: EventLog,
        models: Models,
        clock: Callable[[], int] = unix_ms,
        harnesses: Sequence[Harness] = (),
    ) -> None:
        """`harnesses` are those beside the native one."""
        self._home = home
        self._log = log
        self._clock = clock
        self._tasks = BackgroundTasks()
        native = NativeHarness(models, WorkbenchPool(home, self._tasks, self.is_trusted))
        self._harnesses = HarnessRegistry([native, *harnesses])
        self._live: dict[str, LiveSession] = {}
        self._loading: dict[str, asyncio.Future[None]] = {}
        self._tool_executors: dict[str, ToolExecutors] = {}
        self._withheld: set[str] = set()
        """Sessions that are being deleted, or are forks that are not whole yet: nobody may use them now."""

    @classmethod
    async def open(
        cls,
        home: Path,
        models: Models,
        *,
        log: EventLog | None = None,
        recover_all: bool = False,
        harnesses: Sequence[Harness] = (),
    ) -> OwnedSessions:
        """Own the sessions of a folder, or `HomeInUse`. `recover_all` is for owners that stay."""
        if log is None:
            from makai.sessions.log.sqlite import SqliteLog

            log = await SqliteLog.open(home)
        sessions = cls(home, log, models, harnesses=harnesses)
        if recover_all:
            sessions._tasks.start(sessions._recover_all(), "makai-recovery")
        return sessions

    # ------------------------------------------------------------ what clients ask

    async def create(self, wanted: NewSession) -> str:
        """Begin a session."""
        session_id = wanted.session_id or str(uuid4())
        create = await self._fork(wanted) if wanted.forked_from is not None else _create_of(wanted)
        harness = self._harnesses.get(create.harness)
        harness.check(create.cwd, create.roots, create.terms)
        create = msgspec.structs.replace(create, capabilities=harness.capabilities)
        create = msgspec.structs.replace(await asyncio.to_thread(_resolved, create), now=self._clock())
        if session_id in self._withheld or await self._log.last(session_id):
            raise SessionRefused("SESSION_EXISTS", "There is a session of this id already.")
        if create.forked_from is not None:
            await self._create_fork(session_id, create)
            return session_id
        session = self._live.get(session_id)  # somebody else may be about to create it
        if session is None:
            session = self._new_live(session_id, SessionState(harness=create.harness))
            self._make_room()
            self._live[session_id] = session
        try:
            await session.submit(create)
        except MakaiError:
            if session.state.last_event_id == 0:
                self._live.pop(session_id, None)
            raise
        return session_id

    async def ask(self, session_id: str, command: UserCommand) -> Receipt:
        """Have a command carried out."""
        session = await self._session(session_id)
        effects = await session.submit(msgspec.structs.replace(command, now=self._clock()))
        started = next((effect.run_id for effect in effects), None)
        active = session.state.active_run
        return Receipt(
            last=session.state.last_event_id, run_id=started or (active.run_id if active is not None else None)
        )

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> LiveFollower:
        """Read from a cursor on."""
        return LiveFollower(self._log, lambda: self._session(session_id), after, deltas)

    async def read(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[Record]:
        """A page of the log; touches nothing."""
        return await self._log.read_raw(session_id, after, limit, deltas=deltas)

    async def state(self, session_id: str) -> SessionState:
        """What the engine knows."""
        return (await self._session(session_id)).state

    async def summaries(self, wanted: SessionFilter = NEWEST) -> list[SessionSummary]:
        """Sessions, the newest first."""
        return await self._log.sessions(wanted)

    async def summary(self, session_id: str) -> SessionSummary | None:
        """One session as lists show it."""
        return await self._log.session(session_id)

    async def pending_approvals(self) -> list[PendingApproval]:
        """Questions without an answer."""
        return await self._log.pending_approvals()

    async def delete(self, session_id: str) -> bool:
        """Forget a session. Whoever asks for it meanwhile is told that it is gone."""
        self._withheld.add(session_id)
        try:
            was_there = await self._delete(session_id)
            await asyncio.to_thread(remove_scratch, session_id, os.environ, self._home)
            return was_there
        finally:
            self._withheld.discard(session_id)

    async def _delete(self, session_id: str) -> bool:
        if (loading := self._loading.get(session_id)) is not None:
            await asyncio.wait({loading})
        session = self._live.get(session_id)
        if session is None:
            self._tool_executors.pop(session_id, None)
            return await self._log.delete(session_id)
        await self._stop(session)
        await session.harness.forget(session_id)
        session.deleted = True  # from here on nothing is appended to it
        try:
            was_there = await self._log.delete(session_id)
        except BaseException:
            session.deleted = False
            raise
        session.forget()
        self._live.pop(session_id, None)
        self._tool_executors.pop(session_id, None)
        session.wake_followers()
        return was_there

    async def register_executor(self, session_id: str, execute: Execute) -> ToolExecutor:
        """Stand by for the session's own tools."""
        # Seated before the session is loaded: a run that is resumed then may ask for a tool at once.
        executor = self.tool_executors(session_id).add(execute)
        try:
            await self._session(session_id)
        except BaseException:
            executor.unregister()
            raise
        return executor

    async def is_trusted(self, folder: str) -> bool:
        """Whether project files of a folder count."""
        return await self._log.is_trusted(await asyncio.to_thread(os.path.realpath, folder))

    async def trust(self, folder: str, trusted: bool) -> None:
        """A person's word about a folder."""
        await self._log.trust(await asyncio.to_thread(os.path.realpath, folder), trusted)

    async def close(self) -> None:
        """Let go. Runs stay in the log as they are, for the next owner to resume."""
        for session in self._live.values():
            session.forget()
        loading = set(self._loading.values())
        for task in loading:
            task.cancel()
        await self._tasks.close(CLOSE_S)
        if loading:
            await asyncio.wait(loading, timeout=CLOSE_S)
        for session in self._live.values():
            session.wake_followers()
        await self._log.close()

    # ------------------------------------------------------------ what runs need

    def tool_executors(self, session_id: str) -> ToolExecutors:
        """Clients that carry out the session's own tools."""
        for known, tool_executors in list(self._tool_executors.items()):
            if not tool_executors and known not in self._live:
                del self._tool_executors[known]
        return self._tool_executors.setdefault(session_id, ToolExecutors())

    async def _execute(self, request: ToolRequest) -> ToolAnswer | None:
        return await self.tool_executors(request.session_id).execute(request)

    # ------------------------------------------------------------ live sessions

    async def _session(self, session_id: str) -> LiveSession:
        """The session, loaded and recovered once, however many ask at the same time.

        It is used without a pause after this returns, so that it cannot be forgotten in between.
        """
        while True:
            if self._tasks.closing:
                raise StorageUnavailable(_CLOSING, hint="Try again.")
            if session_id in self._withheld:
                raise SessionRefused("UNKNOWN_SESSION", "The session is being made or deleted.")
            session = self._live.get(session_id)
            if session is not None and session.state.last_event_id:
                return session
            loading = self._loading.get(session_id)
            if loading is None:
                loading = self._loading[session_id] = asyncio.ensure_future(self._load(session_id))
                loading.add_done_callback(lambda done: self._loaded(session_id, done))
            await asyncio.wait({loading})
            if not loading.cancelled() and (error := loading.exception()) is not None:
                raise error

    def _loaded(self, session_id: str, done: asyncio.Future[None]) -> None:
        self._loading.pop(session_id, None)
        if not done.cancelled():
            done.exception()  # whoever asked is told, if they still want to know

    async def _load(self, session_id: str) -> None:
        summary = await self._log.session(session_id)
        if summary is None:
            raise SessionRefused("UNKNOWN_SESSION", f"There is no session {session_id!r}.")
        session = await self._read_session(session_id, summary)
        known = self._live.get(session_id)
        if known is not None and known.state.last_event_id:
            return  # it was being created meanwhile
        state = session.state
        if state.active_run is not None or (state.waiting and not state.closed):
            await session.submit(Recovered(now=self._clock(), can_resume=session.harness.capabilities.resume))
        # Not before: one that could not be recovered would be busy for ever.
        self._make_room()
        self._live[session_id] = session
        session.save_checkpoint_if_due()

    async def _read_session(self, session_id: str, summary: SessionSummary) -> LiveSession:
        state = SessionState()
        checkpoint = await self._log.checkpoint(session_id)
        if checkpoint is not None and checkpoint.format == STATE_FORMAT:
            try:
                state = unpacked(checkpoint.data)
            except msgspec.DecodeError:
                state = SessionState()  # of an older makai
        checkpointed = state.last_event_id
        async for logged in replay(self._log, session_id, checkpointed, deltas=False):
            state = evolve(state, logged)
        # Deltas at the very end were not read, and change nothing but the numbers.
        state = msgspec.structs.replace(state, last_event_id=summary.events, last_ts=summary.updated_ms)
        return self._new_live(session_id, state, checkpointed)

    def _new_live(self, session_id: str, state: SessionState, checkpointed: int = 0) -> LiveSession:
        harness = self._harnesses.get(state.harness)
        return LiveSession(session_id, state, self._log, harness, self._tasks, self._clock, checkpointed, self._execute)

    def _make_room(self) -> None:
        if len(self._live) >= MOST_LIVE:
            for session_id, session in list(self._live.items()):
                if session.is_idle and session_id not in self._loading:
                    session.forget()
                    del self._live[session_id]
                    if len(self._live) < MOST_LIVE // 2:
                        break

    async def _stop(self, session: LiveSession) -> None:
        """Abort the active run, and those that wait behind it, until none is left; but not for ever."""
        news = asyncio.Event()
        session.followers.add(news.set)
        try:
            async with asyncio.timeout(2 * ABORT_S):
                while (run := session.state.active_run) is not None:
                    with suppress(SessionRefused):  # it ended by itself
                        await session.submit(Abort(now=self._clock(), run_id=run.run_id, by="delete"))
                    while session.state.active_run is not None and session.state.active_run.run_id == run.run_id:
                        if session.is_closing:
                            raise StorageUnavailable(_CLOSING, hint="Try again.")
                        news.clear()
                        await news.wait()
        except TimeoutError:
            log.error("a run of session %s does not end; the session is deleted all the same", session.session_id)
        finally:
            session.followers.discard(news.set)

    async def _recover_all(self) -> None:
        before: int | None = None
        seen: set[str] = set()
        while True:
            page = await self._log.sessions(SessionFilter(limit=_PAGE, updated_before_ms=before))
            new = [summary for summary in page if summary.session_id not in seen]
            if not new:
                return
            for summary in new:
                seen.add(summary.session_id)
                if summary.status in _ACTIVE and not summary.damaged:
                    await self._recover(summary.session_id)
            before = page[-1].updated_ms + 1  # others may be of the same millisecond

    async def _recover(self, session_id: str) -> None:
        try:
            await self._session(session_id)
        except SessionRefused:
            pass  # it was deleted meanwhile
        except MakaiError as error:  # whoever asks for it is told again, and the others are recovered
            log.error("session %s cannot be recovered: %s", session_id, error)

    async def _fork(self, wanted: NewSession) -> Create:
        """A fork takes over what its origin had, unless it says otherwise."""
        assert wanted.forked_from is not None
        origin = (await self._session(wanted.forked_from)).state
        at = origin.last_event_id if wanted.forked_at is None else wanted.forked_at
        if not 0 < at <= origin.last_event_id:
            raise SessionRefused("BAD_ARGUMENT", f"The session has events 1 to {origin.last_event_id}, not {at}.")
        return Create(
            now=0,
            model_ref=wanted.model_ref or origin.model_ref,
            mode=wanted.mode if wanted.model_ref else origin.mode,
            harness=origin.harness,
            cwd=wanted.cwd or origin.cwd,
            roots=wanted.roots or origin.roots,
            title=wanted.title or (f"{origin.title} (fork)" if origin.title else ""),
            terms=wanted.terms if wanted.model_ref else origin.terms,
            forked_from=wanted.forked_from,
            forked_at=at,
        )

    async def _create_fork(self, session_id: str, create: Create) -> None:
        """Create it with a copy of what it continues; it is whole before anybody can use it, or it is not there.

        A process that dies meanwhile leaves a shorter one, in which nothing runs.
        """
        assert create.forked_from is not None
        assert create.forked_at is not None
        session = self._new_live(session_id, SessionState(harness=create.harness))
        self._withheld.add(session_id)
        try:
            await session.submit(create)
            first = session.state.last_event_id + 1
            batches = copied(self._log, create.forked_from, create.forked_at, first)
            batch = await anext(batches, None)
            while batch is not None:
                following = await anext(batches, None)
                await session.adopt(batch, is_last=following is None)
                batch = following
        except BaseException:
            if session.state.last_event_id:
                await self._log.delete(session_id)
            raise
        finally:
            self._withheld.discard(session_id)
        self._make_room()
        self._live[session_id] = session
        session.save_checkpoint_if_due()


def _create_of(wanted: NewSession) -> Create:
    return Create(
        now=0,
        model_ref=wanted.model_ref,
        mode=wanted.mode,
        harness=wanted.harness,
        cwd=wanted.cwd,
        roots=wanted.roots,
        title=wanted.title,
        terms=wanted.terms,
    )


def _resolved(create: Create) -> Create:
    """With its folders as they are now: what people grant or trust in one must not follow a link elsewhere later."""
    cwd = None if create.cwd is None else os.path.realpath(create.cwd)
    return msgspec.structs.replace(create, cwd=cwd, roots=tuple(map(os.path.realpath, create.roots)))
