"""Accepts HTTP connections within bounds: a cap on connections without a token, deadlines for heads, TLS handshakes,
idle connections and peers that do not read, and descriptors left over for the rest of the process.

aiohttp parses and answers; `GuardedConnection` is its connection class with the bounds added. What a client sent is
neither logged nor repeated to it when it cannot be read: a malformed request may hold a token anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from functools import partial
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.web_request import BaseRequest

from makai.aio.tasks import BackgroundTasks
from makai.transports.connection_table import HEADER_DEADLINE_S, ConnectionTable, ListenerLimits, OpenConnection
from makai.transports.http_guard import refused

log = logging.getLogger(__name__)

KEEPALIVE_S: Final = 75.0
"""How long an authenticated connection may wait for the whole head of its next request."""
WRITE_DEADLINE_S: Final = 120.0
"""How long a peer may leave a full buffer unread."""
LINGER_S: Final = 2.0
"""How long the rest of a refused body is read, so that the client can still read the answer."""
MAX_DESCRIPTORS: Final = 8_192

_ACCEPT_BATCH: Final = 8
"""Few at a time: a client that already sent its request is answered before the next ones can push it out."""
_NO_DESCRIPTORS_PAUSE_S: Final = 0.05
_SWEEP_S: Final = 1.0
_TLS_SHUTDOWN_S: Final = 5.0
_END_S: Final = 5.0


def raise_descriptor_limit() -> int:
    """Raise the soft limit of descriptors towards the hard one; the limit that now holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


class GuardedConnection(web.RequestHandler):
    """One HTTP connection, known to the table of its listener."""

    __slots__ = ("_entry", "_held", "_listener", "_unread")

    def __init__(self, listener: HttpListener, entry: OpenConnection, server: web.Server, **settings: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._listener = listener
        self._entry = entry
        self._held: asyncio.Transport | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._held = cast("asyncio.Transport", transport)  # aiohttp forgets its own before the last bytes are written
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._listener.lost(self._entry)
        self._cancel_write_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:
            log.warning("a request could not be read: %s", type(error).__name__)
            self.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = asyncio.get_running_loop().call_later(WRITE_DEADLINE_S, self.abort)

    def resume_writing(self) -> None:
        self._cancel_write_deadline()
        super().resume_writing()

    def _cancel_write_deadline(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def abort(self) -> None:
        if self._held is not None:
            self._held.abort()

    def is_closing(self) -> bool:
        return self._held is not None and self._held.is_closing()

    def request_begins(self, *, is_authenticated: bool) -> None:
        self._entry.requests += 1
        self._entry.was_heard = True
        if is_authenticated:
            self._listener.table.authenticate(self._entry)

    def request_ends(self) -> None:
        self._entry.requests -= 1
        self._entry.idle_since = asyncio.get_running_loop().time()

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPExpectationFailed):  # aiohttp repeats the header in it, before the guard is asked
            resp = refused(resp.status, "invalid_request", "Only `Expect: 100-continue` is understood.")
            resp.force_close()
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if status >= 500:
            log.error("an HTTP request failed", exc_info=exc)
        else:
            log.info("a request could not be read: %s", type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("An answer has begun; the connection is closed.")
        if status >= 500:
            answer = refused(status, "internal_error", "The server failed to answer this request.")
        else:
            answer = refused(status, "invalid_request", "This is not a valid HTTP request.")
        answer.force_close()
        return answer


class HttpListener:
    """Serves `server` on a listening socket, which it takes over. Make it inside a running event loop."""

    def __init__(
        self,
        server: web.Server,
        listening: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        limits: ListenerLimits | None = None,
    ) -> None:
        self.table = ConnectionTable(limits or ListenerLimits())
        self._server = server
        self._listening = listening
        self._tls: dict[str, Any] = {}
        if tls is not None:
            self._tls = {
                "ssl": tls,
                "ssl_handshake_timeout": HEADER_DEADLINE_S,
                "ssl_shutdown_timeout": _TLS_SHUTDOWN_S,
            }
        self._opening = BackgroundTasks()
        self._connections: dict[OpenConnection, asyncio.Task[None] | GuardedConnection] = {}
        self._loop = asyncio.get_running_loop()
        listening.setblocking(False)
        self._resume()
        self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)

    async def close(self) -> None:
        """Accept nothing more. Connections that are served stay; their server closes them."""
        if self._listening.fileno() >= 0:
            self._sweeping.cancel()
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()
        await self._opening.close(_END_S)

    def lost(self, entry: OpenConnection) -> None:
        self.table.remove(entry)
        self._connections.pop(entry, None)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors, most likely
                log.warning("cannot accept a connection: %s", error.strerror)
                self._close(self.table.victim())
                self._loop.remove_reader(self._listening.fileno())
                self._loop.call_later(_NO_DESCRIPTORS_PAUSE_S, self._resume)
                return
            connection.setblocking(False)
            entry = OpenConnection(str(address[0]), self._loop.time())
            opening = self._opening.start(self._open(connection, entry), "makai-http-open")
            opening.add_done_callback(partial(_close_unopened, connection))
            self._connections[entry] = opening
            self._close(self.table.add(entry))

    async def _open(self, connection: socket.socket, entry: OpenConnection) -> None:
        try:
            _, made = await self._loop.connect_accepted_socket(lambda: self._made(entry), connection, **self._tls)
            if entry in self._connections:
                self._connections[entry] = made
            else:
                made.abort()  # it was pushed out meanwhile
        except OSError:  # the peer has gone, or did not complete the TLS handshake
            connection.close()
            self.lost(entry)

    def _made(self, entry: OpenConnection) -> GuardedConnection:
        settings = {"access_log": None, "keepalive_timeout": KEEPALIVE_S, "lingering_time": LINGER_S}
        return GuardedConnection(self, entry, self._server, **settings)

    def _close(self, entry: OpenConnection | None) -> None:
        if entry is None:
            return
        match self._connections.pop(entry, None):
            case GuardedConnection() as made:
                made.abort()
            case asyncio.Task() as opening:
                opening.cancel()
        self.table.remove(entry)

    def _sweep(self) -> None:
        now = self._loop.time()
        for entry, connection in self._connections.items():
            if entry.closing_since is None and isinstance(connection, GuardedConnection) and connection.is_closing():
                entry.closing_since = now
        for entry in self.table.expired(now):
            self._close(entry)
        self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)


def _close_unopened(connection: socket.socket, opening: asyncio.Task[None]) -> None:
    """Close the socket of a connection that was pushed out before it had a transport."""
    if opening.cancelled():
        connection.close()
