"""`client.tools.serve` wherever the server is; another client, with a connection of its own, runs the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.sdk import DEADLINE_S, KINDS, SCENARIO, failure_of, fake_server, serving

import makai
from makai.client.connect import MakaiClient

pytestmark = pytest.mark.req("MK-TOOL-012")

STORY = """
tool: desk__look {"at": "sea"}
---
say: Done.
"""
LOOK = makai.AgentTool(name="look", description="Look around", schema={"type": "object"})


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[makai.MakaiClientOptions]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(STORY)
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    async with asyncio.timeout(DEADLINE_S), serving(request.param, environ) as options:
        yield options


@pytest.fixture
async def clients(server: makai.MakaiClientOptions) -> AsyncIterator[tuple[MakaiClient, MakaiClient]]:
    async with makai.create_makai_client(server) as one, makai.create_makai_client(server) as other:
        yield one, other


async def failed_executions(client: MakaiClient) -> list[bool]:
    """Run an agent that may use the server `desk`; which executions failed."""
    stream = client.agent.stream(model_ref=SCENARIO, messages="Look.", tool_servers=["desk"])
    events = [event async for event in stream]
    assert isinstance(events[-1], makai.AgentEndEvent)
    return [event.is_error for event in events if isinstance(event, makai.ToolExecutionEndEvent)]


async def test_a_served_tool_gets_its_calls_until_it_is_closed(clients: tuple[MakaiClient, MakaiClient]) -> None:
    program, client = clients
    calls: list[makai.ServedToolCall] = []

    async def execute(call: makai.ServedToolCall) -> str:
        calls.append(call)
        call.progress("Looking.")
        return "Water."

    async with program.tools.serve("desk", tools=[LOOK], execute=execute) as served:
        assert served.tool_names == ("desk__look",)
        failed = [await failed_executions(client)]
    await served.wait()
    failed.append(await failed_executions(client))
    assert failed == [[False], [True]]
    assert [(call.name, call.arguments) for call in calls] == [("look", {"at": "sea"})]


@pytest.mark.req("MK-TOOL-013")
async def test_a_call_that_is_stopped_is_cancelled(clients: tuple[MakaiClient, MakaiClient]) -> None:
    program, client = clients
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def execute(call: makai.ServedToolCall) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with program.tools.serve("desk", tools=[LOOK], execute=execute):
        run = asyncio.ensure_future(failed_executions(client))
        await begun.wait()
        run.cancel()
        await cancelled.wait()


@pytest.mark.req("MK-TOOL-013")
async def test_a_tool_that_takes_too_long_or_raises_fails_and_the_run_ends(
    clients: tuple[MakaiClient, MakaiClient],
) -> None:
    program, client = clients

    async def never(arguments: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    def broken(arguments: dict[str, Any]) -> str:
        raise LookupError(arguments["at"])

    failed = []
    for function, timeout_s in ((never, 0.05), (broken, 60.0)):
        look = makai.AgentTool(name="look", execute=function)
        served = await program.tools.serve("desk", tools=[look], timeout_s=timeout_s)
        failed.append(await failed_executions(client))
        await served.close()
        await served.close()
    assert failed == [[True], [True]]


async def test_one_client_serves_an_id_once_and_calls_beyond_the_limit_wait_for_their_turn() -> None:
    channel, server = fake_server()
    release = asyncio.Event()

    async def execute(call: makai.ServedToolCall) -> str:
        await release.wait()
        return call.tool_call_id

    async with makai.connect(channel=channel) as client:
        opening = asyncio.ensure_future(
            client.tools.serve("desk", tools=[LOOK], execute=execute, max_parallel=1)._open()
        )
        register = await server.accept("tool_register")
        told = {"server_id": "desk", "tools": ["desk__look"]}
        await server.say(register, "tool_registered", told, in_reply_to=register["message_id"])
        served = await opening
        with pytest.raises(makai.InvalidRequest):
            await client.tools.serve("desk", tools=[LOOK], execute=execute)
        for number in (1, 2):
            ids = {"session_id": "s", "run_id": "r", "tool_call_id": f"c{number}", "execution_id": f"e{number}"}
            await server.say(register, "tool_request", ids | {"tool_name": "look", "arguments": {}, "timeout_ms": 1})
        said = [(await server.expect("tool_execution_start"))["payload"]]
        release.set()
        said += [(await server.expect(kind))["payload"] for kind in ("tool_response", "tool_execution_start")]
        said.append((await server.expect("tool_response"))["payload"])
        assert said == [
            {"execution_id": "e1"},
            {"execution_id": "e1", "content": "c1"},
            {"execution_id": "e2"},
            {"execution_id": "e2", "content": "c2"},
        ]
        await server.channel.close()
        lost = await failure_of(served.wait(), makai.MakaiStreamError)
        assert lost.kind == "transport_error"


async def test_what_cannot_be_served_is_refused_before_anything_is_sent() -> None:
    channel, _ = fake_server()
    async with makai.connect(channel=channel) as client:
        refused: list[dict[str, Any]] = [{"server_id": "mcp", "execute": print}, {"server_id": "a"}]
        for wrong in refused:
            with pytest.raises(makai.InvalidRequest):
                client.tools.serve(**wrong, tools=[LOOK])
        for servers in ("desk", ["a__b"]):
            with pytest.raises(makai.InvalidRequest):
                await client.agent.run(model_ref=SCENARIO, messages="Hi", tool_servers=servers)


def test_a_script_serves_tools_without_await(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(STORY)
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    with makai.connect_sync(environ=environ) as client:
        with client.tools.serve("desk", tools=[LOOK], execute=lambda call: call.arguments["at"]) as served:
            assert served.tool_names == ("desk__look",)
            response = client.agent.run(model_ref=SCENARIO, messages="Look.", tool_servers=["desk"])
        served.wait()
        assert response.text == "Done."
