"""Several clients in one session: what each one sees, who executes tools, and who decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.agents import LOOK, AgentHouse, AgentPeer, agent_client, agent_house, codes, events_of, types_of, words
from support.wire import JSON

from makai.sessions.requests import GetState

LOOKS = """
think: I should look.
tool: look {"at": "sea"}
---
say: Water.
"""
WRITES = 'tool: write {"path": "a.txt", "content": "A"}\n---\nsay: Done.'


async def test_a_second_client_sees_the_run_from_its_start_and_its_settlement(tmp_path: Path) -> None:
    async with agent_client(tmp_path, LOOKS, tools=[LOOK]) as (house, client):
        await client.say("agent_message", words("Look"))
        call = (await client.hear_until("tool_execute"))[-1]["payload"]
        watcher = house.client(client.session_id)
        started = await watcher.attach(model_ref=None)
        assert started["event_id"] == 1
        await client.ask("tool_result", {"tool_call_id": call["tool_call_id"], "content": "x"}, "agent_result")
        await watcher.hear_until("agent_result")
        assert events_of(watcher.heard) == events_of(client.heard)
        assert "tool_execute" not in types_of(watcher.heard)
        assert "in_reply_to" not in watcher.heard[-1]
        assert watcher.heard[-1]["payload"] == client.heard[-1]["payload"]


async def test_every_cursor_that_was_seen_leads_to_exactly_the_rest(tmp_path: Path) -> None:
    async with agent_client(tmp_path, LOOKS, tools=[LOOK]) as (house, client):
        await client.say("agent_message", words("Look"))
        await client.execute()
        await client.hear_until("agent_result")
        told = [frame["payload"] for frame in client.heard if frame["type"] == "agent_event"]
        for place, payload in enumerate(told):
            if payload.get("event_id") is None:
                continue
            again = house.client(client.session_id)
            await again.attach(after_event_id=payload["event_id"])
            rest: list[Any] = []
            while len(rest) < len(told) - place - 1:
                rest.append((await again.hear_until("agent_event"))[-1]["payload"])
            assert rest == told[place + 1 :]


async def test_the_newest_client_that_declares_the_tools_is_asked(tmp_path: Path) -> None:
    async with agent_house(tmp_path, LOOKS) as house:
        first, second = house.client(), house.client()
        await first.start(tools=[LOOK], title="A")
        second.session_id = first.session_id
        await second.attach(tools=[LOOK], title="B", mode="plan", system_prompt="Be brief.")
        state = await house.sessions.dispatch(GetState(first.session_id))
        assert (state.title, state.mode, state.terms.system) == ("B", "plan", "Be brief.")
        await first.say("agent_message", words("Look"))
        await second.execute("From the second.")
        frames = await first.hear_until("agent_result")
        assert "tool_execute" not in types_of(frames)
        assert ("tool", "From the second.") in await house.conversation(first.session_id)


@asynccontextmanager
async def asked(folder: Path, project: Path) -> AsyncIterator[tuple[AgentHouse, AgentPeer, JSON]]:
    """A client whose agent wants to write a file into the project, and the question."""
    async with agent_client(folder, WRITES, builtin_tools=True, cwd=str(project), approval_s=60) as (house, client):
        await client.say("agent_message", words("Write"))
        yield house, client, (await client.hear_until("permission_request"))[-1]["payload"]


async def test_a_question_reaches_every_client_and_the_first_answer_counts(tmp_path: Path, project: Path) -> None:
    async with asked(tmp_path, project) as (house, client, question):
        assert (question["tool_name"], question["arguments"]) == ("write", {"path": "a.txt", "content": "A"})
        other = house.client(client.session_id)
        await other.attach()
        assert (await other.hear_until("permission_request"))[-1]["payload"] == question
        ack, info = (await other.ask("agent_status", {}, "session_info"))[-2:]
        assert (ack["type"], info["payload"]["status"]) == ("ack", "waiting_for_permission")
        assert info["payload"]["pending_permissions"] == [question["tool_call_id"]]
        answer = {"tool_call_id": question["tool_call_id"], "decision": "approve", "digest": question["digest"]}
        frames = await other.ask("permission_response", answer, "permission_settled")
        assert types_of(frames) == ["ack", "permission_settled"]
        settled = (await client.hear_until("permission_settled"))[-1]["payload"]
        assert settled == {"tool_call_id": question["tool_call_id"], "decision": "approve", "by": "makai"}
        late = await client.ask("permission_response", answer | {"decision": "deny"})
        assert codes(late)[-1] == "permission_conflict"
        if "agent_result" not in types_of(client.heard):
            await client.hear_until("agent_result")
        assert (project / "a.txt").read_text() == "A"


async def test_a_denied_call_is_not_run_and_unknown_ones_are_nacked(tmp_path: Path, project: Path) -> None:
    async with asked(tmp_path, project) as (house, client, question):
        wrong: list[tuple[JSON, str]] = [
            ({"tool_call_id": "unknown", "decision": "deny"}, "tool_call_not_found"),
            ({"tool_call_id": question["tool_call_id"], "decision": "maybe"}, "invalid_request"),
            ({"tool_call_id": question["tool_call_id"], "decision": "approve", "digest": "x"}, "permission_conflict"),
        ]
        for payload, code in wrong:
            (nack,) = await client.ask("permission_response", payload)
            assert codes([nack]) == [code]
        answer = {"tool_call_id": question["tool_call_id"], "decision": "deny", "reason": "Not there."}
        frames = await client.ask("permission_response", answer, "agent_result")
        assert types_of(frames)[:2] == ["ack", "permission_settled"]
        assert frames[1]["payload"]["reason"] == "Not there."
        assert ("tool error", "denied: Not there.") in await house.conversation(client.session_id)
        assert not (project / "a.txt").exists()


async def test_a_client_that_comes_back_is_asked_what_is_pending_and_nothing_else(
    tmp_path: Path, project: Path
) -> None:
    async with asked(tmp_path, project) as (house, client, question):
        cursor = max(frame["payload"].get("event_id", 0) for frame in client.heard if frame["type"] == "agent_event")
        await client.peer.channel.close()
        state = await house.sessions.dispatch(GetState(client.session_id))
        again = house.client(client.session_id)
        await again.attach(after_event_id=state.last_event_id)
        (asked_again,) = await again.hear_until("permission_request")
        assert asked_again["payload"] == question
        answer = {"tool_call_id": question["tool_call_id"], "decision": "approve"}
        await again.ask("permission_response", answer, "agent_result")
        third = house.client(client.session_id)
        await third.attach(after_event_id=cursor)
        await third.hear_until("agent_result")
        assert not {"permission_request", "permission_settled"} & set(types_of(third.heard))
