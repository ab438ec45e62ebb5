"""ACP at `/acp`, over WebSocket and over plain HTTP, after the draft of the protocol's remote transport.

Over HTTP every message of the client is a POST. `initialize` opens a connection and is answered in its POST, with the
connection's id in a header; every other POST is answered 202, and what the agent says arrives on event streams, one for
the connection and one for each session. A connection belongs to the token that opened it. It ends by DELETE, with its
token, when its client takes nothing of what waits for it, and after a while without any request or stream. What a
broken stream did not deliver is lost, as the draft says: its client loads the session again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from makai.aio.http_body import read_http_body
from makai.aio.pipes import wake
from makai.aio.tasks import BackgroundTasks
from makai.core.access import Caller
from makai.core.errors import ChannelClosed, InvalidRequest, MakaiError, ParseError
from makai.transports.channel import MAX_FRAME_BYTES, Oversized, ServeCaller
from makai.transports.connection import END_DEADLINE_S
from makai.transports.guard import KnownTokens
from makai.transports.http_guard import BODY_DEADLINE_S, caller_of, refused
from makai.transports.sse import encode_frames
from makai.transports.websocket import serve_websocket
from makai.wire import json_rpc, strict_json

PATH: Final = "/acp"
CONNECTION_HEADER: Final = "Acp-Connection-Id"
SESSION_HEADER: Final = "Acp-Session-Id"
SUBPROTOCOL: Final = "acp.v1"
"""For browsers, which can send a token only as an offered subprotocol; other clients offer none."""

MAX_CONNECTIONS: Final = 64
MAX_STREAMS: Final = 256
"""Of one connection: its own, and those of the sessions that it uses."""
MAX_BUFFERED_BYTES: Final = 4 * 1024 * 1024
"""How much may wait for a client before the agent waits too."""
MAX_POSTED_BYTES: Final = 2 * MAX_FRAME_BYTES
MAX_PENDING: Final = 2 * json_rpc.MAX_PENDING
"""Requests whose answers have a stream to go to. The agent refuses further ones by itself, at half as many."""

_BATCH_BYTES: Final = 64 * 1024
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_ABSENT: Final = msgspec.Raw()

StreamKey: TypeAlias = str | None
"""The session of a stream; None for the connection's own."""


class AcpHttpDeadlines(msgspec.Struct, frozen=True):
    initialize_s: float = 30.0
    stall_s: float = 60.0
    """How long a client may take nothing while `MAX_BUFFERED_BYTES` wait for it."""
    idle_s: float = 60.0
    """How long a connection stays without any stream or request."""
    keep_alive_s: float = 15.0


class _Routed(msgspec.Struct, frozen=True):
    """What decides where a message belongs; everything else is the agent's to judge."""

    id: msgspec.Raw = _ABSENT
    method: msgspec.Raw = _ABSENT
    params: msgspec.Raw = _ABSENT

    @property
    def is_initialize(self) -> bool:
        return bytes(self.method) == b'"initialize"'

    @property
    def session_id(self) -> str | None:
        try:
            return _named.decode(self.params).session_id or None
        except msgspec.DecodeError:
            return None


class _Named(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str


_routed = msgspec.json.Decoder(_Routed)
_named = msgspec.json.Decoder(_Named)


class _OutgoingStream:
    """Messages that wait for the event stream of a session, or of the connection."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.reader: asyncio.Future[None] | None = None
        self.is_open = False


class _HttpConnection:
    """A channel whose frames come from POSTs and leave on event streams. Make it inside a running event loop."""

    max_frame_bytes = MAX_FRAME_BYTES

    def __init__(self, caller: Caller, initialize_id: bytes, deadlines: AcpHttpDeadlines) -> None:
        self.id = secrets.token_hex(16)
        self.caller = caller
        self.is_ended = False
        self.on_end: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self.initialized: asyncio.Future[bytes] = self._loop.create_future()
        """The answer to `initialize`; `ChannelClosed` when the connection ends without one."""
        self._initialize_id = initialize_id
        self._deadlines = deadlines
        self._posted: deque[bytes] = deque()
        self._posted_bytes = 0
        self._receiver: asyncio.Future[None] | None = None
        self._streams: dict[StreamKey, _OutgoingStream] = {None: _OutgoingStream()}
        self._buffered = 0
        self._taken: asyncio.Future[None] | None = None
        self._turn = asyncio.Lock()
        self._answers: dict[bytes, StreamKey] = {}
        """The client's unanswered requests, and the stream that each answer goes to."""
        self._questions: dict[bytes, StreamKey] = {}
        """The agent's unanswered requests, and the session that each belongs to."""
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None

    async def receive(self) -> bytes | Oversized | None:
        while not self._posted:
            if self.is_ended:
                return None
            self._receiver = self._loop.create_future()
            await self._receiver
        frame = self._posted.popleft()
        self._posted_bytes -= len(frame)
        return frame

    async def send(self, frames: Sequence[bytes]) -> None:
        async with self._turn:
            for frame in frames:
                self._put(frame.strip())
            while self._buffered > MAX_BUFFERED_BYTES and not self.is_ended:
                self._taken = self._loop.create_future()
                try:
                    async with asyncio.timeout(self._deadlines.stall_s):
                        await self._taken
                except TimeoutError:
                    self.end()
            if self.is_ended:
                raise ChannelClosed("The connection has ended.")

    async def close(self, reason: str = "") -> None:
        self.end()

    def end(self) -> None:
        """Take nothing more. Streams that are open still deliver what waits for them."""
        if self.is_ended:
            return
        self.is_ended = True
        if self._idle is not None:
            self._idle.cancel()
        if not self.initialized.done():
            self.initialized.set_exception(ChannelClosed("The connection ended before it was initialized."))
            self.initialized.exception()  # it may be that no request waits for it any more
        wake(self._receiver)
        wake(self._taken)
        for stream in self._streams.values():
            wake(stream.reader)
        if self.on_end is not None:
            self.on_end()

    @contextmanager
    def used(self) -> Iterator[None]:
        """While a request of this connection is handled, it does not count as idle."""
        self._users += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and not self.is_ended:
                self._idle = self._loop.call_later(self._deadlines.idle_s, self.end)

    def has_room(self, frame: bytes) -> bool:
        return self._posted_bytes + len(frame) <= MAX_POSTED_BYTES and len(self._answers) < MAX_PENDING

    def deliver(self, frame: bytes, message: _Routed, named: StreamKey) -> None:
        """Hand a message to the agent. `named` is the session of its header. Raises `InvalidRequest`."""
        session_id = self._questions.get(bytes(message.id)) if message.method == _ABSENT else message.session_id
        if session_id is not None and named != session_id:
            raise InvalidRequest(f"{SESSION_HEADER} must name the session of the message.")
        if message.method == _ABSENT:
            self._questions.pop(bytes(message.id), None)
        elif message.id != _ABSENT and len(message.id) <= json_rpc.MAX_ID_BYTES:
            # A client that loads a session may open its stream only when it has the answer.
            is_load = bytes(message.method) == b'"session/load"'
            self._answers[bytes(message.id)] = None if is_load else named
        self._posted.append(frame)
        self._posted_bytes += len(frame)
        wake(self._receiver)

    def open_stream(self, key: StreamKey) -> _OutgoingStream | None:
        """The stream of a session; None when it has a reader already, or when there are too many."""
        stream = self._stream(key)
        if stream is None or stream.is_open:
            return None
        stream.is_open = True
        return stream

    def close_stream(self, key: StreamKey) -> None:
        stream = self._streams[key]
        stream.is_open = False
        if key is not None and not stream.frames:
            del self._streams[key]

    async def take(self, stream: _OutgoingStream) -> list[bytes] | None:
        """What waits for a stream, as far as it fits in one write; nothing when it is time for a sign of life, None at
        the end."""
        if not stream.frames and not self.is_ended:
            stream.reader = self._loop.create_future()
            await asyncio.wait({stream.reader}, timeout=self._deadlines.keep_alive_s)
        frames: list[bytes] = []
        size = 0
        while stream.frames and (not frames or size + len(stream.frames[0]) <= _BATCH_BYTES):
            frames.append(stream.frames.popleft())
            size += len(frames[-1])
        self._buffered -= size
        if size:
            wake(self._taken)
        return None if self.is_ended and not frames else frames

    def _stream(self, key: StreamKey) -> _OutgoingStream | None:
        if key not in self._streams and len(self._streams) >= MAX_STREAMS:
            return None
        return self._streams.setdefault(key, _OutgoingStream())

    def _put(self, frame: bytes) -> None:
        message = _routed.decode(frame)
        raw_id = bytes(message.id)
        if message.method != _ABSENT:
            key: StreamKey = message.session_id
            if message.id != _ABSENT:
                self._questions[raw_id] = key
            if len(self._questions) > MAX_PENDING:  # the oldest was withdrawn, and its client never answered
                del self._questions[next(iter(self._questions))]
        else:
            key = self._answers.pop(raw_id, None)
            if raw_id == self._initialize_id and not self.initialized.done():
                self.initialized.set_result(frame)
                return
        stream = self._stream(key)
        if stream is None:  # the client named sessions without end and reads none of them
            self.end()
            return
        stream.frames.append(frame)
        self._buffered += len(frame)
        wake(stream.reader)


class AcpRoutes:
    """The `/acp` address. `serve` is the agent's side of one connection, whichever way it came."""

    def __init__(
        self,
        serve: ServeCaller,
        tokens: KnownTokens | None = None,
        *,
        max_connections: int = MAX_CONNECTIONS,
        deadlines: AcpHttpDeadlines | None = None,
    ) -> None:
        self._serve = serve
        self._tokens = tokens
        self._max_connections = max_connections
        self._deadlines = deadlines or AcpHttpDeadlines()
        self._connections: dict[str, _HttpConnection] = {}
        self._websockets = 0
        self._tasks = BackgroundTasks()

    def add_to(self, app: web.Application) -> None:
        app.router.add_post(PATH, self._post)
        app.router.add_get(PATH, self._get, allow_head=False)
        app.router.add_delete(PATH, self._delete)
        app.on_shutdown.append(self._close)

    @property
    def live(self) -> int:
        return len(self._connections) + self._websockets

    async def _close(self, _app: web.Application) -> None:
        for connection in list(self._connections.values()):
            connection.end()
        await self._tasks.close(END_DEADLINE_S + 1)

    async def _post(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return refused(415, "invalid_request", "A message is posted as application/json.")
        body = await read_http_body(request.content, MAX_FRAME_BYTES, BODY_DEADLINE_S)
        if isinstance(body.failure, TimeoutError):
            return refused(408, "invalid_request", f"The request body took longer than {BODY_DEADLINE_S:g} s.")
        frame = body.complete()
        if body.is_cut:
            return refused(413, "invalid_request", f"A message has at most {MAX_FRAME_BYTES} bytes.")
        try:
            message = strict_json.decode_with(_routed, frame)
        except ParseError:
            return _malformed(frame)
        if message.is_initialize and CONNECTION_HEADER not in request.headers:
            return await self._initialize(request, frame, message)
        connection = self._connection(request)
        if isinstance(connection, web.Response):
            return connection
        if message.is_initialize:
            return refused(400, "invalid_request", "This connection is initialized already.")
        if not connection.has_room(frame):
            return refused(429, "overloaded", "Too many messages of this connection are waiting.")
        with connection.used():
            try:
                connection.deliver(frame, message, request.headers.get(SESSION_HEADER))
            except InvalidRequest as error:
                return refused(400, "invalid_request", error.message)
        return web.Response(status=202)

    async def _initialize(self, request: web.Request, frame: bytes, message: _Routed) -> web.Response:
        if message.id in (_ABSENT, msgspec.Raw(b"null")):
            return refused(400, "invalid_request", "`initialize` needs an id.")
        if self.live >= self._max_connections or self._tasks.closing:
            return refused(503, "overloaded", "Too many connections are open.")
        connection = _HttpConnection(caller_of(request), bytes(message.id), self._deadlines)
        self._connections[connection.id] = connection
        self._tasks.start(self._run(connection), "makai-acp-http", may_finish=True)
        with connection.used():
            try:
                connection.deliver(frame, message, None)
                async with asyncio.timeout(self._deadlines.initialize_s):
                    answer = await connection.initialized
            except (TimeoutError, MakaiError):
                connection.end()
                return refused(500, "internal_error", "The connection was not initialized.")
            except asyncio.CancelledError:  # the client hung up before it knew its connection
                connection.end()
                raise
        headers = {CONNECTION_HEADER: connection.id, "Cache-Control": "no-store"}
        return web.Response(body=answer, content_type="application/json", headers=headers)

    async def _run(self, connection: _HttpConnection) -> None:
        """Serve a connection to its end, with some seconds to end by itself when its client is gone."""
        loop = asyncio.get_running_loop()
        caller = connection.caller
        held = nullcontext() if self._tokens is None else self._tokens.hold(caller, connection.end)
        try:
            with held:
                async with asyncio.timeout(None) as limit:
                    connection.on_end = lambda: limit.reschedule(loop.time() + END_DEADLINE_S)
                    await self._serve(connection, caller)
        except (ChannelClosed, TimeoutError):
            pass
        finally:
            connection.on_end = None
            connection.end()
            del self._connections[connection.id]

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._websocket(request)
        if "text/event-stream" not in request.headers.get("Accept", "").lower():
            return refused(406, "invalid_request", "A stream is read as text/event-stream.")
        connection = self._connection(request)
        if isinstance(connection, web.Response):
            return connection
        key = request.headers.get(SESSION_HEADER) or None
        stream = connection.open_stream(key)
        if stream is None:
            return refused(409, "invalid_request", "This stream is being read already.")
        with connection.used():
            try:
                response = web.StreamResponse(headers=_HEADERS)
                await response.prepare(request)
                await response.write(_KEEP_ALIVE)  # aiohttp keeps the head back until there is something to send
                while (frames := await connection.take(stream)) is not None:
                    await response.write(encode_frames(frames) or _KEEP_ALIVE)
            except ConnectionError:
                pass  # the client has gone
            finally:
                connection.close_stream(key)
        return response

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        if self.live >= self._max_connections or self._tasks.closing:
            return refused(503, "overloaded", "Too many connections are open.")
        self._websockets += 1
        try:
            return await serve_websocket(
                request,
                lambda channel: self._serve(channel, caller_of(request)),
                subprotocol=SUBPROTOCOL,
                may_be_left_out=True,
                headers={CONNECTION_HEADER: secrets.token_hex(16)},
            )
        finally:
            self._websockets -= 1

    async def _delete(self, request: web.Request) -> web.Response:
        connection = self._connection(request)
        if isinstance(connection, web.Response):
            return connection
        connection.end()
        return web.Response(status=202)

    def _connection(self, request: web.Request) -> _HttpConnection | web.Response:
        """The connection that a request names; one of another token does not exist for it."""
        connection_id = request.headers.get(CONNECTION_HEADER)
        if connection_id is None:
            return refused(400, "invalid_request", f"{CONNECTION_HEADER} is missing; `initialize` answers with one.")
        connection = self._connections.get(connection_id)
        if connection is None or connection.is_ended or connection.caller != caller_of(request):
            return refused(404, "stream_not_found", "No such connection; it has ended, or it never was.")
        return connection


def _malformed(frame: bytes) -> web.Response:
    """The answer to a body that is no message; JSON-RPC has an error of its own for batches."""
    events = json_rpc.JsonRpcPeer().receive(frame)
    reply = events[0].reply if events and isinstance(events[0], json_rpc.Malformed) else None
    return web.Response(body=reply or b"", status=400, content_type="application/json")
