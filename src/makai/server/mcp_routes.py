"""`/api/mcp`: the MCP servers of the user and of the project in which the server was started, as `makai mcp` has them:
list, add, remove, and a test that starts one in the sandbox and says what it answered and logged."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from makai.core.errors import InvalidRequest
from makai.core.home import home_directory
from makai.server.http_json import answer, answering, read_body
from makai.server.mcp_servers import ListedServer, ServerFile, ServerScope, checked_servers, server_files
from makai.server.scopes import check_all_sessions
from makai.sessions.requests import FolderTrust, GetTrust
from makai.sessions.service import Sessions
from makai.transports.http_guard import caller_of

MAX_BODY: Final = 64 * 1024
TEST_S: Final = 25.0
"""Less than the page waits for an answer."""
MAX_LOG: Final = 8_000
"""Characters at the end of a log that are sent."""
MAX_SERVERS: Final = 100


class NewServerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    command: tuple[str, ...] = ()
    """The program and its arguments; or `url`."""
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    network: bool = False
    git: bool = False


class ServerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    scope: ServerScope = "user"


class McpRoutes:
    def __init__(self, sessions: Callable[[], Awaitable[Sessions]], home: Path | None = None) -> None:
        self._sessions = sessions
        self._home = home
        self._tested: dict[tuple[str, str], tuple[ListedServer, int]] = {}
        """The last test of each server and when it was, as long as this process lives."""
        self._testing = asyncio.Semaphore(2)

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api/mcp", answering(self._list))
        app.router.add_post("/api/mcp", answering(self._add))
        app.router.add_post("/api/mcp/remove", answering(self._remove))
        app.router.add_post("/api/mcp/test", answering(self._test))

    async def _list(self, request: web.Request) -> web.Response:
        check_all_sessions(caller_of(request), "listing MCP servers")
        return answer(await self._shown())

    async def _add(self, request: web.Request) -> web.Response:
        check_all_sessions(caller_of(request), "adding an MCP server")
        body = await read_body(request, NewServerBody, MAX_BODY)
        file = self._files()[0]
        if len(await asyncio.to_thread(file.entries)) >= MAX_SERVERS:
            raise InvalidRequest(f"There are {MAX_SERVERS} servers already.", hint="Remove one that you do not use.")
        await asyncio.to_thread(file.put, body.name.strip(), _entry(body), replace=False)
        return answer(await self._shown(), 201)

    async def _remove(self, request: web.Request) -> web.Response:
        check_all_sessions(caller_of(request), "removing an MCP server")
        body = await read_body(request, ServerBody, MAX_BODY)
        file = next(file for file in self._files() if file.scope == body.scope)
        if not await asyncio.to_thread(file.remove, body.name):
            raise InvalidRequest(f"There is no MCP server {body.name!r}.", hint="Reload the list.")
        self._tested.pop((body.scope, body.name), None)
        return answer(await self._shown())

    async def _test(self, request: web.Request) -> web.Response:
        check_all_sessions(caller_of(request), "starting an MCP server")
        body = await read_body(request, ServerBody, MAX_BODY)
        listed = [one for one in await self._listed() if (one.scope, one.name) == (body.scope, body.name)]
        if not listed:
            raise InvalidRequest(f"There is no MCP server {body.name!r}.", hint="Reload the list.")
        async with self._testing:
            home, folder = self._folder(), os.getcwd()
            found = await checked_servers(listed, home, folder, dict(os.environ), trust=self._trust, within_s=TEST_S)
        self._tested[body.scope, body.name] = found[0], time.time_ns() // 1_000_000
        return answer(await self._shown())

    async def _trust(self, folder: str) -> FolderTrust:
        return await (await self._sessions()).dispatch(GetTrust(folder))

    def _folder(self) -> Path:
        return self._home or home_directory(os.environ)

    def _files(self) -> tuple[ServerFile, ServerFile]:
        return server_files(self._folder(), os.getcwd())

    async def _listed(self) -> list[ListedServer]:
        return await asyncio.to_thread(lambda: [one for file in self._files() for one in file.listed(os.environ)])

    async def _shown(self) -> dict[str, Any]:
        rows = [self._row(one) for one in await self._listed()]
        return {"servers": rows, "path": str(self._files()[0].path), "folder": os.getcwd()}

    def _row(self, one: ListedServer) -> dict[str, Any]:
        tested, tested_ms = self._tested.get((one.scope, one.name), (None, None))
        if tested is not None and tested.address == one.address and one.enabled:
            one = tested
        else:
            tested_ms = None
        row = {name: getattr(one, name) for name in one.__struct_fields__}
        return row | {"log": one.log[-MAX_LOG:], "tested_ms": tested_ms}


def _entry(body: NewServerBody) -> dict[str, Any]:
    if bool(body.command) == bool(body.url):
        raise InvalidRequest("Give a command, or the URL of a server that runs elsewhere.")
    if not body.name.strip():
        raise InvalidRequest("Give the server a name.")
    if body.url:
        if body.env or body.network or body.git:
            raise InvalidRequest("Variables, network and git are for a program, not for a URL.")
        return {"type": "http", "url": body.url, **({"headers": body.headers} if body.headers else {})}
    if body.headers:
        raise InvalidRequest("Headers are for a URL: give a program its variables.")
    opened = {name: True for name in ("network", "git") if getattr(body, name)}
    command, *arguments = body.command
    return {"command": command, "args": arguments, **({"env": body.env} if body.env else {}), **opened}
