"""A `ServerConnection` with sessions, sans-IO: what a client says in one session, and what happens there."""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from makai.core.session_events import ApprovalRequested, Logged, RunStarted, SessionEvent, ToolCalled, UserInput
from makai.protocols.makai.agent_payloads import AgentStarted, ToolExecute
from makai.protocols.makai.agent_projection import AgentProjection
from makai.protocols.makai.server import ConnectionLimits, ServerConnection
from support.wire import JSON, NOW_MS, Server, envelope, new_id
from tools.schema import makai_client_schema, makai_server_schema

REF = "scripted/scripted@echo"
LOOK: JSON = {"name": "look", "description": "Look", "parameters_schema_json": '{"type":"object"}'}
HELLO: JSON = {"messages": [{"role": "user", "content": "Hello"}]}
CLIENT_SCHEMA = jsonschema_rs.validator_for(makai_client_schema())
SERVER_SCHEMA = jsonschema_rs.validator_for(makai_server_schema())


class AgentServer(Server):
    """A server with sessions, spoken to in one session's scope. Every frame is held to the schema."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        super().__init__(limits)
        self.connection = ServerConnection(limits, clock=lambda: NOW_MS, agents=True)
        self.session_id = new_id()
        self.sent = 0
        self.event_id = 0

    @property
    def agents(self) -> Any:
        return self.connection.agents

    def ask(self, kind: str, payload: JSON | None = None, **fields: Any) -> list[JSON]:
        """The next envelope of the session; what came back at once."""
        self.sent += 1
        ids = {"stream_id": None, "session_id": self.session_id, "sequence": self.sent}
        value = envelope(kind, payload, **(ids | fields))
        self.message_id = value["message_id"]
        return self.say(value)

    def heard(self) -> list[JSON]:
        frames = super().heard()
        for frame in frames:
            SERVER_SCHEMA.validate(frame)
        return frames

    def attached(self) -> AgentServer:
        """The same, attached to a new session; nothing is left to hear."""
        assert self.ask("agent_start", {"model_ref": REF, "tools": [LOOK]}) == []
        self.agents.attach(self.session_id, AgentProjection(self.session_id))
        started = AgentStarted(session_id=self.session_id, model_ref=REF, event_id=0, resumed=False)
        self.agents.started(self.session_id, self.message_id, started)
        assert [frame["type"] for frame in self.heard()] == ["ack", "agent_started"]
        return self

    def happens(self, *events: SessionEvent, run_id: str = "run") -> list[JSON]:
        """Events of the session's log; what the client hears of them."""
        for event in events:
            self.event_id += 1
            self.agents.logged(self.session_id, Logged(event_id=self.event_id, ts=NOW_MS, event=event, run_id=run_id))
        return self.heard()

    def running(self) -> str:
        """A run that this client started; the id of its message."""
        self.ask("agent_message", HELLO)
        message_id = str(self.message_id)
        self.agents.words_taken(self.session_id, message_id, "input")
        self.happens(RunStarted(run_number=1, model_ref=REF), UserInput(input_id="input", content="Hello"))
        return message_id


def called(call_id: str = "c1") -> ToolCalled:
    return ToolCalled(call_id=call_id, name="look", arguments_json='{"at":"sea"}')


def execution(call_id: str = "c1") -> ToolExecute:
    return ToolExecute(tool_call_id=call_id, tool_name="look", arguments={"at": "sea"}, run_id="run")


def kinds(frames: list[JSON]) -> list[str]:
    return [frame["type"] for frame in frames]


def events_of(frames: list[JSON]) -> list[str]:
    return [frame["payload"]["event"]["type"] for frame in frames if frame["type"] == "agent_event"]


def asked(**fields: Any) -> ApprovalRequested:
    return ApprovalRequested(call_id="c1", name="look", arguments_json='{"at":"sea"}', digest="d1", **fields)
