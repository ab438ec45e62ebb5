"""The HTTP surface: which path leads to which protocol over which transport. Every route is behind the guard (Host,
Origin, token, limits); `/healthz` and `/readyz` need no token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from makai.catalog.models import ModelsRequest
from makai.core.errors import Forbidden, InvalidRequest
from makai.harness.acp.known_agents import OfferedAgent
from makai.protocols.minicodex.server import DEFAULT_LIMITS, Limits
from makai.server.access_routes import AccessRoutes
from makai.server.acp_routes import AcpRoutes
from makai.server.auth_routes import PageLogins
from makai.server.completion_routes import CompletionRoutes
from makai.server.folder_routes import FolderRoutes
from makai.server.http_json import answer, answer_error, answering
from makai.server.makai_connection import MakaiServer
from makai.server.mcp_routes import McpRoutes
from makai.server.minicodex_connection import HEARTBEAT_S, MinicodexServer
from makai.server.page_routes import add_page
from makai.server.pull_routes import PullRoutes
from makai.server.route_scopes import ROUTES
from makai.server.scopes import OpenSessions, check, check_all_sessions
from makai.server.search_routes import SearchRoutes
from makai.server.session_routes import SessionRoutes
from makai.server.settings_routes import SettingsRoutes
from makai.server.token_book import TokenBook
from makai.transports.channel import MAX_FRAME_BYTES, ServeCaller
from makai.transports.guard import COOKIE_NAME, Guard
from makai.transports.http_guard import caller_of, guard_middleware, optional_caller_of
from makai.transports.sse import SSEServer
from makai.transports.websocket import serve_websocket

if TYPE_CHECKING:
    from makai.server.session_source import SettingsOf

MINICODEX_SUBPROTOCOL = "minicodex.v1"


def make_app(
    makai: MakaiServer,
    guard: Guard,
    *,
    is_tls: bool = False,
    minicodex_limits: Limits = DEFAULT_LIMITS,
    heartbeat_s: float = HEARTBEAT_S,
    acp: ServeCaller | None = None,
    agents: Callable[[], Sequence[OfferedAgent]] = tuple,
    home: Path | None = None,
    is_ready: Callable[[], Awaitable[bool]] | None = None,
) -> web.Application:
    """The application; its caller owns the sockets. Sessions, their page and stored tokens are there when `makai` has
    sessions; `/acp` is there when `acp`, which serves its connections, is given. `agents` are those to pick for a
    new session, beside makai's own. `home` is where the settings are; None for the user's `MAKAI_HOME`. `is_ready` says
    whether the sessions can be used, for load balancers."""
    middlewares = [guard_middleware(guard), _check_scope]
    app = web.Application(middlewares=middlewares, client_max_size=MAX_FRAME_BYTES + 4096)
    if makai.sessions is not None:
        guard.tokens = book = TokenBook(makai.sessions, guard.config.wall_clock)
        app.on_cleanup.append(lambda _: book.close())
    sse = SSEServer(makai.serve_until_idle)

    async def makai_websocket(request: web.Request) -> web.StreamResponse:
        return await serve_websocket(request, lambda channel: makai.serve(channel, caller_of(request)))

    async def models(request: web.Request) -> web.Response:
        try:
            wanted = msgspec.convert(dict(request.query), ModelsRequest, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidRequest(str(error)) from None
        return answer(await makai.backend.models(wanted))

    app.router.add_get("/v1/makai", makai_websocket)
    app.router.add_post("/v1/makai", sse.handle)
    _add_health(app, makai, is_ready)
    app.router.add_get("/api/models", answering(models))
    PageLogins(makai.backend).add_to(app)
    if makai.sessions is not None:
        routes = SessionRoutes(makai.sessions, makai.backend, makai.settings, agents)
        routes.add_to(app)
        _add_page_data(app, makai.sessions, makai.settings, home)
        minicodex = MinicodexServer(
            makai.sessions, routes.new_session, limits=minicodex_limits, heartbeat_s=heartbeat_s
        )
        _add_minicodex(app, minicodex)
    if acp is not None:
        AcpRoutes(acp, guard.tokens).add_to(app)
    add_page(app, guard.config.token, is_tls=is_tls)
    app.on_shutdown.append(lambda _: sse.close())
    app.on_response_prepare.append(_keep_to_ourselves)
    return app


def _add_health(app: web.Application, makai: MakaiServer, is_ready: Callable[[], Awaitable[bool]] | None) -> None:
    async def healthz(request: web.Request) -> web.Response:
        return answer({"status": "ok"})

    async def readyz(request: web.Request) -> web.Response:
        if makai.draining:
            return answer({"status": "draining"}, 503)
        if is_ready is not None and not await is_ready():
            return answer({"status": "unavailable"}, 503)
        return answer({"status": "ready"})

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=makai.metrics.render(), content_type="text/plain")

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)


def _add_page_data(app: web.Application, sessions: OpenSessions, settings: SettingsOf, home: Path | None) -> None:
    """What the page shows beside a session: where to begin one, what to write, what to find, and the settings."""
    PullRoutes().add_to(app)
    FolderRoutes(sessions).add_to(app)
    CompletionRoutes(sessions).add_to(app)
    SearchRoutes(sessions).add_to(app)
    SettingsRoutes(settings, home).add_to(app)
    AccessRoutes(sessions).add_to(app)
    McpRoutes(sessions, home).add_to(app)


@web.middleware
async def _check_scope(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse a request whose token does not allow its route. Unknown paths get their 404 from the router."""
    caller, resource = optional_caller_of(request), request.match_info.route.resource
    if caller is not None and resource is not None:
        route = ("GET" if request.method == "HEAD" else request.method, resource.canonical)
        needed = ROUTES.get(route)
        try:
            check(caller, needed, " ".join(route))
            if needed == "admin" and not resource.canonical.startswith("/api/sessions/{id}"):
                check_all_sessions(caller, " ".join(route))  # what it changes is for every session
        except Forbidden as error:
            return answer_error(error)
    return await handler(request)


async def _keep_to_ourselves(request: web.Request, response: web.StreamResponse) -> None:
    """No page of another origin may load what we answer, as a script or in any other guise."""
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")


def _add_minicodex(app: web.Application, minicodex: MinicodexServer) -> None:
    async def websocket(request: web.Request) -> web.StreamResponse:
        session_id = request.query.get("session_id") or None
        name = "page" if COOKIE_NAME in request.cookies else "minicodex"
        return await serve_websocket(
            request,
            lambda channel: minicodex.serve(channel, session_id, name, caller_of(request)),
            subprotocol=MINICODEX_SUBPROTOCOL,
            may_be_left_out=True,
        )

    async def close(app: web.Application) -> None:
        minicodex.close()

    app.router.add_get("/ws", websocket)
    app.on_shutdown.append(close)
