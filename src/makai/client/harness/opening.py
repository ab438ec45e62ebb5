"""Opens any agent as a harness of the contract: `open_harness("claude-code")`, then `spawn`, `resume`, `shutdown`.

A harness has sessions of its own, in memory, or those of MAKAI_HOME when they are kept. They are opened with the first
spawn; whether the agent's program is there is looked at before (DM-PROV-004).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from makai.catalog.model_ref import ref_of
from makai.client.harness.handle import SessionHandle
from makai.client.harness.one_shot import complete_with_models
from makai.client.harness.plan import SpawnPlan, check_session_id, plan
from makai.core.errors import (
    ChannelClosed,
    InvalidRequest,
    MakaiError,
    NoProvider,
    ProviderUnavailable,
    SessionNotFound,
    SpawnFailed,
    Unsupported,
)
from makai.core.home import home_directory
from makai.harness.acp.known_agents import AgentSpec, agent_of, named_agents
from makai.harness.contract.capabilities import Capabilities, is_supported
from makai.harness.contract.endpoint import HarnessManifest
from makai.harness.contract.events import SystemEvent
from makai.harness.contract.one_shot import OneShotRequest, OneShotResult
from makai.harness.contract.spec import Spec
from makai.harness.manifests import HarnessDeclaration, harness_declaration
from makai.harness.registry import EXTERNAL, NATIVE, harness_id_of
from makai.providers.logins import CONFIG_FILE, read_config
from makai.providers.runtime import ModelRuntime
from makai.server.cluster_opening import own_sessions
from makai.server.session_router import SessionRouter
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.service import Sessions

_ANY_AGENT: Final = harness_declaration("opencode")
"""What is known of an agent that speaks the Agent Client Protocol and has no row of its own."""


def open_harness(
    name: str,
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    keep: bool = False,
    observe: Callable[[SystemEvent], None] | None = None,
) -> MakaiHarness:
    """A harness by its name: "native" (or "raw"), "claude-code", "codex", "opencode", "gemini", "amp", "antigravity",
    "stub", another known agent, or `acp:COMMAND LINE`.

    `environ` replaces the environment of this process. `keep` keeps the sessions in MAKAI_HOME. `observe` is called
    with what a harness ignores of a spec, before the session starts. Raises `NoProvider` for a name that is none, and
    `ProviderUnavailable` when the agent's program is not installed.
    """
    variables = os.environ if environ is None else environ
    folder = home or home_directory(variables)
    declared, harness_id, agent = _found(name, folder)
    if agent is not None:
        try:
            agent.argv(os.sep, variables, roots=())
        except InvalidRequest as error:
            raise ProviderUnavailable(error.message, hint=error.hint) from error
    kind = NativeMakaiHarness if harness_id == NATIVE else MakaiHarness
    return kind(declared, harness_id, variables, folder, keep=keep, observe=observe)


def _found(name: str, home: Path) -> tuple[HarnessDeclaration, str, AgentSpec | None]:
    configured = read_config(home / CONFIG_FILE).agents
    declared: HarnessDeclaration | None = None
    with suppress(NoProvider):
        declared = harness_declaration(name)
    harness_id = harness_id_of(NATIVE if declared is not None and declared.name == "raw" else name)
    if harness_id == NATIVE:
        return declared or harness_declaration(NATIVE), NATIVE, None
    text = harness_id.removeprefix(EXTERNAL)
    if declared is None and not name.startswith(EXTERNAL) and text not in named_agents(configured):
        known = sorted(named_agents(configured))
        raise NoProvider(f"There is no harness {name!r}.", hint=f"Use one of: {', '.join(known)}, or acp:COMMAND.")
    agent = agent_of(harness_id, configured)
    if declared is None:
        capabilities = msgspec.structs.replace(_ANY_AGENT.capabilities, human_label=agent.title)
        declared = msgspec.structs.replace(_ANY_AGENT, name=name, aliases=(), capabilities=capabilities)
    return declared, harness_id, agent


class MakaiHarness:
    """`contract.HarnessProvider` for one agent. Use it as `async with`, or call `shutdown`."""

    def __init__(
        self,
        declared: HarnessDeclaration,
        harness_id: str,
        environ: Mapping[str, str],
        home: Path,
        *,
        keep: bool,
        observe: Callable[[SystemEvent], None] | None,
    ) -> None:
        self._declared = declared
        self._harness_id = harness_id
        self._environ = environ
        self._home = home
        self._keep = keep
        self._observe = observe
        self._models: ModelRuntime | None = None
        self._sessions: Sessions | None = None
        self._opening = asyncio.Lock()
        self._is_shut_down = False
        self._handles: set[SessionHandle] = set()
        self._on_spawned: dict[str, Callable[[int], None]] = {}
        self.max_usd: float | None = None
        """What each session that begins from now on may cost. The session is stopped when it costs more."""
        self.allow_unknown_price = False
        """Begin although `max_usd` cannot be kept, because the agent does not say what it costs."""

    @property
    def name(self) -> str:
        return self._declared.name

    @property
    def capabilities(self) -> Capabilities:
        return self._declared.capabilities

    def manifest(self) -> HarnessManifest:
        return self._declared.manifest()

    def check_limit(self) -> None:
        """Raises `InvalidRequest` when `max_usd` cannot be kept: a session would be refused for it, but later."""
        if self._harness_id != NATIVE:
            agent = agent_of(self._harness_id, read_config(self._home / CONFIG_FILE).agents)
            agent.check_limit(self.max_usd, allow_unknown_price=self.allow_unknown_price)

    async def spawn(self, spec: Spec) -> SessionHandle:
        """Start a session; raises `SpawnFailed` when that fails. Cancelling it leaves nothing behind (DM-PROV-012)."""
        planned = self._plan(spec)
        sessions = await self._open()
        try:
            session_id = await sessions.dispatch(self._with_model(planned))
        except MakaiError as error:
            raise SpawnFailed(error.message, hint=error.hint) from error
        return await self._begin(sessions, session_id, 0, planned, spec)

    async def resume(self, session_id: str, spec: Spec) -> SessionHandle:
        """Continue the session that an earlier `init` named. `SessionNotFound` when the agent does not know it."""
        if not is_supported(self.capabilities, "session_resume"):
            raise Unsupported(f"{self.capabilities.human_label} cannot resume sessions (session_resume).")
        check_session_id(session_id)
        if self._harness_id == NATIVE:
            return await self._resume_native(session_id, spec)
        planned = self._plan(spec, resumed=session_id)
        sessions = await self._open()
        try:
            own_id = await sessions.dispatch(planned.create)
        except MakaiError as error:
            raise SpawnFailed(error.message, hint=error.hint) from error
        return await self._begin(sessions, own_id, 0, planned, spec)

    async def shutdown(self) -> None:
        """Stop every session and free what they share. May be repeated."""
        async with self._opening:
            self._is_shut_down = True
            await asyncio.gather(*(handle.stop() for handle in tuple(self._handles)))
            sessions, models = self._sessions, self._models
            self._sessions = self._models = None
            if sessions is not None:
                await sessions.close()
            if models is not None:
                await models.close()

    async def __aenter__(self) -> MakaiHarness:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    def _plan(self, spec: Spec, *, resumed: str = "") -> SpawnPlan:
        try:
            planned = plan(self._declared, self._harness_id, spec, os.path.abspath(spec.cwd or "."), resumed=resumed)
        except InvalidRequest as error:
            raise SpawnFailed(error.message, hint=error.hint) from error
        if self._observe is not None:
            for notice in planned.notices:
                self._observe(notice)
        if self.max_usd is None:
            return planned
        limits = {"max_usd": self.max_usd, "allow_unknown_price": self.allow_unknown_price}
        return msgspec.structs.replace(planned, run=msgspec.structs.replace(planned.run, **limits))

    async def _begin(
        self, sessions: Sessions, session_id: str, after: int, planned: SpawnPlan, spec: Spec
    ) -> SessionHandle:
        handle = SessionHandle(
            sessions,
            session_id,
            planned,
            after=after,
            can_inject=is_supported(self.capabilities, "message_injection"),
            on_ended=self._ended,
        )
        if spec.on_process_spawned is not None:
            self._on_spawned[session_id] = spec.on_process_spawned
        self._handles.add(handle)
        try:
            await handle.begin()
        except BaseException:
            handle.is_read_to_end = True  # its caller has no handle to read it with
            await self._ended(handle)
            raise
        return handle

    async def _resume_native(self, session_id: str, spec: Spec) -> SessionHandle:
        planned = self._plan(spec)
        sessions = await self._open()
        try:
            state = await sessions.dispatch(req.GetState(session_id))
        except MakaiError as error:
            raise SessionNotFound(f"There is no session {session_id!r}.") from error
        if state.closed:
            raise SessionNotFound(f"The session {session_id!r} has ended.")
        create = planned.create
        settings: list[cmd.Setting] = [
            cmd.SetMode(now=0, mode=create.mode),
            cmd.SetTerms(now=0, terms=create.terms),
        ]
        try:
            if create.model_ref:
                settings.append(cmd.SetModel(now=0, model_ref=self._with_model(planned).model_ref))
            for setting in settings:
                await sessions.dispatch(req.RunCommand(session_id, setting))
            state = await sessions.dispatch(req.GetState(session_id))
        except MakaiError as error:
            raise SpawnFailed(error.message, hint=error.hint) from error
        return await self._begin(sessions, session_id, state.last_event_id, planned, spec)

    def _with_model(self, planned: SpawnPlan) -> req.CreateSession:
        """The native loop needs a model: the default one of the catalog when the spec names none."""
        create = planned.create
        if create.harness != NATIVE:
            return create
        assert self._models is not None, "the sessions are open"
        models = self._models.for_caller(planned.environ)
        model = models.resolve(create.model_ref or None)
        models.resolver.credential_for(model)  # a missing key is no session
        return msgspec.structs.replace(create, model_ref=ref_of(model))

    async def _open(self) -> Sessions:
        async with self._opening:
            if self._is_shut_down:
                raise ChannelClosed("The harness was shut down.")
            if self._sessions is None:
                models = self._models = ModelRuntime(self._environ, home=self._home)

                async def own() -> Sessions:
                    return await own_sessions(self._home, models, environ=self._environ, on_process=self._spawned)

                if self._keep:
                    self._sessions = await SessionRouter.open(self._home, own, environ=self._environ)
                else:
                    self._sessions = await OwnedSessions.open(
                        self._home, models, log=MemoryLog(), environ=self._environ, on_process=self._spawned
                    )
            return self._sessions

    def _spawned(self, session_id: str, pid: int) -> None:
        if (callback := self._on_spawned.pop(session_id, None)) is not None:
            # Not here: what the callback raises must not keep the driver from taking over the process.
            asyncio.get_running_loop().call_soon(callback, pid)

    async def _ended(self, handle: SessionHandle) -> None:
        """Forget a session that is over and read. Those of the native loop stay, because makai itself resumes them."""
        if not handle.is_over or not handle.is_read_to_end:
            return
        self._handles.discard(handle)
        self._on_spawned.pop(handle.makai_session_id, None)
        if not self._keep and self._harness_id != NATIVE and self._sessions is not None:
            with suppress(MakaiError):
                await self._sessions.dispatch(req.DeleteSession(handle.makai_session_id))


class NativeMakaiHarness(MakaiHarness):
    """makai's own loop. It completes a request by asking the model directly, without a session."""

    async def complete(self, request: OneShotRequest) -> OneShotResult:
        spec = Spec(prompt="", model=request.model, endpoint=request.endpoint)
        planned = self._plan(spec)
        await self._open()
        assert self._models is not None, "the sessions are open"
        models = self._models.for_caller(planned.environ) if planned.environ else self._models
        named = msgspec.structs.replace(request, model=planned.create.model_ref, endpoint=None)
        result = await complete_with_models(models, named)
        owns_login = request.endpoint is not None and request.endpoint.brings_own_auth
        return msgspec.structs.replace(result, cost=None) if owns_login else result
