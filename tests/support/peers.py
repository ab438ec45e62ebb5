"""The same server behind every transport, and a client that speaks in plain dicts.

`open_peer(kind, environ)` starts what the transport needs (a child process, a listening server) around one
`MakaiServer` and yields a `Peer`. The behaviour suite runs unchanged over all of them (MK-TRANS-012).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from makai.core.home import home_directory
from makai.core.secret import Secret
from makai.protocols.makai.server import ConnectionLimits
from makai.providers.runtime import ModelRuntime
from makai.server.app import make_app
from makai.server.makai_connection import MakaiServer
from makai.server.session_source import SessionSource
from makai.transports.channel import Channel
from makai.transports.grpc import connect_grpc, serve_grpc
from makai.transports.guard import Guard, GuardConfig
from makai.transports.memory import memory_pair
from makai.transports.sse import connect_sse
from makai.transports.stdio_child import spawn_stdio
from makai.transports.websocket import connect_websocket
from support.transports import loopback
from support.wire import JSON, encode

TRANSPORTS = ("memory", "stdio", "websocket", "sse", "grpc")
TOKEN = Secret("test-token-0123456789")
DEADLINE_S = 60.0


class Peer:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    async def say(self, *values: Any) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.channel.send([encode(value) for value in values])

    async def hear(self) -> JSON:
        async with asyncio.timeout(DEADLINE_S):
            frame = await self.channel.receive()
        assert isinstance(frame, bytes), f"the connection ended: {frame}"
        value: JSON = msgspec.json.decode(frame)
        return value

    async def hear_until(self, *types: str) -> list[JSON]:
        """Frames up to and including the first of one of these types."""
        frames = [await self.hear()]
        while frames[-1]["type"] not in types:
            frames.append(await self.hear())
        return frames

    async def ask(self, value: JSON, *terminals: str) -> list[JSON]:
        """Send a request and hear everything up to its terminal."""
        await self.say(value)
        return await self.hear_until(*(terminals or ("result", "stream_error", "nack")))


@asynccontextmanager
async def open_peer(
    kind: str, environ: Mapping[str, str], limits: ConnectionLimits | None = None
) -> AsyncIterator[Peer]:
    """A client connected to a new server over one transport."""
    async with open_server(kind, environ, limits) as connect:
        yield await connect()


@asynccontextmanager
async def open_server(
    kind: str, environ: Mapping[str, str], limits: ConnectionLimits | None = None
) -> AsyncIterator[Callable[[], Awaitable[Peer]]]:
    """A new server, and how to connect to it any number of times.

    On stdio every connection is a process of its own; they share the sessions of their `MAKAI_HOME`.
    """
    async with AsyncExitStack() as stack:
        if kind == "stdio":
            open_channel: Callable[[], Awaitable[Channel]] = partial(
                spawn_stdio, [sys.executable, "-m", "makai", "stdio"], {**_inherited(), **environ}
            )
        else:
            runtime = ModelRuntime(environ)
            stack.push_async_callback(runtime.close)
            sessions = SessionSource(runtime, home_directory(environ))
            stack.push_async_callback(sessions.close)
            server = MakaiServer(runtime, limits, sessions=sessions.get)
            open_channel = await _opener(kind, server, stack)

        async def connect() -> Peer:
            channel = await open_channel()
            stack.push_async_callback(channel.close)
            return Peer(channel)

        yield connect


async def _opener(kind: str, server: MakaiServer, stack: AsyncExitStack) -> Callable[[], Awaitable[Channel]]:
    """What opens one more channel to a server in this process."""
    if kind == "memory":
        group = await stack.enter_async_context(asyncio.TaskGroup())

        async def pair() -> Channel:
            ours, theirs = memory_pair()
            stack.push_async_callback(theirs.close)
            group.create_task(server.serve(theirs))
            return ours

        return pair
    if kind == "grpc":
        guard = Guard(GuardConfig(token=TOKEN, port=0))
        grpc = await serve_grpc("127.0.0.1", 0, guard, server.serve)
        stack.push_async_callback(grpc.close)
        return partial(connect_grpc, f"grpc://127.0.0.1:{grpc.port}", TOKEN)
    url = await listen(server, stack)
    return partial(connect_websocket if kind == "websocket" else connect_sse, f"{url}/v1/makai", TOKEN)


async def listen(server: MakaiServer, stack: AsyncExitStack) -> str:
    """The HTTP application on a free loopback port; its address."""
    port = await stack.enter_async_context(loopback(partial(make_app, server), GuardConfig(TOKEN, port=0)))
    return f"http://127.0.0.1:{port}"


def _inherited() -> dict[str, str]:
    """What a child needs of our environment to be the same makai."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
