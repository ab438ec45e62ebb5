"""The sessions of a MAKAI_HOME in the process that owns them.

Implements `service.Sessions`: one handler per request type, and the live sessions that the handlers work on. `live`
knows what happens inside a session; this module finds, loads, recovers, forks and deletes them.

A session whose log has an active run that no task here executes was left by a process that died or closed. It is
recovered when it is first used, or, by a durable owner, at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec

from makai.agent.host import Models
from makai.agent.project_trust import digest_of, trusted_content
from makai.aio.tasks import BackgroundTasks
from makai.core.access import LOCAL
from makai.core.errors import InvalidRequest, MakaiError, SessionRefused, StorageUnavailable
from makai.core.server_prompts import ServerPrompt
from makai.core.session_events import FileDiff
from makai.harness.base import Execute, Harness, ToolAnswer, ToolRequest
from makai.harness.client_tools import ToolExecutor, ToolExecutors
from makai.harness.native.harness import NativeHarness
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.harness.registry import HarnessRegistry
from makai.sessions import requests as req
from makai.sessions.commands import Abort, ApproveCall, Create, DenyCall, Recovered, SetMode
from makai.sessions.following import LiveFollower
from makai.sessions.forking import copied, fork_of
from makai.sessions.live import ABORT_S, STATE_FORMAT, LiveSession
from makai.sessions.log import base
from makai.sessions.log.opening import open_log
from makai.sessions.requests import AnswerT, Request
from makai.sessions.state import SessionState, evolve, unpacked
from makai.tools.scratch import remove_scratch

log = logging.getLogger(__name__)

MAX_LIVE: Final = 256
"""Sessions kept in memory, including idle ones."""
CLOSE_S: Final = 10.0
_TOKEN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_SHOWN_BYTES: Final = 64 * 1024
"""A larger project file is trusted without being shown."""
MAX_TOKEN_MS: Final = 366 * 24 * 3600 * 1000
_PAGE: Final = 500
_CLOSING: Final = "The sessions are being closed."
_ACTIVE: Final = frozenset({"starting", "running", "awaiting_approval", "aborting"})


def unix_ms() -> int:
    return time.time_ns() // 1_000_000


HANDLERS: Final[dict[type[Request[Any]], Callable[[OwnedSessions, Any], Awaitable[Any]]]] = {}
"""The handler of each request type."""
_Handler: TypeAlias = "Callable[[OwnedSessions, Any], Awaitable[AnswerT]]"


def _handles(kind: type[Request[AnswerT]]) -> Callable[[_Handler[AnswerT]], _Handler[AnswerT]]:
    def register(handler: _Handler[AnswerT]) -> _Handler[AnswerT]:
        HANDLERS[kind] = handler
        return handler

    return register


class OwnedSessions:
    """`service.Sessions`. Make one by `open`, inside the event loop that uses it."""

    def __init__(
        self,
        home: Path,
        log: base.EventLog,
        models: Models,
        clock: Callable[[], int] = unix_ms,
        harnesses: Sequence[Harness] = (),
    ) -> None:
        """`harnesses` are those beside the native one."""
        self._home = home
        self._log = log
        self._clock = clock
        self._tasks = BackgroundTasks()
        self._workbenches = WorkbenchPool(home, self._tasks, self._folder_trust)
        self._harnesses = HarnessRegistry([NativeHarness(models, self._workbenches), *harnesses])
        self._live: dict[str, LiveSession] = {}
        self._loading: dict[str, asyncio.Future[None]] = {}
        self._tool_executors: dict[str, ToolExecutors] = {}
        self._withheld: set[str] = set()
        """Sessions that are being deleted or forked, and cannot be used meanwhile."""

    @classmethod
    async def open(
        cls,
        home: Path,
        models: Models,
        *,
        log: base.EventLog | None = None,
        recover_all: bool = False,
        harnesses: Sequence[Harness] = (),
    ) -> OwnedSessions:
        """Own the sessions of a folder, or raise `HomeInUse`. `recover_all` is for owners that stay."""
        sessions = cls(home, log or await open_log(home), models, harnesses=harnesses)
        if recover_all:
            sessions._tasks.start(sessions._recover_all(), "makai-recovery")
        return sessions

    async def dispatch(self, request: Request[AnswerT]) -> AnswerT:
        answer: AnswerT = await HANDLERS[type(request)](self, request)
        return answer

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> LiveFollower:
        return LiveFollower(self._log, lambda: self._session(session_id), after, deltas)

    async def register_executor(self, session_id: str, execute: Execute) -> ToolExecutor:
        # Registered before the session is loaded: a run that is resumed then may need a tool at once.
        for known, tool_executors in list(self._tool_executors.items()):
            if not tool_executors and known not in self._live:
                del self._tool_executors[known]
        executor = self._tool_executors.setdefault(session_id, ToolExecutors()).add(execute)
        try:
            await self._session(session_id)
        except BaseException:
            executor.unregister()
            raise
        return executor

    async def close(self) -> None:
        """Release the log. Active runs stay in it as they are, for the next owner to resume."""
        for session in self._live.values():
            session.forget()
        loading = set(self._loading.values())
        for task in loading:
            task.cancel()
        await self._tasks.close(CLOSE_S)
        if loading:
            await asyncio.wait(loading, timeout=CLOSE_S)
        await self._log.close()

    @_handles(req.CreateSession)
    async def _create(self, wanted: req.CreateSession) -> str:
        settings = msgspec.structs.asdict(wanted)
        session_id, create = await self._checked(settings.pop("session_id"), Create(now=self._clock(), **settings))
        session = self._live.get(session_id)  # another client may be about to create it
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

    @_handles(req.ForkSession)
    async def _fork(self, wanted: req.ForkSession) -> str:
        """Create the fork with a copy of what it continues. It is complete before it can be used, or not there. A
        process that dies meanwhile leaves a shorter one, in which nothing runs."""
        origin = (await self._session(wanted.origin)).state
        session_id, create = await self._checked(wanted.session_id, fork_of(origin, wanted, self._clock()))
        assert create.forked_at is not None
        session = self._new_live(session_id, SessionState(harness=create.harness))
        self._withheld.add(session_id)
        try:
            await session.submit(create)
            first = session.state.last_event_id + 1
            batches = copied(self._log, wanted.origin, create.forked_at, first)
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
        return session_id

    async def _checked(self, wanted_id: str | None, create: Create) -> tuple[str, Create]:
        """The id and the settings of a new session, with its folders resolved; refuses an id that exists."""
        harness = self._harnesses.get(create.harness)
        harness.check(create.cwd, create.roots, create.terms)
        if create.cwd is not None or create.roots:
            create = await asyncio.to_thread(_resolved, create)
        create = msgspec.structs.replace(create, capabilities=harness.capabilities)
        session_id = wanted_id or str(uuid4())
        if session_id in self._withheld or await self._log.last(session_id):
            raise SessionRefused("SESSION_EXISTS", "There is a session of this id already.")
        return session_id, create

    @_handles(req.RunCommand)
    async def _run_command(self, request: req.RunCommand) -> req.Receipt:
        session = await self._session(request.session_id)
        command = msgspec.structs.replace(request.command, now=self._clock())
        if isinstance(command, SetMode | ApproveCall | DenyCall | Abort) and not command.token:
            command = msgspec.structs.replace(command, token=LOCAL.label)
        effects = await session.submit(command)
        concerned = (*effects, session.state.active_run)
        run_id = next((run.run_id for run in concerned if run is not None), None)
        return req.Receipt(last=session.state.last_event_id, run_id=run_id)

    @_handles(req.CreateToken)
    async def _create_token(self, wanted: req.CreateToken) -> base.StoredToken:
        token = base.StoredToken(created_ms=self._clock(), **msgspec.structs.asdict(wanted))
        if not _TOKEN_NAME.fullmatch(token.name):
            raise InvalidRequest(
                "A token's name has 1 to 64 letters, digits, dots, dashes and underscores.", hint="Try --name ci."
            )
        if not token.created_ms < token.expires_ms <= token.created_ms + MAX_TOKEN_MS:
            raise InvalidRequest("A token lasts at least a moment and at most a year.", hint="Try --expires 30d.")
        await self._log.put_token(token)
        return token

    @_handles(req.GetState)
    async def _state(self, request: req.GetState) -> SessionState:
        return (await self._session(request.session_id)).state

    _handles(req.ReadEvents)(
        lambda self, page: self._log.read_raw(page.session_id, page.after, page.limit, deltas=page.deltas)
    )
    _handles(req.ListSessions)(lambda self, request: self._log.sessions(request.filter))
    _handles(req.GetSession)(lambda self, request: self._log.session(request.session_id))
    _handles(req.ListApprovals)(lambda self, request: self._log.pending_approvals())
    _handles(req.ListTrusted)(lambda self, request: self._log.trusted_folders())
    _handles(req.ListGrants)(lambda self, request: self._log.grants(request.folder))
    _handles(req.RevokeGrant)(lambda self, request: self._log.revoke(request.folder, request.rule))
    _handles(req.CheckLog)(lambda self, request: self._log.check())
    _handles(req.ListTokens)(lambda self, request: self._log.tokens())
    _handles(req.RevokeToken)(lambda self, request: self._log.revoke_token(request.token_id, self._clock()))
    _handles(req.NoteTokenUse)(lambda self, request: self._log.note_token_use(request.token_ids, self._clock()))

    @_handles(req.ListPrompts)
    async def _list_prompts(self, request: req.ListPrompts) -> list[ServerPrompt]:
        state = (await self._session(request.session_id)).state
        if state.harness != NativeHarness.id:
            return []
        async with self._workbenches.use(request.session_id, state) as bench:
            return [] if bench is None else await bench.prompts()

    @_handles(req.GetPrompt)
    async def _get_prompt(self, request: req.GetPrompt) -> str:
        state = (await self._session(request.session_id)).state
        if state.harness == NativeHarness.id:
            async with self._workbenches.use(request.session_id, state) as bench:
                if bench is not None:
                    return await bench.prompt(request.server, request.name, request.arguments)
        raise InvalidRequest("This session has no MCP servers.")

    @_handles(req.DeleteSession)
    async def _delete(self, request: req.DeleteSession) -> bool:
        """Requests for the session are refused meanwhile."""
        session_id = request.session_id
        self._withheld.add(session_id)
        try:
            existed = await self._stop_and_delete(session_id)
            await asyncio.to_thread(remove_scratch, session_id, os.environ, self._home)
            return existed
        finally:
            self._withheld.discard(session_id)

    @_handles(req.IsTrusted)
    async def _is_trusted(self, request: req.IsTrusted) -> bool:
        return await self._log.is_trusted(await asyncio.to_thread(os.path.realpath, request.folder))

    @_handles(req.SetTrust)
    async def _set_trust(self, request: req.SetTrust) -> None:
        folder = await asyncio.to_thread(os.path.realpath, request.folder)
        content = await asyncio.to_thread(trusted_content, folder) if request.trusted else {}
        files = [
            base.TrustedFile(path=path, digest=digest_of(data), text=_text(data)) for path, data in content.items()
        ]
        await self._log.trust(folder, request.trusted, files)

    @_handles(req.GetTrust)
    async def _get_trust(self, request: req.GetTrust) -> req.FolderTrust:
        folder = await asyncio.to_thread(os.path.realpath, request.folder)
        if not await self._log.is_trusted(folder):
            return req.FolderTrust(trusted=False)
        known = {file.path: file for file in await self._log.trusted_files(folder)}
        now = await asyncio.to_thread(trusted_content, folder)
        changed = tuple(
            FileDiff(path=path, old_text=known[path].text if path in known else None, new_text=_text(data))
            for path, data in now.items()
            if path not in known or known[path].digest != digest_of(data)
        )
        return req.FolderTrust(trusted=True, changed=changed)

    async def _folder_trust(self, folder: str) -> tuple[bool, dict[str, str]]:
        """Whether a folder is trusted, and the digests of the files whose content was."""
        folder = await asyncio.to_thread(os.path.realpath, folder)
        files = await self._log.trusted_files(folder)
        return await self._log.is_trusted(folder), {file.path: file.digest for file in files}

    async def _execute(self, request: ToolRequest) -> ToolAnswer | None:
        tool_executors = self._tool_executors.get(request.session_id)
        return None if tool_executors is None else await tool_executors.execute(request)

    async def _session(self, session_id: str) -> LiveSession:
        """The session, loaded and recovered once, also for concurrent callers. Use it without awaiting first: an idle
        session may be dropped from memory at any await."""
        while True:
            if self._tasks.closing:
                raise StorageUnavailable(_CLOSING, hint="Try again.")
            if session_id in self._withheld:
                raise SessionRefused("UNKNOWN_SESSION", "The session is being made or deleted.")
            session = self._live.get(session_id)
            if session is not None and session.state.last_event_id and not session.stale:
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
            done.exception()  # the callers that still wait raise it

    async def _load(self, session_id: str) -> None:
        if (outdated := self._live.get(session_id)) is not None and outdated.stale:
            await outdated.stopped()  # two runs of one session must not overlap
        summary = await self._log.session(session_id)
        if summary is None:
            raise SessionRefused("UNKNOWN_SESSION", f"There is no session {session_id!r}.")
        session = await self._read_session(session_id, summary)
        known = self._live.get(session_id)
        if known is not None and known.state.last_event_id and not known.stale:
            return  # it was being created meanwhile
        state = session.state
        if state.active_run is not None or (state.waiting and not state.closed):
            await session.submit(Recovered(now=self._clock(), can_resume=session.harness.capabilities.resume))
        # Not before: a session that could not be recovered would stay busy.
        self._make_room()
        self._live[session_id] = session
        session.save_checkpoint_if_due()

    async def _read_session(self, session_id: str, summary: base.SessionSummary) -> LiveSession:
        state = SessionState()
        checkpoint = await self._log.checkpoint(session_id)
        if checkpoint is not None and checkpoint.format == STATE_FORMAT:
            try:
                state = unpacked(checkpoint.data)
            except msgspec.DecodeError:
                state = SessionState()  # of an older makai
        checkpointed = state.last_event_id
        async for logged in base.replay(self._log, session_id, checkpointed, deltas=False):
            state = evolve(state, logged)
        # Deltas at the very end were not read, and change nothing but the numbers.
        state = msgspec.structs.replace(state, last_event_id=summary.events, last_ts=summary.updated_ms)
        return self._new_live(session_id, state, checkpointed)

    def _new_live(self, session_id: str, state: SessionState, checkpointed: int = 0) -> LiveSession:
        harness = self._harnesses.get(state.harness)
        return LiveSession(session_id, state, self._log, harness, self._tasks, self._clock, self._execute, checkpointed)

    def _make_room(self) -> None:
        if len(self._live) >= MAX_LIVE:
            for session_id, session in list(self._live.items()):
                if session.is_idle and session_id not in self._loading:
                    session.forget()
                    del self._live[session_id]
                    if len(self._live) < MAX_LIVE // 2:
                        break

    async def _stop_and_delete(self, session_id: str) -> bool:
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
            existed = await self._log.delete(session_id)
        except BaseException:
            session.deleted = False
            raise
        session.forget()
        self._live.pop(session_id, None)
        self._tool_executors.pop(session_id, None)
        return existed

    async def _stop(self, session: LiveSession) -> None:
        """Abort the active run and the queued ones; gives up after a timeout."""
        news = asyncio.Event()
        unwatch = self._log.watch(session.session_id, news.set)
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
            unwatch()

    async def _recover_all(self) -> None:
        before: int | None = None
        seen: set[str] = set()
        while True:
            page = await self._log.sessions(base.SessionFilter(limit=_PAGE, updated_before_ms=before))
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
        except MakaiError as error:  # it is raised again when the session is used
            log.error("session %s cannot be recovered: %s", session_id, error)


def _resolved(create: Create) -> Create:
    """With its folders as they are now: what people grant or trust in one must not follow a link elsewhere later."""
    cwd = None if create.cwd is None else os.path.realpath(create.cwd)
    return msgspec.structs.replace(create, cwd=cwd, roots=tuple(map(os.path.realpath, create.roots)))


def _text(data: bytes) -> str:
    """For people who compare; "" when it is no text that they could read."""
    try:
        return data.decode("utf-8") if len(data) <= MAX_SHOWN_BYTES else ""
    except UnicodeDecodeError:
        return ""
