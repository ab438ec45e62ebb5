"""The guard as an aiohttp middleware, which runs before any handler and before a body is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from aiohttp import web
from aiohttp.typedefs import Middleware

from makai.transports.guard import TOO_MANY_CONNECTIONS, Guard, GuardedRequest

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard_middleware(guard: Guard) -> Middleware:
    """Let through what `guard` lets through, and never more than its `max_connections` at a time. A WebSocket and an
    event stream count as long as they are open; other requests while they are handled."""
    open_requests = 0

    @web.middleware
    async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
        nonlocal open_requests
        seen = GuardedRequest(request.method, request.raw_path, request.raw_headers, request.remote or "")
        refusal = guard.check(seen, asyncio.get_running_loop().time())
        if refusal is None and open_requests >= guard.config.max_connections:
            refusal = TOO_MANY_CONNECTIONS
        if refusal is not None:
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
            response = refused(refusal.status, refusal.code, refusal.message, headers)
            response.force_close()  # its body is not read, so the connection cannot be used again
            return response
        open_requests += 1
        try:
            return await handler(request)
        finally:
            open_requests -= 1

    return guarded


def refused(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error as every HTTP route of makai answers it: a code for programs and a sentence for people."""
    return web.json_response({"error": {"code": code, "message": message}}, status=status, headers=headers)
