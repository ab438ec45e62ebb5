"""What goes on in all sessions and on all nodes: `/api/activity`, `/api/nodes`, and what `makai top` shows."""

from __future__ import annotations

import time
from functools import reduce
from typing import Final

import msgspec
from aiohttp import web

from makai.core.usage import Usage
from makai.server.http_json import answer, answering
from makai.server.scopes import OpenSessions, ScopedSessions
from makai.server.session_routes import number_in
from makai.sessions.log.base import SessionFilter, SessionSummary
from makai.sessions.log.nodes import Node
from makai.sessions.requests import GetUsage, ListNodes, ListSessions
from makai.sessions.service import Sessions
from makai.transports.http_guard import caller_of

MAX_SESSIONS: Final = 1_000
DEFAULT_SESSIONS: Final = 200


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    """By the clock of the process that answers."""
    sessions: tuple[SessionSummary, ...] = ()
    """The newest, and all that wait for an approval; the newest first."""
    nodes: tuple[Node, ...] = ()
    today: Usage = Usage()
    """What the runs that ended today consumed, in all sessions; days are those of UTC."""


async def activity_of(sessions: Sessions, limit: int = DEFAULT_SESSIONS) -> Activity:
    waiting = await sessions.dispatch(ListSessions(SessionFilter(limit=limit, awaiting_approval=True)))
    newest = await sessions.dispatch(ListSessions(SessionFilter(limit=limit, archived="without")))
    usage = await sessions.dispatch(GetUsage(days=1))
    found = {session.session_id: session for session in (*waiting, *newest)}
    spent = [
        Usage(
            input=row.input,
            output=row.output,
            cache_read=row.cache_read,
            cache_write=row.cache_write,
            cost_usd=row.cost_usd,
        )
        for row in usage.rows
    ]
    return Activity(
        now_ms=time.time_ns() // 1_000_000,
        sessions=tuple(sorted(found.values(), key=lambda session: -session.updated_ms)),
        nodes=tuple(await sessions.dispatch(ListNodes())),
        today=reduce(lambda total, one: total + one, spent, Usage()),
    )


class ActivityRoutes:
    def __init__(self, sessions: OpenSessions) -> None:
        self._sessions = sessions

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api/activity", answering(self._activity))
        app.router.add_get("/api/nodes", answering(self._nodes))

    async def _activity(self, request: web.Request) -> web.Response:
        limit = number_in(request, "limit", DEFAULT_SESSIONS, least=1, most=MAX_SESSIONS)
        return answer(await activity_of(await self._open(request), limit))

    async def _nodes(self, request: web.Request) -> web.Response:
        return answer({"nodes": await (await self._open(request)).dispatch(ListNodes())})

    async def _open(self, request: web.Request) -> ScopedSessions:
        return ScopedSessions(await self._sessions(), caller_of(request))
