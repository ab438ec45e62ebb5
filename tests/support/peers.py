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

from makai.client.connect import MakaiClientOptions, open_channel
from makai.providers.runtime import ModelRuntime
from makai.server.app import make_app
from makai.server.makai_connection import MakaiServer
from makai.transports.channel import Channel
from makai.transports.guard import GuardConfig
from makai.transports.memory import memory_pair
from support.sdk import TOKEN, served, sessions_of
from support.transports import loopback
from support.wire import JSON, encode

__all__ = ["TOKEN", "TRANSPORTS", "Peer", "listen", "open_peer", "open_server"]

TRANSPORTS = ("memory", "stdio", "websocket", "sse", "grpc")
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
async def open_peer(kind: str, environ: Mapping[str, str]) -> AsyncIterator[Peer]:
    async with open_server(kind, environ) as connect:
        yield await connect()


@asynccontextmanager
async def open_server(kind: str, environ: Mapping[str, str]) -> AsyncIterator[Callable[[], Awaitable[Peer]]]:
    """A new server, and how to connect to it any number of times.

    On stdio every connection is a process of its own; they share the sessions of their `MAKAI_HOME`.
    """
    async with AsyncExitStack() as stack:
        if kind == "stdio":
            command = (sys.executable, "-m", "makai", "stdio")
            options = MakaiClientOptions(command=command, environ={**_inherited(), **environ})
        else:
            runtime = await stack.enter_async_context(ModelRuntime(environ))
            sessions = await stack.enter_async_context(sessions_of(runtime))
            server = MakaiServer(runtime, sessions=sessions.get)
            if kind == "memory":
                group = await stack.enter_async_context(asyncio.TaskGroup())
            else:
                options = MakaiClientOptions(url=await stack.enter_async_context(served(kind, server)), token=TOKEN)

        async def connect() -> Peer:
            if kind == "memory":
                channel, theirs = memory_pair()
                stack.push_async_callback(theirs.close)
                group.create_task(server.serve(theirs))
            else:
                channel = await open_channel(options)
            stack.push_async_callback(channel.close)
            return Peer(channel)

        yield connect


async def listen(server: MakaiServer, stack: AsyncExitStack) -> str:
    port = await stack.enter_async_context(loopback(partial(make_app, server), GuardConfig(TOKEN, port=0)))
    return f"http://127.0.0.1:{port}"


def _inherited() -> dict[str, str]:
    """What a child needs of our environment to be the same makai."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
