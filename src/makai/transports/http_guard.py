"""The guard as an aiohttp middleware, which runs before any handler and before a body is read. It also bounds the time
that a body may take, whatever its handler does with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Final, Protocol, TypeAlias, runtime_checkable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from makai.core.access import Caller, trace_parent_of
from makai.core.errors import TransportError
from makai.transports.guard import TOO_MANY_CONNECTIONS, Guard, GuardedRequest, GuardRefusal

BODY_DEADLINE_S: Final = 30.0
"""From the head of a request to the last byte of its body."""
_ANSWER_S: Final = 2.0
"""What a handler has to answer that the body is late, before the connection is cut."""

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
_CALLER: Final = web.RequestKey("makai-caller", Caller)


@runtime_checkable
class CountedConnection(Protocol):
    """A connection that its listener keeps while requests are served, and closes early when it has no token."""

    def request_begins(self, *, is_authenticated: bool) -> None: ...

    def request_ends(self) -> None: ...


def guard_middleware(guard: Guard) -> Middleware:
    """Let through what `guard` lets through, and never more than its `max_connections` at a time. A WebSocket and an
    event stream count as long as they are open; other requests while they are handled. All of them end when the token
    that opened them expires or is revoked."""
    open_requests = 0

    @web.middleware
    async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
        nonlocal open_requests
        tokens = guard.tokens
        if tokens is not None and (presented := guard.presented(request.raw_headers)) is not None:
            await tokens.refresh(presented)
        seen = GuardedRequest(request.method, request.raw_path, request.raw_headers, request.remote or "")
        caller = guard.check(seen, asyncio.get_running_loop().time())
        if not isinstance(caller, GuardRefusal) and open_requests >= guard.config.max_connections:
            caller = TOO_MANY_CONNECTIONS
        if isinstance(caller, GuardRefusal):
            headers = {"WWW-Authenticate": "Bearer"} if caller.status == 401 else None
            response = refused(caller.status, caller.code, caller.message, headers)
            response.force_close()  # its body is not read, so the connection cannot be used again
            return response
        if caller is not None:
            traced = trace_parent_of(request.headers.get("traceparent", ""))
            request[_CALLER] = msgspec.structs.replace(caller, trace_parent=traced) if traced else caller
        task = asyncio.current_task()
        assert task is not None
        open_requests += 1
        try:
            with (
                _counted(request, is_authenticated=caller is not None),
                nullcontext() if tokens is None or caller is None else tokens.hold(caller, task.cancel),
            ):
                return await handler(request)
        finally:
            open_requests -= 1

    return guarded


def caller_of(request: web.Request) -> Caller:
    """Who sends a request that the guard let through. A `KeyError` where no token is needed: there is no caller."""
    return request[_CALLER]


def optional_caller_of(request: web.Request) -> Caller | None:
    """The same; None for what needs no token."""
    return request.get(_CALLER)


@contextmanager
def _counted(request: web.Request, *, is_authenticated: bool) -> Iterator[None]:
    """Tell the listener that the connection is in use, and cut it when the body does not end in time."""
    connection = request.protocol if isinstance(request.protocol, CountedConnection) else None
    late: asyncio.TimerHandle | None = None
    if connection is not None:
        connection.request_begins(is_authenticated=is_authenticated)
    if request.can_read_body:
        late = asyncio.get_running_loop().call_later(BODY_DEADLINE_S + _ANSWER_S, _cut_unfinished, request)
    try:
        yield
    finally:
        if late is not None:
            late.cancel()
        if connection is not None:
            connection.request_ends()


def _cut_unfinished(request: web.Request) -> None:
    if not request.content.is_eof() and request.transport is not None:
        request.transport.abort()


def unsendable_header() -> TransportError:
    """For a client whose token holds a line break or the like. It is not repeated."""
    return TransportError("The token holds characters that cannot be sent.", hint="Check the token.")


def refused(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error as every HTTP route of makai answers it: a code for programs and a sentence for people."""
    return web.json_response({"error": {"code": code, "message": message}}, status=status, headers=headers)
