"""Agents over all five transports (MK-TRANS-012): a client's tool, a permission, a stop, and a second connection.

On stdio the second connection is another process, which reaches the session through the one that owns the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from support.agents import LOOK, AgentPeer, codes, events_of, types_of, words
from support.peers import TRANSPORTS, Peer, open_server
from support.upstream import chat_stream, starts_then_hangs, upstream
from support.wire import ask, envelope

pytestmark = pytest.mark.req("MK-TRANS-012")

SCENARIO = """
say: Hello there.
usage: input=5 output=2
---
say: Hello again.
---
when: look
tool: look {"at": "é\u2028☂"}
usage: input=10 output=4 cache_read=3
---
when: wait
say: Hel
stall
---
when: write
tool: write {"path": "a.txt", "content": "A"}
"""
Connect = Callable[[], Awaitable[Peer]]


@pytest.fixture(params=TRANSPORTS)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(SCENARIO, encoding="utf-8")
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home")}
    async with open_server(str(request.param), environ) as opened:
        yield opened


@pytest.mark.req("MK-AGENT-003", "MK-AGENT-016", "MK-AGENT-020", "MK-TOOL-002", "MK-TOOL-003")
async def test_a_run_with_a_clients_tool(connect: Connect) -> None:
    client = AgentPeer(await connect())
    await client.start(tools=[LOOK], options={"max_turns": 2})
    await client.say("agent_message", words("look"))
    frames = await client.execute("Rain.")
    assert frames[-2]["payload"]["arguments"] == {"at": "é\u2028☂"}
    frames += await client.execute("More rain.") + await client.hear_until("agent_result")
    usage = {"input": 20, "output": 8, "cache_read": 6}
    assert events_of(frames)[-1] == {"type": "agent_end", "stop_reason": "max_turns", "usage": usage}
    frames = await client.run("Hi")
    assert types_of(frames)[-1] == "agent_result"
    assert [frame["sequence"] for frame in client.heard] == list(range(1, len(client.heard) + 1))


@pytest.mark.req("MK-MODEL-024")
async def test_a_listed_ref_serves_streams_completions_and_runs_as_it_is(connect: Connect) -> None:
    peer = await connect()
    wanted = {"provider_id": "scripted", "model_id": "scenario"}
    _, listed = await peer.ask(envelope("models_request", wanted), "models_response")
    (model,) = listed["payload"]["models"]
    for kind in ("stream_request", "complete_request"):
        frames = await peer.ask(ask(kind, payload={"model_ref": model["model_ref"], "context": words("Hi")}))
        assert frames[-1]["type"] == "result"
        assert frames[-1]["payload"]["model"] == model["model_id"]
    client = AgentPeer(peer)
    started = await client.start(model_ref=model["model_ref"])
    assert started["model_ref"] == model["model_ref"]
    result = (await client.run("Hi"))[-1]
    assert (result["type"], result["payload"]["model_id"]) == ("agent_result", model["model_id"])


async def test_a_permission_is_asked_and_given(connect: Connect, tmp_path: Path) -> None:
    (folder := tmp_path / "work").mkdir()
    client = AgentPeer(await connect())
    await client.start(builtin_tools=True, cwd=str(folder), options={"max_turns": 1})
    await client.say("agent_message", words("write"))
    question = (await client.hear_until("permission_request"))[-1]["payload"]
    assert question["diffs"][0]["new_text"] == "A"
    answer = {"tool_call_id": question["tool_call_id"], "decision": "approve", "digest": question["digest"]}
    frames = await client.ask("permission_response", answer, "agent_result")
    assert types_of(frames)[:2] == ["ack", "permission_settled"]
    assert (folder / "a.txt").read_text() == "A"


@pytest.mark.req("MK-AGENT-017", "MK-AGENT-018", "MK-AGENT-019")
async def test_a_stop_ends_the_run_and_unknown_sessions_are_nacked(connect: Connect) -> None:
    client = AgentPeer(await connect())
    await client.start()
    await client.say("agent_message", words("wait"))
    while "text_delta" not in types_of(await client.hear_until("agent_event")):
        pass
    frames = await client.ask("agent_stop", {}, "agent_stopped")
    assert types_of(frames)[-3:] == ["error", "agent_error", "agent_stopped"]
    frames = await AgentPeer(client.peer).ask("agent_status", {}, "session_info")
    assert codes(frames) == ["session_not_found"]
    client.sent = 0
    frames = await client.ask("agent_status", {}, "session_info")
    assert frames[-1]["payload"]["status"] == "idle"


@pytest.mark.req("MK-AGENT-017")
@pytest.mark.parametrize("transport", ["memory", "stdio"])
async def test_a_stop_closes_the_upstream_and_a_vanished_client_does_not(transport: str, tmp_path: Path) -> None:
    model_ref = "llama.cpp/openai-completions@m"
    async with upstream(starts_then_hangs(chat_stream("Hel", finish=None, done=False))) as vendor:
        environ = {"MAKAI_HOME": str(tmp_path / "home"), "LLAMA_CPP_BASE_URL": f"{vendor.url}/v1"}
        async with open_server(transport, environ) as connect:
            owner = await connect()  # on stdio the process of the first connection owns the sessions
            client = AgentPeer(await connect())
            await AgentPeer(owner).ask("agent_status", {}, "session_info")
            await client.start(model_ref=model_ref)
            await client.say("agent_message", words("Hi"))
            while "text_delta" not in types_of(await client.hear_until("agent_event")):
                pass
            await client.peer.channel.close()
            again = AgentPeer(owner, client.session_id)
            await again.attach(model_ref=model_ref)
            assert not vendor.closed_by_client.is_set()
            before = time.monotonic()
            await again.ask("agent_stop", {}, "agent_stopped")
            async with asyncio.timeout(60):
                await vendor.closed_by_client.wait()
            assert time.monotonic() - before < 5


@pytest.mark.req("MK-AGENT-015", "MK-AGENT-021")
async def test_a_second_connection_attaches_and_sees_everything(connect: Connect) -> None:
    client = AgentPeer(await connect())
    await client.start(tools=[LOOK])
    await client.say("agent_message", words("look"))
    call = (await client.hear_until("tool_execute"))[-1]["payload"]
    watcher = AgentPeer(await connect(), client.session_id)
    await watcher.attach()
    await watcher.say("agent_message", words("And?"))
    frames = await watcher.hear_until("agent_error")
    assert frames[-1]["payload"]["code"] == "agent_busy"
    result = {"tool_call_id": call["tool_call_id"], "content": "Rain."}
    await client.ask("tool_result", result, "tool_execute")
    await watcher.ask("agent_stop", {}, "agent_stopped")
    await client.hear_until("agent_error")
    assert events_of(watcher.heard) == events_of(client.heard)
