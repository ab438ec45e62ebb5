"""The agent side of a connection: scopes, numbers, acks and nacks, and what a session's events become."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from support.agent_server import CLIENT_SCHEMA, HELLO, LOOK, REF, AgentServer, asked, events_of, execution, kinds
from support.wire import JSON, Server, code_of, envelope, new_id

from makai.catalog.models import ModelDescriptor, ModelsRequest, ModelsResponse
from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.core.model import ModelCapability
from makai.core.usage import Usage
from makai.protocols import makai as protocol
from makai.protocols.makai import agent_payloads as wire
from makai.protocols.makai.agent import MAX_UNANSWERED
from makai.protocols.makai.agent_projection import AgentProjection
from makai.protocols.makai.commands import AskSession, ListModels
from makai.protocols.makai.payloads import CLIENT_PAYLOADS, SERVER_PAYLOADS
from makai.protocols.makai.server import ConnectionLimits


@pytest.fixture
def fresh() -> AgentServer:
    """A client that has said nothing yet."""
    return AgentServer()


@pytest.fixture
def server() -> AgentServer:
    """A client that is attached to its session."""
    return AgentServer().attached()


@pytest.mark.req("MK-AGENT-001", "MK-AGENT-002", "MK-ENV-012")
def test_a_start_becomes_a_command_and_is_answered_by_ack_and_agent_started(fresh: AgentServer) -> None:
    payload = {
        "model_ref": REF,
        "system_prompt": "Be brief.",
        "tools": [LOOK],
        "mode": "plan",
        "options": {"max_turns": 3, "temperature": 0.5, "unheard_of": 1},
    }
    CLIENT_SCHEMA.validate(envelope("agent_start", payload, stream_id=None, session_id=new_id()))
    assert fresh.ask("agent_start", payload) == []
    command = fresh.command(AskSession)
    assert isinstance(command.request, wire.AgentStart)
    assert (command.session_id, command.message_id) == (fresh.session_id, fresh.message_id)
    assert (command.request.options.max_turns, command.request.options.temperature) == (3, 0.5)
    fresh.agents.attach(fresh.session_id, AgentProjection(fresh.session_id))
    started = wire.AgentStarted(session_id=fresh.session_id, model_ref=REF, event_id=1, resumed=False)
    fresh.agents.started(fresh.session_id, fresh.message_id, started)
    ack, answer = fresh.heard()
    assert (ack["type"], ack["sequence"], ack["in_reply_to"]) == ("ack", 1, fresh.message_id)
    assert (answer["type"], answer["sequence"], answer["in_reply_to"]) == ("agent_started", 2, fresh.message_id)
    assert answer["payload"] == {"session_id": fresh.session_id, "model_ref": REF, "event_id": 1, "resumed": False}
    assert fresh.connection.busy


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        pytest.param({}, "model_ref", marks=pytest.mark.req("MK-AGENT-001")),
        ({"model_ref": REF, "after_event_id": 3}, "resume"),
        ({"model_ref": REF, "builtin_tools": True}, "cwd"),
        ({"model_ref": REF, "cwd": "here"}, "absolute"),
        pytest.param({"model_ref": REF, "tools": [LOOK, LOOK]}, "look", marks=pytest.mark.req("MK-TOOL-001")),
        ({"model_ref": REF, "mode": "yolo"}, "mode"),
        ({"model_ref": REF, "options": {"max_turns": 0}}, "max_turns"),
        ({"resume": True, "after_event_id": -1}, "after_event_id"),
        pytest.param(
            {"model_ref": REF, "tools": [LOOK | {"parameters_schema_json": "{no"}]},
            "parameters_schema_json",
            marks=pytest.mark.req("MK-TOOL-001"),
        ),
        pytest.param(
            {"model_ref": REF, "tools": [LOOK | {"parameters_schema_json": "[]"}]},
            "parameters_schema_json",
            marks=pytest.mark.req("MK-TOOL-001"),
        ),
    ],
    ids=str,
)
def test_a_start_that_cannot_be_meant_is_nacked_and_its_scope_is_free_again(
    fresh: AgentServer, payload: JSON, words: str
) -> None:
    (nack,) = fresh.ask("agent_start", payload)
    assert (nack["type"], nack["payload"]["error_code"]) == ("nack", "invalid_request")
    assert words in nack["payload"]["reason"]
    assert fresh.commands == []
    assert not fresh.connection.busy
    fresh.sent = 0
    fresh.attached()


def test_agent_requests_belong_to_a_session_and_sessions_are_limited() -> None:
    server = AgentServer(ConnectionLimits(sessions=1)).attached()
    assert code_of(server.say(envelope("agent_start", {"model_ref": REF}))) == "invalid_request"
    (nack,) = server.say(envelope("agent_start", {"model_ref": REF}, stream_id=None, session_id=new_id()))
    assert nack["payload"]["error_code"] == "rate_limited"


def test_a_server_without_sessions_has_no_agents() -> None:
    server = Server()
    for kind in ("agent_start", "agent_message", "agent_stop", "agent_status", "tool_list", "tool_result"):
        (nack,) = server.say(envelope(kind, {"model_ref": REF}, stream_id=None, session_id=new_id()))
        assert (kind, nack["payload"]["error_code"]) == (kind, "not_implemented")


@pytest.mark.req("MK-TOOL-011")
def test_what_is_not_for_a_tool_server_is_nacked_in_its_scope_and_never_dropped(fresh: AgentServer) -> None:
    for kind in ("tool_execute", "models_request", "agent_start", "stream_request"):
        (nack,) = fresh.say(envelope(kind, stream_id=None, server_id=new_id()))
        assert (kind, nack["payload"]["error_code"]) == (kind, "not_implemented")
    (pong,) = fresh.say(envelope("ping", stream_id=None, server_id=new_id()))
    assert pong["type"] == "pong"


@pytest.mark.req("MK-AGENT-003", "MK-AGENT-005", "MK-AGENT-006", "MK-AGENT-013", "MK-ENV-012")
def test_a_message_is_acked_and_settled_once_with_its_own_id(server: AgentServer) -> None:
    assert server.ask("agent_message", HELLO) == []
    command = server.command(AskSession)
    assert isinstance(command.request, wire.AgentMessage)
    server.agents.words_taken(server.session_id, server.message_id, "input")
    frames = server.heard() + server.happens(
        ev.RunStarted(run_number=1, model_ref=REF),
        ev.UserInput(input_id="input", content="Hello"),
        ev.RunFinished(stop_reason="end_turn", usage=Usage(input=3, output=2)),
    )
    assert kinds(frames) == ["ack", "agent_event", "agent_event", "agent_result"]
    assert [frame["sequence"] for frame in frames] == [3, 4, 5, 6]
    assert events_of(frames) == ["agent_start", "agent_end"]
    assert frames[1]["payload"]["event"]["session_id"] == server.session_id
    assert "in_reply_to" not in frames[1]
    assert frames[3]["in_reply_to"] == server.message_id
    assert frames[3]["payload"] == {
        "message": {"role": "assistant", "content": []},
        "usage": {"input": 3, "output": 2},
        "provider_id": "scripted",
        "api": "scripted",
        "model_id": "echo",
        "stop_reason": "end_turn",
        "run_id": "run",
    }


def test_the_settlement_of_another_clients_run_answers_nothing(server: AgentServer) -> None:
    frames = server.happens(
        ev.RunStarted(run_number=1, model_ref=REF),
        ev.UserInput(input_id="theirs", content="Hello"),
        ev.RunFinished(stop_reason="end_turn"),
    )
    assert kinds(frames) == ["agent_event", "agent_event", "agent_result"]
    assert "in_reply_to" not in frames[-1]


@pytest.mark.req("MK-AGENT-015")
def test_a_busy_session_answers_a_message_with_agent_error(server: AgentServer) -> None:
    server.running()
    assert server.ask("agent_message", HELLO) == []
    server.agents.busy(server.session_id, server.message_id, SessionRefused("BUSY", "A run is active.", hint="Wait."))
    (error,) = server.heard()
    assert (error["type"], error["in_reply_to"]) == ("agent_error", server.message_id)
    assert error["payload"] == {"code": "agent_busy", "message": "A run is active.", "hint": "Wait."}
    assert kinds(server.happens(ev.RunFinished(stop_reason="end_turn"))) == ["agent_event", "agent_result"]


@pytest.mark.req("MK-AGENT-019")
@pytest.mark.parametrize("kind", ["agent_message", "agent_stop", "agent_status", "tool_list"])
def test_what_is_asked_of_an_unknown_session_is_nacked_and_its_scope_is_free_again(
    fresh: AgentServer, kind: str
) -> None:
    assert fresh.ask(kind, HELLO) == []
    error = SessionRefused("UNKNOWN_SESSION", "There is no such session.")
    fresh.agents.refuse(fresh.session_id, fresh.message_id, error)
    (nack,) = fresh.heard()
    assert (nack["type"], nack["payload"]["error_code"]) == ("nack", "session_not_found")
    assert not fresh.connection.busy
    assert code_of(fresh.ask(kind, HELLO, sequence=2)) == "sequence_gap"


def test_a_nacked_envelope_of_an_attached_session_has_used_its_number(server: AgentServer) -> None:
    for payload in ({}, {"messages": 3}):
        assert code_of(server.ask("agent_message", payload)) == "invalid_request"
    assert code_of(server.ask("agent_dance")) == "not_implemented"
    assert code_of(server.ask("agent_message", HELLO, sequence=2)) == "duplicate_sequence"
    server.sent -= 1
    assert server.ask("agent_message", HELLO) == []
    assert len(server.commands) == 1


def test_requests_that_pile_up_are_refused(fresh: AgentServer) -> None:
    for _ in range(MAX_UNANSWERED):
        assert fresh.ask("agent_status") == []
    assert code_of(fresh.ask("agent_status")) == "rate_limited"


@pytest.mark.req("MK-AGENT-018")
def test_questions_about_a_session_are_answered_without_attaching(fresh: AgentServer) -> None:
    info = wire.SessionInfo(
        session_id=fresh.session_id,
        status="idle",
        model_ref=REF,
        mode="ask",
        event_id=4,
        created_at=1,
        updated_at=2,
        usage=Usage(input=1),
        pending_permissions=(),
    )
    fresh.ask("agent_status")
    fresh.agents.info(fresh.session_id, fresh.message_id, info)
    assert [(frame["type"], frame["payload"].get("status")) for frame in fresh.heard()] == [
        ("ack", None),
        ("session_info", "idle"),
    ]
    assert not fresh.connection.busy
    fresh.sent = 0
    fresh.ask("tool_list", {"prefix": "lo"})
    fresh.agents.info(fresh.session_id, fresh.message_id, wire.ToolListResponse(()))
    assert [(frame["type"], frame["sequence"]) for frame in fresh.heard()] == [("ack", 1), ("tool_list_response", 2)]


@pytest.mark.req("MK-MODEL-026")
def test_all_modules_of_the_protocol_share_the_classes_of_models() -> None:
    shared = {kind.__name__: kind for kind in (ModelCapability, ModelDescriptor, ModelsRequest, ModelsResponse)}
    modules = [
        importlib.import_module(f"{protocol.__name__}.{module.name}")
        for module in pkgutil.iter_modules(protocol.__path__)
    ]
    named = [(name, getattr(module, name)) for module in modules for name in shared if hasattr(module, name)]
    assert {name for name, _ in named} >= {"ModelsRequest", "ModelsResponse"}
    assert [name for name, kind in named if kind is not shared[name]] == []
    assert (CLIENT_PAYLOADS["models_request"], SERVER_PAYLOADS["models_response"]) == (ModelsRequest, (ModelsResponse,))


@pytest.mark.req("MK-MODEL-027")
def test_models_are_listed_in_the_scope_of_an_attached_session_without_disturbing_its_numbers(
    server: AgentServer,
) -> None:
    assert server.ask("models_request") == []
    command = server.command(ListModels)
    server.connection.refuse(command.scope, SessionRefused("BAD_ARGUMENT", "no"))
    (nack,) = server.heard()
    assert (nack["type"], nack["sequence"]) == ("nack", 3)
    assert server.ask("agent_message", HELLO) == []
    server.agents.accept(server.session_id, server.message_id)
    (ack,) = server.heard()
    assert ack["sequence"] == 4


@pytest.mark.req("MK-AGENT-017", "MK-ENV-012")
def test_a_stop_is_acked_and_agent_stopped_is_the_last_word(server: AgentServer) -> None:
    message_id = server.running()
    server.ask("agent_stop", {"reason": "enough"})
    command = server.command(AskSession)
    assert command.request == wire.AgentStop(reason="enough")
    stop_id = server.message_id
    server.agents.accept(server.session_id, stop_id)
    frames = server.heard() + server.happens(ev.RunFinished(stop_reason="aborted"))
    server.agents.stopped(server.session_id, stop_id, "enough")
    frames += server.heard()
    assert kinds(frames) == ["ack", "agent_event", "agent_error", "agent_stopped"]
    assert frames[1]["payload"]["event"] == {"type": "error", "message": "the run was stopped", "code": "aborted"}
    assert (frames[2]["payload"]["code"], frames[2]["in_reply_to"]) == ("aborted", message_id)
    assert frames[3]["payload"] == {"session_id": server.session_id, "reason": "enough"}
    assert not server.connection.busy
    assert server.happens(ev.RunStarted(run_number=2, model_ref=REF)) == []


@pytest.mark.parametrize("begins_anew", [True, False])
def test_after_agent_stopped_a_client_counts_on_or_begins_anew(server: AgentServer, begins_anew: bool) -> None:
    server.ask("agent_stop")
    server.agents.accept(server.session_id, server.message_id)
    server.agents.stopped(server.session_id, server.message_id, None)
    assert [frame["sequence"] for frame in server.heard()] == [3, 4]
    if begins_anew:
        server.sent = 0
    assert server.ask("agent_status") == []
    server.agents.refuse(server.session_id, server.message_id, SessionRefused("UNKNOWN_SESSION", "Gone."))
    (nack,) = server.heard()
    assert nack["sequence"] == (1 if begins_anew else 5)
    assert nack["payload"]["error_code"] == "session_not_found"


def test_requests_that_wait_when_the_session_is_let_go_of_are_refused(server: AgentServer) -> None:
    server.ask("agent_status")
    waiting = server.message_id
    server.ask("agent_stop")
    server.agents.accept(server.session_id, server.message_id)
    server.agents.stopped(server.session_id, server.message_id, None)
    frames = server.heard()
    assert kinds(frames) == ["ack", "nack", "agent_stopped"]
    assert frames[1]["payload"]["rejected_id"] == waiting
    server.agents.refuse(server.session_id, waiting, SessionRefused("UNKNOWN_SESSION", "Too late."))
    assert server.heard() == []


def test_a_session_that_is_lost_settles_what_this_client_waits_for(server: AgentServer) -> None:
    message_id = server.running()
    server.agents.lost(server.session_id, SessionRefused("UNKNOWN_SESSION", "The session was deleted."))
    error, stopped = server.heard()
    assert (error["type"], error["payload"]["code"], error["in_reply_to"]) == (
        "agent_error",
        "session_not_found",
        message_id,
    )
    assert stopped["payload"] == {"session_id": server.session_id, "reason": "The session was deleted."}
    assert "in_reply_to" not in stopped
    assert not server.connection.busy


def test_nothing_is_said_about_sessions_that_nobody_is_attached_to(fresh: AgentServer) -> None:
    agents = fresh.agents
    agents.attach("x", AgentProjection("x"))
    agents.logged("x", ev.Logged(event_id=1, ts=1, event=ev.RunStarted(run_number=1, model_ref=REF), run_id="r"))
    agents.execute("x", execution())
    agents.withdraw("x", "c1")
    agents.ask_again("x", asked(), "r")
    agents.accept("x", "m")
    agents.words_taken("x", "m", "i")
    agents.busy("x", "m", SessionRefused("BUSY", "x"))
    agents.stopped("x", "m", None)
    agents.lost("x", SessionRefused("UNKNOWN_SESSION", "x"))
    assert fresh.heard() == []
