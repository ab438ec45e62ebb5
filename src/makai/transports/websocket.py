"""Frames over WebSocket, both sides: one frame per text message; the Makai protocol's subprotocol is `makai.v1`. The
server closes with 1003 for a binary message, 1007 for invalid UTF-8, 1009 for a message above the limit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web

from makai.core.errors import ChannelClosed, TransportError
from makai.core.secret import Secret
from makai.transports.channel import MAX_FRAME_BYTES, Oversized
from makai.transports.connection import ImmediateChannel, serve_to_the_end
from makai.transports.http_guard import refused, unsendable_header
from makai.transports.websocket_frames import TextFrameEncoder

SUBPROTOCOL: Final = "makai.v1"
HEARTBEAT_S: Final = 60.0
"""The server pings after this long without input; a peer that then stays silent for half of it is gone."""
CLOSE_DEADLINE_S: Final = 5.0
CONNECT_DEADLINE_S: Final = 10.0

_INLINE_BYTES: Final = 64 * 1024
"""Frames above this are compressed in a thread: the loop must not stand still for the other connections."""
_MAX_REASON_BYTES: Final = 123
"""A close frame has 125 bytes (RFC 6455 section 5.5), two of them for the code."""
_WINDOW_BITS: Final = 15
_GONE: Final = "The WebSocket peer is gone."


class WebSocketChannel(ImmediateChannel, Protocol):
    """A channel for servers: they can write without waiting, and say why they hang up."""

    async def close_with(self, code: int, reason: str) -> None:
        """Close with a code of RFC 6455 section 7.4, or of the protocol's own."""


async def serve_websocket(
    request: web.Request,
    serve: Callable[[WebSocketChannel], Awaitable[None]],
    *,
    subprotocol: str = SUBPROTOCOL,
    may_be_left_out: bool = False,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    heartbeat_s: float = HEARTBEAT_S,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Upgrade `request` and serve it; the response to return from its handler. `may_be_left_out`: a client that offers
    no subprotocol at all is served too. `headers` are added to the answer to the upgrade."""
    socket = web.WebSocketResponse(
        protocols=(subprotocol,),
        timeout=CLOSE_DEADLINE_S,
        heartbeat=heartbeat_s,
        max_msg_size=max_frame_bytes + 1,  # aiohttp refuses messages of exactly its limit
    )
    # aiohttp would log an offer without our subprotocol, and a browser's offer contains the token.
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if subprotocol not in map(str.strip, offered.split(",")) and (offered.strip() or not may_be_left_out):
        return _not_upgraded(f"Offer the WebSocket subprotocol {subprotocol}.")
    if not socket.can_prepare(request):
        return _not_upgraded("This is no WebSocket upgrade.")
    socket.headers.update(headers or {})
    await socket.prepare(request)
    await serve_to_the_end(serve, _ServerChannel(request, socket, max_frame_bytes))
    return socket


def _not_upgraded(message: str) -> web.Response:
    return refused(426, "invalid_request", message, {"Upgrade": "websocket", "Connection": "Upgrade"})


class _ServerChannel:
    """One upgraded connection; control frames are left to aiohttp."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._request = request
        self._socket = socket
        self._protocol = request.protocol
        self._turn = asyncio.Lock()
        self._ended = False
        no_takeover = "server_no_context_takeover" in socket.headers.get("Sec-WebSocket-Extensions", "")
        self._encoder = TextFrameEncoder(int(socket.compress), takeover=not no_takeover)

    async def receive(self) -> bytes | Oversized | None:
        if self._ended:
            return None
        message = await self._socket.receive()
        if message.type is WSMsgType.TEXT:
            return message.data.encode()  # type: ignore[no-any-return]
        self._ended = True
        if message.type is WSMsgType.BINARY:
            await self.close_with(WSCloseCode.UNSUPPORTED_DATA, "only text messages are understood")
        return None

    async def send(self, frames: Sequence[bytes]) -> None:
        if not self.send_at_once(frames):
            async with self._turn:
                await self._send_in_turn(frames)
        elif self._protocol.writing_paused:
            async with self._turn:
                await self._drain()

    def send_at_once(self, frames: Sequence[bytes]) -> bool:
        # Encoding and writing do not await, so they need no turn of their own unless a sender waits for one.
        if self._turn.locked() or self._protocol.writing_paused or self._is_long_work(frames):
            return False
        self._write(self._encoder.encode(frames))
        return True

    async def close(self, reason: str = "") -> None:
        await self.close_with(WSCloseCode.OK, reason)

    async def close_with(self, code: int, reason: str) -> None:
        self._ended = True
        try:
            # In turn, because aiohttp waits for the peer to read here, and cancelling one such wait cancels all.
            async with asyncio.timeout(CLOSE_DEADLINE_S), self._turn:
                await self._socket.close(code=code, message=_close_reason(reason))
        except TimeoutError:
            self.lose()  # the peer does not read

    def lose(self) -> None:
        self._ended = True
        if (transport := self._request.transport) is not None:
            transport.abort()

    def _is_long_work(self, frames: Sequence[bytes]) -> bool:
        return self._encoder.compresses and max(map(len, frames), default=0) > _INLINE_BYTES

    async def _send_in_turn(self, frames: Sequence[bytes]) -> None:
        if self._is_long_work(frames):
            try:
                data = await asyncio.to_thread(self._encoder.encode, frames)
            except BaseException:
                self._encoder = self._encoder.without_history()  # the thread still works on the old one
                raise
        else:
            data = self._encoder.encode(frames)
        self._write(data)
        await self._drain()

    def _write(self, data: bytes) -> None:
        """A whole batch in one piece. Its frames bypass aiohttp's writer, which would compress every one of them."""
        transport = self._request.transport
        if self._socket.closed or transport is None or transport.is_closing():
            raise ChannelClosed(_GONE)
        transport.write(data)

    async def _drain(self) -> None:
        try:
            # aiohttp waits like this after its own writes and has no public call for it.
            await self._protocol._drain_helper()
        except asyncio.CancelledError:
            # aiohttp would keep using the wait that was cancelled: the close that may follow would be cancelled by it.
            waiter = self._protocol._drain_waiter
            if waiter is not None and waiter.cancelled():
                self._protocol._drain_waiter = None
            raise
        except ConnectionError:
            raise ChannelClosed(_GONE) from None
        if self._request.transport is None:  # aiohttp ends the wait without an error when we abort the connection
            raise ChannelClosed(_GONE)


def _close_reason(reason: str) -> bytes:
    """`reason`, cut between two characters."""
    return reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()


class ConnectionState(StrEnum):
    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"


class WebSocketClient:
    """A channel to a makai server. `connect` once; after `close`, or when the server has gone, it is of no more use."""

    def __init__(
        self,
        url: str,
        token: Secret | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.state = ConnectionState.DISCONNECTED
        self._url = url
        self._token = token
        self._headers = dict(headers or {})
        self._turn = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    @property
    def close_code(self) -> int | None:
        """Why the connection ended, in the words of RFC 6455; `None` while it lasts."""
        return self._socket.close_code if self._socket else None

    async def connect(self, deadline_s: float = CONNECT_DEADLINE_S) -> None:
        if self.state is not ConnectionState.DISCONNECTED:
            raise TransportError(f"A WebSocket client connects once; this one is {self.state}.")
        self.state = ConnectionState.CONNECTING
        self._session = aiohttp.ClientSession()
        try:
            async with asyncio.timeout(deadline_s):
                self._socket = await self._upgrade(self._session)
        except BaseException as error:
            await self._session.close()
            self.state = ConnectionState.DISCONNECTED
            if isinstance(error, TimeoutError):
                raise TransportError(f"{self._url} did not answer within {deadline_s:g} s.") from None
            if isinstance(error, aiohttp.ClientError):
                raise _connect_error(self._url, error) from None
            if isinstance(error, ValueError):
                raise unsendable_header() from None
            raise
        self.state = ConnectionState.CONNECTED

    async def receive(self) -> bytes | Oversized | None:
        if self.state is not ConnectionState.CONNECTED or self._socket is None:
            return None
        message = await self._socket.receive()
        if message.type is WSMsgType.TEXT:
            return message.data.encode()  # type: ignore[no-any-return]
        await self._end(WSCloseCode.UNSUPPORTED_DATA if message.type is WSMsgType.BINARY else WSCloseCode.OK, "")
        return None

    async def send(self, frames: Sequence[bytes]) -> None:
        async with self._turn:
            if self.state is not ConnectionState.CONNECTED or self._socket is None:
                raise ChannelClosed(_GONE)
            try:
                for frame in frames:
                    await self._socket.send_frame(frame, WSMsgType.TEXT)
            except (ConnectionError, aiohttp.ClientError):
                raise ChannelClosed(_GONE) from None

    async def close(self, reason: str = "") -> None:
        await self._end(WSCloseCode.OK, reason)

    async def _upgrade(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        headers = self._headers
        if self._token:
            headers = {**headers, "Authorization": f"Bearer {self._token.reveal()}"}
        socket = await session.ws_connect(
            self._url,
            protocols=(SUBPROTOCOL,),
            headers=headers,
            compress=_WINDOW_BITS,
            max_msg_size=self.max_frame_bytes + 1,  # aiohttp refuses messages of exactly its limit
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_DEADLINE_S),
        )
        if socket.protocol != SUBPROTOCOL:
            await socket.close()
            raise TransportError(f"{self._url} speaks WebSocket, but not {SUBPROTOCOL}.")
        return socket

    async def _end(self, code: WSCloseCode, reason: str) -> None:
        """The close handshake, then the end of the socket; a second caller finds it done or under way."""
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            return
        self.state = ConnectionState.CLOSING
        try:
            if self._socket is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_DEADLINE_S):
                        await self._socket.close(code=code, message=_close_reason(reason))
        finally:
            if self._session is not None:
                await self._session.close()
            self.state = ConnectionState.CLOSED


async def connect_websocket(
    url: str,
    token: Secret | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    deadline_s: float = CONNECT_DEADLINE_S,
) -> WebSocketClient:
    """A connected client; the token travels in the `Authorization` header, never in the URL."""
    client = WebSocketClient(url, token, headers=headers, max_frame_bytes=max_frame_bytes)
    await client.connect(deadline_s)
    return client


def _connect_error(url: str, error: aiohttp.ClientError) -> TransportError:
    if isinstance(error, aiohttp.WSServerHandshakeError):
        hint = "Check the token." if error.status in (401, 403) else None
        return TransportError(f"{url} refused the connection with HTTP {error.status}.", hint=hint)
    return TransportError(f"Could not connect to {url}: {error}.")
