"""Keeps the workbenches of sessions between runs, so that tool servers need not start again for every message.

Each workbench lives in a task of its own. It closes when its session had no run for a while, when its session is
deleted or needs another one (its terms or trust changed), and when the process ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from makai.aio.cancellation import consume_exception
from makai.aio.tasks import BackgroundTasks
from makai.core.errors import InvalidRequest
from makai.core.session_events import McpServer, RunTerms
from makai.harness.base import SessionContext, ToolAnswer, ToolRequest
from makai.providers.retries import PATIENCE_S
from makai.tools.launching import launcher

if TYPE_CHECKING:
    from makai.agent.workbench import Workbench, WorkbenchSpec
    from makai.tools.mcp.config import McpConfig
    from makai.tools.permissions.rules import PermissionRules

IDLE_S: Final = 600.0
_LOOK_EVERY_S: Final = 30.0
_CLOSE_S: Final = 10.0


class _Entry:
    def __init__(self, session_id: str, spec: WorkbenchSpec, given: tuple[McpServer, ...]) -> None:
        self.session_id = session_id
        self.spec = spec
        self.given = given
        """The MCP servers of the client, as the session's terms say."""
        self.bench: asyncio.Future[Workbench] = asyncio.get_running_loop().create_future()
        self.bench.add_done_callback(consume_exception)  # of an aborted run, which does not wait for it
        self.closing = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.users = 0
        self.used_at = 0.0

    def is_unused(self) -> bool:
        return self.users == 0 and asyncio.get_running_loop().time() - self.used_at > IDLE_S

    async def close(self) -> None:
        self.closing.set()
        if self.task is not None:
            await asyncio.wait({self.task}, timeout=_CLOSE_S)


class WorkbenchPool:
    """One workbench per session that uses built-in tools."""

    def __init__(
        self,
        home: Path,
        tasks: BackgroundTasks,
        trust_of: Callable[[str], Awaitable[tuple[bool, Mapping[str, str]]]],
        execute: Callable[[ToolRequest], Awaitable[ToolAnswer | None]],
    ) -> None:
        """`execute` asks the client of a session for the secrets of its MCP servers."""
        self._home = home
        self._execute = execute
        self._tasks = tasks
        self._trust_of = trust_of
        self._entries: dict[str, _Entry] = {}

    @asynccontextmanager
    async def use(
        self, session_id: str, session: SessionContext, *, client_servers: bool = True
    ) -> AsyncIterator[Workbench | None]:
        """The session's workbench while it is used; None when its terms want no built-in tools. `client_servers`: with
        the MCP servers of the session's client, unless an agent that is driven gets them."""
        if not session.terms.builtin_tools or session.cwd is None:
            yield None
            return
        launcher().start()  # before the first command of this process can write a file
        from makai.agent.workbench import WorkbenchSpec

        given = session.terms.mcp_servers if client_servers else ()
        trusted, trusted_files = await self._trust_of(session.cwd)
        spec = WorkbenchSpec(
            cwd=session.cwd,
            roots=session.roots,
            sandbox=session.terms.sandbox,
            makai_home=self._home,
            trusted=trusted,
            trusted_files=trusted_files,
            environ=dict(os.environ),
            session_id=session_id,
            client_servers=await self._client_servers(session_id, given),
        )
        entry = await self._entry(session_id, spec, given)
        entry.users += 1
        try:
            yield await asyncio.shield(entry.bench)
        finally:
            entry.users -= 1
            entry.used_at = asyncio.get_running_loop().time()

    def user_rules(self, terms: RunTerms) -> PermissionRules:
        """The rules for a run without a workbench. Raises `InvalidRequest` for one that cannot be read."""
        from makai.agent.workbench import user_rules

        return user_rules(self._home, terms.allow, terms.deny)

    def max_retry_s(self) -> float:
        """How long runs keep asking a vendor that limits their rate. Raises `InvalidRequest` for a file that cannot be
        read."""
        from makai.providers.logins import CONFIG_FILE, read_config

        given = read_config(self._home / CONFIG_FILE).retries.max_seconds
        return PATIENCE_S if given is None else float(given)

    async def _client_servers(self, session_id: str, given: tuple[McpServer, ...]) -> McpConfig:
        """The MCP servers of the client, with the values of their variables and headers. While it is not connected,
        the values that it gave before."""
        from makai.tools.mcp.config import McpConfig, client_servers

        if not given:
            return McpConfig()
        needy = tuple(server.name for server in given if server.env_names or server.header_names)
        values = await self._values(session_id, needy) if needy else {}
        entry = self._entries.get(session_id)
        if values is None and entry is not None and entry.given == given:
            return entry.spec.client_servers
        return client_servers(given, values or {})

    async def _values(
        self, session_id: str, servers: tuple[str, ...]
    ) -> Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] | None:
        from makai.harness import editor_calls as calls

        wanted = calls.McpValuesRequest(servers=servers)
        try:
            known = await calls.ask_editor(self._execute, calls.MCP_VALUES, wanted, session_id=session_id)
        except InvalidRequest:
            return None
        return None if known is None else {name: (each.env, each.headers) for name, each in known.servers.items()}

    async def _entry(self, session_id: str, spec: WorkbenchSpec, given: tuple[McpServer, ...]) -> _Entry:
        entry = self._entries.get(session_id)
        if entry is None or entry.spec != spec or entry.closing.is_set():
            if entry is not None:
                await entry.close()
            entry = self._entries[session_id] = _Entry(session_id, spec, given)
            entry.task = self._tasks.start(self._keep(entry), f"makai-bench-{session_id}")
        return entry

    async def forget(self, session_id: str) -> None:
        if entry := self._entries.pop(session_id, None):
            await entry.close()

    async def _keep(self, entry: _Entry) -> None:
        from makai.agent.workbench import Workbench

        try:
            async with Workbench(entry.spec) as bench:
                entry.bench.set_result(bench)
                while not entry.closing.is_set() and not entry.is_unused():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_EVERY_S):
                            await entry.closing.wait()
                entry.closing.set()
        except Exception as error:
            if entry.bench.done():
                raise
            entry.bench.set_exception(error)
        finally:
            entry.closing.set()
            if not entry.bench.done():
                entry.bench.cancel()
            if self._entries.get(entry.session_id) is entry:
                del self._entries[entry.session_id]
