"""Frames over plain HTTP, both sides: a POST brings a frame to the server, an event stream carries the answers. The
first POST opens a connection: it is answered by an event stream whose `Makai-Connection` header names it. Later POSTs
name the connection and are answered 202 as soon as the server has taken their frame; what it says to them arrives on
the stream. The stream ends when the server closes the channel; the client's next frame opens another one."""

from __future__ import annotations

import asyncio
import contextlib
import io
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Final

import aiohttp
from aiohttp import web

from makai.aio.cancellation import RunOnce
from makai.aio.http_body import read_http_body
from makai.aio.pipes import wake
from makai.core.access import Caller
from makai.core.errors import ChannelClosed, ParseError, TransportError
from makai.core.secret import Secret
from makai.transports.channel import MAX_FRAME_BYTES, Channel, Oversized, ServeCaller
from makai.transports.connection import serve_to_the_end
from makai.transports.http_guard import BODY_DEADLINE_S, caller_of, refused, unsendable_header
from makai.wire.sse import SSEDecoder

CONNECTION_HEADER: Final = "Makai-Connection"
KEEPALIVE_S: Final = 15.0
MAX_CONNECTIONS: Final = 512
CLOSE_DEADLINE_S: Final = 5.0
CONNECT_DEADLINE_S: Final = 10.0
POST_DEADLINE_S: Final = 60.0
"""How long the server may take to accept a frame; it does so at once unless a slow reader holds it up: this client."""

_COMMENT: Final = b": keep-alive\n\n"
_MAX_WAITING_POSTS: Final = 64
_GONE: Final = "The event stream has ended."
_ESCAPED_GROWTH: Final = 3
"""U+0085 has two bytes in UTF-8 and six when the server escapes it."""
_FIELD_NAME: Final = len(b"data: ")
_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold small events back
}


def encode_frames(frames: Sequence[bytes]) -> bytes:
    """One `data:` event per frame; every reader gets the JSON value that was sent. U+2028, U+2029 and U+0085 are
    escaped: readers that split lines the Unicode way would break an event there."""
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
        serve: ServeCaller,
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
        body = await read_http_body(request.content, self._max_frame_bytes, BODY_DEADLINE_S)
        if isinstance(body.failure, TimeoutError):
            return refused(408, "invalid_request", f"The request body took longer than {BODY_DEADLINE_S:g} s.")
        frame = body.complete()
        if body.is_cut:
            return refused(413, "invalid_request", f"A frame has at most {self._max_frame_bytes} bytes.")
        connection_id = request.headers.get(CONNECTION_HEADER)
        if connection_id is None:
            return await self._open(request, frame)
        return await self._deliver(connection_id, frame, caller_of(request))

    async def close(self) -> None:
        """End every stream; the servers of these connections see a closed channel."""
        await asyncio.gather(*(channel.close() for channel in list(self._connections.values())))

    async def _open(self, request: web.Request, frame: bytes) -> web.StreamResponse:
        if len(self._connections) >= self._max_connections:
            return refused(503, "overloaded", "Too many connections are open.")
        connection_id = secrets.token_hex(16)
        response = web.StreamResponse(headers={**_HEADERS, CONNECTION_HEADER: connection_id})
        caller = caller_of(request)
        channel = _ServerChannel(request, response, frame, self._max_frame_bytes, caller)
        self._connections[connection_id] = channel
        try:
            await response.prepare(request)
            await channel.write(_COMMENT)  # aiohttp keeps the head back until there is something to send with it
            keepalive = asyncio.create_task(channel.keep_alive(self._keepalive_s))
            try:
                await serve_to_the_end(lambda opened: self._serve(opened, caller), channel)
            finally:
                keepalive.cancel()
                await asyncio.gather(keepalive, return_exceptions=True)
        except ChannelClosed:
            pass  # the client hung up before it was served
        finally:
            del self._connections[connection_id]
            channel.end()
        return response

    async def _deliver(self, connection_id: str, frame: bytes, caller: Caller) -> web.Response:
        channel = self._connections.get(connection_id)
        if channel is not None and channel.caller != caller:
            channel = None  # another token must not speak on this connection
        if channel is not None and len(channel.posted) >= _MAX_WAITING_POSTS:
            return refused(429, "overloaded", "Too many requests of this connection are waiting.")
        if channel is None or not await channel.deliver(frame):
            return refused(404, "stream_not_found", "No such connection; it has ended, or it never was.")
        return web.Response(status=202)


class _ServerChannel:
    """One event stream and the frames that were posted to it."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        first_frame: bytes,
        max_frame_bytes: int,
        caller: Caller,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.caller = caller
        self._request = request
        self._response = response
        self._turn = asyncio.Lock()
        self._ended = False
        self._finish_once = RunOnce(self._finish, "makai-sse-close")
        # Frames that the server has not taken, each with the answer its POST waits for: whether it was taken.
        loop = asyncio.get_running_loop()
        self.posted: deque[tuple[bytes, asyncio.Future[bool]]] = deque([(first_frame, loop.create_future())])
        self._receiver: asyncio.Future[None] | None = None

    async def deliver(self, frame: bytes) -> bool:
        """Whether the server has taken `frame`. If it closes first, it has not, and the client may post it again."""
        if self._ended:
            return False
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.posted.append((frame, taken))
        wake(self._receiver)
        return await taken

    async def receive(self) -> bytes | Oversized | None:
        while not self._ended:
            while self.posted:
                frame, taken = self.posted.popleft()
                if not taken.cancelled():  # its POST hung up before the server took it
                    taken.set_result(True)
                    return frame
            self._receiver = asyncio.get_running_loop().create_future()
            await self._receiver
        return None

    async def send(self, frames: Sequence[bytes]) -> None:
        await self.write(encode_frames(frames))

    async def keep_alive(self, interval_s: float) -> None:
        """Show proxies and the client that the stream lives, and notice when the client does not."""
        with contextlib.suppress(ChannelClosed):
            while True:
                await asyncio.sleep(interval_s)
                await self.write(_COMMENT)

    async def close(self, reason: str = "") -> None:
        self.end()
        await self._finish_once()

    def lose(self) -> None:
        self.end()
        if (transport := self._request.transport) is not None:
            transport.abort()

    async def write(self, data: bytes) -> None:
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
        while self.posted:
            _, taken = self.posted.popleft()
            if not taken.done():
                taken.set_result(False)
        wake(self._receiver)


async def connect_sse(
    url: str,
    token: Secret | None = None,
    *,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    deadline_s: float = CONNECT_DEADLINE_S,
) -> Channel:
    """A channel to the server at `url`; the first `send` connects. The token travels in the `Authorization` header."""
    return _ClientChannel(url, token, max_frame_bytes, deadline_s)


class _Stream:
    def __init__(self, response: aiohttp.ClientResponse, max_frame_bytes: int) -> None:
        self.id = response.headers[CONNECTION_HEADER]
        self.response = response
        self.decoder = SSEDecoder(_ESCAPED_GROWTH * max_frame_bytes + _FIELD_NAME)


class _ClientChannel:
    def __init__(self, url: str, token: Secret | None, max_frame_bytes: int, deadline_s: float) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._url = url
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token.reveal()}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=deadline_s)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout)
        self._turn = asyncio.Lock()
        self._closed = False
        # The last one takes new frames; earlier ones have ended, but not everything in them has been received.
        self._streams: deque[_Stream] = deque()
        self._frames: deque[bytes] = deque()
        self._receiver: asyncio.Future[None] | None = None

    async def receive(self) -> bytes | Oversized | None:
        while not self._closed:
            if self._frames:
                return self._frames.popleft()
            if self._streams:
                await self._read(self._streams[0])
            else:
                self._receiver = asyncio.get_running_loop().create_future()
                await self._receiver
        return None

    async def send(self, frames: Sequence[bytes]) -> None:
        async with self._turn:
            for frame in frames:
                await self._post(frame)

    async def close(self, reason: str = "") -> None:
        self._closed = True
        wake(self._receiver)
        self._frames.clear()
        while self._streams:
            self._streams.popleft().response.close()
        await self._session.close()

    async def _read(self, stream: _Stream) -> None:
        """Take what `stream` has; at its end forget it, and when it broke close for good."""
        try:
            data = await stream.response.content.readany()
            self._frames.extend(stream.decoder.feed_data(data))
        except (aiohttp.ClientError, ConnectionError, ParseError):
            # Answers are missing. Only a new channel can start from a known state.
            await self.close()
            return
        if not data and self._streams and self._streams[0] is stream:
            self._streams.popleft()
            stream.response.release()

    async def _post(self, frame: bytes) -> None:
        """Post to the open stream, or open one. The server refuses a stream it has ended, so no frame gets lost."""
        if self._closed:
            raise ChannelClosed("The channel is closed.")
        if self._streams:
            response = await self._request(frame, {CONNECTION_HEADER: self._streams[-1].id})
            response.release()
            if response.status == 202:
                return
            if response.status != 404:
                raise self._refused(response.status)
        response = await self._request(frame, {})
        if response.status != 200 or CONNECTION_HEADER not in response.headers:
            response.close()
            raise self._refused(response.status)
        self._streams.append(_Stream(response, self.max_frame_bytes))
        wake(self._receiver)

    async def _request(self, frame: bytes, headers: dict[str, str]) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(POST_DEADLINE_S):
                # As a file, a large body is written in pieces and does not hold up the loop.
                body = io.BytesIO(frame)
                return await self._session.post(self._url, data=body, headers=headers, allow_redirects=False)
        except TimeoutError:
            raise TransportError(f"{self._url} did not answer in time.") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            if self._closed:
                raise ChannelClosed("The channel is closed.") from None
            raise TransportError(f"Could not reach {self._url}: {error}.") from None
        except ValueError:
            raise unsendable_header() from None

    def _refused(self, status: int) -> TransportError:
        hint = "Check the token." if status in (401, 403) else None
        return TransportError(f"{self._url} refused a frame with HTTP {status}.", hint=hint)
