"""The sessions of this MAKAI_HOME, opened on first use and shared by all connections of this process. Nothing of
sessions is imported before: `makai stdio` answers a ping without them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from makai.core.access import LOCAL, Caller
from makai.core.errors import ChannelClosed
from makai.server.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from makai.core.config import Config
    from makai.core.observation import Observer
    from makai.core.session_events import SandboxLevel
    from makai.core.settings import Settings
    from makai.harness.acp.known_agents import OfferedAgent
    from makai.server.cluster_sessions import ClusterSessions
    from makai.sessions.owner import OwnedSessions
    from makai.sessions.service import Sessions

    SettingsOf: TypeAlias = Callable[[str | None, Caller], Awaitable[Settings]]
    """What a new session of a caller in a folder gets, where the caller names nothing else."""


NOTICE_S = 2.0
"""How long a node that ends says that it is not ready before it refuses anything."""


async def default_settings(folder: str | None, caller: Caller) -> Settings:
    """Of a server that reads no configuration."""
    from makai.core.settings import Settings

    return Settings()


def _with_named_agent(settings: Settings, user: Config) -> Settings:
    """For a caller who may give an agent by its name only: a command line of the user's own becomes makai's agent."""
    import msgspec

    from makai.harness.acp.known_agents import is_named
    from makai.harness.registry import harness_id_of

    is_allowed = settings.agent is None or is_named(harness_id_of(settings.agent), user.agents)
    return settings if is_allowed else msgspec.structs.replace(settings, agent=None)


class SessionSource:
    """`get` is what `MakaiServer` takes as `sessions`. Without a folder it is the user's `MAKAI_HOME`."""

    def __init__(
        self,
        backend: Backend,
        home: Path | None = None,
        *,
        durable: bool = False,
        environ: Mapping[str, str] | None = None,
        sandbox: SandboxLevel | None = None,
        observer: Observer | None = None,
    ) -> None:
        """A `durable` owner resumes the runs of dead owners at once, others when a session is first used. `environ`
        replaces the environment of this process, for settings and for runs that another process carries out. `sandbox`
        is the flag of the command that serves. `observer` learns of the sessions while this process owns them."""
        self._observer = observer
        self._backend = backend
        self._home = home
        self._environ = os.environ if environ is None else environ
        self._sandbox = sandbox
        self._durable = durable
        self._opening = asyncio.Lock()
        self._sessions: Sessions | None = None
        self._owned: OwnedSessions | ClusterSessions | None = None
        self._draining = False
        self._closed = False

    async def get(self) -> Sessions:
        async with self._opening:
            if self._closed:
                raise ChannelClosed("The server is closing.")
            if self._sessions is None:
                self._sessions = await self._open()
            return self._sessions

    async def settings(self, folder: str | None, caller: Caller = LOCAL) -> Settings:
        """What a session gets whose creator names no settings. A caller who may not approve gets none that ask less."""
        from makai.core.settings import SettingsLayer, resolve_settings
        from makai.providers.logins import CONFIG_FILE, read_config
        from makai.sessions.requests import GetProjectSettings

        project = SettingsLayer()
        if folder is not None:
            project = await (await self.get()).dispatch(GetProjectSettings(folder))
        user = await asyncio.to_thread(read_config, self._folder() / CONFIG_FILE)
        flags = SettingsLayer(sandbox=self._sandbox)
        found = resolve_settings(flags=flags, environ=self._environ, project=project, user=user.settings)
        if not caller.may("approve"):
            return found.within("ask", "workspace-write")
        return found if caller.may("admin") else _with_named_agent(found, user)

    def _folder(self) -> Path:
        from makai.core.home import home_directory

        return self._home or home_directory(self._environ)

    def agents(self) -> tuple[OfferedAgent, ...]:
        """The agents that a session can be given, beside makai's own."""
        from makai.harness.acp.known_agents import offered_agents
        from makai.providers.logins import CONFIG_FILE, read_config

        config = read_config(self._folder() / CONFIG_FILE)
        return offered_agents(config.agents, os.environ)

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self._sessions is not None:
                await self._sessions.close()

    async def _open(self) -> Sessions:
        from makai.core.observation import NO_OBSERVER
        from makai.server.cluster_opening import own_sessions
        from makai.server.session_router import SessionRouter

        home = self._folder()
        await self.prepare_logins()

        async def own() -> Sessions:
            observer = self._observer or NO_OBSERVER
            self._owned = await own_sessions(home, self._backend, durable=self._durable, observer=observer)
            return self._owned

        return await SessionRouter.open(home, own, environ=self._environ)

    async def prepare_logins(self) -> None:
        """Look up shared logins for the first time, in a thread: it waits for the database, and later ones do not. What
        fails is said when a login is needed."""
        from makai.auth.opening import are_logins_shared
        from makai.providers.logins import CONFIG_FILE, read_config

        config = await asyncio.to_thread(read_config, self._folder() / CONFIG_FILE)
        if are_logins_shared(config, self._environ):
            await asyncio.to_thread(self._backend.auth().list_providers)

    async def is_ready(self) -> bool:
        """Whether the sessions can be used. A node of a cluster is ready while it is a live member."""
        node = self._node()
        return self._sessions is not None and not self._draining and (node is None or await node.is_ready())

    async def drain(self) -> None:
        """Of a node of a cluster: not be ready any more, and, after a load balancer had time to notice, let other nodes
        take the sessions that have no owner. Those of this node are usable until `close`."""
        if (node := self._node()) is not None:
            self._draining = True
            await asyncio.sleep(NOTICE_S)
            await node.drain()

    def _node(self) -> ClusterSessions | None:
        if self._owned is None:
            return None
        from makai.sessions.owner import OwnedSessions

        return None if isinstance(self._owned, OwnedSessions) else self._owned
