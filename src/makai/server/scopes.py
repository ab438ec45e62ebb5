"""What each operation needs: one table, and the sessions as a caller with a token may use them.

An operation without an entry is refused, and so is a field of a request that this module does not know and that does
not have its default: what is added later widens nothing before its entry is written here. A caller below `approve` may
not make the agent ask less: not by a mode, a sandbox, a rule, a tool server, another harness or another folder.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from makai.core.access import Caller, TokenScope
from makai.core.errors import Forbidden
from makai.core.session_events import RunTerms, SessionTerms
from makai.harness.base import Execute, ExecuteServed, ToolServerOffer
from makai.protocols.makai import agent_payloads as agent
from makai.protocols.makai import auth
from makai.protocols.makai import commands as makai
from makai.server.allowed_folders import allowed_folder
from makai.server.session_source import default_settings
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.requests import AnswerT, Request
from makai.sessions.service import Follower, Sessions, ToolRegistration
from makai.sessions.state import SessionState

if TYPE_CHECKING:
    from makai.server.session_source import SettingsOf

REQUESTS: Final[dict[type[Request[Any]], TokenScope]] = {
    req.CreateSession: "prompt",
    req.ForkSession: "prompt",
    req.RunCommand: "prompt",  # and what COMMANDS says
    req.ReadEvents: "observe",
    req.GetState: "observe",
    req.ListSessions: "observe",
    req.GetSession: "observe",
    req.SearchSessions: "observe",
    req.GetUsage: "observe",
    req.ListNodes: "observe",
    req.ListPrompts: "prompt",
    req.GetPrompt: "prompt",
    req.ListCommands: "observe",
    req.ExpandCommand: "prompt",
    req.HasFolder: "observe",
    req.FindFiles: "prompt",
    req.ReadMentioned: "prompt",
    req.ListApprovals: "observe",
    req.PreviewRestore: "observe",
    req.GetSessionDiff: "observe",
    req.ReleaseAgent: "approve",
    req.DeleteSession: "admin",
    req.IsTrusted: "observe",
    req.GetTrust: "admin",
    req.GetProjectSettings: "admin",
    req.ListTrusted: "approve",
    req.SetTrust: "admin",
    req.ListGrants: "approve",
    req.RevokeGrant: "approve",
    req.CheckLog: "admin",
    req.CreateToken: "admin",
    req.ListTokens: "admin",
    req.RevokeToken: "admin",
    req.NoteTokenUse: "admin",
}
COMMANDS: Final[dict[type[cmd.UserCommand], TokenScope]] = {
    cmd.Send: "prompt",
    cmd.WithdrawInput: "prompt",  # messages of other tokens: approve
    cmd.RetryRun: "prompt",  # runs of other tokens: approve
    cmd.Compact: "prompt",
    cmd.Abort: "prompt",  # runs of other tokens: approve
    cmd.SetModel: "prompt",
    cmd.SetHarness: "approve",
    cmd.SetTitle: "prompt",
    cmd.Archive: "prompt",
    cmd.SetTerms: "prompt",
    cmd.SetMode: "prompt",  # modes that ask less: approve
    cmd.ApproveCall: "approve",
    cmd.DenyCall: "approve",
    cmd.Close: "approve",
    cmd.RestoreFiles: "approve",  # it writes files without a question
}
FOLLOW: Final[TokenScope] = "observe"
REGISTER_EXECUTOR: Final[TokenScope] = "prompt"
"""A client that executes the tools which it declared itself."""
REGISTER_TOOL_SERVER: Final[TokenScope] = "prompt"
"""A program that executes tools for sessions that name it: below `approve` only for those that its own token set up."""
MAKAI_COMMANDS: Final[dict[type[Any], TokenScope]] = {
    makai.OpenStream: "prompt",  # to an address that the client names: admin
    makai.CancelStream: "observe",  # of this connection
    makai.ListModels: "observe",
    makai.EndConnection: "observe",
    auth.ListProviders: "observe",
    auth.StartLogin: "admin",
    auth.AuthPromptResponse: "admin",
    auth.AuthCancel: "admin",
    makai.AnswerTool: "prompt",
    makai.RegisterTools: "prompt",  # and what REGISTER_TOOL_SERVER says
    makai.UnregisterTools: "prompt",
    makai.TakeExecution: "prompt",
    agent.AgentStart: "observe",  # attaches; everything else that it asks for is a request or a command of its own
    agent.AgentMessage: "prompt",
    agent.AgentStop: "observe",  # detaches; stopping a run is a command
    agent.AgentStatus: "observe",
    agent.ToolList: "observe",
    agent.AgentRestore: "observe",  # a preview; restoring files is a command
    agent.AgentDiff: "observe",
    agent.PermissionResponse: "approve",
}
OpenSessions: TypeAlias = Callable[[], Awaitable[Sessions]]
_Widens: TypeAlias = Callable[[Any], bool]


def _never(value: Any) -> bool:
    return False


def _asks_less(mode: str | None) -> bool:
    return mode not in (None, "ask", "plan")


def _is_wide(part: msgspec.Struct | None) -> bool:
    return part is not None and bool(widening(part))


def _judged(harmless: str, **wide: _Widens) -> dict[str, _Widens]:
    """The fields of a Struct: those without effect on what is asked, and how each other one is judged."""
    return dict.fromkeys(harmless.split(), _never) | wide


FIELDS: Final[dict[type[msgspec.Struct], dict[str, _Widens]]] = {
    # Folders are checked by ScopedSessions.
    req.CreateSession: _judged(
        "session_id model_ref cwd roots title made_by",
        mode=_asks_less,
        harness=lambda name: name != "native",
        terms=_is_wide,
    ),
    req.ForkSession: _judged("session_id origin at before model_ref cwd roots title", mode=_asks_less, terms=_is_wide),
    SessionTerms: _judged(
        # Servers that a prompt token names are only its own: `_with_own_servers`.
        "system system_append builtin_tools tools tool_servers tool_servers_token client max_usd approval_s "
        "reasoning_effort",
        agent_options_json=bool,  # and what `_check_agent` says
        agent_session_id=bool,  # may be a session of another person
        mcp_servers=bool,
        sandbox=lambda level: level not in ("read-only", "workspace-write"),
    ),
    # The token is replaced by the caller's, here and below.
    RunTerms: _judged(
        "options max_turns max_output_tokens max_usd allow_unknown_price max_seconds mcp_wait_s deny token "
        "trace_parent",
        allow=bool,
    ),
    cmd.Send: _judged("now input_id content client_msg_id delivery history continues", terms=_is_wide),
    cmd.WithdrawInput: _judged("now input_id token"),
    cmd.RetryRun: _judged("now input_id run_id token"),
    cmd.Compact: _judged("now input_id instructions"),
    cmd.Abort: _judged("now run_id by reason token"),
    cmd.SetMode: _judged("now token", mode=_asks_less, agent_mode=bool),
    cmd.SetModel: _judged("now model_ref"),
    cmd.SetTitle: _judged("now title"),
    cmd.Archive: _judged("now archived"),
    cmd.SetTerms: _judged("now", terms=_is_wide),
}
"""For requests that a prompt token may send: which values of each field make the agent ask less."""


def widening(value: msgspec.Struct) -> list[str]:
    """The fields of a request that make the agent ask less or reach more."""
    known = FIELDS.get(type(value), {})
    found: list[str] = []
    for field in msgspec.structs.fields(value):
        given = getattr(value, field.name)
        if field.name in known:
            is_wide = known[field.name](given)
        else:
            default = field.default if field.default is not msgspec.NODEFAULT else None
            is_wide = given != (field.default_factory() if field.default_factory is not msgspec.NODEFAULT else default)
        if is_wide:
            inner = widening(given) if isinstance(given, msgspec.Struct) else []
            found += [f"{field.name}.{name}" for name in inner] or [field.name]
    return found


def check(caller: Caller, needed: TokenScope | None, what: str) -> None:
    """Raise `Forbidden` unless the caller's scope includes `needed`; None is an operation that the table lacks."""
    if needed is None or not caller.may(needed):
        raise forbidden(caller, needed or "admin", what)


def check_makai(caller: Caller, command: makai.Command) -> None:
    """Raise `Forbidden` for a command of the Makai protocol that the caller may not give."""
    asked = command.request if isinstance(command, makai.AskSession) else command
    needed = MAKAI_COMMANDS.get(type(asked))
    check(caller, needed, _name(asked))
    if needed == "admin":
        check_all_sessions(caller, _name(asked))  # such as a login, which is for every session
    if isinstance(command, makai.OpenStream):
        if not isinstance(command.model, str):
            check(caller, "admin", "a model with an address of its own")
        check_all_sessions(caller, "asking a model")


def check_all_sessions(caller: Caller, what: str) -> None:
    if caller.session_id is not None:
        raise Forbidden(
            f"The token {caller.name!r} opens one session only; it does not allow {what}.",
            hint="Create one without --session: `makai tokens create`.",
        )


def forbidden(caller: Caller, needed: TokenScope, what: str) -> Forbidden:
    return Forbidden(
        f"The token {caller.name!r} has the scope {caller.scope}; {what} needs {needed}.",
        hint=f"Use a token of that scope: `makai tokens create --scope {needed}`.",
    )


def scoped(sessions: OpenSessions, caller: Caller, settings: SettingsOf = default_settings) -> OpenSessions:
    """The sessions of a server, as this caller may use them. `settings` for a face whose callers name terms."""

    async def get() -> Sessions:
        return ScopedSessions(await sessions(), caller, settings)

    return get


class ScopedSessions:
    """`service.Sessions` for one caller. Every face with tokens gets its sessions through this class."""

    def __init__(self, sessions: Sessions, caller: Caller, settings: SettingsOf = default_settings) -> None:
        self._sessions = sessions
        self._caller = caller
        self._settings = settings

    async def dispatch(self, request: Request[AnswerT]) -> AnswerT:
        caller = self._caller
        check(caller, REQUESTS.get(type(request)), _name(request))
        if caller.session_id is not None:
            self._check_session(request)
        if not caller.may("admin"):
            await self._check_agent(request)
        if isinstance(request, req.RunCommand):
            check(caller, COMMANDS.get(type(request.command)), _name(request.command))
        checked: Any = request if caller.may("approve") else await self._narrow(request)
        if caller.session_id is not None and isinstance(request, req.SearchSessions | req.GetUsage):
            checked = msgspec.structs.replace(request, session_id=caller.session_id)
        if isinstance(checked, req.RunCommand):
            checked = req.RunCommand(checked.session_id, _stamped(checked.command, caller))
        answer: Any = await self._sessions.dispatch(checked)
        if caller.session_id is not None and isinstance(request, req.ListSessions | req.ListApprovals):
            answer = [one for one in answer if one.session_id == caller.session_id]
        return answer  # type: ignore[no-any-return]

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> Follower:
        check(self._caller, FOLLOW, "following a session")
        self._check_own(session_id)
        return self._sessions.follow(session_id, after, deltas=deltas)

    async def register_executor(self, session_id: str, execute: Execute) -> ToolRegistration:
        check(self._caller, REGISTER_EXECUTOR, "executing tools")
        self._check_own(session_id)
        return await self._sessions.register_executor(session_id, execute)

    async def register_tool_server(self, offer: ToolServerOffer, execute: ExecuteServed) -> ToolRegistration:
        caller = self._caller
        check(caller, REGISTER_TOOL_SERVER, "serving tools")
        check_all_sessions(caller, "serving tools")
        offer = msgspec.structs.replace(
            offer, token=caller.label if caller.token_id else "", is_shared=caller.may("approve")
        )
        return await self._sessions.register_tool_server(offer, execute)

    async def close(self) -> None:
        """The sessions belong to the server."""

    def _check_session(self, request: Request[Any]) -> None:
        if isinstance(request, req.ListSessions | req.ListApprovals | req.SearchSessions | req.GetUsage):
            return
        session_id = getattr(request, "session_id", None)
        if isinstance(request, req.CreateSession | req.ForkSession) or not isinstance(session_id, str):
            check_all_sessions(self._caller, _name(request))
        self._check_own(session_id)

    def _check_own(self, session_id: str | None) -> None:
        if self._caller.session_id not in (None, session_id):
            check_all_sessions(self._caller, "another session")

    async def _check_agent(self, request: Request[Any]) -> None:
        """Any program can be an agent, and an agent's own options name programs that it starts: only a process of the
        same user and an admin token give an agent by its command, or options for it."""
        harness, options = "native", ""
        match request:
            case req.CreateSession(harness=harness, terms=terms):
                options = terms.agent_options_json
            case req.RunCommand(command=cmd.SetHarness(harness=harness)):
                pass
            case req.RunCommand(session_id=session_id, command=cmd.SetTerms(terms=terms)) if terms.agent_options_json:
                state = await self._sessions.dispatch(req.GetState(session_id))
                options = "" if _same("agent_options_json", state.terms, terms) else terms.agent_options_json
            case req.ForkSession(origin=origin):
                state = await self._sessions.dispatch(req.GetState(origin))
                harness, options = state.harness, (request.terms or state.terms).agent_options_json
            case _:
                return
        if options:
            raise forbidden(self._caller, "admin", f"{_name(request)} with this terms.agent_options_json")
        if harness != "native" and not await asyncio.to_thread(_is_named_agent, harness):
            raise forbidden(self._caller, "admin", "an agent that is not known by name")

    async def _narrow(self, request: Request[Any]) -> Request[Any]:
        """Refuse what needs `approve` by its content; the request to carry out, with its folders resolved."""
        wide: list[str] = []
        match request:
            case req.CreateSession():
                wide = widening(request)
                terms = self._with_own_servers(request.terms)
                created = await self._in_allowed_folders(msgspec.structs.replace(request, terms=terms))
                wide += await self._beyond_settings(terms, created.cwd)
                request = created
            case req.ForkSession(origin=origin):
                state = await self._sessions.dispatch(req.GetState(origin))
                wide = widening(request) or _widening_of_fork(request, state)
                terms = self._with_own_servers(request.terms or state.terms)
                fork = await self._in_allowed_folders(msgspec.structs.replace(request, terms=terms))
                wide += await self._beyond_settings(terms, fork.cwd or state.cwd)
                request = fork
            case req.RunCommand(session_id=session_id, command=cmd.SetTerms(terms=terms) as command):
                state = await self._sessions.dispatch(req.GetState(session_id))
                before = {f"terms.{name}" for name in widening(state.terms) if _same(name, state.terms, terms)}
                wide = [name for name in widening(command) if name not in before] or _given_up(state.terms, terms)
                command = msgspec.structs.replace(command, terms=self._with_own_servers(terms, state.terms))
                request = req.RunCommand(session_id, command)
            case req.RunCommand(session_id=session_id, command=cmd.Abort() as command):
                state = await self._sessions.dispatch(req.GetState(session_id))
                return req.RunCommand(session_id, self._own_abort(command, state))
            case req.RunCommand(session_id=session_id, command=cmd.WithdrawInput(input_id=input_id)):
                self._check_own_input(input_id, await self._sessions.dispatch(req.GetState(session_id)))
            case req.RunCommand(session_id=session_id, command=cmd.RetryRun()):
                self._check_own_run(await self._sessions.dispatch(req.GetState(session_id)))
            case req.RunCommand(session_id=session_id, command=cmd.Send(terms=run) as command):
                wide = widening(command)
                if run.allow_unknown_price and not wide:
                    state = await self._sessions.dispatch(req.GetState(session_id))
                    wide = ["terms.allow_unknown_price"] if state.terms.max_usd is not None else []
            case req.RunCommand(command=command):
                wide = widening(command)
            case _:
                pass
        if wide:
            raise forbidden(self._caller, "approve", f"{_name(request)} with this {', '.join(wide)}")
        return request

    async def _beyond_settings(self, terms: SessionTerms, folder: str | None) -> list[str]:
        """Whether a new session could write where the person who serves said that sessions only read."""
        if not terms.builtin_tools or terms.sandbox == "read-only":
            return []
        settings = await self._settings(folder, self._caller)
        return ["terms.sandbox"] if settings.sandbox == "read-only" else []

    def _with_own_servers(self, terms: SessionTerms, before: SessionTerms | None = None) -> SessionTerms:
        """The terms with no tool servers but those that this caller registers, or that the session had already."""
        named = (terms.tool_servers, terms.tool_servers_token)
        if not terms.tool_servers or (before is not None and named == (before.tool_servers, before.tool_servers_token)):
            return terms
        return msgspec.structs.replace(terms, tool_servers_token=self._caller.label)

    def _own_abort(self, abort: cmd.Abort, state: SessionState) -> cmd.Abort:
        """An abort of nothing but the run that is active now, if this caller started it."""
        run = state.active_run
        if run is None:
            return abort
        if run.purpose == "input" and run.terms.token != self._caller.label:
            raise forbidden(self._caller, "approve", "stopping a run that another caller started")
        return abort if abort.run_id is not None else msgspec.structs.replace(abort, run_id=run.run_id)

    def _check_own_input(self, input_id: str, state: SessionState) -> None:
        sent_by = next((waiting.terms.token for waiting in state.waiting if waiting.input_id == input_id), None)
        if sent_by not in (None, self._caller.label):
            raise forbidden(self._caller, "approve", "taking back a message that another caller sent")

    def _check_own_run(self, state: SessionState) -> None:
        """A run is retried on its own terms, which another caller may have been allowed to widen."""
        if state.run is not None and state.run.purpose == "input" and state.run.terms.token != self._caller.label:
            raise forbidden(self._caller, "approve", "retrying a run that another caller started")

    async def _in_allowed_folders(self, request: Any) -> Any:
        """A prompt token works where the server was started and in folders that a person trusts. With folders as they
        are now, so that a link cannot be changed after it was checked."""
        folders = [folder for folder in (request.cwd, *(request.roots or ())) if folder is not None]
        if not folders:
            return request
        resolved = {folder: await allowed_folder(self._sessions, self._caller, folder) for folder in folders}
        cwd = None if request.cwd is None else resolved[request.cwd]
        roots = request.roots and tuple(resolved[folder] for folder in request.roots)
        return msgspec.structs.replace(request, cwd=cwd, roots=roots)


def _is_named_agent(harness: str) -> bool:
    from makai.core.home import home_directory
    from makai.harness.acp.known_agents import is_named
    from makai.providers.logins import CONFIG_FILE, read_config

    return is_named(harness, read_config(home_directory(os.environ) / CONFIG_FILE).agents)


def _widening_of_fork(fork: req.ForkSession, origin: SessionState) -> list[str]:
    """A fork keeps what it does not name: it must not pass on more than the caller may give."""
    created = req.CreateSession(
        model_ref=fork.model_ref or origin.model_ref,
        mode=fork.mode or origin.mode,
        harness=origin.harness,
        terms=fork.terms or origin.terms,
    )
    return widening(created)


def _given_up(before: SessionTerms, after: SessionTerms) -> list[str]:
    """The limits of a session that new terms would lift. A new session may have none of them, but this one may have a
    mode, grants or an agent that the caller could not give it."""
    lifted = {
        "terms.max_usd": before.max_usd is not None and (after.max_usd is None or after.max_usd > before.max_usd),
        "terms.builtin_tools": after.builtin_tools and not before.builtin_tools,
        # A tool that is gone could come back as one that does not ask, and its client would still carry it out.
        "terms.tools": not _asking_tools(before) <= _asking_tools(after),
        "terms.sandbox": before.sandbox == "read-only" and after.sandbox != "read-only",
    }
    return [name for name, is_lifted in lifted.items() if is_lifted]


def _asking_tools(terms: SessionTerms) -> set[str]:
    return {tool.name for tool in terms.tools if tool.permission == "ask"}


def _same(name: str, one: msgspec.Struct, other: msgspec.Struct) -> bool:
    field = name.partition(".")[0]
    return bool(getattr(one, field) == getattr(other, field))


def _stamped(command: cmd.UserCommand, caller: Caller) -> cmd.UserCommand:
    """The command with the caller's token and trace in place of anything that the caller wrote there."""
    label = caller.label
    match command:
        case cmd.Send(terms=terms):
            terms = msgspec.structs.replace(terms, token=label, trace_parent=caller.trace_parent)
            return msgspec.structs.replace(command, terms=terms)
        case cmd.SetMode() | cmd.ApproveCall() | cmd.DenyCall() | cmd.Abort() | cmd.RestoreFiles():
            return msgspec.structs.replace(command, token=label)
        case cmd.WithdrawInput() | cmd.RetryRun():
            return msgspec.structs.replace(command, token=label)
        case _:
            return command


def _name(value: object) -> str:
    """`CreateSession` as `create session`, for messages."""
    name = type(value).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
