"""Search and usage over plain HTTP: `/api/search`, `/api/usage`. The guard has checked the requests before."""

from __future__ import annotations

import msgspec
from aiohttp import web

from makai.core.errors import InvalidRequest
from makai.server.http_json import answer, answering
from makai.server.scopes import OpenSessions, ScopedSessions
from makai.server.session_routes import archived_filter, number_in
from makai.sessions.index.base import MAX_DAYS, MAX_HITS
from makai.sessions.index.indexer import MAX_TZ_MINUTES
from makai.sessions.requests import GetUsage, SearchSessions
from makai.transports.http_guard import caller_of


class SearchRoutes:
    def __init__(self, sessions: OpenSessions) -> None:
        self._sessions = sessions

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api/search", answering(self._search))
        app.router.add_get("/api/usage", answering(self._usage))

    async def _search(self, request: web.Request) -> web.Response:
        wanted = SearchSessions(
            query=request.query.get("q", ""),
            limit=number_in(request, "limit", 20, least=1, most=MAX_HITS),
            archived=archived_filter(request),
            cwd=request.query.get("cwd") or None,
        )
        return answer(await (await self._open(request)).dispatch(wanted))

    async def _usage(self, request: web.Request) -> web.Response:
        days = number_in(request, "days", 30, least=1, most=MAX_DAYS)
        found = await (await self._open(request)).dispatch(GetUsage(days=days, tz_minutes=_minutes(request)))
        return answer(msgspec.to_builtins(found))

    async def _open(self, request: web.Request) -> ScopedSessions:
        return ScopedSessions(await self._sessions(), caller_of(request))


def _minutes(request: web.Request) -> int:
    """How far the caller's time is ahead of UTC; a west of Greenwich is negative."""
    text = request.query.get("tz_minutes", "0")
    try:
        minutes = msgspec.convert(text, int, strict=False)
    except msgspec.ValidationError:
        minutes = MAX_TZ_MINUTES + 1
    if abs(minutes) > MAX_TZ_MINUTES:
        raise InvalidRequest(f"tz_minutes is a whole number from -{MAX_TZ_MINUTES} to {MAX_TZ_MINUTES}.")
    return minutes
