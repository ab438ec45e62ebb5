"""Agents over the raw protocol: a server with real sessions and a scripted model, and a client of one session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from makai.core.content import Text
from makai.core.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from makai.server.makai_connection import MakaiServer
from makai.sessions.conversation import conversation
from makai.sessions.log.base import EventLog
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.service import Sessions
from makai.transports.memory import memory_pair
from support.live_sessions import scripted_models
from support.peers import Peer
from support.wire import JSON, envelope, new_id

REF = "scripted/scripted@scenario"
LOOK: JSON = {"name": "look", "description": "Look around", "parameters_schema_json": '{"type":"object"}'}
SETTLEMENTS = ("agent_result", "agent_error")


class AgentPeer:
    def __init__(self, peer: Peer, session_id: str | None = None) -> None:
        self.peer = peer
        self.session_id = session_id or new_id()
        self.sent = 0
        self.heard: list[JSON] = []

    async def say(self, kind: str, payload: JSON | None = None, **fields: Any) -> str:
        """Send the next envelope of the session; its message id."""
        self.sent += 1
        ids = {"stream_id": None, "session_id": self.session_id, "sequence": self.sent}
        value = envelope(kind, payload, **(ids | fields))
        await self.peer.say(value)
        return str(value["message_id"])

    async def hear_until(self, *types: str) -> list[JSON]:
        """Frames of the session up to the first of one of these types."""
        frames = await self.peer.hear_until(*types)
        self.heard += frames
        return frames

    async def ask(self, kind: str, payload: JSON | None = None, *terminals: str) -> list[JSON]:
        """Send a request and hear everything up to its terminal, or to its refusal."""
        await self.say(kind, payload)
        return await self.hear_until(*terminals, "nack")

    async def start(self, **payload: Any) -> JSON:
        """Begin the session, or attach to it; what `agent_started` says."""
        frames = await self.ask("agent_start", {"model_ref": REF} | payload, "agent_started")
        assert frames[-1]["type"] == "agent_started", frames
        answer: JSON = frames[-1]["payload"]
        return answer

    async def attach(self, **payload: Any) -> JSON:
        return await self.start(**({"resume": True} | payload))

    async def run(self, text: str, **payload: Any) -> list[JSON]:
        """Say something; everything up to the settlement of its run."""
        return await self.ask("agent_message", words(text) | payload, *SETTLEMENTS)

    async def execute(self, content: Any = "Water.", **fields: Any) -> list[JSON]:
        """Hear until a tool is to be executed, and answer it; everything up to the ack."""
        frames = await self.hear_until("tool_execute")
        call = frames[-1]["payload"]
        result = {"tool_call_id": call["tool_call_id"], "content": content} | fields
        return frames + await self.ask("tool_result", result, "ack")


def words(text: str) -> JSON:
    return {"messages": [{"role": "user", "content": text}]}


def events_of(frames: list[JSON]) -> list[JSON]:
    return [frame["payload"]["event"] for frame in frames if frame["type"] == "agent_event"]


def types_of(frames: list[JSON]) -> list[str]:
    """Envelope types, and for events the types of those."""
    return [frame["payload"]["event"]["type"] if frame["type"] == "agent_event" else frame["type"] for frame in frames]


def codes(frames: list[JSON]) -> list[str | None]:
    return [frame["payload"].get("error_code") or frame["payload"].get("code") for frame in frames]


class AgentHouse:
    def __init__(self, sessions: Sessions, log: EventLog, connect: Callable[[], Peer]) -> None:
        self.sessions = sessions
        self._log = log
        self._connect = connect

    def peer(self) -> Peer:
        return self._connect()

    def client(self, session_id: str | None = None) -> AgentPeer:
        return AgentPeer(self.peer(), session_id)

    async def conversation(self, session_id: str) -> list[tuple[str, str]]:
        """What a model is told when the session goes on: roles and texts."""
        said = (await conversation(self._log, session_id)).messages()
        return [_said(message) for message in said]


def _said(message: UserMessage | AssistantMessage | ToolMessage | SystemMessage) -> tuple[str, str]:
    match message:
        case ToolMessage(result=result):
            return ("tool error" if result.is_error else "tool", result.text())
        case AssistantMessage(content=content):
            return ("assistant", "".join(part.text for part in content if isinstance(part, Text)))
        case UserMessage(content=content):
            return ("user", content if isinstance(content, str) else str(content))
        case SystemMessage(content=content):
            return ("system", content)


@asynccontextmanager
async def agent_house(folder: Path, scenario: str, log: EventLog | None = None) -> AsyncIterator[AgentHouse]:
    """A server with sessions in memory, or in the log that is given."""
    kept = log or MemoryLog()
    home = folder / "makai-home"
    home.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(scripted_models(folder, scenario))
        sessions = await OwnedSessions.open(home, models, log=kept)
        stack.push_async_callback(sessions.close)

        async def get() -> Sessions:
            return sessions

        server = MakaiServer(models, sessions=get)
        group = await stack.enter_async_context(asyncio.TaskGroup())

        def connect() -> Peer:
            ours, theirs = memory_pair()
            group.create_task(server.serve(theirs))
            stack.push_async_callback(ours.close)
            return Peer(ours)

        yield AgentHouse(sessions, kept, connect)


@asynccontextmanager
async def agent_client(
    folder: Path, scenario: str, log: EventLog | None = None, **start: Any
) -> AsyncIterator[tuple[AgentHouse, AgentPeer]]:
    """A server, and a client that started a session on these terms."""
    async with agent_house(folder, scenario, log) as house:
        client = house.client()
        await client.start(**start)
        yield house, client
