"""The real server on loopback for tests: its application, its guard, sessions over SQLite, and a scripted model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from makai.core.session_events import PermissionMode
from makai.protocols.minicodex.server import DEFAULT_LIMITS, Limits
from makai.server.acp_connection import AcpServer
from makai.server.app import make_app
from makai.server.makai_connection import MakaiServer
from makai.server.minicodex_connection import HEARTBEAT_S
from makai.server.observability import Observability
from makai.server.session_source import SessionSource
from makai.sessions.service import Sessions
from makai.transports.guard import Guard, GuardConfig
from support.live_sessions import SCENARIO_MODEL, desk, scripted_models
from support.minicodex_client import BOTH, MinicodexClient
from support.transports import TOKEN, loopback

BEARER: Mapping[str, str] = {"Authorization": f"Bearer {TOKEN.reveal()}"}
SUBPROTOCOL = "minicodex.v1"


class Clock:
    """Wall time that a test can put ahead."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


class Site:
    def __init__(
        self,
        listening: AsyncExitStack,
        port: int,
        sessions: Sessions,
        http: aiohttp.ClientSession,
        makai: MakaiServer,
        clock: Clock,
        routes: Sequence[web.AbstractRoute],
        harness: str,
        folder: Path,
    ) -> None:
        self._listening = listening
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.sessions = sessions
        self.http = http
        self.makai = makai
        self.clock = clock
        self.routes = routes
        self.harness = harness
        self._folder = folder

    async def stop(self) -> None:
        await self._listening.aclose()

    async def session(self, *, mode: PermissionMode = "ask", cwd: Path | None = None) -> str:
        """A new session on the scripted model; with a folder, built-in tools are at hand. Other agents need one."""
        cwd = self._folder if cwd is None and self.harness != "native" else cwd
        return (await desk(self.sessions, mode=mode, cwd=cwd, harness=self.harness)).session_id

    async def connect(
        self,
        session_id: str | None = None,
        *capabilities: str,
        headers: Mapping[str, str] = BEARER,
        protocols: tuple[str, ...] = (SUBPROTOCOL,),
    ) -> MinicodexClient:
        return await connected(self.http, self.url, session_id, *capabilities, headers=headers, protocols=protocols)

    async def client(self, session_id: str | None = None, *capabilities: str) -> MinicodexClient:
        client = await self.connect(session_id, *capabilities)
        await client.hello()
        return client

    async def talked(self, *messages: str) -> str:
        """A session in which this was said and answered."""
        session_id = await self.session()
        client = await self.client(session_id, *BOTH)
        for text in messages or ("hi",):
            await client.ask("send", text=text)
            await client.until_over()
        await client.close()
        return session_id

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] = BEARER,
        raw: bytes | None = None,
    ) -> tuple[int, Any]:
        """A REST request: the status, and the body as JSON or text."""
        data = raw if raw is not None else None if body is None else msgspec.json.encode(body)
        json = {} if method == "GET" else {"Content-Type": "application/json"}
        async with self.http.request(method, self.url + path, headers=json | dict(headers), data=data) as response:
            text = await response.text(errors="replace")  # a picture is no text
            is_json = response.content_type == "application/json" and text
            return response.status, msgspec.json.decode(text) if is_json else text


async def connected(
    http: aiohttp.ClientSession,
    url: str,
    session_id: str | None,
    *capabilities: str,
    headers: Mapping[str, str] = BEARER,
    protocols: tuple[str, ...] = (SUBPROTOCOL,),
) -> MinicodexClient:
    """A client of the server at this address that has said nothing yet."""
    query = "" if session_id is None else f"?session_id={session_id}"
    opened = await http.ws_connect(
        f"{url}/ws{query}",
        headers=dict(headers),
        protocols=protocols,
        max_msg_size=64 * 1024 * 1024,
        timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
    )
    return MinicodexClient(opened, capabilities)


@asynccontextmanager
async def http_session() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client without a jar of its own: cookies travel only where a test puts them."""
    timeout = aiohttp.ClientTimeout(total=60)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http:
        yield http


@asynccontextmanager
async def serving(
    folder: Path,
    scenario: str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    heartbeat_s: float = HEARTBEAT_S,
    acp: bool = False,
    harness: str = "native",
    observability: Observability | None = None,
    hosts: frozenset[str] = frozenset(),
) -> AsyncIterator[Site]:
    """`harness` runs the sessions that `Site.session` begins; `hosts` are further names of the server, such as the
    address of a proxy."""
    home = folder / "makai-home"
    home.mkdir(mode=0o700, exist_ok=True)
    clock = Clock()
    async with AsyncExitStack() as stack:
        observed = observability or Observability()
        models = await stack.enter_async_context(scripted_models(folder, scenario, observed.observer))
        source = SessionSource(models, home, durable=True, environ=models.environ, observer=observed.observer)
        stack.push_async_callback(source.close)
        server = MakaiServer(models, metrics=observed.metrics, sessions=source.get, settings=source.settings)
        server.observer = observed.observer
        routes: list[web.AbstractRoute] = []

        def app(guard: Guard) -> web.Application:
            agents = AcpServer(source.get, models, model=SCENARIO_MODEL, metrics=observed.metrics)
            agent = agents.serve if acp else None
            made = make_app(server, guard, minicodex_limits=limits, heartbeat_s=heartbeat_s, acp=agent, home=home)
            routes.extend(made.router.routes())
            return made

        listening = await stack.enter_async_context(AsyncExitStack())
        port = await listening.enter_async_context(
            loopback(app, GuardConfig(TOKEN, port=0, hosts=hosts, wall_clock=clock))
        )
        http = await stack.enter_async_context(http_session())
        async with asyncio.timeout(60):
            sessions = await source.get()
        yield Site(listening, port, sessions, http, server, clock, routes, harness, folder)
