"""A WebSocket client that does as little as possible: many of them must fit beside the server they measure.

In: bytes of a socket. Out: whole messages, as bytes, to the owner of the client. It knows RFC 6455 as far as a server
uses it without compression, and nothing of what is said.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
from collections.abc import Callable
from typing import Any

OnMessages = Callable[[list[bytes]], None]
"""What came with one read of the socket, in order."""
_CLOSE = 0x88
_PING = 0x89


class Connection(asyncio.Protocol):
    """One connection. `closed` is done when it is over, with the code the server gave, or None."""

    def __init__(self, port: int, token: str, path: str, on_messages: OnMessages) -> None:
        self._head = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
            "Sec-WebSocket-Protocol: minicodex.v1\r\n\r\n"
        ).encode()
        self._unread = b""
        self._close_code: int | None = None
        self.on_messages = on_messages
        loop = asyncio.get_running_loop()
        self.upgraded: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[int | None] = loop.create_future()

    def say(self, kind: str, **fields: Any) -> None:
        """Send a command."""
        self._send(0x81, json.dumps({"type": kind, **fields}).encode())

    def pause(self) -> None:
        """Read nothing more."""
        self._transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def hang_up(self) -> None:
        """Without a word."""
        self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._head)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(self._close_code)
        if not self.upgraded.done():
            self.upgraded.set_exception(RuntimeError("the server hung up"))

    def data_received(self, data: bytes) -> None:
        data = self._unread + data if self._unread else data
        at = 0
        if not self.upgraded.done():
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._unread = data
                return
            if not data.startswith(b"HTTP/1.1 101 "):
                self.upgraded.set_exception(RuntimeError(f"no upgrade: {data[:200]!r}"))
                return
            self.upgraded.set_result(None)
            at = end + 4
        messages, at = self._messages(data, at)
        self._unread = data[at:]
        if messages:
            self.on_messages(messages)

    def _messages(self, data: bytes, at: int) -> tuple[list[bytes], int]:
        messages = []
        size = len(data)
        while size >= at + 2:
            first, length = data[at], data[at + 1]
            start = at + 2
            if length == 126:
                start, length = at + 4, int.from_bytes(data[at + 2 : at + 4], "big")
            elif length == 127:
                start, length = at + 10, int.from_bytes(data[at + 2 : at + 10], "big")
            if size < start or size < start + length:
                break
            at = start + length
            if first == 0x81:
                messages.append(data[start:at])
            elif first == _PING:
                self._send(0x8A, data[start:at])
            elif first == _CLOSE:
                self._close_code = int.from_bytes(data[start : start + 2], "big") if length else None
                self._transport.close()
        return messages, at

    def _send(self, first: int, payload: bytes) -> None:
        # A client must mask what it sends; a mask of zeroes leaves it as it is.
        length = len(payload)
        size = bytes((0x80 | length,)) if length < 126 else bytes((0x80 | 126,)) + length.to_bytes(2, "big")
        self._transport.write(bytes((first,)) + size + bytes(4) + payload)


async def connect(
    port: int, token: str, path: str, on_messages: OnMessages, receive_buffer: int | None = None
) -> Connection:
    """A connection whose upgrade is done. A small `receive_buffer` lets the server notice who does not read."""
    loop = asyncio.get_running_loop()
    dialling = socket.socket()
    dialling.setblocking(False)
    if receive_buffer is not None:
        dialling.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await loop.sock_connect(dialling, ("127.0.0.1", port))
    _, connection = await loop.create_connection(lambda: Connection(port, token, path, on_messages), sock=dialling)
    await connection.upgraded
    return connection
