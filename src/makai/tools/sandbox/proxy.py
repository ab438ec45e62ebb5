"""The way out of one confined command: a proxy in makai's process that connects to named hosts and to nothing else.

A name is checked before it is resolved, resolved once, and the connection goes to the addresses that were checked. The
command decides everything else that it says, so every wait has a deadline and every number a bound: connections, bytes
in flight (one buffer for each direction), and lookups.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from makai.aio.tasks import BackgroundTasks
from makai.tools import addresses
from makai.tools.sandbox.hosts import DEFAULT_PORTS, parse_host
from makai.tools.sandbox.proxy_clients import ProxyClients, receive_clients
from makai.tools.sandbox.proxy_requests import (
    MalformedRequest,
    ProxyRequest,
    RequestBody,
    RequestParser,
    answer,
)
from makai.tools.sandbox.tunnel_start import TunnelStart
from makai.tools.sandbox.upstream_proxy import UpstreamProxy, connect_status, upstream_for

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_CONNECTIONS: Final = 64
MAX_ALL_CONNECTIONS: Final = 160
"""Of all commands together: each takes two of makai's descriptors."""
MAX_REFUSALS: Final = 20
_MAX_ADDRESSES: Final = 8
_MAX_LOOKUPS: Final = 2
_MAX_KNOWN: Final = 256
_CHUNK_BYTES: Final = 128 * 1024
_BODY_CHUNK_BYTES: Final = 16 * 1024
"""Smaller, since these bytes are looked at, and larger than what is read at once of a head (`_HEAD_CHUNK_BYTES`)."""
_HEAD_CHUNK_BYTES: Final = 8 * 1024
_CLOSE_DEADLINE_S: Final = 2.0
_RETRY_S: Final = 0.1
_all_slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


class ProxyDeadlines(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds."""

    start_s: float = 30.0
    """Until the sandbox is ready."""
    request_s: float = 15.0
    resolve_s: float = 10.0
    connect_s: float = 20.0
    """For all addresses of a host together, and for the user's own proxy."""
    idle_s: float = 300.0
    """How long a connection may be silent in both directions."""


class _Refusal(msgspec.Struct, frozen=True):
    status: int
    reason: str


class EgressProxy:
    """Serves one command. `close` ends every connection; the owner calls it on every path."""

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        resolve: Resolve = addresses.resolve,
        may_be_reached: Callable[[str], bool] = addresses.may_be_reached,
        deadlines: ProxyDeadlines | None = None,
    ) -> None:
        """`hosts` are patterns; without any, no host can be reached. `environ` may name the user's own proxy."""
        self._hosts = tuple(map(parse_host, hosts))
        self._environ = environ or {}
        self._resolve = resolve
        self._may_be_reached = may_be_reached
        self._deadlines = deadlines or ProxyDeadlines()
        self._tasks = BackgroundTasks()
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._lookups = asyncio.Semaphore(_MAX_LOOKUPS)
        self._known: dict[str, Sequence[str]] = {}
        self._left_to_upstream: set[str] = set()
        self._not_allowed: dict[str, None] = {}
        self._failed: dict[str, None] = {}
        self._clients: ProxyClients | None = None

    def serve(self, clients: ProxyClients) -> None:
        """Accept connections from now on. `clients` are closed with the proxy."""
        self._clients = clients
        self._tasks.start(self._accept(clients), "proxy of a command")

    def serve_through(self, channel: socket.socket) -> None:
        """Serve the clients that the sandbox sends over `channel`, which is closed then."""
        starting = self._tasks.start(self._receive(channel), "channel of a sandbox")
        starting.add_done_callback(lambda _: channel.close())

    def notice(self) -> str:
        """What was refused, for the model: it can ask for hosts that are missing. Empty when nothing was."""
        lines = [f"[blocked: {text}]" for text in self._failed]
        if self._not_allowed:
            missing = ", ".join(self._not_allowed)
            wanted = [_as_pattern(host) for host in self._not_allowed]
            ask = ", ".join(f'"{host}"' for host in dict.fromkeys([*map(str, self._hosts), *wanted]))
            are = "is" if len(self._not_allowed) == 1 else "are"
            lines.append(f"[blocked: {missing} {are} not among the allowed hosts; ask with network=[{ask}]]")
        return "".join(f"{line}\n" for line in lines)

    async def close(self) -> None:
        try:
            await self._tasks.close(_CLOSE_DEADLINE_S)
        finally:
            if self._clients is not None:
                self._clients.close()

    async def _receive(self, channel: socket.socket) -> None:
        if (clients := await receive_clients(channel, self._deadlines.start_s)) is not None:
            self.serve(clients)
        else:
            self._note_failure("every host, because the sandbox could not be connected to the proxy")

    async def _accept(self, clients: ProxyClients) -> None:
        loop = asyncio.get_running_loop()
        shared = _all_slots.setdefault(loop, asyncio.Semaphore(MAX_ALL_CONNECTIONS))
        while True:
            await self._slots.acquire()
            try:
                await shared.acquire()
            except BaseException:
                self._slots.release()
                raise
            client: socket.socket | None = None
            try:
                client = await clients.accept()
                if client is not None:
                    client.setblocking(False)
            except (OSError, TimeoutError):  # no descriptors left, or the client is gone already
                self._release(client, shared)
                await asyncio.sleep(_RETRY_S)
                continue
            except BaseException:
                self._release(client, shared)
                raise
            if client is None:
                self._release(None, shared)
                return
            serving = self._tasks.start(self._serve(client), "connection of a command")
            # Not in the task: one that is cancelled before it begins runs none of its code.
            serving.add_done_callback(functools.partial(self._release, client, shared))

    def _release(self, client: socket.socket | None, shared: asyncio.Semaphore, _: object = None) -> None:
        if client is not None:
            client.close()
        self._slots.release()
        shared.release()

    async def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, TimeoutError):  # the client is gone, or says nothing
            parser = RequestParser()
            async with asyncio.timeout(self._deadlines.request_s):
                request = await _read_request(client, parser)
            if request is not None:
                await self._answer(client, request, parser.rest)

    async def _answer(self, client: socket.socket, request: ProxyRequest | MalformedRequest, rest: bytes) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(request, MalformedRequest):
            self._note_failure(request.reason)
            await self._say_last(client, request.answer)
            return
        found = await self._connected(request)
        if isinstance(found, _Refusal):
            await self._say_last(client, answer(request.protocol, found.status, found.reason))
            return
        server, early = found
        with server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._deadlines.idle_s) as limit:
                first = request.head or answer(request.protocol, 200)
                await loop.sock_sendall(server if request.head else client, first)
                checked = RequestBody(request.body) if request.protocol == "http" else TunnelStart(request)
                relay = _Relay(client, server, limit, self._deadlines.idle_s, checked)
                await relay.run(rest, early)
            if relay.is_refused and request.protocol != "http":
                self._note_failure(f"a tunnel to {request.host} that does not begin with TLS for {request.name}")

    async def _say_last(self, client: socket.socket, data: bytes) -> None:
        """Send an answer and read what still comes: to close a connection with unread bytes would drop the answer."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CLOSE_DEADLINE_S):
            await loop.sock_sendall(client, data)
            client.shutdown(socket.SHUT_WR)
            for _ in range(64):
                if not await loop.sock_recv(client, _CHUNK_BYTES):
                    return

    async def _connected(self, request: ProxyRequest) -> tuple[socket.socket, bytes] | _Refusal:
        """A connection to the host, and what was already read from it."""
        if not any(pattern.covers(request.name, request.port) for pattern in self._hosts):
            if len(self._not_allowed) < MAX_REFUSALS:
                self._not_allowed[request.host] = None
            allowed = ", ".join(map(str, self._hosts)) or "none"
            hint = f'Ask for it with network=["{_as_pattern(request.host)}"].'
            return _Refusal(403, f"{request.host} is not among the allowed hosts ({allowed}). {hint}")
        upstream = upstream_for(self._environ, request)
        try:
            if upstream is None:
                found = await self._direct(request)
            elif isinstance(upstream, str):
                found = _Refusal(502, f"{request.host} is behind your network's proxy, but {upstream}")
            else:
                found = await self._through(upstream, request)
        except TimeoutError:
            found = _Refusal(504, f"{request.host} did not answer in time")
        except OSError as error:
            found = _Refusal(502, f"{request.host} could not be reached: {error.strerror or error}")
        if isinstance(found, _Refusal):
            self._note_failure(found.reason)
        return found

    async def _direct(self, request: ProxyRequest) -> tuple[socket.socket, bytes] | _Refusal:
        found = await self._addresses(request.name, request.port)
        if not found:
            return _Refusal(502, f"{request.name} is not known")
        if not all(map(self._may_be_reached, found)):
            return _Refusal(403, f"{request.name} is not on the public internet")
        async with asyncio.timeout(self._deadlines.connect_s):
            return await self._opened(found, request.port), b""

    async def _through(self, upstream: UpstreamProxy, request: ProxyRequest) -> tuple[socket.socket, bytes] | _Refusal:
        """By the user's own proxy, which resolves the name. What can be resolved here must be public here."""
        found = await self._addresses(upstream.name, upstream.port)
        if not found:
            return _Refusal(502, f"your network's proxy {upstream.name} is not known")
        if request.name not in self._left_to_upstream:
            known: Sequence[str] = ()
            with contextlib.suppress(TimeoutError):  # in such networks there may be no DNS at all
                async with asyncio.timeout(self._deadlines.resolve_s / 5):
                    known = await self._addresses(request.name, request.port)
            if not all(map(self._may_be_reached, known)):
                return _Refusal(403, f"{request.name} is not on the public internet")
            if len(self._left_to_upstream) < _MAX_KNOWN:
                self._left_to_upstream.add(request.name)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._deadlines.connect_s):
            server = await self._opened(found, upstream.port)
            try:
                await loop.sock_sendall(server, upstream.connect_request(request))
                head = b""
                while (status := connect_status(head)) is None:
                    if not (data := await loop.sock_recv(server, 4096)):
                        status = (0, b"")
                        break
                    head += data
            except BaseException:
                server.close()
                raise
        if 200 <= status[0] < 300:
            return server, status[1]
        server.close()
        return _Refusal(502, f"your network's proxy refused {request.host} (status {status[0]})")

    async def _addresses(self, name: str, port: int) -> Sequence[str]:
        """The first addresses of a name, or none. Only these are checked, and only these are connected to."""
        if name in self._known:
            return self._known[name]
        async with asyncio.timeout(self._deadlines.resolve_s):
            await self._lookups.acquire()
            answered: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
            looking = self._tasks.start(self._look_up(name, port, answered), f"lookup of {name}")
            # A thread cannot be interrupted: a lookup keeps its place until it ends, whatever its deadline.
            looking.add_done_callback(lambda _: self._lookups.release())
            found = await answered
        if found and len(self._known) < _MAX_KNOWN:
            self._known[name] = found
        return found

    async def _look_up(self, name: str, port: int, answered: asyncio.Future[Sequence[str]]) -> None:
        found: Sequence[str] = ()
        with contextlib.suppress(OSError, UnicodeError):
            found = tuple(dict.fromkeys(await self._resolve(name, port)))[:_MAX_ADDRESSES]
        if not answered.done():
            answered.set_result(found)

    async def _opened(self, found: Sequence[str], port: int) -> socket.socket:
        """Connected to the first address that answers."""
        loop = asyncio.get_running_loop()
        for at, address in enumerate(found):
            server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            try:
                server.setblocking(False)
                async with asyncio.timeout(self._deadlines.connect_s / len(found)):
                    await loop.sock_connect(server, (address, port))
                return server
            except (OSError, TimeoutError):
                server.close()
                if at == len(found) - 1:
                    raise
            except BaseException:
                server.close()
                raise
        raise AssertionError("no address")

    def _note_failure(self, reason: str) -> None:
        if len(self._failed) < MAX_REFUSALS:
            self._failed[reason] = None


class _Relay:
    """Copies between a client and a server until both have said all they had to say."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        limit: asyncio.Timeout,
        idle_s: float,
        checked: RequestBody | TunnelStart,
    ) -> None:
        self._client, self._server = client, server
        self._limit, self._idle_s = limit, idle_s
        self._checked = checked
        self._loop = asyncio.get_running_loop()
        self._renewed_at = self._loop.time()
        self.is_refused = False

    async def run(self, first: bytes, early: bytes) -> None:
        """`first` of the client and `early` of the server were read before."""
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._copy(self._client, self._server, first, self._checked))
            await self._copy(self._server, self._client, early, None)
            if isinstance(self._checked, RequestBody):
                sending.cancel()  # the answer is complete: there is no other request on this connection

    async def _copy(
        self, source: socket.socket, target: socket.socket, data: bytes, checked: RequestBody | TunnelStart | None
    ) -> None:
        buffer = memoryview(bytearray(_BODY_CHUNK_BYTES if isinstance(checked, RequestBody) else _CHUNK_BYTES))
        buffer[: len(data)] = data
        count = len(data)
        try:
            while True:
                if count:
                    self._renew()
                    await asyncio.sleep(0)  # what is ready at once does not wait, and others would never have a turn
                    passed, may_stay = buffer[:count], True
                    if checked is not None and not checked.is_open:
                        held, may_stay = checked.take(bytes(passed))
                        passed = memoryview(held)
                    await self._loop.sock_sendall(target, passed)
                    if not may_stay:
                        self.is_refused = True
                        raise ConnectionAbortedError("refused")
                count = await self._loop.sock_recv_into(source, buffer)
                if not count:
                    break
            if checked is not None and not checked.may_end:
                raise ConnectionAbortedError("half of a request")
            if not isinstance(checked, RequestBody):
                target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _renew(self) -> None:
        now = self._loop.time()
        if now - self._renewed_at > 1:
            self._renewed_at = now
            self._limit.reschedule(now + self._idle_s)


async def _read_request(client: socket.socket, parser: RequestParser) -> ProxyRequest | MalformedRequest | None:
    """None when the client leaves first."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(client, _HEAD_CHUNK_BYTES):
        said, request = parser.feed(data)
        if said:
            await loop.sock_sendall(client, said)
        if request is not None:
            return request
    return None


def _as_pattern(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if int(port) in DEFAULT_PORTS else host
