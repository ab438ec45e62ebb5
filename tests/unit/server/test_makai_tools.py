"""Tool servers of a connection and real sessions: what is shown, when the time of a call counts, what is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.agents import AgentHouse, agent_house, codes, types_of
from support.live_sessions import SCENARIO_MODEL, Desk
from support.tool_servers import LOOK, ToolServerPeer

from makai.core import session_events as ev
from makai.core.content import Image, Text
from makai.server import makai_tools
from makai.sessions.requests import CreateSession

CALLS = "tool: desk__look {}\n---\nsay: Seen."


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[AgentHouse]:
    async with asyncio.timeout(60), agent_house(tmp_path, CALLS) as house:
        yield house


async def calling(house: AgentHouse) -> Desk:
    wanted = CreateSession(model_ref=SCENARIO_MODEL, terms=ev.SessionTerms(tool_servers=("desk",)))
    client = Desk(house.sessions, await house.sessions.dispatch(wanted))
    await client.send("look")
    return client


async def shown_and_answered(client: Desk) -> tuple[str, Sequence[object]]:
    await client.until_settled()
    events = [logged.event for logged in client.seen]
    shown = "".join(event.text for event in events if isinstance(event, ev.ToolProgress))
    (finished,) = [event for event in events if isinstance(event, ev.ToolFinished)]
    return shown, finished.content


@pytest.mark.req("MK-TOOL-012")
async def test_updates_are_shown_within_a_bound_and_the_answer_may_have_parts(
    house: AgentHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(makai_tools, "MAX_REPORTED", 150)
    server = ToolServerPeer(house.peer())
    await server.register()
    client = await calling(house)
    request = await server.requested()
    for text in ("one ", "two ", "three "):
        update = {"execution_id": request["execution_id"], "text": text}
        assert types_of(await server.ask("tool_execution_update", update, "ack")) == ["ack"]
    picture = {"type": "image", "mime_type": "image/png", "data": "aGk="}
    await server.respond(request, [{"type": "text", "text": "Water."}, picture])

    assert await shown_and_answered(client) == (
        "one two ",
        (Text(text="Water."), Image(mime_type="image/png", data="aGk=")),
    )


@pytest.mark.req("MK-TOOL-013")
async def test_the_time_counts_again_from_the_start_and_only_once(
    house: AgentHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted: list[float] = []
    reschedule = asyncio.Timeout.reschedule

    def noting(limit: asyncio.Timeout, when: float | None) -> None:
        if when is not None:
            restarted.append(when)
        reschedule(limit, when)

    server = ToolServerPeer(house.peer())
    await server.register(timeout_ms=30_000)
    client = await calling(house)
    request = await server.requested()
    monkeypatch.setattr(asyncio.Timeout, "reschedule", noting)
    for _ in range(2):
        await server.ask("tool_execution_start", {"execution_id": request["execution_id"]}, "ack")
    starts = [when for when in restarted if 25 < when - asyncio.get_running_loop().time() < 31]
    assert len(starts) == 1
    await server.respond(request)
    assert await shown_and_answered(client) == ("", (Text(text="Water."),))


@pytest.mark.req("MK-TOOL-014")
async def test_a_program_that_registers_again_on_a_new_connection_takes_over_and_leaves_it_back(
    house: AgentHouse,
) -> None:
    old, new = ToolServerPeer(house.peer()), ToolServerPeer(house.peer())
    await old.register()
    await new.register()
    answered = []
    client = await calling(house)
    await new.respond(await new.requested(), "new")
    answered.append(await shown_and_answered(client))
    await new.ask("tool_unregister", {}, "tool_unregistered")
    client = await calling(house)
    await old.respond(await old.requested(), "old")
    answered.append(await shown_and_answered(client))
    assert answered == [("", (Text(text="new"),)), ("", (Text(text="old"),))]


async def test_a_name_that_no_model_could_call_is_nacked(house: AgentHouse) -> None:
    server = ToolServerPeer(house.peer())
    assert codes(await server.register(LOOK | {"name": "x" * 59})) == ["invalid_request"]
