"""A proxy in front of a server, which loses connections at a chosen moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CHUNK = 65536


class TcpProxy:
    """Passes bytes on until it is told otherwise. `address` is what clients connect to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.refuses = False
        """New connections are closed at once."""
        self.lost_answers = 0
        self._marked: bytes | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._links:
            await asyncio.wait(self._links, timeout=10)

    def cut(self) -> None:
        """Close every connection."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def lose_answer_to(self, mark: bytes) -> None:
        """Let the next bytes that contain `mark` through to the server, and cut their connection instead of passing the
        answer on."""
        self._marked = mark

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        task.add_done_callback(self._links.discard)
        if self.refuses:
            writer.transport.abort()
            return
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, upstream}
        is_marked = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, upstream, is_marked))
                group.create_task(self._pass_back(upstream_reader, writer, upstream, is_marked))
        finally:
            self._writers -= {writer, upstream}

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_marked: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if self._marked is not None and self._marked in data:
                    self._marked = None
                    is_marked.set()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _pass_back(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamWriter,
        is_marked: asyncio.Event,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if is_marked.is_set():
                    self.lost_answers += 1
                    upstream.transport.abort()
                    writer.transport.abort()
                    return
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def tcp_proxy(port: int) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy(port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
