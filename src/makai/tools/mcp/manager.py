"""The MCP servers of a session: started in the background, watched, restarted.

A slow or dead server delays nothing: `start` returns at once, `tools` gives what is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from makai.core.errors import InvalidRequest, MakaiError, TransportError
from makai.core.server_prompts import ServerPrompt
from makai.core.session_events import Notice
from makai.tools.mcp.config import HttpServer, Launch, McpConfig, McpServer, StdioServer, Timing
from makai.tools.mcp.tools import CallResult, McpTool, NotStarted, OnProgress, SessionForgotten, ToolListing
from makai.tools.sandbox.guard import GuardedWork

if TYPE_CHECKING:
    from makai.tools.mcp.connection import Handshake, McpConnection

_HANDSHAKES: Final = 2
MAX_PROMPT: Final = 200_000
ServerState: TypeAlias = Literal["connecting", "ready", "failed", "stopped"]


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    state: ServerState
    address: str = ""
    """Its program or URL, without anything that may be secret."""
    reason: str = ""
    """Why it failed, or why it is being connected to again."""
    has_started: bool = True
    """False for a program that could not be started."""
    tools: int = 0
    server_version: str = ""
    protocol_version: str = ""
    ignored_keys: tuple[str, ...] = ()
    """What its entry says that means nothing here."""


OnChange: TypeAlias = Callable[[ServerStatus], None]
"""Told whenever a server's state or one of its tools has changed."""


class McpManager:
    """All servers of a session. `start` it, and `close` it on every path; or use it with `async with`."""

    def __init__(
        self, config: McpConfig, launch: Launch, *, timing: Timing | None = None, on_change: OnChange | None = None
    ) -> None:
        self._on_change = on_change
        self._servers = {
            server.name: _Server(server, launch, timing or Timing(), self._changed) for server in config.servers
        }
        self._moved = asyncio.Event()
        """A status changed; a new event takes its place each time."""
        self._problems = tuple(
            ServerStatus(name=name, state="failed", reason=reason) for name, reason in config.problems.items()
        )
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._servers and self._running is None:
            self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End every server and wait until no process of theirs is left. May be called again."""
        if self._running is not None:
            for server in self._servers.values():
                server.closing = True
            self._running.cancel()
            # Not `await self._running`: the caller may be cancelled too, and must be able to tell the two apart.
            await asyncio.wait({self._running})

    async def __aenter__(self) -> McpManager:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def statuses(self) -> tuple[ServerStatus, ...]:
        return (*(server.status for server in self._servers.values()), *self._problems)

    def logs(self) -> dict[str, str]:
        """The end of what the program of each connected server wrote to standard error."""
        up = {name: server.connection for name, server in self._servers.items() if server.connection is not None}
        return {name: connection.log for name, connection in up.items()}

    def tools(self) -> tuple[McpTool, ...]:
        """The tools that can be called, sorted by name: the same list for the same servers, for prompt caches."""
        found = {tool.definition.name: tool for server in self._servers.values() for tool in server.tools.values()}
        return tuple(found[name] for name in sorted(found))

    async def prompts(self) -> list[ServerPrompt]:
        """The prompts of the servers that are up. One that does not list its prompts costs the others nothing."""
        found = await asyncio.gather(*(server.prompts() for server in self._servers.values()))
        return [prompt for prompts in found for prompt in prompts]

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt. `InvalidRequest` when there is no such server, or the prompt is too long."""
        if server not in self._servers:
            raise InvalidRequest(f"There is no MCP server {server!r}.", hint="/prompts lists what there is.")
        return await self._servers[server].prompt(name, arguments)

    async def settled(
        self,
        within_s: float,
        progressed: Callable[[], Awaitable[None]] | None = None,
        *,
        names: Collection[str] | None = None,
    ) -> bool:
        """Wait until each server (of those `names`) is ready or has failed, but not longer than that. `progressed` is
        awaited after every change of a status."""
        deadline = asyncio.get_running_loop().time() + within_s
        awaited = [server for name, server in self._servers.items() if names is None or name in names]
        while True:
            moved = self._moved
            if all(server.settled for server in awaited):
                return True
            try:
                async with asyncio.timeout_at(deadline):
                    await moved.wait()
            except TimeoutError:
                return False
            if progressed is not None:
                await progressed()

    def _changed(self, status: ServerStatus) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        if self._on_change is not None:
            self._on_change(status)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for server in self._servers.values():
                group.create_task(server.run())


class _Server:
    def __init__(self, config: McpServer, launch: Launch, timing: Timing, on_change: OnChange) -> None:
        self.name = config.name
        self.tools: dict[str, McpTool] = {}
        self.settled = False
        """It was ready once, or failed with both handshakes."""
        self.wanted = asyncio.Event()
        """One of its tools is called: try again now."""
        self.closing = False
        """Beside the cancellation: anyio forgets one that arrives while a group of its tasks ends with an error."""
        self.status = ServerStatus(
            name=config.name, state="connecting", address=config.address, ignored_keys=config.ignored_keys
        )
        self._config = config
        self._launch = launch
        self._guard = launch.guard if isinstance(config, StdioServer) else None
        self._timing = timing
        self._on_change = on_change
        self.connection: McpConnection | None = None
        self._was_ready = False
        self._moved = asyncio.Event()
        """The state changed; a new event takes its place each time."""

    async def run(self) -> None:
        failures = 0
        handshakes: tuple[Handshake, Handshake] = ("legacy", "auto")
        try:
            while not self.closing:
                self._tell("connecting", self.status.reason)
                lasted, reason = await self._live(handshakes[0])
                if self.closing:
                    break
                if lasted is None:
                    # It never answered: perhaps it is one of those that know only the other handshake.
                    handshakes = handshakes[::-1]
                failures = 1 if lasted is not None and lasted >= self._timing.steady_s else failures + 1
                await self._wait(failures, reason)
                failures = 0 if self.wanted.is_set() else failures
        finally:
            self.tools = {}
            self._tell("stopped", "")

    async def call(self, tool: McpTool, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallResult:
        """Call a tool of the current connection, if that is still the tool that was asked for.

        A call is made once. The exception: a server that refused it because it does not know the session, as after a
        restart, has not carried it out, so it is made again, once, in a new session."""
        try:
            return await self._call(tool, arguments, on_progress)
        except SessionForgotten:
            return await self._call(tool, arguments, on_progress)

    async def _call(self, tool: McpTool, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallResult:
        connection = await self._ready()
        current = self.tools.get(tool.listing.name)
        if current is None:
            raise InvalidRequest(f"There is no tool {tool.listing.name!r} any more.")
        if current.fingerprint != tool.fingerprint:
            raise InvalidRequest(f"The tool {tool.listing.name!r} has changed since it was offered.")
        async with GuardedWork(self._guard):
            return await connection.call(tool.listing.name, arguments, on_progress)

    async def prompts(self) -> list[ServerPrompt]:
        if self.connection is None or self.connection.over:
            return []
        try:
            return [msgspec.structs.replace(one, server=self.name) for one in await self.connection.prompts()]
        except MakaiError:
            return []

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        text = await (await self._ready()).prompt(name, arguments)
        if len(text) > MAX_PROMPT:
            raise InvalidRequest(f"The prompt has {len(text):,} characters; at most {MAX_PROMPT:,} are sent.")
        return text

    def take_notices(self) -> tuple[Notice, ...]:
        return () if self._guard is None else self._guard.take_notices()

    async def _ready(self) -> McpConnection:
        """The connection. A server that is starting again is waited for; one that was given up is tried again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.ready_s):
                while (self.connection is None or self.connection.over) and self.status.state != "stopped":
                    if self.status.state == "failed":
                        self.wanted.set()
                    await self._moved.wait()
        if self.connection is None or self.connection.over:
            why = self.status.reason or "It does not answer yet."
            raise TransportError(f"The server is {self.status.state}. {why}")
        return self.connection

    async def _live(self, handshake: Handshake) -> tuple[float | None, str]:
        """One connection: how long it was ready, None if never, and why it is over."""
        clock = asyncio.get_running_loop().time
        ready_at: float | None = None

        async def during(connection: McpConnection) -> None:
            nonlocal ready_at
            self._list(await connection.tools())
            ready_at = clock()
            self.connection, self._was_ready = connection, True
            self._tell("ready", "")
            while True:
                await connection.news()
                if self._list(await connection.tools()):
                    self._tell("ready", "")

        try:
            # The SDK takes most of a second to load; in a thread it does not stop the event loop for so long.
            module = await asyncio.to_thread(importlib.import_module, "makai.tools.mcp.connection")
            await module.live(self._config, self._launch, self._timing, handshake, during)
            reason, has_started = "", True
        except MakaiError as error:
            reason, has_started = str(error), not isinstance(error, NotStarted)
        finally:
            self.connection = None
        self.status = msgspec.structs.replace(self.status, has_started=has_started)
        return None if ready_at is None else clock() - ready_at, reason

    def _list(self, listings: Sequence[ToolListing]) -> bool:
        """Take over a list of tools; whether anything changed. A tool that stayed the same stays the same object."""
        before, self.tools = self.tools, {}
        for listing in listings:
            known = before.get(listing.name)
            if known is None or known.listing != listing:
                known = McpTool(self, self._config.identity, listing, self._launch.spill_directory)
            self.tools[listing.name] = known
        return before != self.tools

    async def _wait(self, failures: int, reason: str) -> None:
        """Wait before the next attempt; after too many its tools are gone until one of them is called. A remote server
        that worked once may only be out of reach, as on a train: asking for it again costs little."""
        self.wanted.clear()
        given_up = failures >= self._timing.most_failures
        if given_up:
            self.tools = {}
        self.settled = self.settled or given_up or failures >= _HANDSHAKES
        self._tell("failed", reason)
        remote = isinstance(self._config, HttpServer) and self._was_ready
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if given_up and not remote else self._timing.retry_after(failures)):
                await self.wanted.wait()

    def _tell(self, state: ServerState, reason: str) -> None:
        self.status = msgspec.structs.replace(self.status, state=state, reason=reason, tools=len(self.tools))
        if (server := self.connection) is not None:
            versions = {"server_version": server.server_version, "protocol_version": server.protocol_version}
            self.status = msgspec.structs.replace(self.status, **versions)
        self.settled = self.settled or state in ("ready", "stopped")
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        self._on_change(self.status)
