"""Programs that share the sessions of a MAKAI_HOME, inside one test process, and peers that speak for themselves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from pathlib import Path

import msgspec

from makai.auth.private_files import load_or_create_token
from makai.core.model import ModelCapability
from makai.protocols.attach import messages
from makai.protocols.attach.frames import MAX_FRAME_BYTES, encoded, from_attached, from_owner
from makai.protocols.attach.messages import AttachHello, AttachWelcome, FromAttached, FromOwner, Message, hello
from makai.server.owner_socket import FILE_NAME
from makai.server.session_router import SessionRouter
from makai.sessions.log.base import Record
from makai.sessions.log.leases import HomeLock
from makai.sessions.owner import OwnedSessions
from makai.sessions.service import Follower
from makai.transports.channel import Channel
from makai.transports.unix import Peer, UnixListener, connect_unix
from support.agent import MODEL, ScriptedModels

MODEL_REF = "scripted/scripted@model"
SCRIPT = "say: Hello there."
DEADLINE_S = 60.0


class Programs:
    def __init__(self, home: Path, script: str) -> None:
        self.home = home
        self.took_over: list[str] = []
        model = msgspec.structs.replace(MODEL, capabilities=(*MODEL.capabilities, ModelCapability.TOOLS))
        self._models = ScriptedModels(script, model)
        self._stack = AsyncExitStack()

    async def start(self, name: str) -> SessionRouter:
        sessions = await SessionRouter.open(
            self.home,
            lambda: OwnedSessions.open(self.home, self._models),
            on_takeover=lambda: self.took_over.append(name),
        )
        self._stack.push_async_callback(sessions.close)
        return sessions

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def programs(home: Path, script: str = SCRIPT) -> AsyncIterator[Programs]:
    """Everything must be over in time, and is closed at the end."""
    sharing = Programs(home, script)
    async with asyncio.timeout(DEADLINE_S):
        try:
            yield sharing
        finally:
            await sharing.close()


@asynccontextmanager
async def pair(home: Path, script: str = SCRIPT) -> AsyncIterator[tuple[SessionRouter, SessionRouter]]:
    async with programs(home, script) as sharing:
        yield await sharing.start("owner"), await sharing.start("attached")


async def read_until(follower: Follower, words: str) -> list[Record]:
    """What a follower gives out, up to the batch in which these words are."""
    records: list[Record] = []
    while not any(words.encode() in record.line for record in records):
        batch = await follower.next()
        assert batch
        records += batch
    return records


_key = lru_cache(load_or_create_token)  # which syncs a file each time


class RawLink:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    @classmethod
    async def open(cls, home: Path) -> RawLink:
        channel, _ = connect_unix(home / FILE_NAME, max_frame_bytes=MAX_FRAME_BYTES)
        return cls(channel)

    async def greet(self, home: Path) -> FromOwner | None:
        return await self.ask(hello(os.getpid(), _key(home)))

    async def ask(self, message: Message) -> FromOwner | None:
        await self.channel.send([encoded(message)])
        return await self.hear()

    async def hear(self) -> FromOwner | None:
        """None when the owner has hung up."""
        async with asyncio.timeout(DEADLINE_S):
            frame = await self.channel.receive()
        return from_owner(frame) if isinstance(frame, bytes) else None


@asynccontextmanager
async def raw_link(home: Path) -> AsyncIterator[RawLink]:
    """One that the owner has welcomed."""
    link = await RawLink.open(home)
    assert isinstance(await link.greet(home), AttachWelcome)
    yield link
    await link.channel.close()


class StubOwner:
    """A process that owns a home and does with each message what a test wants."""

    def __init__(self, home: Path, take: Callable[[FromAttached, Channel], Awaitable[None]]) -> None:
        self._lock = HomeLock(home)
        self._take = take
        self._listener = UnixListener.open(home / FILE_NAME, self._serve, max_frame_bytes=MAX_FRAME_BYTES)

    async def _serve(self, channel: Channel, peer: Peer) -> None:
        while isinstance(frame := await channel.receive(), bytes):
            message = from_attached(frame)
            if isinstance(message, AttachHello):
                await channel.send([encoded(messages.welcome(os.getpid()))])
            else:
                await self._take(message, channel)

    async def die(self) -> None:
        """As by kill -9: the lock and the links go, the file of the socket stays."""
        self._lock.release()
        await self._listener.close()
