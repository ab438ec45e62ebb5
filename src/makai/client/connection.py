"""The client's half of a connection: where its sans-IO protocol meets tasks and a transport.

In: a `Channel`; requests. Out: `Exchange`s, each one request and the replies to it, and the replies of a session for
whoever listens to it. It must not know what they mean.

One task reads and one writes; both belong to the `Connection` and end in `close`. The reader never waits for a caller:
a caller who does not read must not hold up the others, so replies wait in the exchange. There they may take up
`UNREAD_BYTES`; beyond that this one request is aborted, and its caller is told after what had arrived. Nothing is lost
silently.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from makai.client.failures import ClientFailure, broken_protocol, refusal, transport_failure
from makai.core.errors import MakaiStreamError, ParseError, TransportError
from makai.protocols.makai.client import ClientConnection, Reply
from makai.protocols.makai.envelope import Encoding, HostError, Scope, ScopeKind
from makai.protocols.makai.payloads import AbortRequest, Nack
from makai.transports.channel import Channel, Oversized

UNREAD_BYTES: Final = 16 * 1024 * 1024
"""How much of one answer may wait for a caller who does not read it."""

_REPLY_OVERHEAD: Final = 256
"""What a waiting reply costs beside its payload."""
_FRAMES_IN_A_ROW: Final = 64
"""A transport that always has a frame ready must not keep callers from reading theirs."""
_WRITE_DEADLINE_S: Final = 60.0
_FLUSH_DEADLINE_S: Final = 1.0

Failure: TypeAlias = Callable[[], MakaiStreamError]
"""Makes the exception anew for everyone who is told."""

_nack = msgspec.json.Decoder(Nack).decode
_host_error = msgspec.json.Decoder(HostError).decode


class Listener(Protocol):
    """Who hears what arrives in a scope. Neither method may wait or raise."""

    def deliver(self, reply: Reply) -> None:
        """The next reply of the scope."""

    def fail(self, failure: Failure) -> None:
        """Nothing more will arrive."""


class Connection:
    """One server, until `close` or until it is lost. Make it inside a running event loop."""

    def __init__(self, channel: Channel, unread_bytes: int = UNREAD_BYTES) -> None:
        self.unread_bytes = unread_bytes
        self._channel = channel
        self._protocol = ClientConnection(channel.max_frame_bytes)
        self._listeners: dict[str, Listener] = {}
        self._failure: Failure | None = None
        self._something_to_write = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._reader = asyncio.create_task(self._read(), name="makai-client-reader")
        self._writer = asyncio.create_task(self._write(), name="makai-client-writer")
        self._closing: asyncio.Task[None] | None = None
        self._callbacks: set[asyncio.Task[None]] = set()

    async def open(self, kind: ScopeKind = "stream_id") -> Exchange:
        """Begin a request. Waits while the server does not take what was sent before."""
        await self.ready()
        exchange = Exchange(self, self._protocol.begin(kind))
        self._listeners[exchange.scope.id] = exchange
        return exchange

    async def ready(self) -> None:
        """Wait until the server has taken what was sent before; raises on a connection that has failed."""
        try:
            async with asyncio.timeout(_WRITE_DEADLINE_S):
                await self._idle.wait()
        except TimeoutError:
            self._lose(partial(transport_failure, "the server does not read what is sent to it"))
        if self._failure is not None:
            raise self._failure()

    def listen(self, session_id: str, listener: Listener) -> Scope:
        """Begin the scope of a session, which nobody else on this connection may have begun. Call `ready` first."""
        scope = self._protocol.begin("session_id", session_id)
        self._listeners[scope.id] = listener
        return scope

    def post(self, scope: Scope, kind: str, payload: Any, encoding: Encoding = "full") -> str:
        """Send an envelope and return its message id; never waits. Nothing happens on a connection that has failed:
        its listeners know."""
        if self._failure is not None:
            return ""
        message_id = self._protocol.send(scope, kind, payload, encoding)
        self._something_to_write.set()
        return message_id

    def forget(self, scope: Scope) -> None:
        """Nobody wants replies of this scope any more; what still comes is ignored."""
        if self._listeners.pop(scope.id, None) is not None:
            self._protocol.end(scope)

    def call_back(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a callback of the caller's beside everything else. What still runs ends with the connection."""
        task = asyncio.create_task(work, name=name)
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)
        return task

    def abort(self, stream_id: str) -> None:
        """Tell the server to stop a stream. An abort travels under its own id, and nobody waits for its answer."""
        scope = self._protocol.begin()
        self.post(scope, "abort_request", AbortRequest(stream_id))
        self._protocol.end(scope)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run this in the connection's thread: now if we are there. For finalizers, which run anywhere."""
        if threading.get_ident() == self._thread:
            callback()
        else:
            with suppress(RuntimeError):  # the loop is closed, and with it the connection
                self._loop.call_soon_threadsafe(callback)

    async def close(self) -> None:
        """Fail what is pending and end the connection; may be repeated."""
        if self._closing is None:
            closed = partial(MakaiStreamError, "the client was closed", kind="aborted", code="aborted")
            self._lose(closed)
            self._closing = asyncio.create_task(self._close(), name="makai-client-close")
        # A cancelled closer must not leave tasks or a child process behind.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for task in self._callbacks:
            task.cancel()
        self._something_to_write.set()  # the writer sends what is left, sees that we are closing, and ends
        await asyncio.wait({self._writer}, timeout=_FLUSH_DEADLINE_S)
        self._reader.cancel()
        self._writer.cancel()
        await asyncio.gather(self._reader, self._writer, return_exceptions=True)
        if self._callbacks:
            await asyncio.wait(self._callbacks, timeout=_FLUSH_DEADLINE_S)
        await self._channel.close()

    def _lose(self, failure: Failure) -> None:
        """Nothing will be answered any more. Only the first reason counts."""
        if self._failure is not None:
            return
        self._failure = failure
        listeners = list(self._listeners.values())
        self._listeners.clear()
        for listener in listeners:
            listener.fail(failure)

    async def _read(self) -> None:
        try:
            await self._deliver_frames()
        except (ParseError, msgspec.DecodeError) as error:
            self._lose(partial(broken_protocol, str(error)))
        except TransportError as error:
            self._lose(partial(transport_failure, error.message, hint=error.hint))
        finally:
            # However reading ended: whoever waits for an answer will not get it.
            self._lose(partial(transport_failure, "the connection to the server was lost"))

    async def _deliver_frames(self) -> None:
        in_a_row = 0
        while True:
            frame = await self._channel.receive()
            if frame is None:
                return
            if isinstance(frame, Oversized):
                raise ParseError(f"a frame exceeds {frame.limit} bytes")
            reply = self._protocol.receive(frame, time.monotonic())
            if reply is not None:
                self._deliver(reply)
            in_a_row += 1
            if in_a_row == _FRAMES_IN_A_ROW:
                in_a_row = 0
                await asyncio.sleep(0)

    def _deliver(self, reply: Reply) -> None:
        if reply.scope is None:
            if reply.type == "error":
                # The server could not tell which request this is about, so neither can we.
                raise ParseError(f"it could not read a message of ours: {_host_error(reply.payload).message}")
            return
        listener = self._listeners.get(reply.scope.id)
        if listener is not None:
            listener.deliver(reply)

    async def _write(self) -> None:
        while True:
            await self._something_to_write.wait()
            self._something_to_write.clear()
            self._idle.clear()
            try:
                while frames := self._protocol.take():
                    await self._channel.send(frames)
            except TransportError as error:
                self._lose(partial(transport_failure, error.message, hint=error.hint))
            finally:
                self._idle.set()
            if self._closing is not None:
                return


class Exchange:
    """One request and what answers it. For one reader at a time."""

    __slots__ = ("_connection", "_failure", "_held", "_replies", "_waiter", "ended", "scope")

    def __init__(self, connection: Connection, scope: Scope) -> None:
        self.scope = scope
        self.ended = False
        self._connection = connection
        self._replies: deque[Reply] = deque()
        self._held = 0
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None

    def send(self, kind: str, payload: Any, encoding: Encoding = "full") -> None:
        """Send an envelope in this scope, unless it has ended."""
        if not self.ended and self._failure is None:
            self._connection.post(self.scope, kind, payload, encoding)

    async def next(self) -> Reply:
        """The next reply that is no `ack`. Raises when the request was refused, or its connection failed."""
        while True:
            reply = self._replies.popleft() if self._replies else await self._wait()
            self._held -= len(reply.payload) + _REPLY_OVERHEAD
            if reply.type == "nack":
                self.end()
                raise refusal_in(reply)
            if reply.type != "ack":
                return reply

    @property
    def waiting(self) -> bool:
        """Whether `next` has something without waiting."""
        return bool(self._replies)

    def end(self) -> None:
        """The last reply was taken, or nobody wants more; may be repeated."""
        self.ended = True
        self._connection.forget(self.scope)

    def leave(self) -> None:
        """End; a stream the server may still be working on is aborted there."""
        if not self.ended:
            running = self._failure is None
            self.end()
            if running:
                self._connection.abort(self.scope.id)

    def deliver(self, reply: Reply) -> None:
        """Keep a reply until it is asked for."""
        self._replies.append(reply)
        self._held += len(reply.payload) + _REPLY_OVERHEAD
        if self._waiter is not None:
            self._wake()
        elif self._held > self._connection.unread_bytes:
            self._connection.forget(self.scope)
            self._connection.abort(self.scope.id)
            self.fail(partial(transport_failure, "the answer was not read while it arrived", code="overloaded"))

    def fail(self, failure: Failure) -> None:
        """Nothing more will arrive; what is here can still be read."""
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self) -> Reply:
        while not self._replies:
            if self._failure is not None:
                raise self._failure()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._replies.popleft()


def refusal_in(reply: Reply) -> ClientFailure:
    """The exception a `nack` stands for."""
    try:
        return refusal(_nack(reply.payload))
    except (msgspec.DecodeError, ValueError) as error:
        return broken_protocol(f"a malformed nack: {error}")
