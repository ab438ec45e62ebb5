"""The client's half of a connection: requests and the replies to them, over a `ConnectionShell`. The reader never waits
for a caller: a caller who does not read must not hold up the others, so replies wait in the exchange. There they may
take up `UNREAD_BYTES`; beyond that this one request is aborted, and its caller gets the error after what had arrived.
Nothing is lost silently."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from makai.aio.pipes import wake
from makai.aio.tasks import BackgroundTasks
from makai.client.failures import ClientFailure, broken_protocol, failure_of, transport_failure
from makai.core.errors import InvalidRequest, MakaiError, MakaiStreamError, ParseError
from makai.protocols.makai.client import ClientConnection, Reply
from makai.protocols.makai.envelope import Encoding, HostError, Scope, ScopeKind
from makai.protocols.makai.payloads import AbortRequest, Nack
from makai.protocols.makai.projection import nack_of
from makai.transports.channel import Channel
from makai.transports.connection import ConnectionShell

UNREAD_BYTES: Final = 16 * 1024 * 1024
"""How much of one answer may wait for a caller who does not read it."""

ANSWER_DEADLINE_S: Final = 120.0
"""A listing may ask several vendors; none of them may hold the caller up."""
_REPLY_OVERHEAD: Final = 256
"""What a waiting reply costs beside its payload."""
_WRITE_DEADLINE_S: Final = 60.0
_FLUSH_DEADLINE_S: Final = 1.0

_Answer = TypeVar("_Answer")
Failure: TypeAlias = Callable[[], MakaiStreamError]
"""Makes a new exception for every caller that gets it."""

_nack = msgspec.json.Decoder(Nack).decode
_host_error = msgspec.json.Decoder(HostError).decode


class ScopeListener(Protocol):
    """Receives what arrives in a scope. Neither method may wait or raise."""

    def deliver(self, reply: Reply) -> None:
        """Take the next reply of the scope."""

    def unread(self, failure: Failure) -> None:
        """The server could not read some message of this client and did not say which: fail what has no answer."""

    def fail(self, failure: Failure) -> None:
        """Nothing more will arrive."""


class MakaiConnection:
    """One server, until `close` or until it is lost. Make it inside a running event loop."""

    def __init__(self, channel: Channel, unread_bytes: int = UNREAD_BYTES) -> None:
        self.unread_bytes = unread_bytes
        self.callbacks = BackgroundTasks()
        """The caller's own functions that run for a session; they end with the connection."""
        self._protocol = ClientConnection(channel.max_frame_bytes)
        self._listeners: dict[Scope, ScopeListener] = {}
        self._failure: Failure | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._shell = ConnectionShell(channel, self._protocol, self._take, self._lost, name="makai-client")

    async def open(self, kind: ScopeKind = "stream_id") -> Exchange:
        """Begin a request. Waits while the server does not take what was sent before."""
        await self.ready()
        exchange = Exchange(self, self._protocol.begin(kind))
        self._listeners[exchange.scope] = exchange
        return exchange

    async def ask(self, kind: str, payload: Any, until: str, decode: Callable[[msgspec.Raw], _Answer]) -> _Answer:
        """Send a request that has one answer, and return that."""
        exchange = await self.open()
        try:
            exchange.send(kind, payload)
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                while (reply := await exchange.next()).type != until:
                    pass
            return decode(reply.payload)
        except TimeoutError:
            raise transport_failure(f"the server did not answer a {kind} within {ANSWER_DEADLINE_S:g} s") from None
        except (msgspec.DecodeError, ValueError) as error:
            raise broken_protocol(f"a malformed {until}: {error}") from error
        finally:
            exchange.end()

    async def ready(self) -> None:
        """Wait until the server has taken what was sent before; raises on a connection that has failed."""
        try:
            async with asyncio.timeout(_WRITE_DEADLINE_S):
                await self._shell.drained()
        except TimeoutError:
            self._lose(partial(transport_failure, "the server does not read what is sent to it"))
        if self._failure is not None:
            raise self._failure()

    def listen(self, kind: ScopeKind, scope_id: str, listener: ScopeListener) -> Scope:
        """Begin the scope of a session or tool server, of which there may be one on this connection. Call `ready`
        first."""
        scope = self._protocol.begin(kind, scope_id)
        self._listeners[scope] = listener
        return scope

    def post(self, scope: Scope, kind: str, payload: Any, encoding: Encoding = "full") -> str:
        """Send an envelope and return its message id; never waits. Nothing is sent on a connection that has failed.
        Raises for what the server would refuse to read; that is the failure of this one request."""
        if self._failure is not None:
            return ""
        try:
            message_id = self._protocol.send(scope, kind, payload, encoding)
        except InvalidRequest as error:
            raise failure_of(nack_of("", error)) from error
        self._shell.wake()
        return message_id

    def forget(self, scope: Scope) -> None:
        if self._listeners.pop(scope, None) is not None:
            self._protocol.end(scope)

    def abort(self, stream_id: str) -> None:
        """Have the server stop a stream. An abort travels under its own id, and its answer is ignored."""
        scope = self._protocol.begin()
        self.post(scope, "abort_request", AbortRequest(stream_id))
        self._protocol.end(scope)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run this in the connection's thread: now if this is it. For finalizers, which run anywhere."""
        if threading.get_ident() == self._thread:
            callback()
        else:
            with suppress(RuntimeError):  # the loop is closed, and with it the connection
                self._loop.call_soon_threadsafe(callback)

    async def close(self) -> None:
        """Fail what is pending and end the connection; may be repeated."""
        self._lose(client_closed)
        await self.callbacks.close(_FLUSH_DEADLINE_S)
        await self._shell.close(_FLUSH_DEADLINE_S)

    def _lost(self, error: MakaiError | None) -> None:
        match error:
            case None:
                self._lose(partial(transport_failure, "the connection to the server was lost"))
            case ParseError():
                self._lose(partial(broken_protocol, error.message))
            case _:
                self._lose(partial(transport_failure, error.message, hint=error.hint))

    def _lose(self, failure: Failure) -> None:
        """Fail all requests. Only the first reason counts."""
        if self._failure is not None:
            return
        self._failure = failure
        listeners = list(self._listeners.values())
        self._listeners.clear()
        for listener in listeners:
            listener.fail(failure)

    def _take(self, frame: bytes) -> None:
        reply = self._protocol.receive(frame, time.monotonic())
        if reply is None:
            return
        if reply.scope is None:
            if reply.type == "error":
                # The server could not tell which request this is about, so neither can the client.
                reason = f"the server could not read a message of this client: {_host_message(reply)}"
                for each in list(self._listeners.values()):
                    each.unread(partial(transport_failure, reason, code="parse_error"))
            return
        listener = self._listeners.get(reply.scope)
        if listener is not None:
            listener.deliver(reply)


class Exchange:
    """One request and what answers it. For one reader at a time."""

    __slots__ = (
        "_connection",
        "_failure",
        "_held",
        "_is_read",
        "_is_sent",
        "_replies",
        "_waiter",
        "ack",
        "ended",
        "scope",
    )

    def __init__(self, connection: MakaiConnection, scope: Scope) -> None:
        self.scope = scope
        self.ended = False
        self.ack: Reply | None = None
        self._connection = connection
        self._replies: deque[Reply] = deque()
        self._held = 0
        self._is_sent = False
        self._is_read = False
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None

    def send(self, kind: str, payload: Any, encoding: Encoding = "full") -> None:
        """Send an envelope in this scope, unless it has ended. Raises when it cannot be sent; if it was the first one,
        the exchange is over."""
        if not self.ended and self._failure is None:
            try:
                self._connection.post(self.scope, kind, payload, encoding)
            except MakaiError:
                if not self._is_sent:
                    self.end()
                raise
            self._is_sent = True

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
            self.ack = reply

    def end(self) -> None:
        """Ignore what still arrives; may be repeated."""
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
        self._is_read = True
        self._replies.append(reply)
        self._held += len(reply.payload) + _REPLY_OVERHEAD
        if self._waiter is not None:
            self._wake()
        elif self._held > self._connection.unread_bytes:
            self._connection.forget(self.scope)
            self._connection.abort(self.scope.id)
            self.fail(partial(transport_failure, "the answer was not read while it arrived", code="overloaded"))

    def unread(self, failure: Failure) -> None:
        if self._is_sent and not self._is_read:
            self._connection.forget(self.scope)
            self.fail(failure)

    def fail(self, failure: Failure) -> None:
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        wake(waiter)

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
    try:
        return failure_of(_nack(reply.payload))
    except (msgspec.DecodeError, ValueError) as error:
        return broken_protocol(f"a malformed nack: {error}")


def client_closed() -> MakaiStreamError:
    """What every pending request of a closed client fails with."""
    return MakaiStreamError("the client was closed", kind="aborted", code="aborted")


def _host_message(reply: Reply) -> str:
    try:
        return _host_error(reply.payload).message
    except msgspec.DecodeError as error:
        raise ParseError(str(error)) from error
