"""Clients that do as little as possible: they send a request and count what comes back, in bytes.

In: bytes of a socket. Out: for every stream its deltas and when the first one came. No JSON is parsed: a delta is
recognised by how its message begins. What a gateway costs is measured elsewhere; these only have to be fast and sure.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import uuid
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

from stream.traffic import MODEL_ID

PROMPT = "Tell me a long story."
STAMP_MARK = b'"@'
"""The first delta's text is the time upstream wrote it, behind an @ (`stream.traffic`)."""
UUID_LENGTH = 36


@dataclass
class Stream:
    """One answer. `ended` fails when the gateway says anything but a complete answer."""

    ended: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    deltas: int = 0
    first_delta_ns: int = 0

    def see_stamp(self, message: bytes) -> None:
        """Note how late the first delta is, if this message carries it."""
        at = message.find(STAMP_MARK)
        if at >= 0:
            stamp = message[at + len(STAMP_MARK) : message.index(b'"', at + len(STAMP_MARK))]
            self.first_delta_ns = monotonic_ns() - int(stamp)

    def finish(self) -> None:
        """The gateway said that this was all."""
        if not self.ended.done():
            self.ended.set_result(None)

    def fail(self, why: str) -> None:
        """This will not become a complete answer."""
        if not self.ended.done():
            self.ended.set_exception(RuntimeError(why))


def stream_request(stream_id: str) -> bytes:
    """A `stream_request` of the Makai protocol in proxy encoding."""
    payload = {"model_ref": f"llama.cpp/openai-completions@{MODEL_ID}", "context": {"messages": [_message()]}}
    envelope = {
        "type": "stream_request",
        "stream_id": stream_id,
        "message_id": str(uuid.uuid4()),
        "sequence": 1,
        "timestamp": 0,
        "version": 1,
        "encoding": "proxy",
        "payload": payload,
    }
    return json.dumps(envelope, separators=(",", ":")).encode()


def chat_request() -> bytes:
    """The same for an OpenAI-compatible gateway."""
    return json.dumps({"model": MODEL_ID, "stream": True, "messages": [_message()]}).encode()


def _message() -> dict[str, str]:
    return {"role": "user", "content": PROMPT}


# ---------------------------------------------------------------- WebSocket


class WebSocketReader(asyncio.Protocol):
    """A WebSocket connection (RFC 6455) with any number of streams. Reads frame headers and nothing more."""

    DELTA = b'{"type":"text_delta","stream_id":"'
    RESULT = b'{"type":"result","stream_id":"'
    FAILURES = (b'{"type":"nack"', b'{"type":"stream_error"', b'{"type":"error"')

    def __init__(self, port: int, key: str) -> None:
        self._head = (
            f"GET /v1/makai HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
            "Sec-WebSocket-Protocol: makai.v1\r\n\r\n"
        ).encode()
        self._unread = b""
        self._streams: dict[bytes, Stream] = {}
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open_stream(self) -> Stream:
        """Ask for an answer."""
        stream_id = str(uuid.uuid4())
        stream = self._streams[stream_id.encode()] = Stream()
        request = stream_request(stream_id)
        # A client must mask what it sends; a mask of zeroes leaves it as it is.
        self._transport.write(bytes((0x81, 0x80 | 126)) + len(request).to_bytes(2, "big") + bytes(4) + request)
        return stream

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._head)

    def connection_lost(self, exc: Exception | None) -> None:
        for stream in self._streams.values():
            stream.fail("the gateway hung up")

    def data_received(self, data: bytes) -> None:
        data = self._unread + data
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
        while (message_end := self._frame(data, at)) is not None:
            start, at = message_end
            self._message(data, start, at)
        self._unread = data[at:]

    def _frame(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Where the next frame's payload starts and ends; None when it has not arrived."""
        if len(data) < at + 2:
            return None
        start, length = at + 2, data[at + 1]
        if length == 126:
            start, length = at + 4, int.from_bytes(data[at + 2 : at + 4], "big")
        elif length == 127:
            start, length = at + 10, int.from_bytes(data[at + 2 : at + 10], "big")
        return (start, start + length) if len(data) >= start + length else None

    def _message(self, data: bytes, start: int, end: int) -> None:
        if data.startswith(self.DELTA, start):
            id_start = start + len(self.DELTA)
            stream = self._streams[data[id_start : id_start + UUID_LENGTH]]
            stream.deltas += 1
            if stream.deltas == 1:
                stream.see_stamp(data[start:end])
        elif data.startswith(self.RESULT, start):
            id_start = start + len(self.RESULT)
            self._streams.pop(data[id_start : id_start + UUID_LENGTH]).finish()
        elif data.startswith(self.FAILURES, start):
            for stream in self._streams.values():
                stream.fail(data[start : min(end, start + 300)].decode())


# ---------------------------------------------------------------- HTTP


class HttpReader(asyncio.Protocol):
    """One POST that is answered by an event stream in HTTP chunks: either dialect, one connection per stream."""

    def __init__(self, port: int, key: str, *, makai: bool) -> None:
        body = stream_request(str(uuid.uuid4())) if makai else chat_request()
        path = "/v1/makai" if makai else "/v1/chat/completions"
        self._request = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        ).encode() + body
        self._makai = makai
        self._last_event = b'data: {"type":"result"' if makai else b"data: [DONE]"
        self._raw = b""
        self._events = b""
        self._head_read = False
        self.stream = Stream()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stream.fail(f"the gateway hung up after {self._events[-300:]!r}")

    def data_received(self, data: bytes) -> None:
        self._raw += data
        if not self._head_read and not self._read_head():
            return
        self._read_chunks()
        end = self._events.rfind(b"\n\n") + 2
        if end > 1:
            events, self._events = self._events[:end], self._events[end:]
            self._count(events)

    def _read_head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self._raw.startswith(b"HTTP/1.1 200 "):
            self.stream.fail(f"refused: {self._raw[:500]!r}")
            self._transport.abort()
            return False
        self._raw = self._raw[end + 4 :]
        self._head_read = True
        return True

    def _read_chunks(self) -> None:
        pieces = [self._events]
        at = 0
        while (line_end := self._raw.find(b"\r\n", at)) >= 0:
            start = line_end + 2
            end = start + int(self._raw[at:line_end], 16)
            if len(self._raw) < end + 2:
                break
            pieces.append(self._raw[start:end])
            at = end + 2
        self._raw = self._raw[at:]
        self._events = b"".join(pieces)

    def _count(self, events: bytes) -> None:
        if self._makai:
            deltas = events.count(b'data: {"type":"text_delta"')
        else:
            deltas = events.count(b'"content":"') - events.count(b'"content":""')
        if deltas and not self.stream.deltas:
            self.stream.see_stamp(events)
        self.stream.deltas += deltas
        if self._last_event in events:
            self.stream.finish()
            self._transport.close()
