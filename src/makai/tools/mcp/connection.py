"""One connection to an MCP server, by the official SDK.

Only this module, `transports` and `mending` import the SDK, which takes most of a second: load them in a thread, and
only for a server. The SDK's checks of structured results are not used: they would run a server's regular expressions
in our loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio
import anyio.abc
import httpx2
import mcp_types as types
import msgspec
from mcp.client import Client, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from makai.core.content import Text
from makai.core.errors import MakaiError, TransportError
from makai.core.sanitize import sanitize
from makai.core.server_prompts import ServerPrompt, ServerPromptArgument
from makai.core.version import __version__
from makai.tools.file_errors import printable
from makai.tools.mcp.config import HttpServer, Launch, McpServer, StdioServer, Timing
from makai.tools.mcp.resources import LIST_RESOURCES, MAX_LISTED, READ_RESOURCE, ListedResource
from makai.tools.mcp.resources import listed as listed_resources
from makai.tools.mcp.resources import read as read_contents
from makai.tools.mcp.tools import CallResult, NotStarted, OnProgress, SessionForgotten, ToolListing, parts_of
from makai.tools.mcp.transports import SESSION_GONE, Life, transport_to, unreachable

Handshake: TypeAlias = Literal["legacy", "auto"]
"""`initialize`, which nearly every server knows; or `server/discover` (2026-07-28) and then `initialize`. Some servers
end, or answer nothing, when another request comes before `initialize`, so that one is tried first."""
T = TypeVar("T")

_MAX_PAGES: Final = 100
_MAX_TOOLS: Final = 1_000
_MAX_REASON: Final = 2_000
_RELISTEN_S: Final = 5.0
_DRAIN_S: Final = 2.0
"""How long calls of a session that the server has forgotten may take to be refused, each by itself."""


class McpConnection:
    def __init__(self, client: Client, group: anyio.abc.TaskGroup, timing: Timing, life: Life) -> None:
        self._client = client
        self._group = group
        self._timing = timing
        self._life = life
        self._resource_tools: frozenset[str] = frozenset()
        """The tools that stand for its resources: not known to the server."""
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.protocol_version = client.protocol_version
        info = client.server_info
        self.server_version = printable(f"{info.name} {info.version}")[:200] if info else ""

    @property
    def over(self) -> bool:
        return self._life.end is not None

    @property
    def log(self) -> str:
        """The end of what its process wrote to standard error."""
        return self._life.log()

    async def news(self) -> None:
        """Wait until its tools may have changed. `TransportError` when the connection is over."""
        await self._life.news.wait()
        self._life.news.clear()
        if self._life.end is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S if self._life.forgotten else 0):
                    await self._idle.wait()
            raise TransportError(self._life.end)

    async def tools(self) -> tuple[ToolListing, ...]:
        """All pages of its list; of tools with the same name the first."""
        listed: dict[str, ToolListing] = {}
        cursors: set[str] = set()
        params: types.PaginatedRequestParams | None = None
        with self._translated(f"It did not list its tools within {self._timing.list_s:g} s."):
            async with asyncio.timeout(self._timing.list_s):
                for _ in range(_MAX_PAGES):
                    page = await self._client.session.list_tools(params=params)
                    for tool in page.tools:
                        listing = _converted(tool, ToolListing)
                        listed.setdefault(listing.name, listing)
                    cursor = page.next_cursor
                    if cursor is None or cursor in cursors or len(listed) >= _MAX_TOOLS:
                        break
                    cursors.add(cursor)
                    params = types.PaginatedRequestParams(cursor=cursor)
        tools = dict(tuple(listed.items())[:_MAX_TOOLS])
        if self._client.server_capabilities.resources is not None:
            own = {tool.name: tool for tool in (LIST_RESOURCES, READ_RESOURCE) if tool.name not in listed}
            self._resource_tools = frozenset(own)
            tools |= own
        return tuple(tools.values())

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallResult:
        """Call a tool. When this is cancelled or takes too long the server is notified, without waiting for it."""
        if tool in self._resource_tools:
            return await self._call_for_resources(tool, arguments)
        clock = asyncio.get_running_loop().time
        last = clock() + self._timing.longest_call_s
        timeout, is_asking = asyncio.timeout(self._timing.call_s), True

        async def report(progress: float, total: float | None, message: str | None) -> None:
            # "Implementations MAY choose to reset the timeout clock when receiving a progress notification ... SHOULD
            # always enforce a maximum timeout" (MCP 2025-11-25, lifecycle)
            if is_asking and not timeout.expired():
                timeout.reschedule(min(clock() + self._timing.call_s, last))
            on_progress(progress, total, message)

        async def ask() -> types.CallToolResult:
            params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
            request = types.CallToolRequest(params=params)
            return await self._client.session.send_request(request, types.CallToolResult, progress_callback=report)

        with self._translated("It did not answer in time, and was told to stop."):
            try:
                async with timeout:
                    result = await self._beside(ask)
            finally:
                is_asking = False  # progress may still come, and the deadline is over
            return _converted(result, CallResult)

    async def _call_for_resources(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        with self._translated(f"It did not answer within {self._timing.list_s:g} s."):
            async with asyncio.timeout(self._timing.list_s):
                if tool == LIST_RESOURCES.name:
                    return await self._beside(self._list_resources)
                return await self._beside(lambda: self._read_resource(str(arguments["uri"])))

    async def _list_resources(self) -> CallResult:
        """All resources and templates, up to a bound."""
        found: list[ListedResource] = []
        params: types.PaginatedRequestParams | None = None
        are_all = False
        for _ in range(_MAX_PAGES):
            page = await self._client.session.list_resources(params=params)
            found += [_converted(resource, ListedResource) for resource in page.resources]
            are_all = page.next_cursor is None
            if are_all or len(found) > MAX_LISTED:
                break
            params = types.PaginatedRequestParams(cursor=page.next_cursor)
        try:
            templates = await self._client.session.list_resource_templates()
            found += [_converted(template, ListedResource) for template in templates.resource_templates]
            are_all = are_all and templates.next_cursor is None
        except MCPError as error:
            if error.code != types.METHOD_NOT_FOUND:
                raise
        return listed_resources(found, are_all=are_all)

    async def _read_resource(self, uri: str) -> CallResult:
        request = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri))
        result = await self._client.session.send_request(request, types.ReadResourceResult)
        return read_contents([_converted(one, dict[str, Any]) for one in result.contents])

    async def prompts(self) -> list[ServerPrompt]:
        """Its prompts, up to a bound; `server` is left to the caller."""
        if self._client.server_capabilities.prompts is None:
            return []
        found: list[types.Prompt] = []
        params: types.PaginatedRequestParams | None = None
        with self._translated(f"It did not list its prompts within {self._timing.list_s:g} s."):
            async with asyncio.timeout(self._timing.list_s):
                for _ in range(_MAX_PAGES):
                    page = await self._client.session.list_prompts(params=params)
                    found += page.prompts
                    if page.next_cursor is None or len(found) > _MAX_TOOLS:
                        break
                    params = types.PaginatedRequestParams(cursor=page.next_cursor)
        return [_prompt(each) for each in found[:_MAX_TOOLS]]

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt. Messages of the assistant in it are marked; what is no text is described."""
        with self._translated(f"It did not answer within {self._timing.list_s:g} s."):
            async with asyncio.timeout(self._timing.list_s):
                request = types.GetPromptRequest(
                    params=types.GetPromptRequestParams(name=name, arguments=dict(arguments))
                )
                result = await self._beside(lambda: self._client.session.send_request(request, types.GetPromptResult))
        said = []
        for message in result.messages:
            content = CallResult(content=(_converted(message.content, dict[str, Any]),))
            parts = (part.text if isinstance(part, Text) else f"[{part.mime_type}]" for part in parts_of(content))
            said.append(("Assistant: " if message.role == "assistant" else "") + "\n".join(parts))
        return "\n\n".join(said)

    async def follow_changes(self) -> None:
        """Subscribe to changes of its tools where the protocol wants that; older ones simply send them."""
        tools = self._client.server_capabilities.tools
        if self.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (tools and tools.list_changed):
            return
        while True:
            try:
                async with self._client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._life.news.set()
            except MCPError as error:
                if error.code in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS):
                    return
            except (SubscriptionLost, TimeoutError):
                pass
            await asyncio.sleep(_RELISTEN_S)
            # Changes that happened in between were not announced to us.
            self._life.news.set()

    async def _beside(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Run it in the connection's own group: a cancelled caller does not wait until the server was notified."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    result = await ask()
                    if not answer.done():
                        answer.set_result(result)
                except Exception as error:
                    if not answer.done():
                        answer.set_exception(error)
                finally:
                    if not answer.done():
                        answer.set_exception(_closed())

        if self._life.end is not None:
            raise _closed()
        self._calls += 1
        self._idle.clear()
        self._group.start_soon(run)
        try:
            return await answer
        finally:
            scope.cancel()
            self._calls -= 1
            if self._calls == 0:
                self._idle.set()

    @contextlib.contextmanager
    def _translated(self, too_late: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise TransportError(too_late) from None
        except ValidationError:
            raise TransportError("Its answer is not what the protocol allows.") from None
        except MCPError as error:
            if error.code == SESSION_GONE:
                self._life.forgotten = True
                self._life.over(f"It has forgotten the session. {_shown(error.message)}")
                raise SessionForgotten(self._life.end or "") from None
            if self._life.end is not None or _is_closed(error):
                raise TransportError(f"The connection is lost: {self._life.end or error.message}") from None
            raise MakaiError(_shown(error.message)) from None


async def live(
    server: McpServer,
    launch: Launch,
    timing: Timing,
    handshake: Handshake,
    during: Callable[[McpConnection], Awaitable[None]],
) -> None:
    """Connect, run `during`, and end everything. `TransportError` tells why it could not be, or why it is over."""
    life = Life()

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            life.news.set()

    client = Client(
        transport_to(server, launch, timing, life),
        mode=handshake,
        cache=None,
        message_handler=heard,
        client_info=types.Implementation(name="makai", version=__version__),
    )
    try:
        async with contextlib.AsyncExitStack() as stack:
            within_s = timing.start_s if isinstance(server, StdioServer) else timing.connect_s
            try:
                async with asyncio.timeout(within_s):
                    await stack.enter_async_context(client)
            except TimeoutError:
                raise TransportError(f"It did not answer within {within_s:g} s{life.last_words()}") from None
            async with anyio.create_task_group() as group:
                connection = McpConnection(client, group, timing, life)
                group.start_soon(connection.follow_changes)
                await during(connection)
                group.cancel_scope.cancel()
    except Exception as error:
        failure = TransportError if life.has_started else NotStarted
        raise failure(_reason(error, server, life)) from None


def _prompt(listed: types.Prompt) -> ServerPrompt:
    arguments = tuple(
        ServerPromptArgument(name=each.name, required=bool(each.required)) for each in listed.arguments or ()
    )
    description = listed.description or listed.title or ""
    prompt = ServerPrompt(server="", name=listed.name, description=description[:_MAX_REASON], arguments=arguments)
    return sanitize(prompt)


def _converted(model: BaseModel, kind: type[T]) -> T:
    return msgspec.convert(sanitize(model.model_dump(mode="json", by_alias=True, exclude_none=True)), kind)


def _closed() -> MCPError:
    return MCPError(types.CONNECTION_CLOSED, "it was closed")


def _is_closed(error: MCPError) -> bool:
    """Servers give the same code to errors of their own: only the words of the SDK and of `_closed` are the end."""
    return error.code == types.CONNECTION_CLOSED and error.message in ("Connection closed", "it was closed")


def _reason(error: Exception, server: McpServer, life: Life) -> str:
    """One sentence or two about the first real cause; task groups wrap what failed in them."""
    while isinstance(error, ExceptionGroup):
        error = next((one for one in error.exceptions if isinstance(one, MakaiError)), error.exceptions[0])
    if life.end is not None:
        return life.end
    if isinstance(error, MakaiError):
        return error.message
    if isinstance(error, httpx2.TransportError) and isinstance(server, HttpServer):
        return unreachable(server, error)
    said = _shown(str(error)).rstrip(".") or type(error).__name__
    return life.refused or f"{said}{life.last_words()}"


def _shown(text: str) -> str:
    return printable(text)[:_MAX_REASON]
