"""Frames over plain HTTP, the client side: frames leave by POST, answers arrive on an event stream.

The server ends a stream when no request is running, and the next frame opens another one.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp

from makai.core.errors import ChannelClosed, ParseError, TransportError
from makai.core.secret import Secret
from makai.transports.channel import MAX_FRAME_BYTES, Channel, Oversized
from makai.transports.sse import CONNECTION_HEADER
from makai.wire.sse import SSEDecoder

CONNECT_DEADLINE_S: Final = 10.0
POST_DEADLINE_S: Final = 60.0
"""How long the server may take to accept a frame; it does so at once unless it is held up by a slow reader: us."""

_ESCAPED_GROWTH: Final = 3
"""U+0085 has two bytes in UTF-8 and six when the server escapes it."""
_FIELD_NAME: Final = len(b"data: ")


async def connect_sse(
    url: str,
    token: Secret | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    max_frame_bytes: int = MAX_FRAME_BYTES,
    deadline_s: float = CONNECT_DEADLINE_S,
) -> Channel:
    """A channel to the server at `url`; the first `send` connects. The token travels in the `Authorization` header."""
    return _ClientChannel(url, token, dict(headers or {}), max_frame_bytes, deadline_s)


class _Stream:
    """One answer that is being read."""

    def __init__(self, response: aiohttp.ClientResponse, max_frame_bytes: int) -> None:
        self.id = response.headers[CONNECTION_HEADER]
        self.response = response
        self.decoder = SSEDecoder(_ESCAPED_GROWTH * max_frame_bytes + _FIELD_NAME)


class _ClientChannel:
    def __init__(
        self, url: str, token: Secret | None, headers: dict[str, str], max_frame_bytes: int, deadline_s: float
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._url = url
        self._token = token
        self._headers = headers
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=deadline_s))
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
        self._wake_receiver()
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
        self._wake_receiver()

    async def _request(self, frame: bytes, extra_headers: dict[str, str]) -> aiohttp.ClientResponse:
        headers = {**self._headers, **extra_headers, "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token.reveal()}"
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

    def _refused(self, status: int) -> TransportError:
        hint = "Check the token." if status in (401, 403) else None
        return TransportError(f"{self._url} refused a frame with HTTP {status}.", hint=hint)

    def _wake_receiver(self) -> None:
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)
