"""Servers for tests of the SDK: one that follows a test's script word by word, and real ones over every transport.

`FakeServer` sits at the other end of a memory channel and is driven by the test: it takes what the client sent and
answers with whatever envelopes the test wants. `serving(kind, environ)` yields how to reach a real server.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from makai.auth.runtime import AuthRuntime
from makai.client.connect import MakaiClientOptions
from makai.core.errors import MakaiError
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.secret import Secret
from makai.core.stream_events import StreamEvent
from makai.providers.runtime import ModelRuntime
from makai.server.app import make_app
from makai.server.backend import Backend
from makai.server.makai_connection import MakaiServer
from makai.server.session_source import SessionSource
from makai.transports.channel import Channel
from makai.transports.grpc import serve_grpc
from makai.transports.guard import Guard, GuardConfig, KnownTokens
from makai.transports.memory import memory_pair
from support.transports import loopback

SOURCES = Path(__file__).resolve().parents[2] / "src"
TOKEN = Secret("a-token-for-tests-of-the-sdk-0123456789")
DEADLINE_S = 60.0
ECHO = "scripted/scripted@echo"
SCENARIO = "scripted/scripted@scenario"
KINDS = ("in_process", "stdio", "websocket", "sse", "grpc")
JSON = dict[str, Any]


class FakeServer:
    """The other end of a client's channel, in the hands of a test."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.received: list[JSON] = []
        self._sent: dict[str, int] = {}

    async def expect(self, kind: str) -> JSON:
        """The next envelope the client sends, which must be of this type."""
        async with asyncio.timeout(DEADLINE_S):
            frame = await self.channel.receive()
        assert isinstance(frame, bytes), "the client sent nothing more"
        envelope: JSON = msgspec.json.decode(frame)
        self.received.append(envelope)
        assert envelope["type"] == kind
        return envelope

    async def accept(self, kind: str) -> JSON:
        """The next envelope the client sends, of this type and acknowledged."""
        request = await self.expect(kind)
        await self.ack(request)
        return request

    async def say(self, request: JSON, kind: str, payload: JSON, **fields: Any) -> None:
        scope = next(kind for kind in ("session_id", "server_id", "stream_id") if kind in request)
        number = self._sent[request[scope]] = self._sent.get(request[scope], 0) + 1
        envelope = {
            "type": kind,
            scope: request[scope],
            "message_id": f"00000000-0000-4000-a000-{number:012x}",
            "sequence": number,
            "timestamp": 1,
            "version": 1,
            "payload": payload,
        }
        await self.channel.send([msgspec.json.encode(envelope | fields)])

    def restart(self, request: JSON) -> None:
        """The scope of this request is over; whatever comes in it next counts from 1."""
        del self._sent[request.get("session_id") or request["stream_id"]]

    async def ack(self, request: JSON) -> None:
        await self.say(request, "ack", {"acknowledged_id": request["message_id"]}, in_reply_to=request["message_id"])

    async def nack(self, request: JSON, code: str, reason: str = "no", **fields: Any) -> None:
        payload = {"rejected_id": request["message_id"], "reason": reason, "error_code": code} | fields
        await self.say(request, "nack", payload, in_reply_to=request["message_id"])

    async def answer(self, request: JSON, text: str = "Hi") -> None:
        """A whole successful stream, or the result of a `complete_request`."""
        await self.ack(request)
        ending = {"stop_reason": "end_turn", "usage": {"input": 1}, "model": "m", "api": "x", "provider": "acme"}
        if request["type"] == "complete_request":
            content = [{"type": "text", "text": text}]
            await self.say(request, "result", {"role": "assistant", "content": content, "timestamp": 1} | ending)
            return
        await self.say(request, "start", {})
        await self.say(request, "text_start", {"content_index": 0})
        await self.say(request, "text_delta", {"content_index": 0, "delta": text})
        await self.say(request, "text_end", {"content_index": 0})
        await self.say(request, "done", {"reason": "end_turn", "usage": {"input": 1}})
        await self.say(request, "result", ending | {"timestamp": 1})


def fake_server() -> tuple[Channel, FakeServer]:
    ours, theirs = memory_pair()
    return ours, FakeServer(theirs)


class WatchedBackend:
    """A backend that tells when a model request has begun and when it is over."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.begun = asyncio.Event()
        self.over = asyncio.Event()
        self.running = 0

    async def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        self.running += 1
        self.begun.set()
        try:
            async for event in self._inner.stream(model, context, options):
                yield event
        finally:
            self.running -= 1
            self.over.set()

    def resolve(self, model: str | Model | None) -> Model:
        return self._inner.resolve(model)

    async def models(self, request: Any) -> Any:
        return await self._inner.models(request)

    def auth(self) -> AuthRuntime:
        return self._inner.auth()

    async def close(self) -> None:
        await self._inner.close()


@asynccontextmanager
async def serving(kind: str, environ: Mapping[str, str]) -> AsyncIterator[MakaiClientOptions]:
    """How to reach a real server that sees this environment."""
    if kind == "in_process":
        yield MakaiClientOptions(environ=environ)
    elif kind == "stdio":
        inherited = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
        command = (sys.executable, "-m", "makai", "stdio")
        yield MakaiClientOptions(command=command, environ={**inherited, "PYTHONPATH": str(SOURCES), **environ})
    else:
        async with (
            ModelRuntime(environ) as runtime,
            sessions_of(runtime) as sessions,
            listening(kind, runtime, sessions) as url,
        ):
            yield MakaiClientOptions(url=url, token=TOKEN)


@asynccontextmanager
async def sessions_of(runtime: ModelRuntime) -> AsyncIterator[SessionSource]:
    """The sessions of a runtime's home, opened when they are wanted."""
    sessions = SessionSource(runtime, runtime.home)
    try:
        yield sessions
    finally:
        await sessions.close()


@asynccontextmanager
async def listening(kind: str, backend: Backend, sessions: SessionSource | None = None) -> AsyncIterator[str]:
    """The URL of a server on loopback; without sessions it runs no agents."""
    async with served(kind, MakaiServer(backend, sessions=None if sessions is None else sessions.get)) as url:
        yield url


@asynccontextmanager
async def served(kind: str, makai: MakaiServer, tokens: KnownTokens | None = None) -> AsyncIterator[str]:
    """`tokens` are for gRPC; over HTTP the application makes its own."""
    config = GuardConfig(TOKEN, port=0)
    if kind != "grpc":
        async with loopback(partial(make_app, makai), config) as port:
            yield f"{'ws' if kind == 'websocket' else 'http'}://127.0.0.1:{port}"
        return
    server = await serve_grpc("127.0.0.1", 0, Guard(config, tokens), makai.serve)
    try:
        yield f"grpc://127.0.0.1:{server.port}"
    finally:
        await server.close(grace_s=1.0)


ErrorT = TypeVar("ErrorT", bound=MakaiError)


async def failure_of(call: Awaitable[object], kind: type[ErrorT], match: str | None = None) -> ErrorT:
    """The error that this call ends in."""
    with pytest.raises(kind, match=match) as raised:
        await call
    return raised.value
