"""An agent's process with the one session that it has: opened, logged in, and listened to.

What the agent says goes to the run that listens. Between two runs, and while the agent replays a session that it
loads, only what can be chosen is taken: the log has the rest already. Updates that arrive before the agent has named
its session wait for that (ACP-CLIENT-004).
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core import session_events as ev
from makai.core.confinement import Confinement
from makai.core.errors import AgentFailed, AuthRequired, MakaiError, NotSupported
from makai.core.version import __version__
from makai.core.visible_text import one_line
from makai.harness.acp.agent_choices import AgentChoices, ChoiceRequest, readable
from makai.harness.acp.client_services import ClientServices
from makai.harness.acp.connect import connect
from makai.harness.acp.connection import AgentTransport
from makai.harness.acp.known_agents import AgentSpec
from makai.harness.acp.peer import AgentLaunch, AgentPeer, StartTransport
from makai.harness.drift import DriftCounter
from makai.wire import json_rpc
from makai.wire.acp import client_calls, connecting, sessions, updates
from makai.wire.acp.common import Implementation, Wire
from makai.wire.json_rpc_errors import RpcError, decoded_params

log = logging.getLogger(__name__)
WireT = TypeVar("WireT", bound=Wire)

START_S: Final = 90.0
"""How long an agent may take to answer `initialize`: some are downloaded or compiled first."""
OPEN_S: Final = 90.0
LOGIN_S: Final = 300.0
CHOOSE_S: Final = 30.0
MAX_REASON: Final = 500
MAX_EARLY: Final = 1_000
"""Updates that are kept before the agent has named its session."""

Opened: TypeAlias = Literal["kept", "new", "reopened", "forgotten"]
"""How a run found its session: as it was, new, found again by its id, or new because the agent has lost it."""

_update = msgspec.json.Decoder(updates.ReceivedUpdate)
_permission = msgspec.json.Decoder(client_calls.ReceivedPermissionRequest)


class RunListener(Protocol):
    """The active run, as the agent's messages reach it."""

    def on_update(self, update: updates.SessionUpdate) -> None: ...
    async def ask(self, request: client_calls.RequestPermissionRequest) -> client_calls.RequestPermissionResponse: ...
    async def room(self) -> None: ...


class DrivenAgent:
    """`peer.RpcClient` for one agent. Make one by `start`; the owner calls `close`."""

    def __init__(
        self,
        spec: AgentSpec,
        cwd: str,
        environ: Mapping[str, str],
        services: ClientServices,
        on_process: Callable[[int], None] | None = None,
    ) -> None:
        self.spec = spec
        self._on_process = on_process
        self._environ = environ
        self.cwd = cwd
        self.services = services
        self.listener: RunListener | None = None
        self.offers = connecting.InitializeResponse(protocol_version=connecting.PROTOCOL_VERSION)
        self.can_steer = False
        self.choices: AgentChoices | None = None
        self.title: str | None = None
        """The title that the agent gave its session and that is not logged yet."""
        self.last_title = ""
        """The title that was logged last by a run."""
        self.cost_usd = 0.0
        """Of the agent's session before its next run, as the agent counts it."""
        self.logged: ev.AgentSession | None = None
        """What was logged last about its session."""
        self._session_id: str | None = None
        self._early: list[tuple[str, updates.SessionUpdate]] = []
        self._unknown = DriftCounter()
        self._peer: AgentPeer

    @classmethod
    async def start(
        cls,
        spec: AgentSpec,
        launch: AgentLaunch,
        environ: Mapping[str, str],
        services: ClientServices,
        start: StartTransport,
        on_process: Callable[[int], None] | None = None,
    ) -> DrivenAgent:
        """Start the agent and agree on the version of the protocol (ACP-CLIENT-001). `on_process` learns the id of each
        process that answers prompts, as soon as it is started."""
        agent = cls(spec, launch.cwd, environ, services, on_process)
        agent._peer = await connect(spec, launch, environ, agent, start)
        try:
            await agent._initialize()
        except BaseException:
            await agent.close()
            raise
        return agent

    @property
    def ended(self) -> asyncio.Event:
        return self._peer.ended

    @property
    def drift(self) -> Mapping[str, int]:
        """Messages of the agent that this version of makai does not know, by kind."""
        return {**self._peer.drift, **self._unknown.counts}

    @property
    def session_id(self) -> str:
        assert self._session_id is not None, "a run opens the session first"
        return self._session_id

    @property
    def command_confinement(self) -> Confinement:
        """Of commands that the agent asks about. Only the Agent Client Protocol has terminals of the client."""
        has_terminals = self.spec.protocol == "acp" and self.services.capabilities().terminal
        return Confinement(agent=self.spec.title, agent_terminals=has_terminals)

    async def close(self) -> None:
        await self._peer.close()
        await self.services.close()

    async def request(self, method: str, params: Any, *, seconds: float | None = None) -> Any:
        return await self._peer.request(method, params, seconds=seconds)

    def notify(self, method: str, params: Any) -> None:
        self._peer.notify(method, params)

    def refused(self, method: str, error: RpcError) -> MakaiError:
        """The agent's refusal, with what a person can do about it."""
        if error.rpc_code == json_rpc.AUTH_REQUIRED:
            return AuthRequired(
                f"{self.spec.title} needs a login: {_reason(error)}",
                provider_id=self.spec.name or self.spec.title,
                hint=self._login_hint(),
            )
        return self._peer.failure(f"refused {method}: {_reason(error)}")

    async def open(
        self,
        known: str | None,
        servers: Sequence[ev.McpServer],
        values: Mapping[str, Mapping[str, str]],
        roots: tuple[str, ...],
    ) -> Opened:
        """Have a session: the one it has, the one that the agent knows by the id `known`, or a new one."""
        if self._session_id is not None:
            return "kept"
        offered = self.offers.agent_capabilities
        shared: dict[str, Any] = {"cwd": self.cwd, "mcp_servers": self._servers(servers, values)}
        if offered.session_capabilities.additional_directories is not None:
            shared["additional_directories"] = tuple(root for root in roots if root != self.cwd)
        if known and await self._reopen(known, shared):
            return "reopened"
        answer = await self._logged_in("session/new", sessions.NewSessionRequest(**shared))
        settings = self._read(sessions.NewSessionResponse, answer, "session/new")
        self._has_session(settings.session_id, settings)
        return "forgotten" if known else "new"

    async def choose(self, wanted: ChoiceRequest) -> None:
        """Make a choice. The answer may have the new state of all options, or nothing."""
        assert self.choices is not None
        try:
            answer = await self.request(wanted.method, wanted.params, seconds=CHOOSE_S)
        except RpcError as error:
            raise self.refused(wanted.method, error) from None
        if isinstance(answer, dict) and answer.get("configOptions"):
            options = readable(sessions.SessionSettings, {"configOptions": answer["configOptions"]})
            self.choices.replace_options(options.config_options or ())

    async def on_request(self, method: str, params: msgspec.Raw | None) -> Any:
        if method != "session/request_permission":
            return await self.services.serve(method, params, self._session_id)
        asked = decoded_params(_permission, params)
        usable = asked.usable_options()
        if asked.options and not usable and asked.session_id == self._session_id:
            kinds = one_line(", ".join(sorted({option.kind for option in asked.options})), MAX_REASON)
            said = f"makai cancelled a question of {self.spec.title}: none of its options has one known meaning"
            self._take(updates.NoticeUpdate(severity="warning", title=f"{said} ({kinds})."))
        request = client_calls.RequestPermissionRequest(
            session_id=asked.session_id, tool_call=asked.tool_call, options=usable
        )
        return await self.on_permission(request)

    def on_process(self, process: AgentTransport) -> None:
        if self._on_process is not None and isinstance(process, ChildProcess):
            process.when_started(self._on_process)

    async def on_permission(
        self, request: client_calls.RequestPermissionRequest
    ) -> client_calls.RequestPermissionResponse:
        if self.listener is None or request.session_id != self._session_id:
            return client_calls.RequestPermissionResponse(outcome=client_calls.CancelledOutcome())
        return await self.listener.ask(request)

    def on_notification(self, method: str, params: msgspec.Raw | None) -> None:
        if method != "session/update" or params is None:
            return
        try:
            received = _update.decode(params)
        except msgspec.DecodeError:
            return
        if (update := updates.session_update(received.update)) is None:
            self._unknown.note(_kind_of(received.update))
        else:
            self.on_session_update(received.session_id, update)

    def on_session_update(self, session_id: str, update: updates.SessionUpdate) -> None:
        if self._session_id is None:
            if len(self._early) < MAX_EARLY:
                self._early.append((session_id, update))
        elif session_id == self._session_id:
            self._take(update)

    def _take(self, update: updates.SessionUpdate) -> None:
        if self.listener is not None:
            self.listener.on_update(update)
        else:
            self.note(update)

    def note(self, update: updates.SessionUpdate) -> bool:
        """Take what is about the session rather than a run; whether `choices.fact` has changed."""
        if isinstance(update, updates.SessionInfoUpdate):
            self.title = update.title if isinstance(update.title, str) else self.title
        if isinstance(update, updates.UsageUpdate) and self.logged is None:  # of a session that was found again
            self.cost_usd = self.cost_usd if update.usd is None else update.usd
        return self.choices is not None and self.choices.apply(update)

    async def room(self) -> None:
        if self.listener is not None:
            await self.listener.room()

    async def _initialize(self) -> None:
        hello = connecting.InitializeRequest(
            protocol_version=connecting.PROTOCOL_VERSION,
            client_capabilities=self.services.capabilities(),
            client_info=Implementation(name="makai", title="makai", version=__version__),
        )
        try:
            answer = await self.request("initialize", hello, seconds=START_S)
        except RpcError as error:
            raise self.refused("initialize", error) from None
        self.offers = self._read(connecting.InitializeResponse, answer, "initialize")
        if (version := self.offers.protocol_version) != connecting.PROTOCOL_VERSION:
            raise NotSupported(
                f"{self.spec.title} speaks version {version} of the Agent Client Protocol; makai speaks version 1.",
                hint=f"Install another version of it: {self.spec.install}" if self.spec.install else None,
            )
        steering = (self.offers.meta or {}).get("steering")
        self.can_steer = isinstance(steering, dict) and steering.get("supported") is True

    async def _reopen(self, known: str, shared: dict[str, Any]) -> bool:
        """Find a session again. What the agent replays of it is in the log already, and is not listened to."""
        offered = self.offers.agent_capabilities
        params: Wire
        if offered.session_capabilities.resume is not None:
            method, params = "session/resume", sessions.ResumeSessionRequest(session_id=known, **shared)
        elif offered.load_session:
            method, params = "session/load", sessions.LoadSessionRequest(session_id=known, **shared)
        else:
            return False
        self._session_id = known  # what it replays now is of this session
        self.choices = AgentChoices(self._start_fact(known), sessions.SessionSettings())
        try:
            answer = await self._logged_in(method, params)
        except AgentFailed as error:
            self._session_id = self.choices = None
            if self.ended.is_set():
                raise
            log.warning("%s", error)
            return False
        except BaseException:
            self._session_id = self.choices = None
            raise
        commands = self.choices.fact.commands
        self._has_session(known, self._read(sessions.SessionSettings, answer, method))
        self.choices.fact = msgspec.structs.replace(self.choices.fact, commands=commands)
        return True

    def _has_session(self, session_id: str, settings: sessions.SessionSettings) -> None:
        self._session_id = session_id
        self.choices = AgentChoices(self._start_fact(session_id), settings)
        early, self._early = self._early, []
        for named, update in early:
            if named == session_id:
                self._take(update)

    def _start_fact(self, session_id: str) -> ev.AgentSession:
        info, offered = self.offers.agent_info, self.offers.agent_capabilities
        capabilities = msgspec.to_builtins(offered)
        return ev.AgentSession(
            agent_session_id=session_id,
            agent=self.spec.title,
            version=info.version if info is not None else "",
            capabilities=tuple(_flags(capabilities)) + (("steering",) if self.can_steer else ()),
        )

    async def _logged_in(self, method: str, params: Wire) -> Any:
        """The answer; with a login before it, if the agent wants one that needs no person (ACP-CLIENT-002)."""
        try:
            return await self.request(method, params, seconds=OPEN_S)
        except RpcError as error:
            method_id = self._login_method() if error.rpc_code == json_rpc.AUTH_REQUIRED else None
            if method_id is None:
                raise self.refused(method, error) from None
        try:
            login = connecting.AuthenticateRequest(method_id=method_id)
            await self.request("authenticate", login, seconds=LOGIN_S)
            return await self.request(method, params, seconds=OPEN_S)
        except RpcError as error:
            raise self.refused(method, error) from None

    def _login_method(self) -> str | None:
        offered = {method.id for method in self.offers.auth_methods if method.type != "terminal"}
        possible = (method for name, method in self.spec.auth.items() if self._environ.get(name) and method in offered)
        return next(possible, None)

    def _login_hint(self) -> str:
        if self.spec.login:
            return self.spec.login
        for method in self.offers.auth_methods:
            if method.type == "terminal":
                return f"Log in with `{shlex.join((*self.spec.command, *method.args))}`, then try again."
        names = " or ".join(method.name for method in self.offers.auth_methods)
        return f"Log in with the agent's own program{f' ({names})' if names else ''}, then try again."

    def _servers(
        self, servers: Sequence[ev.McpServer], values: Mapping[str, Mapping[str, str]]
    ) -> tuple[msgspec.Raw, ...]:
        """Those that the agent can use (ACP-CLIENT-002); `AgentFailed` for one that it cannot."""
        offered = self.offers.agent_capabilities.mcp_capabilities
        passed: list[msgspec.Raw] = []
        for server in servers:
            if server.transport != "stdio" and not getattr(offered, server.transport):
                title, kind = self.spec.title, server.transport
                raise AgentFailed(f"{title} cannot use the MCP server {server.name!r}: it takes none over {kind}.")
            passed.append(msgspec.Raw(msgspec.json.encode(_wire_server(server, values.get(server.name, {})))))
        return tuple(passed)

    def _read(self, kind: type[WireT], answer: Any, method: str) -> WireT:
        try:
            return readable(kind, {} if answer is None else answer)
        except msgspec.ValidationError as error:
            raise self._peer.failure(f"answered {method} with something else: {error}") from None


def _reason(error: RpcError) -> str:
    """What the agent says, on one line. Many say "Internal error", and what happened only in `data`."""
    data = msgspec.json.decode(error.data) if isinstance(error.data, msgspec.Raw) else error.data
    if isinstance(data, dict):
        data = data.get("details") or data.get("message")
    message = one_line(error.message, MAX_REASON).rstrip(".")
    details = one_line(data, MAX_REASON) if isinstance(data, str) else ""
    return f"{message}: {details}" if details and details not in message else message


def _kind_of(update: msgspec.Raw) -> str:
    said = msgspec.json.decode(update)
    return str(said.get("sessionUpdate")) if isinstance(said, dict) else "update"


def _wire_server(server: ev.McpServer, values: Mapping[str, str]) -> dict[str, Any]:
    """As the protocol spells it; `args`, `env` and `headers` are required there, also when they are empty."""
    if server.transport == "stdio":
        env = [{"name": name, "value": values[name]} for name in server.env_names if name in values]
        return {"name": server.name, "command": server.command, "args": list(server.args), "env": env}
    headers = [{"name": name, "value": values[name]} for name in server.header_names if name in values]
    return {"type": server.transport, "name": server.name, "url": server.url, "headers": headers}


def _flags(capabilities: Any, prefix: str = "") -> list[str]:
    """The names of what is offered, such as `promptCapabilities.image`."""
    found: list[str] = []
    for name, value in capabilities.items() if isinstance(capabilities, dict) else ():
        if name == "_meta":
            continue
        if value is True or value == {}:
            found.append(prefix + name)
        else:
            found += _flags(value, f"{prefix}{name}.")
    return found
