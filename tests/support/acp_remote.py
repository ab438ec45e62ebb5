"""Channels to a server's `/acp`, as a client of the protocol's remote transport has them: over WebSocket, and over HTTP
with event streams. `AcpClient` speaks over both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from makai.core.errors import ChannelClosed
from makai.transports.channel import MAX_FRAME_BYTES, Channel, Oversized
from makai.wire.sse import SSEDecoder


async def remote_channel(kind: str, http: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> Channel:
    if kind == "websocket":
        return _WebSocketChannel(await http.ws_connect(url, headers=headers))
    return _HttpChannel(http, url, headers)


class _WebSocketChannel:
    max_frame_bytes = MAX_FRAME_BYTES

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def receive(self) -> bytes | Oversized | None:
        message = await self._socket.receive()
        return message.data.encode() if message.type is aiohttp.WSMsgType.TEXT else None

    async def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            await self._socket.send_str(frame.decode())

    async def close(self, reason: str = "") -> None:
        await self._socket.close()


class _HttpChannel:
    """Opens the stream of a session when it first hears of it, and before it says anything to it."""

    max_frame_bytes = MAX_FRAME_BYTES

    def __init__(self, http: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> None:
        self._http = http
        self._url = url
        self._headers = dict(headers)
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams: dict[str | None, asyncio.Task[None]] = {}
        self._asked_by: dict[Any, str | None] = {}

    async def receive(self) -> bytes | Oversized | None:
        return await self._received.get()

    async def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            message = msgspec.json.decode(frame)
            if "method" in message:
                session_id = message.get("params", {}).get("sessionId")
            else:
                session_id = self._asked_by.get(message["id"])
            await self._post(frame, session_id)

    async def close(self, reason: str = "") -> None:
        async with self._http.delete(self._url, headers=self._headers):
            pass
        await asyncio.gather(*self._streams.values())
        await self._received.put(None)

    async def _post(self, frame: bytes, session_id: str | None) -> None:
        headers = {**self._headers, "Content-Type": "application/json"}
        if session_id is not None:
            await self._open(session_id)
            headers["Acp-Session-Id"] = session_id
        async with self._http.post(self._url, data=frame, headers=headers) as response:
            if response.status == 200:
                self._headers["Acp-Connection-Id"] = response.headers["Acp-Connection-Id"]
                await self._open(None)
                await self._received.put(await response.read())
            elif response.status != 202:
                raise ChannelClosed(f"{response.status}: {await response.text()}")

    async def _open(self, session_id: str | None) -> None:
        if session_id not in self._streams:
            named = {} if session_id is None else {"Acp-Session-Id": session_id}
            headers = {**self._headers, "Accept": "text/event-stream", **named}
            response = await self._http.get(self._url, headers=headers)
            assert response.status == 200, await response.text()
            self._streams[session_id] = asyncio.create_task(self._read(response, session_id))

    async def _read(self, response: aiohttp.ClientResponse, session_id: str | None) -> None:
        decoder = SSEDecoder(MAX_FRAME_BYTES)
        while data := await response.content.readany():
            for frame in decoder.feed_data(data):
                message = msgspec.json.decode(frame)
                if "method" in message and "id" in message:
                    self._asked_by[message["id"]] = session_id
                elif isinstance(made := message.get("result"), dict) and "sessionId" in made:
                    await self._open(made["sessionId"])
                await self._received.put(frame)
