"""Frames over plain HTTP, the server side: a POST brings a frame, an event stream carries the answers.

The first POST opens a connection: it is answered by an event stream whose `Makai-Connection` header names it. Later
POSTs name the connection and are answered 202 as soon as the server has taken their frame; what it says to them arrives
on the stream. The stream ends when the server closes the channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from makai.core.errors import ChannelClosed
from makai.transports.channel import MAX_FRAME_BYTES, Oversized, Serve
from makai.transports.serving import serve_to_the_end

CONNECTION_HEADER: Final = "Makai-Connection"
KEEPALIVE_S: Final = 15.0
MAX_CONNECTIONS: Final = 512
BODY_DEADLINE_S: Final = 30.0
CLOSE_DEADLINE_S: Final = 5.0

_COMMENT: Final = b": keep-alive\n\n"
_MAX_WAITING_POSTS: Final = 64
_GONE: Final = "The event stream has ended."
_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold small events back
}


def encode_frames(frames: Sequence[bytes]) -> bytes:
    """One `data:` event per frame; every reader gets the JSON value that was sent.

    U+2028, U+2029 and U+0085 are escaped: readers that split lines the Unicode way would break an event there.
    """
    if not frames:
        return b""
    events = b"data: " + b"\n\ndata: ".join(frames) + b"\n\n"
    if b"\r" in events or events.count(b"\n") > 2 * len(frames):
        # Outside of strings JSON may be laid out over several lines; inside of them it cannot contain a line break.
        return encode_frames([frame.replace(b"\r", b" ").replace(b"\n", b" ") for frame in frames])
    if not events.isascii():
        events = (
            events.replace(b"\xe2\x80\xa8", b"\\u2028")
            .replace(b"\xe2\x80\xa9", b"\\u2029")
            .replace(b"\xc2\x85", b"\\u0085")
        )
    return events


class SSEServer:
    """The POST route, and the connections that are open on it."""

    def __init__(
        self,
        serve: Serve,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_connections: int = MAX_CONNECTIONS,
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
        self._serve = serve
        self._max_frame_bytes = max_frame_bytes
        self._max_connections = max_connections
        self._keepalive_s = keepalive_s
        self._connections: dict[str, _ServerChannel] = {}

    @property
    def live(self) -> int:
        return len(self._connections)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.content_type != "application/json":
            # Also what keeps other web pages out: a form or text/plain needs no permission from us, JSON does.
            return _refused(415, "invalid_request", "Send application/json.")
        try:
            async with asyncio.timeout(BODY_DEADLINE_S):
                frame = await _read_body(request, self._max_frame_bytes)
        except TimeoutError:
            return _refused(408, "invalid_request", f"The request body took longer than {BODY_DEADLINE_S:g} s.")
        if frame is None:
            return _refused(413, "invalid_request", f"A frame has at most {self._max_frame_bytes} bytes.")
        connection_id = request.headers.get(CONNECTION_HEADER)
        if connection_id is None:
            return await self._open(request, frame)
        return await self._deliver(connection_id, frame)

    async def close(self) -> None:
        """End every stream; the servers of these connections see a closed channel."""
        await asyncio.gather(*(channel.close() for channel in list(self._connections.values())))

    async def _open(self, request: web.Request, frame: bytes) -> web.StreamResponse:
        if len(self._connections) >= self._max_connections:
            return _refused(503, "overloaded", "Too many connections are open.")
        connection_id = secrets.token_hex(16)
        response = web.StreamResponse(headers={**_HEADERS, CONNECTION_HEADER: connection_id})
        channel = _ServerChannel(request, response, frame, self._max_frame_bytes)
        self._connections[connection_id] = channel
        try:
            await response.prepare(request)
            await channel.send_comment()  # aiohttp keeps the head back until there is something to send with it
            keepalive = asyncio.create_task(channel.keep_alive(self._keepalive_s))
            try:
                await serve_to_the_end(self._serve, channel)
            finally:
                keepalive.cancel()
                await asyncio.gather(keepalive, return_exceptions=True)
        except ChannelClosed:
            pass  # the client hung up before it was served
        finally:
            del self._connections[connection_id]
            channel.end()
        return response

    async def _deliver(self, connection_id: str, frame: bytes) -> web.Response:
        channel = self._connections.get(connection_id)
        if channel is None:
            return _no_such_connection()
        if channel.waiting >= _MAX_WAITING_POSTS:
            return _refused(429, "overloaded", "Too many requests of this connection are waiting.")
        if not await channel.deliver(frame):
            return _no_such_connection()
        return web.Response(status=202)


class _ServerChannel:
    """One event stream and the frames that were posted to it."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, first_frame: bytes, max_frame_bytes: int
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._request = request
        self._response = response
        self._turn = asyncio.Lock()
        self._ended = False
        self._closing: asyncio.Task[None] | None = None
        # Each frame with the answer its POST waits for: whether the server has taken it.
        loop = asyncio.get_running_loop()
        self._posted: deque[tuple[bytes, asyncio.Future[bool]]] = deque([(first_frame, loop.create_future())])
        self._receiver: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """How many posted frames the server has not taken yet."""
        return len(self._posted)

    async def deliver(self, frame: bytes) -> bool:
        """Whether the server has taken `frame`. If it closes first, it has not, and the client may post it again."""
        if self._ended:
            return False
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._posted.append((frame, taken))
        _wake(self._receiver)
        return await taken

    async def receive(self) -> bytes | Oversized | None:
        while not self._ended:
            while self._posted:
                frame, taken = self._posted.popleft()
                if not taken.cancelled():  # its POST hung up before the server took it
                    taken.set_result(True)
                    return frame
            self._receiver = asyncio.get_running_loop().create_future()
            await self._receiver
        return None

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._write(encode_frames(frames))

    async def send_comment(self) -> None:
        """Send what every reader skips."""
        await self._write(_COMMENT)

    async def keep_alive(self, interval_s: float) -> None:
        """Show proxies and the client that the stream lives, and notice when the client does not."""
        with contextlib.suppress(ChannelClosed):
            while True:
                await asyncio.sleep(interval_s)
                await self.send_comment()

    async def close(self, reason: str = "") -> None:
        self.end()
        if self._closing is None:
            self._closing = asyncio.create_task(self._finish())
        await asyncio.shield(self._closing)

    def lose(self) -> None:
        self.end()
        if (transport := self._request.transport) is not None:
            transport.abort()

    async def _write(self, data: bytes) -> None:
        async with self._turn:
            if self._ended:
                raise ChannelClosed(_GONE)
            try:
                await self._response.write(data)
            except ConnectionError:
                self.end()
                raise ChannelClosed(_GONE) from None
            if self._request.transport is None:  # aiohttp ends the wait without an error when we abort the connection
                raise ChannelClosed(_GONE)

    async def _finish(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S), self._turn:
                if self._response.prepared:
                    await self._response.write_eof()
        except TimeoutError:
            self.lose()  # the client does not read
        except ConnectionError:
            pass  # the client has gone

    def end(self) -> None:
        """Take and give nothing more; POSTs that are waiting learn that they came too late."""
        self._ended = True
        while self._posted:
            _, taken = self._posted.popleft()
            if not taken.done():
                taken.set_result(False)
        _wake(self._receiver)


async def _read_body(request: web.Request, limit: int) -> bytes | None:
    """The request's body; `None` as soon as it exceeds `limit`."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _no_such_connection() -> web.Response:
    return _refused(404, "stream_not_found", "No such connection; it has ended, or it never was.")


def _refused(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
