"""The least a fan-out on our HTTP library can be: a list of WebSockets and a loop that sends to each of them.

In: the same `send` that makai's session gets. Out: the same frames to everyone, without a log, a session, cursors,
capabilities, a guard or any notice of those who do not read. Its first line on stdout is its `Address`.

Run as `python -m fanout.floor`.
"""

from __future__ import annotations

import asyncio
import json
from time import monotonic, monotonic_ns
from typing import Any

import msgspec
import uvloop
from aiohttp import WSMsgType, web
from sessions.model import STAMP, Wish
from sessions.server import allow_many_sockets, announce, listener, until_stopped
from stream.cores import take_core
from stream.traffic import words

from makai.protocols.minicodex.frames import AssistantTextDeltaFrame, TurnDone
from makai.protocols.minicodex.states import rfc3339

RUN_ID = "00000000-0000-4000-8000-000000000001"
READY = '{"type":"session_details"}'
NOW = rfc3339(1_760_000_000_000)


class FanOut:
    """Everyone who is connected."""

    def __init__(self) -> None:
        self._sockets: list[web.WebSocketResponse] = []
        self._event_id = 0

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """One client; the one that says `send` starts the stream."""
        socket = web.WebSocketResponse(protocols=("minicodex.v1",))
        await socket.prepare(request)
        self._sockets.append(socket)
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                break
            command = json.loads(message.data)
            if command["type"] == "hello":
                await socket.send_str(READY)
            else:
                await self._talk(msgspec.json.decode(command["text"], type=Wish))
        return socket

    async def _talk(self, wish: Wish) -> None:
        said = words()
        due = monotonic() + wish.first_after_s
        for number in range(wish.deltas):
            text = said[number % len(said)]
            if wish.per_second:
                await asyncio.sleep(max(due - monotonic(), 0))
                due += 1 / wish.per_second
                text = f"{STAMP}{monotonic_ns()}{STAMP}{'.' * wish.padding}"
            await self._send(AssistantTextDeltaFrame(text=text, content_index=number % 2, **self._common()))
        await self._send(TurnDone(stop_reason="end_turn", **self._common()))

    async def _send(self, frame: msgspec.Struct) -> None:
        text = msgspec.json.encode(frame).decode()
        for socket in self._sockets:
            await socket.send_str(text)

    def _common(self) -> dict[str, Any]:
        self._event_id += 1
        return {"event_id": self._event_id, "ts": NOW, "run_id": RUN_ID}


async def serve() -> None:
    """Serve until told to stop."""
    app = web.Application()
    app.router.add_get("/ws", FanOut().serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    listening = listener()
    await web.SockSite(runner, listening).start()
    announce(listening.getsockname()[1])
    await until_stopped()
    await runner.cleanup()


if __name__ == "__main__":
    take_core("client")
    allow_many_sockets()
    uvloop.run(serve())
