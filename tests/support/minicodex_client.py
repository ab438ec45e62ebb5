"""A program that speaks MiniCodex on a real WebSocket and keeps everything it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias
from uuid import uuid4

import aiohttp
import msgspec
from aiohttp import WSMsgType

from support.minicodex import ANY_FRAME, BOTH, DOCUMENT_FRAME, JSON

__all__ = ["BOTH", "JSON", "Ended", "MinicodexClient", "logged"]

DEADLINE_S = 60.0
_CLOSING = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)

Wanted: TypeAlias = "str | Callable[[JSON], bool]"


class Ended(Exception):
    """The server hung up; with its close code, or None when the connection broke."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the connection ended with {code}")
        self.code = code


class MinicodexClient:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse, capabilities: Sequence[str]) -> None:
        self.capabilities = tuple(capabilities)
        self.frames: list[JSON] = []
        """Everything, in the order in which it came."""
        self._socket = socket
        self._schema = ANY_FRAME if capabilities else DOCUMENT_FRAME
        self._numbers = count(1)
        self._name = uuid4().hex[:8]

    async def say(self, kind: str, **fields: Any) -> None:
        await self.say_raw(msgspec.json.encode({"type": kind, **fields}).decode())

    async def say_raw(self, text: str) -> None:
        await self._socket.send_str(text)

    async def hello(self) -> JSON:
        """Say hello; the snapshot."""
        assert await self.ask("hello", v="1.0.0", client_capabilities=list(self.capabilities)) == "accepted"
        return (await self.until("session_details" if "makai.1" in self.capabilities else "snapshot"))[1]

    async def resume(self, cursor: int | None) -> str:
        """Go on after this event; "accepted" or the code of the error.

        Clients of makai.1 say in the same frame who they are; others that want deltas would have to say hello first.
        """
        more = {"client_capabilities": list(self.capabilities)} if "makai.1" in self.capabilities else {}
        return await self.ask("resume", last_seen_event_id=cursor, **more)

    async def ask(self, kind: str, **fields: Any) -> str:
        """Send a command and hear its answer: "accepted" or the code of the error. What else comes is kept."""
        req_id = f"{self._name}-{next(self._numbers)}"
        await self.say(kind, req_id=req_id, **fields)
        reply = (await self.until(lambda frame: frame.get("req_id") == req_id))[-1]
        return "accepted" if reply["type"] == "accepted" else str(reply["code"])

    async def hear(self) -> JSON:
        """The next frame; raises `Ended`."""
        async with asyncio.timeout(DEADLINE_S):
            message = await self._socket.receive()
        if message.type in _CLOSING:
            raise Ended(self._socket.close_code)
        assert message.type is WSMsgType.TEXT
        frame: JSON = msgspec.json.decode(message.data)
        self._schema.validate(frame)
        self.frames.append(frame)
        return frame

    async def until(self, wanted: Wanted) -> list[JSON]:
        """Frames up to and with the first of a type, or the first that a test of the frame holds for."""
        is_wanted = (lambda frame: frame["type"] == wanted) if isinstance(wanted, str) else wanted
        heard: list[JSON] = []
        async with asyncio.timeout(DEADLINE_S):  # of all together: heartbeats never end
            while not heard or not is_wanted(heard[-1]):
                heard.append(await self.hear())
        return heard

    async def until_event(self, event_id: int) -> list[JSON]:
        """Up to and with the frame of this event."""
        return await self.until(lambda frame: frame["type"] != "snapshot" and frame.get("event_id", 0) >= event_id)

    async def until_status(self, status: str) -> list[JSON]:
        return await self.until(lambda frame: frame["type"] == "run_status" and frame["run_state"]["status"] == status)

    async def until_over(self) -> list[JSON]:
        """Until the run that goes on is finished or has failed, to its very last frame with makai.1."""
        if "makai.1" in self.capabilities:
            return await self.until(lambda frame: frame["type"] in ("turn_done", "run_ended"))
        return await self.until(
            lambda frame: frame["type"] == "run_status" and frame["run_state"]["status"] in ("finished", "error")
        )

    async def closed(self) -> int | None:
        """Read to the end; the close code."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    await self.hear()
        except Ended as end:
            return end.code

    def of_type(self, kind: str) -> list[JSON]:
        return [frame for frame in self.frames if frame["type"] == kind]

    def kinds(self) -> list[str]:
        return [frame["type"] for frame in self.frames]

    async def close(self) -> None:
        await self._socket.close()

    def drop(self) -> None:
        response = self._socket._response
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()

    def pause(self) -> None:
        self._transport().pause_reading()

    def go_on(self) -> None:
        self._transport().resume_reading()

    def _transport(self) -> asyncio.ReadTransport:
        connection = self._socket._response.connection
        assert connection is not None
        assert connection.transport is not None
        return connection.transport


def logged(frames: Sequence[JSON]) -> list[JSON]:
    return [frame for frame in frames if "event_id" in frame and frame["type"] != "snapshot"]
