"""A scripted HTTP upstream on loopback: raw asyncio, so that it can also misbehave.

A *script* is an async function that gets the request and a writer; helpers below write the usual things. The server
counts what it saw: requests, and connections that the client closed before the script ended.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import msgspec

DEADLINE_S = 60.0


class Request(msgspec.Struct):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Upstream:
    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.closed_by_client = asyncio.Event()


Script: TypeAlias = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def upstream(*scripts: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Upstream]:
    """Serve: the n-th request is answered by the n-th script, the last script repeats."""
    state = Upstream()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                request = await _read_request(reader)
                script = scripts[min(len(state.requests), len(scripts) - 1)]
                state.requests.append(request)
                await _perform(script, request, reader, writer, state)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            connections.discard(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    state.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


async def _perform(
    script: Script,
    request: Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    state: Upstream,
) -> None:
    """Run the script, and notice at once when the client hangs up meanwhile."""
    work = asyncio.ensure_future(script(request, writer))
    hangup = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({work, hangup}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            state.closed_by_client.set()
        else:
            await work
            await writer.drain()
    finally:
        for task in (work, hangup):
            task.cancel()
        await asyncio.gather(work, hangup, return_exceptions=True)


def head(status: int = 200, content_type: str = "text/event-stream", **headers: str) -> bytes:
    """An answer's head; the body ends with the connection."""
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nConnection: close\r\n{extra}\r\n".encode()


def answers(body: bytes, status: int = 200, content_type: str = "text/event-stream", **headers: str) -> Script:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(status, content_type, **headers) + body)

    return script


def refuses(status: int, body: bytes = b"{}", **headers: str) -> Script:
    return answers(body, status, "application/json", **headers)


def in_segments(
    body: bytes,
    segments: int,
    status: int = 200,
    content_type: str = "application/json",
    *,
    framing: Literal["length", "chunked", "close"] = "length",
    encoding: Literal["", "gzip", "deflate"] = "",
    sent: float = 1.0,
) -> Script:
    """A body that the client reads in so many segments. `sent` is the share of it that comes before the connection
    stays open in silence."""
    if encoding:
        body = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    size = -(-len(body) // segments)
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    headers: dict[str, str] = {"Content_Encoding": encoding} if encoding else {}
    match framing:
        case "length":
            headers["Content_Length"] = str(len(body))
        case "chunked":
            headers["Transfer_Encoding"] = "chunked"
            pieces = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\n\r\n"]

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(status, content_type, **headers))
        for piece in pieces[: round(len(pieces) * sent)]:
            writer.write(piece)
            await writer.drain()
            for _ in range(20):  # both sides share this loop, so the client reads the segment meanwhile
                await asyncio.sleep(0)
        if sent < 1:
            await asyncio.Event().wait()

    return script


def starts_then_hangs(body: bytes) -> Script:
    """A stream that begins and never goes on."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + body)
        await writer.drain()
        await asyncio.Event().wait()

    return script


def dies_after(body: bytes) -> Script:
    """A chunked stream whose connection breaks in the middle."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        start = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(start + f"{len(body):x}\r\n".encode() + body + b"\r\n")
        await writer.drain()
        writer.transport.abort()

    return script


def chat_stream(*texts: str, finish: str | None = "stop", done: bool = True) -> bytes:
    chunks: list[Any] = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    if finish:
        chunks.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    data = b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks)
    return data + (b"data: [DONE]\n\n" if done else b"")
