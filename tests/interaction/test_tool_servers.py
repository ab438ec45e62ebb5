"""Programs that serve tools, over all five transports (MK-TRANS-012): sessions of other connections use them.

On stdio the program, the client and the owner of the sessions are processes of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from support.agents import AgentPeer, codes, events_of, types_of, words
from support.peers import TRANSPORTS, Peer, open_server
from support.tool_servers import LOOK, ToolServerPeer
from support.wire import JSON, envelope, new_id

pytestmark = pytest.mark.req("MK-TRANS-012", "MK-TOOL-011")

SCENARIO = """
tool: desk__look {"at": "é☂"}
---
say: Done.
"""
Connect = Callable[[], Awaitable[Peer]]


@pytest.fixture(params=TRANSPORTS)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(SCENARIO, encoding="utf-8")
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home")}
    async with open_server(str(request.param), environ) as opened:
        yield opened


async def registered(connect: Connect, **fields: object) -> ToolServerPeer:
    server = ToolServerPeer(await connect())
    assert (await server.register(**fields))[-1]["type"] == "tool_registered"
    return server


async def running(connect: Connect) -> AgentPeer:
    """A client whose session names the server `desk` and has begun its run."""
    client = AgentPeer(await connect())
    await client.start(tool_servers=["desk"])
    await client.say("agent_message", words("look"))
    return client


async def end_of(client: AgentPeer) -> tuple[list[bool], str]:
    """Which executions failed, and how the run was settled."""
    frames = await client.hear_until("agent_result", "agent_error")
    ends = [event for event in events_of(frames) if event["type"] == "tool_execution_end"]
    return [end.get("is_error", False) for end in ends], frames[-1]["type"]


@pytest.mark.req("MK-TOOL-012")
async def test_a_call_of_another_connection_is_requested_streamed_and_answered(connect: Connect) -> None:
    server = ToolServerPeer(await connect())
    ack, told = await server.register(timeout_ms=60_000)
    assert ack["type"] == "ack"
    assert told["payload"] == {"server_id": "desk", "tools": ["desk__look"]}

    client = await running(connect)
    request = await server.requested()
    execution_id = request.pop("execution_id")
    run_id, call_id = request.pop("run_id"), request.pop("tool_call_id")
    assert request == {
        "session_id": client.session_id,
        "tool_name": "look",
        "arguments": {"at": "é☂"},
        "timeout_ms": 60_000,
    }
    assert run_id
    for kind, fields in (("tool_execution_start", {}), ("tool_execution_update", {"text": "Looking."})):
        assert types_of(await server.ask(kind, {"execution_id": execution_id, **fields}, "ack")) == ["ack"]
    assert types_of(await server.respond({"execution_id": execution_id}, "Rain.")) == ["ack"]

    frames = await client.hear_until("agent_result")
    tools = [event for event in events_of(frames) if event["type"].startswith("tool_")]
    assert tools == [
        {"type": "tool_call", "name": "desk__look", "arguments_json": '{"at": "é☂"}', "tool_call_id": call_id},
        {"type": "tool_execution_start", "tool_call_id": call_id, "tool_name": "desk__look"},
        {"type": "tool_execution_end", "tool_call_id": call_id},
    ]
    assert types_of(await server.ask("tool_unregister", {}, "tool_unregistered")) == ["ack", "tool_unregistered"]


@pytest.mark.req("MK-TOOL-012")
async def test_two_sessions_share_one_server_and_answers_are_matched_by_execution(connect: Connect) -> None:
    server = await registered(connect)
    clients = [await running(connect), await running(connect)]
    requests = [await server.requested(), await server.requested()]
    assert {request["session_id"] for request in requests} == {client.session_id for client in clients}
    for request in reversed(requests):
        is_error = request["session_id"] == clients[0].session_id
        await server.respond(request, is_error=is_error)
    assert [await end_of(client) for client in clients] == [([True], "agent_result"), ([False], "agent_result")]


@pytest.mark.req("MK-TOOL-013")
async def test_a_tool_that_does_not_answer_in_time_fails_and_the_run_continues(connect: Connect) -> None:
    server = await registered(connect, timeout_ms=50)
    client = await running(connect)
    request = await server.requested()
    cancel = (await server.peer.hear_until("tool_cancel"))[-1]["payload"]
    assert (cancel["execution_id"], cancel["code"]) == (request["execution_id"], "tool_timeout")
    assert codes(await server.respond(request)) == ["tool_call_not_found"]
    assert await end_of(client) == ([True], "agent_result")


@pytest.mark.req("MK-TOOL-013")
async def test_a_program_that_disconnects_during_a_call_fails_it_and_one_that_comes_back_gets_the_next(
    connect: Connect,
) -> None:
    server = await registered(connect)
    client = await running(connect)
    await server.requested()
    await server.peer.channel.close()
    assert await end_of(client) == ([True], "agent_result")

    again = await registered(connect)
    another = await running(connect)
    await again.respond(await again.requested())
    assert await end_of(another) == ([False], "agent_result")


@pytest.mark.req("MK-TOOL-013")
async def test_stopping_the_run_cancels_the_call(connect: Connect) -> None:
    server = await registered(connect)
    client = await running(connect)
    request = await server.requested()
    await client.ask("agent_stop", {}, "agent_stopped")
    cancel = (await server.peer.hear_until("tool_cancel"))[-1]["payload"]
    assert (cancel["execution_id"], cancel["code"]) == (request["execution_id"], "aborted")


@pytest.mark.req("MK-TOOL-013")
async def test_calls_of_a_server_that_is_not_connected_are_unavailable(connect: Connect) -> None:
    client = await running(connect)
    assert await end_of(client) == ([True], "agent_result")


async def test_what_is_no_registration_is_nacked_and_never_dropped(connect: Connect) -> None:
    peer = await connect()
    nacked: list[tuple[str, str | None]] = []
    wrong: list[tuple[str, JSON]] = [
        ("tool_register", {}),
        ("tool_register", {"tools": []}),
        ("tool_register", {"tools": [LOOK, LOOK]}),
        ("tool_register", {"tools": [LOOK | {"name": "a b"}]}),
        ("tool_register", {"tools": [LOOK], "timeout_ms": 0}),
        ("tool_unregister", {}),
        ("tool_response", {"execution_id": "e", "content": ""}),
        ("tool_execute", {}),
    ]
    for kind, payload in wrong:
        frames = await peer.ask(envelope(kind, payload, stream_id=None, server_id=new_id()))
        nacked += [(kind, code) for code in codes(frames)]
    codes_of = dict.fromkeys(("tool_register", "tool_unregister"), "invalid_request")
    codes_of |= {"tool_response": "tool_call_not_found", "tool_execute": "not_implemented"}
    assert nacked == [(kind, codes_of[kind]) for kind, _ in wrong]


async def test_a_server_is_registered_once_per_connection_and_again_after_its_end(connect: Connect) -> None:
    server = await registered(connect)
    assert codes(await server.register()) == ["invalid_request"]
    await server.ask("tool_unregister", {}, "tool_unregistered")
    server.sent = 0
    assert types_of(await server.register()) == ["ack", "tool_registered"]
    async with asyncio.timeout(60):
        client = await running(connect)
        await server.respond(await server.requested())
        assert await end_of(client) == ([False], "agent_result")
