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
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

import msgspec

from makai.agent.host import Models
from makai.aio.tasks import BackgroundTasks
from makai.catalog.model_ref import ref_of
from makai.core.access import LOCAL
from makai.core.config import StoreConfig
from makai.core.errors import MakaiError, OwnershipLost, SessionRefused, StorageUnavailable
from makai.core.observation import NO_OBSERVER, Observer
from makai.harness.base import Execute, ExecuteServed, SessionHarness, ToolAnswer, ToolRequest, ToolServerOffer
from makai.harness.client_tools import ToolExecutor, ToolExecutors
from makai.harness.native.harness import NativeHarness
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.harness.registry import DRIVERS, HarnessRegistry
from makai.harness.tool_servers import ToolServers
from makai.sessions import requests as req
from makai.sessions import trust
from makai.sessions.command_files import CommandFiles
from makai.sessions.commands import (
    Abort,
    ApproveCall,
    Create,
    DenyCall,
    Recovered,
    RestoreFiles,
    SetHarness,
    SetMode,
    SetModel,
    WithdrawInput,
)
from makai.sessions.folder_files import FolderFiles
from makai.sessions.following import LiveFollower
from makai.sessions.forking import copied, fork_of, last_event
from makai.sessions.index.indexer import INDEX_NAME, Indexer
from makai.sessions.live import LiveSession
from makai.sessions.load import load_of, nodes_of
from makai.sessions.loading import read_state
from makai.sessions.log import base
from makai.sessions.log.opening import open_log
from makai.sessions.placement import NEEDS_FOLDER, check_folder, with_real_folders
from makai.sessions.project_aliases import expanded_alias
from makai.sessions.prompts import SessionPrompts
from makai.sessions.requests import AnswerT, Request
from makai.sessions.state import SessionState
from makai.sessions.stopping import stop_runs
from makai.sessions.switching import switched
from makai.sessions.tokens import store_token
from makai.sessions.undo import FileUndo
from makai.tools.scratch import remove_scratch

if TYPE_CHECKING:
    from makai.harness.acp.driver import AcpAgents

log = logging.getLogger(__name__)

MAX_LIVE: Final = 256
"""Sessions kept in memory, including idle ones."""
CLOSE_S: Final = 10.0
_CLOSING: Final = "The sessions are being closed."
_WITH_TOKEN: Final = (SetMode, SetHarness, ApproveCall, DenyCall, Abort, RestoreFiles, WithdrawInput)
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
        harnesses: Sequence[SessionHarness] = (),
        environ: Mapping[str, str] | None = None,
        on_process: Callable[[str, int], None] | None = None,
        index: Path | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        """`harnesses` are those beside the native one. `environ` is what external agents may see of, by default that of
        this process; `on_process` learns the ids of their processes, by session. `index` is the file of the search
        index; None for one in memory."""
        self._home = home
        self._log = log
        self._clock = clock
        self._tasks = BackgroundTasks()
        self._tool_servers = ToolServers()
        self._models = models
        self._workbenches = WorkbenchPool(home, self._tasks, partial(trust.digests_of, self._log), self._execute)
        self._harnesses = HarnessRegistry(
            [NativeHarness(models, self._workbenches, self._tool_servers), *harnesses],
            dict.fromkeys(("acp", *DRIVERS.values()), self._external_agent),
        )
        self._external_agents: AcpAgents | None = None
        self._environ = environ
        self._undo = FileUndo(home, log, self._tasks, clock, self._session)
        self._command_files = CommandFiles(home, log, self._session)
        self._folder_files = FolderFiles(home, self._session)
        self._prompts = SessionPrompts(self._workbenches, self._session)
        self._on_process = on_process
        self._indexer = Indexer(log, index, self._tasks, clock)
        self._live: dict[str, LiveSession] = {}
        self._loading: dict[str, asyncio.Future[None]] = {}
        self._tool_executors: dict[str, ToolExecutors] = {}
        self._withheld: set[str] = set()
        """Sessions that are being deleted or forked, and cannot be used meanwhile."""
        self._observer = observer
        observer.sessions_opened(lambda: load_of(self._live.values()))

    @classmethod
    async def open(
        cls,
        home: Path,
        models: Models,
        *,
        log: base.EventLog | None = None,
        store: StoreConfig | None = None,
        recover_all: bool = False,
        harnesses: Sequence[SessionHarness] = (),
        environ: Mapping[str, str] | None = None,
        on_process: Callable[[str, int], None] | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> OwnedSessions:
        """Own the sessions of a folder, by its configuration unless a log or a store is given, or raise `HomeInUse`.
        `recover_all` is for owners that stay."""
        index = home / INDEX_NAME if log is None else None
        log = log or await open_log(home, store)
        sessions = cls(home, log, models, unix_ms, harnesses, environ, on_process, index, observer)
        if recover_all:
            sessions._tasks.start(sessions._recover_all(), "makai-recovery")
            sessions.start_index()
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

    async def register_tool_server(self, offer: ToolServerOffer, execute: ExecuteServed) -> ToolExecutor:
        return self._tool_servers.register(offer, execute)

    def is_live(self, session_id: str) -> bool:
        """Whether the session is in memory, and as far as this process knows its own."""
        session = self._live.get(session_id)
        return session is not None and session.stale is None and session.state.last_event_id > 0

    def lose(self, error: OwnershipLost, concerns: Callable[[str], bool]) -> None:
        """Stop using sessions at once, with their runs, their tools and the processes of their agents: those of whose
        ids `concerns` says so."""
        for session_id, session in self._live.items():
            if session.stale is None and concerns(session_id):
                session.lose(error)
                self._tasks.start(session.harness.forget(session_id), "makai-lost-agent")

    def let_go(self, session_ids: Sequence[str]) -> list[str]:
        """Drop sessions from memory that are idle; returns those that are not in memory any more."""
        for session_id in session_ids:
            if (session := self._live.get(session_id)) is not None and session.is_idle:
                session.forget()
                del self._live[session_id]
        return [session_id for session_id in session_ids if session_id not in self._live | self._loading]

    def start_index(self) -> None:
        """Keep the search index up to date from now on."""
        self._indexer.start()

    async def close(self) -> None:
        """Release the log. Active runs stay in it as they are, for the next owner to resume."""
        for session in self._live.values():
            session.forget()
        loading = set(self._loading.values())
        for task in loading:
            task.cancel()
        self._folder_files.close()
        await self._tasks.close(CLOSE_S)
        if loading:
            await asyncio.wait(loading, timeout=CLOSE_S)
        await self._indexer.close()
        await self._log.close()

    @_handles(req.CreateSession)
    async def _create(self, wanted: req.CreateSession) -> str:
        settings = msgspec.structs.asdict(wanted)
        settings["model_ref"] = await self._model_ref(wanted.model_ref, wanted.harness, wanted.cwd)
        wanted_id = settings.pop("session_id")
        session_id, create, claim = await self._checked(wanted_id, Create(now=self._clock(), **settings))
        session = self._live.get(session_id)  # another client may be about to create it
        if session is None:
            session = self._new_live(session_id, SessionState(harness=create.harness), claim)
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
        continued = await self._session(wanted.origin)
        if wanted.cwd is None:
            check_folder(continued)
        origin = continued.state
        model_ref = await self._model_ref(wanted.model_ref or "", origin.harness, wanted.cwd or origin.cwd)
        wanted = msgspec.structs.replace(wanted, model_ref=model_ref or None, at=await last_event(self._log, wanted))
        session_id, create, claim = await self._checked(wanted.session_id, fork_of(origin, wanted, self._clock()))
        assert create.forked_at is not None
        session = self._new_live(session_id, SessionState(harness=create.harness), claim)
        self._withheld.add(session_id)
        try:
            await session.submit(create)
            first = session.state.last_event_id + 1
            async for batch, is_last in copied(self._log, wanted.origin, create.forked_at, first):
                await session.adopt(batch, is_last=is_last)
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

    async def _checked(self, wanted_id: str | None, create: Create) -> tuple[str, Create, base.Claim]:
        """The id and the settings of a new session, with its folders resolved; refuses an id that exists."""
        harness = self._harnesses.get(create.harness)
        harness.check(create.cwd, create.roots, create.terms)
        if create.cwd is not None or create.roots:
            create = await asyncio.to_thread(with_real_folders, create)
        create = msgspec.structs.replace(create, capabilities=harness.capabilities)
        session_id = wanted_id or str(uuid4())
        if session_id in self._withheld or await self._log.last(session_id):
            raise SessionRefused("SESSION_EXISTS", "There is a session of this id already.")
        return session_id, create, await self._log.claim(session_id)

    @_handles(req.RunCommand)
    async def _run_command(self, request: req.RunCommand) -> req.Receipt:
        session = await self._session(request.session_id)
        command = msgspec.structs.replace(request.command, now=self._clock())
        if isinstance(command, NEEDS_FOLDER):
            check_folder(session)
        if isinstance(command, SetModel | SetHarness):
            harness = command.harness if isinstance(command, SetHarness) else session.state.harness
            model_ref = await self._model_ref(command.model_ref, harness, session.state.cwd)
            command = msgspec.structs.replace(command, model_ref=model_ref)
        if isinstance(command, SetHarness):
            command = await self._switched(session.state, command)
            session = await self._session(request.session_id)
        if isinstance(command, _WITH_TOKEN) and not command.token:
            command = msgspec.structs.replace(command, token=LOCAL.label)
        await self._undo.recover(session)
        if isinstance(command, RestoreFiles):
            await self._undo.restore(session, command)
            return req.Receipt(last=session.state.last_event_id)
        before = session.state.harness
        effects = await session.submit(command, request.environ)
        if isinstance(command, SetHarness):
            await self._harnesses.get(before).forget(request.session_id)
        concerned = (*effects, session.state.active_run)
        run_id = next((run.run_id for run in concerned if run is not None), None)
        return req.Receipt(last=session.state.last_event_id, run_id=run_id)

    async def _model_ref(self, name: str, harness: str, folder: str | None) -> str:
        """What an alias (of the user or of the folder's project), or a model id without its provider, stands for; the
        log names models by their refs."""
        if not name or "/" in name or harness != NativeHarness.id:
            return name
        return ref_of(self._models.resolve(await expanded_alias(self, folder, name)))

    async def _switched(self, state: SessionState, wanted: SetHarness) -> SetHarness:
        """The change to another agent, with what it drops. Raises `InvalidRequest` when that cannot work here."""
        harness = self._harnesses.get(wanted.harness)
        switch = switched(state, wanted, harness)
        assert switch.terms is not None
        harness.check(state.cwd, state.roots, switch.terms)
        return switch

    @_handles(req.GetState)
    async def _state(self, request: req.GetState) -> SessionState:
        return (await self._session(request.session_id)).state

    _handles(req.ReadEvents)(
        lambda self, page: self._log.read_raw(page.session_id, page.after, page.limit, deltas=page.deltas)
    )
    _handles(req.ListSessions)(lambda self, request: self._log.sessions(request.filter))
    _handles(req.GetSession)(lambda self, request: self._log.session(request.session_id))
    _handles(req.SearchSessions)(lambda self, request: self._indexer.search(request))
    _handles(req.GetUsage)(lambda self, request: self._indexer.usage(request))
    _handles(req.ListApprovals)(lambda self, request: self._log.pending_approvals())
    _handles(req.ListTrusted)(lambda self, request: self._log.trusted_folders())
    _handles(req.IsTrusted)(lambda self, request: trust.is_trusted(self._log, request))
    _handles(req.SetTrust)(lambda self, request: trust.set_trust(self._log, request))
    _handles(req.GetTrust)(lambda self, request: trust.get_trust(self._log, request))
    _handles(req.GetProjectSettings)(lambda self, request: trust.project_settings(self._log, request))
    _handles(req.ListGrants)(lambda self, request: self._log.grants(request.folder))
    _handles(req.RevokeGrant)(lambda self, request: self._log.revoke(request.folder, request.rule))
    _handles(req.PreviewRestore)(lambda self, request: self._undo.preview(request))
    _handles(req.GetSessionDiff)(lambda self, request: self._undo.diff(request))
    _handles(req.ListCommands)(lambda self, request: self._command_files.summaries(request))
    _handles(req.ExpandCommand)(lambda self, request: self._command_files.expand(request))
    _handles(req.HasFolder)(lambda self, request: self._folder_files.is_at(request))
    _handles(req.FindFiles)(lambda self, request: self._folder_files.find(request))
    _handles(req.ReadMentioned)(lambda self, request: self._folder_files.mentioned(request))
    _handles(req.ListPrompts)(lambda self, request: self._prompts.list(request))
    _handles(req.GetPrompt)(lambda self, request: self._prompts.get(request))
    _handles(req.ListNodes)(lambda self, request: nodes_of(self._log))
    _handles(req.CheckLog)(lambda self, request: self._log.check())
    _handles(req.CreateToken)(lambda self, wanted: store_token(self._log, wanted, self._clock()))
    _handles(req.ListTokens)(lambda self, request: self._log.tokens())
    _handles(req.RevokeToken)(lambda self, request: self._log.revoke_token(request.token_id, self._clock()))
    _handles(req.NoteTokenUse)(lambda self, request: self._log.note_token_use(request.token_ids, self._clock()))

    @_handles(req.ReleaseAgent)
    async def _release_agent(self, request: req.ReleaseAgent) -> None:
        if (session := self._live.get(request.session_id)) is not None:
            await session.harness.forget(request.session_id)
        else:
            await self._log.claim(request.session_id)  # its agent may be on another node

    @_handles(req.DeleteSession)
    async def _delete(self, request: req.DeleteSession) -> bool:
        """Requests for the session are refused meanwhile."""
        session_id = request.session_id
        self._withheld.add(session_id)
        try:
            existed = await self._stop_and_delete(session_id)
            await self._indexer.forget(session_id)
            await asyncio.to_thread(remove_scratch, session_id, os.environ, self._home)
            return existed
        finally:
            self._withheld.discard(session_id)

    def _external_agent(self, harness_id: str) -> SessionHarness:
        from makai.harness.acp.driver import AcpAgents  # most processes drive no other agent

        if self._external_agents is None:
            self._external_agents = AcpAgents(
                self._home, self._tasks, self._workbenches, environ=self._environ, on_process=self._on_process
            )
        return self._external_agents.get(harness_id)

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
        claim = await self._log.claim(session_id)
        summary = await self._log.session(session_id)
        if summary is None:
            raise SessionRefused("UNKNOWN_SESSION", f"There is no session {session_id!r}.")
        state, checkpointed = await read_state(self._log, session_id, summary)
        self._observer.session_loaded(session_id, state.last_event_id - checkpointed)
        session = self._new_live(session_id, state, claim, checkpointed)
        known = self._live.get(session_id)
        if known is not None and known.state.last_event_id and not known.stale:
            return  # it was being created meanwhile
        if state.active_run is not None or (state.waiting and not state.closed):
            can_resume = claim.is_here and session.harness.capabilities.resume
            await session.submit(Recovered(now=self._clock(), can_resume=can_resume))
        await self._undo.recover(session)
        # Not before: a session that could not be recovered would stay busy.
        self._make_room()
        self._live[session_id] = session
        session.save_checkpoint_if_due()

    def _new_live(self, session_id: str, state: SessionState, claim: base.Claim, checkpointed: int = 0) -> LiveSession:
        execute, find = self._execute, self._harnesses.get
        return LiveSession(
            session_id, state, self._log, find, self._tasks, self._clock, execute, claim, checkpointed, self._observer
        )

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
            await self._log.claim(session_id)
            return await self._log.delete(session_id)
        await stop_runs(session, self._log, self._clock)
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

    async def _recover_all(self) -> None:
        async for summary in base.every_session(self._log):
            if summary.status in _ACTIVE and not summary.damaged:
                await self.recover(summary.session_id)

    async def recover(self, session_id: str) -> None:
        """Resume or settle the run that another process left in a session."""
        try:
            await self._session(session_id)
        except SessionRefused:
            pass  # it was deleted meanwhile
        except MakaiError as error:  # it is raised again when the session is used
            log.error("session %s cannot be recovered: %s", session_id, error)
