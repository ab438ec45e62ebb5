"""Agents on a connection of the Makai protocol: joins its agent scopes to the sessions of this MAKAI_HOME. Two tasks
per session: one answers requests in order, the other follows the log. While a command is being carried out the follower
publishes nothing, so that an ack always comes before what it acknowledges. When a client disconnects, only its own
tools become unavailable; its runs continue and other clients see them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, assert_never
from uuid import uuid4

import msgspec

from makai.catalog.model_ref import ref_of
from makai.catalog.model_settings import model_for
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import (
    InvalidRequest,
    MakaiError,
    NotSupported,
    Overloaded,
    SessionRefused,
    StorageUnavailable,
    TransportError,
)
from makai.core.messages import Message, UserMessage
from makai.core.settings import Settings
from makai.harness.base import ToolAnswer, ToolRequest
from makai.harness.client_tools import EDITOR_CALLS
from makai.harness.registry import NATIVE, harness_id_of
from makai.protocols.makai import agent_payloads as wire
from makai.protocols.makai.agent import MAX_UNANSWERED, AgentScopes, run_terms
from makai.protocols.makai.agent_projection import AgentProjection, session_info
from makai.protocols.makai.commands import AgentCommand, AnswerTool, AskSession
from makai.protocols.makai.envelope import Scope, log_id_of
from makai.protocols.makai.given_history import added_messages, are_new_words, given_messages
from makai.protocols.minicodex.pages import Window
from makai.server.backend import Backend
from makai.server.makai_undo import file_answer
from makai.server.session_views import events_of
from makai.sessions import commands as cmd
from makai.sessions.history import History
from makai.sessions.log.encoding import decoded
from makai.sessions.requests import CreateSession, GetState, RunCommand
from makai.sessions.service import Follower, Sessions, ToolRegistration
from makai.sessions.state import SessionState

log = logging.getLogger(__name__)

CLIENT = "makai"
"""The name in the log of what a client of this protocol decides."""
_FIRST_LOOK = 500
"""How many events back an active run most likely began."""


class ConnectionParts(NamedTuple):
    """What every session of a connection needs of it."""

    scopes: AgentScopes
    backend: Backend
    sessions: Callable[[], Awaitable[Sessions]]
    on_news: Callable[[], None]
    """Called when something waits to be written."""
    room: Callable[[], Awaitable[None]]
    """Returns when the reader has taken enough of what waits."""
    settings: Callable[[str | None], Awaitable[Settings]]


class ConnectionAgents:
    def __init__(self, parts: ConnectionParts) -> None:
        self._parts = parts
        self._open: dict[str, SessionConnection] = {}

    def carry_out(self, command: AgentCommand, group: asyncio.TaskGroup, *, draining: bool) -> None:
        """Do what the client asked for. Requests of one session are answered in the order in which they came."""
        session = self._open.get(command.session_id)
        match command:
            case AnswerTool():
                if session is not None:
                    session.take_result(command.result)
            case AskSession(request=wire.AgentStart() | wire.AgentMessage()) if draining:
                error = Overloaded("the server is shutting down", hint="Try again in a moment.")
                self._parts.scopes.refuse(command.session_id, command.message_id, error)
            case AskSession():
                if session is None:
                    session = SessionConnection(command.session_id, self._parts, group, self._forget)
                    self._open[command.session_id] = session
                session.put(command)
            case _:
                assert_never(command)

    def cancel(self) -> None:
        for session in list(self._open.values()):
            session.abandon()

    def _forget(self, session: SessionConnection) -> None:
        if self._open.get(session.session_id) is session:
            del self._open[session.session_id]


class _Stop(NamedTuple):
    """The client wants to detach once it has seen everything up to here."""

    message_id: str
    reason: str | None
    run_id: str | None
    event_id: int


class SessionConnection:
    """The requests of one client about one session, and its view of what happens there."""

    def __init__(
        self,
        session_id: str,
        parts: ConnectionParts,
        group: asyncio.TaskGroup,
        on_end: Callable[[SessionConnection], None],
    ) -> None:
        self.session_id = session_id
        """As the client spells it."""
        self._log_id = log_id_of(session_id)
        self._parts = parts
        self._scopes = parts.scopes
        self._group = group
        self._on_end = on_end
        self._requests: asyncio.Queue[AskSession | None] = asyncio.Queue(MAX_UNANSWERED + 1)
        self._publishing = asyncio.Lock()
        self._options = wire.AgentOptions()
        self._follower: Follower | None = None
        self._executor: ToolRegistration | None = None
        self._results: dict[str, asyncio.Future[ToolAnswer]] = {}
        self._stop: _Stop | None = None
        self._told = 0
        """The last event the client was told about."""
        self._ended = False
        self._tasks = [group.create_task(self._answer_all(), name=f"makai-session-{session_id}")]

    def put(self, command: AskSession) -> None:
        """Queue a request; the scopes bound their number."""
        self._requests.put_nowait(command)

    def take_result(self, result: wire.ToolResultMessage) -> None:
        waiting = self._results.get(result.tool_call_id)
        if waiting is not None and not waiting.done():
            content = (Text(text=result.content),) if isinstance(result.content, str) else result.content
            waiting.set_result(ToolAnswer(content=content, is_error=result.is_error, details_json=result.details_json))

    def abandon(self) -> None:
        """The client is gone; active runs continue without it."""
        self._end()
        for task in self._tasks:
            task.cancel()

    async def _answer_all(self) -> None:
        try:
            while self._scopes.is_live(Scope("session_id", self.session_id)) and not self._ended:
                command = await self._requests.get()
                if command is not None:
                    await self._answer(command)
                    self._parts.on_news()
        finally:
            self._end()

    async def _answer(self, command: AskSession) -> None:
        try:
            sessions = await self._parts.sessions()
            async with self._publishing:
                await self._carry_out(sessions, command)
        except SessionRefused as error:
            if error.code == "BUSY" and isinstance(command.request, wire.AgentMessage):
                self._scopes.busy(self.session_id, command.message_id, error)
            else:
                self._scopes.refuse(self.session_id, command.message_id, error)
        except MakaiError as error:
            self._scopes.refuse(self.session_id, command.message_id, _as_told(error))
        except Exception:
            log.exception("a request about a session failed unexpectedly")
            self._scopes.refuse(self.session_id, command.message_id, MakaiError("internal error"))

    async def _carry_out(self, sessions: Sessions, command: AskSession) -> None:
        message_id, request = command.message_id, command.request
        match request:
            case wire.AgentStart():
                await self._start(sessions, message_id, request)
            case wire.AgentMessage():
                await self._send(sessions, message_id, request)
            case wire.AgentStop():
                await self._begin_stop(sessions, message_id, request)
            case wire.AgentStatus():
                state = await sessions.dispatch(GetState(self._log_id))
                self._scopes.info(self.session_id, message_id, session_info(self.session_id, state))
            case wire.ToolList(prefix=prefix):
                declared = (await sessions.dispatch(GetState(self._log_id))).terms.tools
                listed = tuple(tool for tool in declared if tool.name.startswith(prefix))
                self._scopes.info(self.session_id, message_id, wire.ToolListResponse(listed))
            case wire.AgentRestore() | wire.AgentDiff():
                self._scopes.info(self.session_id, message_id, await file_answer(sessions, self._log_id, request))
            case wire.PermissionResponse():
                await sessions.dispatch(RunCommand(self._log_id, _decision(request)))
                self._scopes.accept(self.session_id, message_id)
            case _:
                assert_never(request)

    async def _start(self, sessions: Sessions, message_id: str, wanted: wire.AgentStart) -> None:
        if self._follower is not None:
            raise SessionRefused("SESSION_EXISTS", "This connection is attached to the session already.")
        is_external, folder = harness_id_of(wanted.agent) != NATIVE, wanted.cwd
        if wanted.resume:
            with suppress(SessionRefused):  # of no session: the model is checked all the same
                state = await sessions.dispatch(GetState(self._log_id))
                is_external, folder = not state.capabilities.needs_model, state.cwd
        model_ref = await self._canonical(wanted.model_ref, is_external, folder)
        if wanted.resume:
            state = await self._changed(sessions, wanted, model_ref)
        else:
            settings = await self._parts.settings(wanted.cwd)
            await sessions.dispatch(_new_session(self._log_id, wanted, model_ref or "", settings))
            state = await sessions.dispatch(GetState(self._log_id))
        if wanted.tools:
            self._executor = await sessions.register_executor(self._log_id, self._execute)
        self._options = wanted.options
        questions = await self._attach(sessions, state, wanted.after_event_id)
        started = wire.AgentStarted(
            session_id=self.session_id, model_ref=state.model_ref, event_id=self._told, resumed=wanted.resume
        )
        self._scopes.started(self.session_id, message_id, started)
        for asked, run_id in questions:
            self._scopes.ask_again(self.session_id, asked, run_id)

    async def _changed(self, sessions: Sessions, wanted: wire.AgentStart, model_ref: str | None) -> SessionState:
        """The session a client comes back to, with what it now wants otherwise."""
        state = await sessions.dispatch(GetState(self._log_id))
        if wanted.after_event_id is not None and wanted.after_event_id > state.last_event_id:
            raise InvalidRequest(
                f"after_event_id is {wanted.after_event_id}, but the last event is {state.last_event_id}"
            )
        changes: list[cmd.UserCommand] = []
        terms = _terms(wanted, state.terms)
        if terms != state.terms:
            changes.append(cmd.SetTerms(now=0, terms=terms))
        if model_ref is not None and model_ref != state.model_ref:
            changes.append(cmd.SetModel(now=0, model_ref=model_ref))
        if wanted.mode is not None and wanted.mode != state.mode:
            changes.append(cmd.SetMode(now=0, mode=wanted.mode))
        if wanted.title is not None and wanted.title != state.title:
            changes.append(cmd.SetTitle(now=0, title=wanted.title))
        for change in changes:
            await sessions.dispatch(RunCommand(self._log_id, change))
        return await sessions.dispatch(GetState(self._log_id)) if changes else state

    async def _send(self, sessions: Sessions, message_id: str, wanted: wire.AgentMessage) -> None:
        state = await sessions.dispatch(GetState(self._log_id))
        given = given_messages(wanted.messages)
        model_ref = await self._canonical(wanted.model_ref, not state.capabilities.needs_model, state.cwd)
        if state.active_run is not None:
            raise SessionRefused("BUSY", "A run is active in this session.", hint="Wait for it, or stop it.")
        if self._follower is None:
            await self._attach(sessions, state, state.last_event_id)
        if model_ref is not None and model_ref != state.model_ref:
            await sessions.dispatch(RunCommand(self._log_id, cmd.SetModel(now=0, model_ref=model_ref)))
        added = given
        # Words that are most likely new can repeat just a conversation that has no answer yet, and such a log is short.
        if state.last_event_id <= _FIRST_LOOK or not are_new_words(given):
            added = added_messages(given, await _conversation(sessions, self._log_id, state.last_event_id))
        input_id = str(uuid4())
        # With a client_msg_id the words count once, also when their owner dies and they have to be said again.
        terms = run_terms(wanted.options or self._options)
        said = cmd.Send(now=0, input_id=input_id, client_msg_id=input_id, **_input_of(added), terms=terms)
        await sessions.dispatch(RunCommand(self._log_id, said))
        self._scopes.words_taken(self.session_id, message_id, input_id)

    async def _canonical(self, model_ref: str | None, is_external: bool, folder: str | None) -> str | None:
        """What can be checked locally is nacked: a model that does not exist is no session's model. Aliases are those
        of the session's folder. Another agent than makai's own has models that only it knows."""
        if model_ref is None or is_external:
            return model_ref
        settings = Settings() if "/" in model_ref else await self._parts.settings(folder)
        return ref_of(model_for(self._parts.backend, settings, model_ref))

    async def _begin_stop(self, sessions: Sessions, message_id: str, wanted: wire.AgentStop) -> None:
        if self._stop is not None:
            raise InvalidRequest("the session is being stopped already")
        state = await sessions.dispatch(GetState(self._log_id))
        if self._follower is None:
            await self._attach(sessions, state, state.last_event_id)
        if wanted.detach:
            self._scopes.accept(self.session_id, message_id)
            self._let_go(message_id, "detached")
            return
        run = state.active_run
        if run is not None:
            abort = cmd.Abort(now=0, run_id=run.run_id, by=CLIENT, reason=wanted.reason or "")
            try:
                await sessions.dispatch(RunCommand(self._log_id, abort))
            except SessionRefused as error:
                if error.code not in ("NOT_RUNNING", "STALE_RUN_ID"):  # it has just ended by itself
                    raise
        self._scopes.accept(self.session_id, message_id)
        run_id = run.run_id if run is not None else None
        self._stop = _Stop(message_id, wanted.reason, run_id, state.last_event_id)
        if run_id is None and self._told >= state.last_event_id:
            self._let_go(message_id, wanted.reason)

    def _let_go(self, message_id: str, reason: str | None) -> None:
        self._scopes.stopped(self.session_id, message_id, reason)
        self._end()

    def _end(self) -> None:
        """This connection has nothing to do with the session any more; may be repeated."""
        if self._ended:
            return
        self._ended = True
        self._on_end(self)
        if self._follower is not None:
            self._follower.close()
        if self._executor is not None:
            self._executor.unregister()
        self._requests.put_nowait(None)

    async def _attach(
        self, sessions: Sessions, state: SessionState, after: int | None
    ) -> list[tuple[ev.ApprovalRequested, str]]:
        """Follow the log from a cursor; without one from the start of the active run, or from now. Returns the
        questions that were asked before the cursor and are still pending, with their runs."""
        projection = AgentProjection(self.session_id, has_turns=state.capabilities.has_turns)
        end = state.last_event_id if after is None else after
        run = await _open_run(sessions, self._log_id, end)
        if after is None and run:
            end = run[0].event_id - 1
            run = []
        self._scopes.attach(self.session_id, projection)
        active = state.active_run
        pending = {call.call_id for call in active.pending()} if active is not None else set()
        questions: list[tuple[ev.ApprovalRequested, str]] = []
        for logged in run:
            projection.project(logged)
            if isinstance(logged.event, ev.ApprovalRequested) and logged.event.call_id in pending:
                questions.append((logged.event, logged.run_id or ""))
        self._told = end
        self._follower = sessions.follow(self._log_id, end)
        work = self._follow(self._follower, state.last_event_id, frozenset(pending))
        self._tasks.append(self._group.create_task(work, name=f"makai-follow-{self.session_id}"))
        return questions

    async def _follow(self, follower: Follower, history_end: int, pending: frozenset[str]) -> None:
        try:
            while records := await follower.next():
                async with self._publishing:
                    for logged in decoded(records):
                        if self._ended:
                            return
                        if isinstance(logged, ev.Logged) and not _is_old_question(logged, history_end, pending):
                            self._tell(logged)
                        self._told = logged.event_id
                self._parts.on_news()
                await self._parts.room()
        except MakaiError as error:
            self._lose(error)
        except Exception:
            log.exception("following a session failed unexpectedly")
            self._lose(MakaiError("internal error"))

    def _tell(self, logged: ev.Logged) -> None:
        settled_run = self._scopes.logged(self.session_id, logged)
        if (stop := self._stop) is None:
            return
        if settled_run == stop.run_id if stop.run_id is not None else logged.event_id >= stop.event_id:
            self._let_go(stop.message_id, stop.reason)

    def _lose(self, error: MakaiError) -> None:
        if not self._ended:
            self._scopes.lost(self.session_id, _as_told(error))
            self._end()
            self._parts.on_news()

    async def _execute(self, request: ToolRequest) -> ToolAnswer:
        """Have the client carry out one of its tools; it answers when it likes, and the run waits."""
        if request.name.startswith(EDITOR_CALLS):
            raise NotSupported("A client of this protocol is no editor.")
        waiting: asyncio.Future[ToolAnswer] = asyncio.get_running_loop().create_future()
        self._results[request.call_id] = waiting
        call_id, arguments = request.call_id, dict(request.arguments)
        call = wire.ToolExecute(
            tool_call_id=call_id, tool_name=request.name, arguments=arguments, run_id=request.run_id
        )
        self._scopes.execute(self.session_id, call)
        self._parts.on_news()
        try:
            return await waiting
        finally:
            del self._results[call_id]
            self._scopes.withdraw(self.session_id, call_id)


def _input_of(added: tuple[Message, ...]) -> dict[str, Any]:
    """The newest words of the user are the input of a run; without such words it answers what is there."""
    if added and isinstance(added[-1], UserMessage):
        return {"history": added[:-1], "content": added[-1].content}
    return {"history": added, "content": (), "continues": True}


async def _conversation(sessions: Sessions, session_id: str, through: int) -> tuple[Message, ...]:
    """The whole conversation of a session, also what a summary stands for."""
    history = History()
    for logged in await events_of(sessions, session_id, Window(0, through, deltas=True)):
        if not (isinstance(logged, ev.Logged) and isinstance(logged.event, ev.Compacted)):
            history.apply(logged)
    return history.messages()


async def _open_run(sessions: Sessions, session_id: str, upto: int) -> list[ev.Logged]:
    """The events, without deltas, of the run that has started and not settled at event `upto`. Logs are read forward,
    so it looks further and further back: at most twice as far as the run is long."""
    look = _FIRST_LOOK
    while upto > 0:
        after = max(upto - look, 0)
        window = await events_of(sessions, session_id, Window(after, upto))
        events = [event for event in window if isinstance(event, ev.Logged)]
        for place in range(len(events) - 1, -1, -1):
            if isinstance(events[place].event, ev.RunFinished | ev.RunFailed):
                return []
            if isinstance(events[place].event, ev.RunStarted):
                return events[place:]
        if after == 0:
            break
        look *= 2
    return []


def _as_told(error: MakaiError) -> MakaiError:
    """To this client it is all one whether the store or the way to the process that owns it is broken."""
    return StorageUnavailable(error.message, hint=error.hint) if isinstance(error, TransportError) else error


def _is_old_question(logged: ev.Logged, history_end: int, pending: frozenset[str]) -> bool:
    """Whether this is a question that was decided before the client came: it need not be bothered with it."""
    event = logged.event
    return isinstance(event, ev.ApprovalRequested) and logged.event_id <= history_end and event.call_id not in pending


def _new_session(session_id: str, wanted: wire.AgentStart, model_ref: str, settings: Settings) -> CreateSession:
    terms = ev.SessionTerms(sandbox=settings.sandbox, reasoning_effort=settings.effort)
    return CreateSession(
        model_ref=model_ref,
        harness=harness_id_of(wanted.agent),
        session_id=session_id,
        mode=wanted.mode or settings.mode,
        cwd=wanted.cwd,
        title=wanted.title or "",
        terms=_terms(wanted, msgspec.structs.replace(terms, builtin_tools=wanted.builtin_tools)),
    )


def _terms(wanted: wire.AgentStart, terms: ev.SessionTerms) -> ev.SessionTerms:
    """The terms with what the client says about them."""
    names = ("tools", "tool_servers", "sandbox", "approval_s")
    given = {"system": wanted.system_prompt, **{name: getattr(wanted, name) for name in names}}
    if wanted.tool_servers is not None:
        given["tool_servers_token"] = ""  # `scopes` sets it for tokens that may use only their own servers
    return msgspec.structs.replace(terms, **{name: value for name, value in given.items() if value is not None})


def _decision(answer: wire.PermissionResponse) -> cmd.ApproveCall | cmd.DenyCall:
    call_id, reason, scope = answer.tool_call_id, answer.reason, answer.scope
    if answer.decision == "deny":
        return cmd.DenyCall(now=0, call_id=call_id, by=CLIENT, reason=reason, scope=scope, grant=answer.grant)
    return cmd.ApproveCall(
        now=0, call_id=call_id, by=CLIENT, reason=reason, scope=scope, digest=answer.digest, grant=answer.grant
    )
