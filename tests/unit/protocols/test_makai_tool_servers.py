"""The scope of a tool server, sans-IO: what is acked, what is nacked, and how its numbers count."""

from __future__ import annotations

from typing import Any

import pytest
from support.agent_server import CLIENT_SCHEMA, LOOK, AgentServer, kinds
from support.wire import JSON, Server, code_of, envelope, new_id

from makai.core.errors import Forbidden
from makai.protocols.makai import tool_payloads as wire
from makai.protocols.makai.commands import RegisterTools, TakeExecution, UnregisterTools
from makai.protocols.makai.server import ConnectionLimits

pytestmark = pytest.mark.req("MK-TOOL-011")


class ToolProgram(AgentServer):
    """A server connection, spoken to in the scope of one tool server."""

    server_id = "desk"
    is_sound = True
    """Whether the schema allows what is told."""

    def tell(self, kind: str, payload: JSON | None = None, **fields: Any) -> list[JSON]:
        self.sent += 1
        ids = {"stream_id": None, "server_id": self.server_id, "sequence": self.sent}
        value = envelope(kind, payload, **(ids | fields))
        self.message_id = value["message_id"]
        if self.is_sound:
            CLIENT_SCHEMA.validate(value)
        return self.say(value)

    def registered(self) -> ToolProgram:
        assert self.tell("tool_register", {"tools": [LOOK]}) == []
        self.connection.tools.registered(self.server_id, ("desk__look",))
        assert kinds(self.heard()) == ["ack", "tool_registered"]
        return self

    def requested(self, execution_id: str = "e1") -> list[JSON]:
        self.connection.tools.request(self.server_id, request(execution_id))
        return self.heard()


def request(execution_id: str) -> wire.ToolRequestMessage:
    return wire.ToolRequestMessage(
        execution_id=execution_id,
        session_id="s",
        run_id="r",
        tool_call_id="c",
        tool_name="look",
        arguments={"at": "a\0b"},
        timeout_ms=5,
    )


@pytest.fixture
def program() -> ToolProgram:
    return ToolProgram().registered()


@pytest.mark.req("MK-TOOL-012")
def test_a_registration_is_a_command_and_its_answer_ends_it() -> None:
    program = ToolProgram()
    assert not program.connection.busy
    assert program.tell("tool_register", {"tools": [LOOK], "timeout_ms": 7}) == []
    command = program.command(RegisterTools)
    assert (command.server_id, command.message_id, command.request.timeout_ms) == ("desk", program.message_id, 7)
    program.connection.tools.registered("desk", ("desk__look",))
    ack, told = program.heard()
    assert (ack["type"], ack["in_reply_to"], ack["sequence"]) == ("ack", program.message_id, 1)
    assert (told["payload"], told["sequence"]) == ({"server_id": "desk", "tools": ["desk__look"]}, 2)
    assert program.connection.busy


@pytest.mark.req("MK-TOOL-012")
def test_an_execution_is_answered_once_and_its_arguments_are_exact(program: ToolProgram) -> None:
    (sent,) = program.requested()
    assert sent["payload"]["arguments"] == {"at": "a\0b"}
    for kind, fields in (
        ("tool_execution_start", {}),
        ("tool_execution_update", {"text": "so far"}),
        ("tool_response", {"content": "Water."}),
    ):
        assert kinds(program.tell(kind, {"execution_id": "e1", **fields})) == ["ack"]
        assert isinstance(program.command(TakeExecution).said, wire.TOOL_CLIENT_PAYLOADS[kind])
    assert code_of(program.tell("tool_response", {"execution_id": "e1", "content": "?"})) == "tool_call_not_found"


@pytest.mark.req("MK-TOOL-013")
def test_a_request_is_withdrawn_once_and_its_answer_is_then_refused(program: ToolProgram) -> None:
    program.requested()
    cancel = wire.ToolCancel(execution_id="e1", code="aborted", reason="Stopped.")
    program.connection.tools.cancel("desk", cancel)
    program.connection.tools.cancel("desk", cancel)
    (sent,) = program.heard()
    assert (sent["type"], sent["payload"]["code"]) == ("tool_cancel", "aborted")
    assert code_of(program.tell("tool_response", {"execution_id": "e1", "content": "x"})) == "tool_call_not_found"


def test_a_refused_registration_ends_the_scope_and_a_refused_message_does_not(program: ToolProgram) -> None:
    refused = ToolProgram()
    refused.tell("tool_register", {"tools": [LOOK]})
    refused.connection.tools.refuse("desk", Forbidden("no"))
    assert code_of(refused.heard()) == "forbidden"
    assert not refused.connection.busy
    refused.sent = 0
    refused.registered()

    assert code_of(program.tell("tool_register", {"tools": [LOOK]})) == "invalid_request"
    program.is_sound = False
    assert code_of(program.tell("tool_response", {"execution_id": "e", "content": 1})) == "invalid_request"
    program.requested()
    assert kinds(program.tell("tool_response", {"execution_id": "e1", "content": ""})) == ["ack"]
    assert code_of(program.tell("tool_unregister", sequence=1)) == "duplicate_sequence"


def test_after_the_end_of_a_server_its_scope_begins_again() -> None:
    program = ToolProgram().registered()
    assert program.tell("tool_unregister") == []
    program.command(UnregisterTools)
    program.connection.tools.unregistered("desk")
    assert kinds(program.heard()) == ["ack", "tool_unregistered"]
    assert program.requested() == []
    program.sent = 0
    program.registered()


def test_definitions_ids_and_scopes_are_checked_before_anything_is_registered() -> None:
    program = ToolProgram(ConnectionLimits(tool_servers=1)).registered()

    def said(payload: JSON, kind: str = "tool_register", **fields: Any) -> str:
        ids = {"stream_id": None, "server_id": new_id()} | fields
        return code_of(program.say(envelope(kind, payload, **ids)))

    assert said({"tools": [LOOK]}) == "rate_limited"
    assert said({"tools": [LOOK | {"parameters_schema_json": "{"}]}) == "invalid_request"
    assert said({"tools": [LOOK], "timeout_ms": 86_400_001}) == "invalid_request"
    assert said({}, "tool_unregister") == "invalid_request"
    assert said({"execution_id": "e1"}, "tool_execution_start") == "tool_call_not_found"
    assert said({"tools": [LOOK]}, server_id=None, session_id=new_id()) == "invalid_request"
    for wrong in ("mcp", "", "a__b", "_a", "a_", "a b", "é", "a" * 37, 7):
        assert said({"tools": [LOOK]}, server_id=wrong) == "invalid_request"


def test_a_server_without_sessions_has_no_tool_endpoint() -> None:
    for kind in wire.TOOL_CLIENT_PAYLOADS:
        (nack,) = Server().say(envelope(kind, {"tools": [LOOK]}, stream_id=None, server_id="desk"))
        assert (nack["payload"]["error_code"], nack["payload"]["reason"]) == (
            "not_implemented",
            "no tool endpoint is configured",
        )
