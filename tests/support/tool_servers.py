"""A program that serves tools over the raw protocol."""

from __future__ import annotations

from typing import Any

from support.peers import Peer
from support.wire import JSON, envelope

LOOK: JSON = {"name": "look", "description": "Look around", "parameters_schema_json": '{"type":"object"}'}


class ToolServerPeer:
    """One tool server on a connection."""

    def __init__(self, peer: Peer, server_id: str = "desk") -> None:
        self.peer = peer
        self.server_id = server_id
        self.sent = 0

    async def say(self, kind: str, payload: JSON | None = None, **fields: Any) -> str:
        self.sent += 1
        ids = {"stream_id": None, "server_id": self.server_id, "sequence": self.sent}
        value = envelope(kind, payload, **(ids | fields))
        await self.peer.say(value)
        return str(value["message_id"])

    async def ask(self, kind: str, payload: JSON | None = None, *terminals: str) -> list[JSON]:
        await self.say(kind, payload)
        return await self.peer.hear_until(*terminals, "nack")

    async def register(self, *tools: JSON, **fields: Any) -> list[JSON]:
        return await self.ask("tool_register", {"tools": list(tools) or [LOOK]} | fields, "tool_registered")

    async def requested(self) -> JSON:
        """The next `tool_request`."""
        payload: JSON = (await self.peer.hear_until("tool_request"))[-1]["payload"]
        return payload

    async def respond(self, request: JSON, content: Any = "Water.", **fields: Any) -> list[JSON]:
        response = {"execution_id": request["execution_id"], "content": content} | fields
        return await self.ask("tool_response", response, "ack")
