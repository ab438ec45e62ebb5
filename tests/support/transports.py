"""Two connected channels over every transport, for tests that must hold on all of them.

`connected(kind)` yields (client end, server end). The server ends are what a server layer gets: made by the real
listeners on loopback.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec
from aiohttp import web

from makai.core.access import LOCAL, Caller
from makai.core.secret import Secret
from makai.transports.channel import Channel, Oversized
from makai.transports.grpc import connect_grpc, serve_grpc
from makai.transports.guard import Guard, GuardConfig
from makai.transports.http_guard import guard_middleware
from makai.transports.http_listener import HttpListener
from makai.transports.memory import memory_pair
from makai.transports.node_tls import NodeIdentity, NodeListener, connect_node
from makai.transports.sse import SSEServer, connect_sse
from makai.transports.stdio import StdioChannel
from makai.transports.websocket import connect_websocket, serve_websocket

KINDS = ("memory", "stdio", "websocket", "sse", "grpc", "node_tls")
DEADLINE_S = 60.0
TOKEN = Secret("a-token-for-tests-0123456789-abcdef")
MAX_FRAME_BYTES = 6_000_000
HELLO = b'"hello"'

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Accepted:
    """The server of the one connection of a test. Like a real one it ends when its peer is gone or it has closed."""

    def __init__(self) -> None:
        self.channel: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()

    async def serve(self, channel: Channel, caller: Caller = LOCAL) -> None:
        self.channel.set_result(_Served(channel, self.over))
        await self.over.wait()


class _Served:
    def __init__(self, channel: Channel, over: asyncio.Event) -> None:
        self.max_frame_bytes = channel.max_frame_bytes
        self._channel = channel
        self._over = over

    async def receive(self) -> bytes | Oversized | None:
        frame = await self._channel.receive()
        if frame is None:
            self._over.set()
        return frame

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._channel.send(frames)

    async def close(self, reason: str = "") -> None:
        await self._channel.close(reason)
        self._over.set()


@asynccontextmanager
async def http_server(method: str, handler: Handler, *, max_connections: int = 100) -> AsyncIterator[int]:
    """The port of a guarded server whose path /v1/makai `handler` answers."""

    def application(guard: Guard) -> web.Application:
        app = web.Application(middlewares=[guard_middleware(guard)])
        app.router.add_route(method, "/v1/makai", handler)
        return app

    config = GuardConfig(TOKEN, 0, max_body_bytes=MAX_FRAME_BYTES, max_connections=max_connections)
    async with loopback(application, config, shutdown_s=0.1) as port:
        yield port


@asynccontextmanager
async def loopback(
    application: Callable[[Guard], web.Application], config: GuardConfig, *, shutdown_s: float = 1.0
) -> AsyncIterator[int]:
    """The free port of a new HTTP server; its guard is that of `config` for this port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        app = application(Guard(msgspec.structs.replace(config, port=port)))
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=shutdown_s, access_log=None)
        await runner.setup()
        assert runner.server is not None
        accepting = HttpListener(runner.server, listener)
        try:
            yield port
        finally:
            await accepting.close()
            await runner.cleanup()


async def exchange(port: int, request: bytes, *, head_only: bool = False) -> bytes:
    """What a server answers to these bytes: everything until it closes the connection, or the head of one answer."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            return await (reader.readuntil(b"\r\n\r\n") if head_only else reader.read())
        finally:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def connected(kind: str) -> AsyncIterator[tuple[Channel, Channel]]:
    """A client's and a server's channel that are each other's peers."""
    async with asyncio.timeout(DEADLINE_S):
        match kind:
            case "memory":
                near, far = memory_pair(max_frame_bytes=MAX_FRAME_BYTES)
                yield near, far
            case "stdio":
                async with _stdio_pair() as pair:
                    yield pair
            case "websocket" | "sse" | "grpc" | "node_tls":
                accepted = Accepted()
                async with _OPENERS[kind](accepted) as near:
                    far = await accepted.channel
                    try:
                        yield near, far
                    finally:
                        await close_both(near, far)
                        accepted.over.set()
            case _:
                raise AssertionError(kind)


@asynccontextmanager
async def _stdio_pair() -> AsyncIterator[tuple[Channel, Channel]]:
    there, back = os.pipe(), os.pipe()
    near = StdioChannel(back[0], there[1], max_frame_bytes=MAX_FRAME_BYTES)
    far = StdioChannel(there[0], back[1], max_frame_bytes=MAX_FRAME_BYTES)
    try:
        yield near, far
    finally:
        await close_both(near, far)


async def close_both(near: Channel, far: Channel) -> None:
    """End a connection as its two owners would: one closes, the other reads until it notices, and closes too."""
    await asyncio.gather(near.close(), read_to_the_end(far))
    await far.close()


async def eventually(condition: Callable[[], bool]) -> None:
    """Give other tasks, and the kernel, their turn until `condition` holds."""
    for _ in range(int(DEADLINE_S * 1000)):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")


async def read_to_the_end(channel: Channel) -> list[bytes | Oversized]:
    received = []
    while (frame := await channel.receive()) is not None:
        received.append(frame)
    return received


@asynccontextmanager
async def _websocket(accepted: Accepted) -> AsyncIterator[Channel]:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await serve_websocket(request, accepted.serve, max_frame_bytes=MAX_FRAME_BYTES)

    async with http_server("GET", handler) as port:
        yield await connect_websocket(f"http://127.0.0.1:{port}/v1/makai", TOKEN, max_frame_bytes=MAX_FRAME_BYTES)


@asynccontextmanager
async def _sse(accepted: Accepted) -> AsyncIterator[Channel]:
    server = SSEServer(accepted.serve, max_frame_bytes=MAX_FRAME_BYTES)
    async with http_server("POST", server.handle) as port:
        near = await connect_sse(f"http://127.0.0.1:{port}/v1/makai", TOKEN, max_frame_bytes=MAX_FRAME_BYTES)
        await near.send([HELLO])  # an event stream opens with its first frame
        assert await (await accepted.channel).receive() == HELLO
        yield near


@asynccontextmanager
async def _grpc(accepted: Accepted) -> AsyncIterator[Channel]:
    guard = Guard(GuardConfig(TOKEN, port=0))
    server = await serve_grpc("127.0.0.1", 0, guard, accepted.serve, max_frame_bytes=MAX_FRAME_BYTES)
    try:
        yield await connect_grpc(f"grpc://127.0.0.1:{server.port}", TOKEN, max_frame_bytes=MAX_FRAME_BYTES)
    finally:
        await server.close(0)


@asynccontextmanager
async def _node_tls(accepted: Accepted) -> AsyncIterator[Channel]:
    identity = NodeIdentity.of(TOKEN)
    listener = NodeListener.open("127.0.0.1", 0, identity, accepted.serve, max_frame_bytes=MAX_FRAME_BYTES)
    try:
        yield await connect_node(f"127.0.0.1:{listener.port}", identity, max_frame_bytes=MAX_FRAME_BYTES)
    finally:
        await listener.close()


_OPENERS = {"websocket": _websocket, "sse": _sse, "grpc": _grpc, "node_tls": _node_tls}
