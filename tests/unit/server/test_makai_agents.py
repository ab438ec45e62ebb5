"""Agents on a channel: real sessions, a scripted model, and clients that come, go and come back."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from support.agents import LOOK, REF, AgentPeer, agent_client, agent_house, codes, events_of, types_of, words
from support.live_sessions import Desk, scripted_models
from support.peers import Peer
from support.sdk import sessions_of
from support.wire import JSON, ask, envelope

from makai.core.errors import MakaiError, StorageUnavailable, TransportError
from makai.core.session_events import Logged, RunAborted, ToolFinished
from makai.protocols.makai.envelope import is_uuid
from makai.providers.runtime import ModelRuntime
from makai.server.makai_connection import MakaiServer
from makai.sessions.log.encoding import decoded
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import DeleteSession, GetState, ListSessions, ReadEvents
from makai.transports.memory import memory_pair

HELLO = "say: Hello to you.\nusage: input=5 output=4\n---\nsay: Hello again.\nusage: input=9 output=2 cache_read=3"
LOOKS = """
think: I should look.
tool: look {"at": "sea"}
usage: input=10 output=4 cache_read=3
---
say: Water.
usage: input=2 output=5 cache_read=12
"""
LOOKS_TWICE = 'tool: look {"at": "sea"}\ntool: look {"at": "sky"}\n---\nsay: Blue.'
SLOW = "say: One.\npace: 5ms\nrepeat: 100000 word"


async def running(client: AgentPeer, text: str = "Go") -> str:
    """A run that says something; the id of its message."""
    message_id = await client.say("agent_message", words(text))
    while "text_delta" not in types_of(await client.hear_until("agent_event")):
        pass
    return message_id


@pytest.mark.req("MK-AGENT-001", "MK-AGENT-003", "MK-AGENT-005", "MK-AGENT-006", "MK-AGENT-007", "MK-AGENT-013")
async def test_a_run_goes_from_ack_to_its_result(tmp_path: Path) -> None:
    async with agent_house(tmp_path, HELLO) as house:
        client = house.client()
        started = {"session_id": client.session_id, "model_ref": REF, "event_id": 1, "resumed": False}
        assert await client.start(system_prompt="Be kind.") == started
        assert (await house.sessions.dispatch(GetState(client.session_id))).terms.system == "Be kind."
        frames = await client.run("Hi")
        assert types_of(frames) == [
            "ack", "agent_start", "turn_start", "message_start", "text_delta", "message_end", "turn_end",
            "agent_end", "agent_result",
        ]  # fmt: skip
        assert frames[-1]["in_reply_to"] == frames[0]["in_reply_to"]
        result = frames[-1]["payload"]
        assert result["message"] == {"role": "assistant", "content": [{"type": "text", "text": "Hello to you."}]}
        assert (result["provider_id"], result["api"], result["model_id"]) == ("scripted", "scripted", "scenario")
        assert (result["stop_reason"], result["usage"]) == ("end_turn", {"input": 5, "output": 4, "cost_usd": 0.0})
        assert [frame["sequence"] for frame in client.heard] == list(range(1, len(client.heard) + 1))


@pytest.mark.req("MK-AGENT-001", "MK-AGENT-016")
@pytest.mark.parametrize("name", ["chat-1", "../../etc/passwd", "a/b?c#d%2F", "Über 🌍\n", "x" * 256], ids=range(5))
async def test_a_session_may_have_any_name_and_the_log_has_it_under_a_uuid(tmp_path: Path, name: str) -> None:
    async with agent_house(tmp_path, HELLO) as house:
        client = house.client(name)
        assert (await client.start())["session_id"] == name
        frames = await client.run("Hi")
        assert {frame["session_id"] for frame in client.heard} == {name}
        assert events_of(frames)[0] == {"type": "agent_start", "session_id": name}
        status = await client.ask("agent_status", {}, "session_info")
        assert status[-1]["payload"]["session_id"] == name
        again = house.client(name)
        assert (await again.run("More"))[-1]["payload"]["message"]["content"] == [
            {"type": "text", "text": "Hello again."}
        ]
        (kept,) = await house.sessions.dispatch(ListSessions())
        assert is_uuid(kept.session_id)
        assert len(await house.conversation(kept.session_id)) == 4


@pytest.mark.parametrize("name", ["", "x" * 257, 7], ids=["empty", "long", "number"])
async def test_a_session_without_a_usable_name_is_refused(tmp_path: Path, name: Any) -> None:
    async with agent_house(tmp_path, HELLO) as house:
        peer = house.peer()
        await peer.say(envelope("agent_start", {"model_ref": REF}, stream_id=None, session_id=name))
        assert codes([await peer.hear()]) == ["invalid_request"]


@pytest.mark.req("MK-AGENT-016")
async def test_the_next_message_continues_the_conversation_and_may_repeat_it(tmp_path: Path) -> None:
    async with agent_client(tmp_path, HELLO, system_prompt="Be kind.") as (house, client):
        await client.run("Hi")
        answer = {"role": "assistant", "content": "Hello to you."}
        whole = [*words("Hi")["messages"], answer, *words("More")["messages"]]
        frames = await client.run("", messages=whole)
        assert frames[-1]["payload"]["message"]["content"] == [{"type": "text", "text": "Hello again."}]
        said = [("user", "Hi"), ("assistant", "Hello to you."), ("user", "More"), ("assistant", "Hello again.")]
        assert await house.conversation(client.session_id) == said
        for messages in ([], [{"role": "tool", "tool_call_id": "x", "content": "y"}], whole[:2]):
            (nack,) = await client.ask("agent_message", {"messages": messages})
            assert codes([nack]) == ["invalid_request"]


@pytest.mark.req("MK-AGENT-008", "MK-AGENT-009", "MK-AGENT-020", "MK-TOOL-002", "MK-TOOL-003", "MK-TOOL-004")
async def test_a_clients_tool_is_executed_by_the_client_and_the_run_goes_on_with_its_result(tmp_path: Path) -> None:
    async with agent_client(tmp_path, LOOKS, tools=[LOOK]) as (house, client):
        await client.say("agent_message", words("What is there?"))
        parts = [{"type": "text", "text": "Water"}, {"type": "text", "text": "and sand"}]
        frames = await client.execute(parts, details_json='{"depth":1}')
        call = frames[-2]["payload"]
        assert (call["tool_name"], call["arguments"]) == ("look", {"at": "sea"})
        frames += await client.hear_until("agent_result")
        assert types_of(frames) == [
            "ack", "agent_start", "turn_start", "message_start", "thinking_delta", "tool_call", "message_end",
            "turn_end", "tool_execution_start", "tool_execute", "ack", "tool_execution_end", "turn_start",
            "message_start", "text_delta", "message_end", "turn_end", "agent_end", "agent_result",
        ]  # fmt: skip
        usage = {"input": 12, "output": 9, "cache_read": 15}
        assert events_of(frames)[-1] == {"type": "agent_end", "stop_reason": "end_turn", "usage": usage}
        (told,) = [text for role, text in await house.conversation(client.session_id) if role == "tool"]
        assert ("Water" in told, "and sand" in told) == (True, True)
        events = decoded(await house.sessions.dispatch(ReadEvents(client.session_id, 0, 100)))
        (finished,) = [one.event for one in events if isinstance(one, Logged) and isinstance(one.event, ToolFinished)]
        assert finished.details_json == '{"depth":1}'


@pytest.mark.req("MK-TOOL-007", "MK-TOOL-008")
async def test_calls_of_one_turn_are_answered_in_any_order_and_only_once(tmp_path: Path) -> None:
    async with agent_client(tmp_path, LOOKS_TWICE, tools=[LOOK]) as (house, client):
        await client.say("agent_message", words("Look"))
        calls = {}
        for _ in range(2):
            call = (await client.hear_until("tool_execute"))[-1]["payload"]
            calls[call["arguments"]["at"]] = call["tool_call_id"]
        answers = []
        for at in ("sky", "nowhere", "sky", "sea"):
            result = {"tool_call_id": calls.get(at, "unknown"), "content": f"the {at}"}
            answers.append((await client.ask("tool_result", result, "ack"))[-1])
        assert codes(answers) == [None, "tool_call_not_found", "tool_call_not_found", None]
        await client.hear_until("agent_result")
        results = [said for role, said in await house.conversation(client.session_id) if role == "tool"]
        assert results == ["the sea", "the sky"]


@pytest.mark.req("MK-TOOL-006", "MK-TOOL-009")
async def test_a_failed_tool_and_one_nobody_declared_are_told_to_the_model_and_the_run_goes_on(tmp_path: Path) -> None:
    script = "tool: look {}\n---\ntool: fly {}\n---\nsay: Done."
    async with agent_client(tmp_path, script, tools=[LOOK]) as (house, client):
        await client.say("agent_message", words("Look"))
        await client.execute("It is dark.", is_error=True)
        frames = await client.hear_until("agent_result")
        ends = [event for event in events_of(frames) if event["type"] == "tool_execution_end"]
        assert [event["is_error"] for event in ends] == [True, True]
        told = await house.conversation(client.session_id)
        assert ("tool error", "It is dark.") in told
        assert any(role == "tool error" and "There is no tool 'fly'" in text for role, text in told)


@pytest.mark.req("MK-AGENT-010")
async def test_a_run_stops_at_its_turn_limit(tmp_path: Path) -> None:
    async with agent_client(tmp_path, LOOKS, tools=[LOOK], options={"max_turns": 1}) as (_, client):
        await client.say("agent_message", words("Look"))
        frames = await client.execute() + await client.hear_until("agent_result")
        assert frames[-1]["payload"]["stop_reason"] == "max_turns"
        reasons = [event["stop_reason"] for event in events_of(frames) if event["type"] in ("turn_end", "agent_end")]
        assert reasons == ["tool_use", "max_turns"]


@pytest.mark.req("MK-AGENT-011", "MK-AGENT-014")
async def test_a_failing_run_and_a_missing_login_are_one_error_each(tmp_path: Path) -> None:
    async with agent_client(tmp_path, "say: Hel\nfail: provider_error It broke.") as (house, client):
        frames = await client.run("Hi")
        assert types_of(frames).count("error") == 1
        assert types_of(frames)[-2:] == ["error", "agent_error"]
        assert (frames[-1]["payload"]["code"], frames[-1]["payload"]["message"]) == ("provider_error", "It broke.")
        other = house.client()
        await other.start(model_ref="groq/openai-completions@x")
        frames = await other.run("Hi")
        assert types_of(frames)[-2:] == ["error", "agent_error"]
        assert (frames[-1]["payload"]["code"], frames[-1]["payload"]["provider_id"]) == ("auth_required", "groq")


@pytest.mark.req("MK-AGENT-015")
async def test_a_busy_session_refuses_a_second_message_and_other_sessions_go_on(tmp_path: Path) -> None:
    async with agent_client(tmp_path, HELLO + "\n---\nwhen: slow\n" + SLOW) as (_, client):
        await running(client, "slow")
        busy_id = await client.say("agent_message", words("And?"))
        error = (await client.hear_until("agent_error"))[-1]
        assert (error["in_reply_to"], error["payload"]["code"]) == (busy_id, "agent_busy")
        other = AgentPeer(client.peer)
        await other.say("agent_start", {"model_ref": REF})
        await other.say("agent_message", words("Hi"))
        frames = await client.hear_until("agent_result")
        theirs = [frame for frame in frames if frame["session_id"] == other.session_id]
        assert frames[-1] == theirs[-1]
        runs = {frame["payload"]["run_id"] for frame in theirs if frame["type"] == "agent_event"}
        assert runs == {theirs[-1]["payload"]["run_id"]}
        frames = await client.ask("agent_stop", {}, "agent_stopped")
        mine = [frame for frame in frames if frame["session_id"] == client.session_id]
        assert types_of(mine)[-3:] == ["error", "agent_error", "agent_stopped"]


@pytest.mark.req("MK-AGENT-018")
async def test_the_status_tells_idle_running_and_waiting_apart(tmp_path: Path) -> None:
    async with agent_house(tmp_path, LOOKS + "\n---\nwhen: slow\n" + SLOW) as house:
        client, watcher = house.client(), house.client()
        watcher.session_id = client.session_id

        async def status() -> JSON:
            watcher.sent = 0
            ack, info = await watcher.ask("agent_status", {}, "session_info")
            assert ack["type"] == "ack"
            answer: JSON = info["payload"]
            return answer

        await client.start(tools=[LOOK], title="Sea")
        times = {"created_at": 0, "updated_at": 0}
        told = {
            "session_id": client.session_id,
            "model_ref": REF,
            "mode": "ask",
            "sandbox": "workspace-write",
            "title": "Sea",
            "event_id": 1,
        }
        counts = {"usage": {"input": 0, "output": 0}, "pending_permissions": []}
        assert (await status()) | times == {"status": "idle", **told, **counts, **times}
        await client.say("agent_message", words("Look"))
        call = (await client.hear_until("tool_execute"))[-1]["payload"]
        assert (await status())["status"] == "waiting_for_tool"
        await client.ask("tool_result", {"tool_call_id": call["tool_call_id"], "content": "x"}, "agent_result")
        assert (await status())["status"] == "idle"
        await running(client, "slow")
        told = await status()
        assert (told["status"], "run_id" in told) == ("running", True)
        await client.ask("agent_stop", {}, "agent_stopped")


@pytest.mark.req("MK-AGENT-019")
@pytest.mark.parametrize("kind", ["agent_message", "agent_stop", "agent_status", "tool_list", "permission_response"])
async def test_an_unknown_session_is_never_answered_by_silence(tmp_path: Path, kind: str) -> None:
    payload = words("Hi") | {"tool_call_id": "c", "decision": "approve"}
    async with agent_house(tmp_path, HELLO) as house:
        (nack,) = await house.client().ask(kind, payload)
        assert codes([nack]) == ["session_not_found"]
        (nack,) = await house.client().ask("agent_start", {"resume": True})
        assert codes([nack]) == ["session_not_found"]


async def test_what_cannot_be_started_is_nacked(tmp_path: Path) -> None:
    async with agent_client(tmp_path, HELLO) as (house, client):
        wrong: list[tuple[JSON, str]] = [
            ({"model_ref": "unknown/x@y"}, "invalid_request"),
            ({"model_ref": REF, "cwd": str(tmp_path / "no"), "builtin_tools": True}, "invalid_request"),
            ({"resume": True, "model_ref": "garbage"}, "invalid_request"),
        ]
        for payload, code in wrong:
            (nack,) = await house.client().ask("agent_start", payload)
            assert codes([nack]) == [code]
        taken = house.client(client.session_id)
        (nack,) = await taken.ask("agent_start", {"model_ref": REF})
        assert codes([nack]) == ["session_already_exists"]
        (nack,) = await taken.ask("agent_start", {"resume": True, "after_event_id": 99}, "agent_started")
        assert codes([nack]) == ["sequence_gap"]
        (nack,) = await client.ask("agent_start", {"resume": True})
        assert codes([nack]) == ["session_already_exists"]
        assert types_of(await client.run("Hi"))[-1] == "agent_result"


async def test_a_cursor_from_the_future_is_refused(tmp_path: Path) -> None:
    async with agent_client(tmp_path, HELLO) as (house, client):
        (nack,) = await house.client(client.session_id).ask("agent_start", {"resume": True, "after_event_id": 99})
        assert codes([nack]) == ["invalid_request"]


@pytest.mark.req("MK-MODEL-025")
async def test_one_resolver_decides_for_streams_completions_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(ModelRuntime({"MAKAI_HOME": str(tmp_path)}))
        echo = runtime.resolve("scripted/scripted@echo")
        monkeypatch.setattr(runtime.resolver, "resolve", lambda name: echo)
        sessions = await stack.enter_async_context(sessions_of(runtime))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        ours, theirs = memory_pair()
        group.create_task(MakaiServer(runtime, sessions=sessions.get).serve(theirs))
        stack.push_async_callback(ours.close)
        peer = Peer(ours)
        for kind in ("stream_request", "complete_request"):
            frames = await peer.ask(ask(kind, payload={"model_ref": "no/such@model", "context": words("Hi")}))
            assert frames[-1]["payload"]["content"] == [{"type": "text", "text": "Hi"}]
        client = AgentPeer(peer)
        await client.start(model_ref="no/such@model")
        result = (await client.run("Hi"))[-1]
        assert (result["type"], result["payload"]["model_id"]) == ("agent_result", "echo")


async def test_the_tools_and_models_of_a_session_are_listed(tmp_path: Path) -> None:
    async with agent_client(tmp_path, HELLO, tools=[LOOK, LOOK | {"name": "listen"}]) as (_, client):
        _, listed = await client.ask("tool_list", {"prefix": "loo"}, "tool_list_response")
        assert listed["payload"] == {"tools": [LOOK]}
        _, mine = await client.ask("models_request", {"provider_id": "scripted"}, "models_response")
        _, providers = await client.peer.ask(envelope("models_request", {"provider_id": "scripted"}), "models_response")
        assert mine["payload"]["models"] == providers["payload"]["models"]
        assert types_of(await client.run("Hi"))[-1] == "agent_result"


@pytest.mark.req("MK-AGENT-017")
async def test_a_stop_settles_the_run_and_nothing_of_it_follows(tmp_path: Path) -> None:
    async with agent_client(tmp_path, SLOW) as (house, client):
        message_id = await running(client)
        stop_id = await client.say("agent_stop", {"reason": "enough"})
        frames = await client.hear_until("agent_stopped")
        assert types_of(frames)[-3:] == ["error", "agent_error", "agent_stopped"]
        assert types_of(frames).count("ack") == 1
        assert (frames[-2]["in_reply_to"], frames[-2]["payload"]["code"]) == (message_id, "aborted")
        assert frames[-2]["payload"]["message"] == "enough"
        assert frames[-1]["in_reply_to"] == stop_id
        assert frames[-1]["payload"] == {"session_id": client.session_id, "reason": "enough"}
        # The next thing that is heard on this connection is the answer to this.
        assert types_of(await client.ask("agent_status", {}, "session_info")) == ["ack", "session_info"]
        assert client.heard[-1]["payload"]["status"] == "idle"
        desk = Desk(house.sessions, client.session_id)
        await desk.until_settled()
        assert desk.events(RunAborted) == [RunAborted(by="makai", reason="enough", token="local")]


@pytest.mark.req("MK-AGENT-016", "MK-AGENT-017")
async def test_a_stopped_session_is_taken_up_again_on_the_same_connection(tmp_path: Path) -> None:
    async with agent_client(tmp_path, HELLO + "\n---\nwhen: slow\n" + SLOW) as (_, client):
        await running(client, "slow")
        await client.ask("agent_stop", {}, "agent_stopped")
        assert types_of(await client.run("Hi"))[-1] == "agent_result"
        await client.ask("agent_stop", {"detach": True}, "agent_stopped")
        assert client.heard[-1]["payload"]["reason"] == "detached"
        client.sent = 0
        started = await client.attach()
        assert started["resumed"] is True
        assert client.heard[-1]["sequence"] == 2


async def test_an_idle_session_is_let_go_of_at_once_also_by_a_client_that_was_not_attached(tmp_path: Path) -> None:
    async with agent_client(tmp_path, HELLO) as (house, client):
        assert types_of(await client.ask("agent_stop", {}, "agent_stopped")) == ["ack", "agent_stopped"]
        other = house.client(client.session_id)
        assert types_of(await other.ask("agent_stop", {}, "agent_stopped")) == ["ack", "agent_stopped"]
        again = await other.ask("agent_stop", {"detach": True}, "agent_stopped")
        assert types_of(again) == ["ack", "agent_stopped"]


@pytest.mark.req("MK-TOOL-010", "MK-AGENT-017")
async def test_a_stop_releases_a_call_that_waits_for_the_client(tmp_path: Path) -> None:
    async with agent_client(tmp_path, LOOKS, tools=[LOOK]) as (_, client):
        await client.say("agent_message", words("Look"))
        call = (await client.hear_until("tool_execute"))[-1]["payload"]
        frames = await client.ask("agent_stop", {}, "agent_stopped")
        assert types_of(frames) == ["ack", "tool_execution_end", "error", "agent_error", "agent_stopped"]
        (nack,) = await client.ask("tool_result", {"tool_call_id": call["tool_call_id"], "content": "late"})
        assert codes([nack]) == ["tool_call_not_found"]


@pytest.mark.req("MK-TOOL-010", "MK-AGENT-021")
async def test_a_lost_client_fails_only_its_tool_and_the_run_goes_on(tmp_path: Path) -> None:
    async with agent_client(tmp_path, LOOKS, tools=[LOOK]) as (house, client):
        await client.say("agent_message", words("Look"))
        await client.hear_until("tool_execute")
        await client.peer.channel.close()
        desk = Desk(house.sessions, client.session_id)
        settled = await desk.until_settled()
        assert getattr(settled, "stop_reason", None) == "end_turn"
        (finished,) = desk.events(ToolFinished)
        assert finished.is_error
        assert "tool_unavailable" in str(finished.content)
        again = house.client(client.session_id)
        frames = await again.run("Hi")
        assert types_of(frames)[0] == "ack"
        assert frames[-1]["payload"]["stop_reason"] == "end_turn"


@pytest.mark.req("MK-AGENT-021", "MK-AGENT-016")
async def test_after_a_restart_a_message_to_the_same_session_continues_from_the_log(tmp_path: Path) -> None:
    log = MemoryLog()
    async with agent_client(tmp_path, HELLO, log) as (house, client):
        await client.run("Hi")
    async with agent_house(tmp_path, HELLO, log) as house:
        again = house.client(client.session_id)
        frames = await again.run("Hi again")
        assert frames[-1]["payload"]["message"]["content"] == [{"type": "text", "text": "Hello again."}]
        said = [("user", "Hi"), ("assistant", "Hello to you."), ("user", "Hi again"), ("assistant", "Hello again.")]
        assert await house.conversation(client.session_id) == said


async def test_a_deleted_session_is_over_for_whoever_is_attached(tmp_path: Path) -> None:
    async with agent_client(tmp_path, SLOW) as (house, client):
        await running(client)
        assert await house.sessions.dispatch(DeleteSession(client.session_id))
        frames = await client.hear_until("agent_stopped")
        assert types_of(frames)[-1] == "agent_stopped"
        assert "agent_error" in types_of(frames)
        assert "in_reply_to" not in frames[-1]


async def test_a_server_that_shuts_down_takes_no_new_words(tmp_path: Path) -> None:
    async with agent_house(tmp_path, HELLO) as house:

        async def sessions() -> Any:
            return house.sessions

        async with scripted_models(tmp_path, HELLO) as models, asyncio.TaskGroup() as group:
            server = MakaiServer(models, sessions=sessions)
            ours, theirs = memory_pair()
            group.create_task(server.serve(theirs))
            client = AgentPeer(Peer(ours))
            await client.start()
            await server.drain(0)
            (nack,) = await client.ask("agent_message", words("Hi"))
            assert codes([nack]) == ["overloaded"]
            assert types_of(await client.ask("agent_status", {}, "session_info")) == ["ack", "session_info"]
            await ours.close()


@pytest.mark.parametrize("failure", [StorageUnavailable, TransportError])
async def test_sessions_that_cannot_be_opened_refuse_only_agents(tmp_path: Path, failure: type[MakaiError]) -> None:
    async def sessions() -> Any:
        raise failure("The disk is full.", hint="Make room.")

    async with scripted_models(tmp_path, HELLO) as models, asyncio.TaskGroup() as group:
        ours, theirs = memory_pair()
        group.create_task(MakaiServer(models, sessions=sessions).serve(theirs))
        client = AgentPeer(Peer(ours))
        for _ in range(2):
            client.sent = 0
            (nack,) = await client.ask("agent_start", {"model_ref": REF})
            assert (codes([nack]), nack["payload"]["hint"]) == (["storage_unavailable"], "Make room.")
        await ours.close()
