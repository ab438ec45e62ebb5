"""Two programs that share a MAKAI_HOME: one owns the sessions, the other works with them through its socket."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest
from support.attach import MODEL_REF, Programs, pair, programs, read_until

from makai.core.content import Text
from makai.core.errors import ChannelClosed, InvalidRequest, SessionRefused, ToolTimeout
from makai.core.request import ToolDefinition
from makai.core.session_events import Logged, SessionTerms, ToolFinished, ToolProgress
from makai.harness.base import Execute, Report, ToolAnswer, ToolRequest, ToolServerOffer
from makai.server.session_router import SessionRouter
from makai.sessions import requests as req
from makai.sessions.commands import Abort, ApproveCall, Send, SetTitle
from makai.sessions.log import encoding
from makai.sessions.log.base import Record, SessionFilter, TrustedFolder
from makai.sessions.owner import HANDLERS, OwnedSessions

TOOL = ToolDefinition(name="look", description="Looks.", parameters_schema_json='{"type":"object"}')
CALLS_A_TOOL = 'tool: look {"where": "there"}\n---\nsay: Seen.'


def send(text: str = "hi") -> Send:
    return Send(now=0, input_id=f"input-{text}", content=text, client_msg_id=text)


async def whole_log(sessions: SessionRouter, session_id: str) -> list[Record]:
    records: list[Record] = []
    while page := await sessions.dispatch(req.ReadEvents(session_id, records[-1].event_id if records else 0)):
        records += page
    return records


async def session_with_a_tool(sessions: SessionRouter) -> str:
    terms = SessionTerms(tools=(TOOL,))
    return await sessions.dispatch(req.CreateSession(model_ref=MODEL_REF, mode="never_ask", terms=terms))


async def call_a_tool(sessions: SessionRouter, execute: Execute) -> str:
    """Start a run that calls a tool of this program; returns the session's id."""
    session_id = await session_with_a_tool(sessions)
    await sessions.register_executor(session_id, execute)
    await sessions.dispatch(req.RunCommand(session_id, send()))
    return session_id


def outcome(records: list[Record]) -> ToolFinished:
    events = [logged.event for logged in encoding.decoded(records) if isinstance(logged, Logged)]
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    return finished


async def test_the_first_program_owns_and_the_second_attaches(home: Path) -> None:
    async with programs(home) as sharing:
        first = await sharing.start("first")
        second = await sharing.start("second")

        assert (first.is_owner, second.is_owner) == (True, False)
        assert (first.owner_pid, second.owner_pid) == (os.getpid(), os.getpid())
    assert sharing.took_over == []


async def test_everything_can_be_asked_through_the_link_and_is_answered_the_same(home: Path) -> None:
    async with pair(home) as (owner, attached):
        session_id = await attached.dispatch(req.CreateSession(model_ref=MODEL_REF, title="One"))
        receipt = await attached.dispatch(req.RunCommand(session_id, send()))
        await read_until(owner.follow(session_id), "run_finished")
        await attached.dispatch(req.SetTrust(str(home), True))

        queries: list[req.Request[object]] = [
            req.ReadEvents(session_id, 2, 3),
            req.ReadEvents(session_id, deltas=False),
            req.GetState(session_id),
            req.GetSession(session_id),
            req.GetSession("unknown"),
            req.ListSessions(),
            req.ListSessions(SessionFilter(awaiting_approval=True)),
            req.SearchSessions(query="one", wait_s=30),
            req.GetUsage(wait_s=30),
            req.ListApprovals(),
            req.IsTrusted(str(home / "project")),
            req.ListTrusted(),
            req.ListGrants(),
            req.CheckLog(),
        ]
        answers = [await attached.dispatch(query) for query in queries]

        assert receipt.run_id is not None
        assert answers == [await owner.dispatch(query) for query in queries]
        assert answers[-4:-1] == [True, [TrustedFolder(str(home), True)], []]
        assert await attached.dispatch(req.RevokeGrant(str(home), "Bash(ls)")) is False
        assert await attached.dispatch(req.DeleteSession(session_id)) is True
        assert await attached.dispatch(req.DeleteSession(session_id)) is False


class CountEvents(req.Query[dict[str, int]], frozen=True):
    """An operation that only this test knows: its definition, and below its handler."""

    session_ids: tuple[str, ...]


async def test_a_new_operation_needs_a_definition_and_a_handler(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def count(sessions: OwnedSessions, request: CountEvents) -> dict[str, int]:
        return {one: len(await sessions.dispatch(req.ReadEvents(one))) for one in request.session_ids}

    monkeypatch.setitem(HANDLERS, cast(type[req.Request[object]], CountEvents), count)
    async with pair(home) as (owner, attached):
        session_id = await owner.dispatch(req.CreateSession(model_ref=MODEL_REF))

        assert await attached.dispatch(CountEvents((session_id, "unknown"))) == {session_id: 1, "unknown": 0}


async def test_refusals_arrive_as_they_were_raised(home: Path) -> None:
    async with pair(home) as (_, attached):
        session_id = await attached.dispatch(req.CreateSession(model_ref=MODEL_REF))

        with pytest.raises(SessionRefused) as unknown:
            await attached.dispatch(req.RunCommand("unknown", send()))
        with pytest.raises(SessionRefused) as idle:
            await attached.dispatch(req.RunCommand(session_id, Abort(now=0)))
        with pytest.raises(SessionRefused) as not_followed:
            await attached.follow("unknown").next()
        with pytest.raises(SessionRefused) as exists:
            await attached.dispatch(req.CreateSession(model_ref=MODEL_REF, session_id=session_id))
        with pytest.raises(InvalidRequest):
            await attached.dispatch(req.RunCommand(session_id, SetTitle(now=0, title="a\0b")))

    codes = [error.value.code for error in (unknown, idle, not_followed, exists)]
    assert codes == ["UNKNOWN_SESSION", "NOT_RUNNING", "UNKNOWN_SESSION", "SESSION_EXISTS"]


async def test_followers_in_both_programs_receive_the_log(home: Path) -> None:
    async with pair(home, "repeat: 3000 word") as (owner, attached):
        session_id = await owner.dispatch(req.CreateSession(model_ref=MODEL_REF))
        followers = [attached.follow(session_id), attached.follow(session_id, after=3), owner.follow(session_id)]
        reading = asyncio.gather(*(read_until(follower, "run_finished") for follower in followers))
        await attached.dispatch(req.RunCommand(session_id, send()))
        received = await reading
        log = await whole_log(owner, session_id)

    assert received == [log, log[3:], log]
    assert [follower.cursor for follower in followers] == [len(log)] * 3


async def test_a_follower_that_is_closed_wakes_with_nothing(home: Path) -> None:
    async with pair(home) as (_, attached):
        follower = attached.follow(await attached.dispatch(req.CreateSession(model_ref=MODEL_REF)), after=1)
        waiting = asyncio.ensure_future(follower.next())
        await asyncio.sleep(0)
        follower.close()

        assert await waiting == []
        assert await follower.next() == []


async def test_a_deleted_session_ends_its_followers(home: Path) -> None:
    async with pair(home) as (owner, attached):
        session_id = await owner.dispatch(req.CreateSession(model_ref=MODEL_REF))
        follower = attached.follow(session_id)
        await follower.next()
        waiting = asyncio.ensure_future(follower.next())
        await attached.dispatch(req.ListSessions())  # by its answer the owner has got what was said before it
        await owner.dispatch(req.DeleteSession(session_id))

        with pytest.raises(SessionRefused) as refused:
            await waiting
    assert refused.value.code == "UNKNOWN_SESSION"


async def test_an_attached_program_carries_out_its_own_tools(home: Path) -> None:
    requests: list[ToolRequest] = []

    async def execute(request: ToolRequest) -> ToolAnswer:
        requests.append(request)
        return ToolAnswer(content=(Text(text="a fox"),), details_json='{"seen":1}')

    async with pair(home, CALLS_A_TOOL) as (_, attached):
        session_id = await call_a_tool(attached, execute)
        records = await read_until(attached.follow(session_id), "run_finished")

    (request,) = requests
    assert (request.session_id, request.name, request.arguments) == (session_id, "look", {"where": "there"})
    assert outcome(records) == ToolFinished(
        call_id=request.call_id, content=(Text(text="a fox"),), details_json='{"seen":1}'
    )


async def test_a_tool_that_breaks_is_an_error_of_the_call_and_not_of_the_link(home: Path) -> None:
    async def execute(request: ToolRequest) -> ToolAnswer:
        raise ValueError("no")

    async with pair(home, CALLS_A_TOOL) as (_, attached):
        session_id = await call_a_tool(attached, execute)
        records = await read_until(attached.follow(session_id), "run_finished")

        assert outcome(records).is_error
        assert not attached.is_owner


async def test_an_abort_cancels_the_tool_in_the_other_program(home: Path) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def execute(request: ToolRequest) -> ToolAnswer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with pair(home, CALLS_A_TOOL) as (_, attached):
        session_id = await call_a_tool(attached, execute)
        await begun.wait()
        await attached.dispatch(req.RunCommand(session_id, Abort(now=0)))
        await cancelled.wait()
        await read_until(attached.follow(session_id), "run_finished")


@pytest.mark.parametrize("leaves_by", ["leave", "close"])
async def test_a_program_that_leaves_fails_the_calls_that_wait_for_it(home: Path, leaves_by: str) -> None:
    begun = asyncio.Event()

    async def execute(request: ToolRequest) -> ToolAnswer:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with pair(home, CALLS_A_TOOL) as (owner, attached):
        session_id = await session_with_a_tool(owner)
        executor = await attached.register_executor(session_id, execute)
        await owner.dispatch(req.RunCommand(session_id, send()))
        await begun.wait()
        if leaves_by == "leave":
            executor.unregister()
        else:
            await attached.close()
        finished = outcome(await read_until(owner.follow(session_id), "run_finished"))

    assert finished.is_error
    assert "tool_unavailable" in str(finished.content)


async def test_after_closing_nothing_can_be_asked(home: Path) -> None:
    async with pair(home) as (owner, attached):
        followers = [sessions.follow("any") for sessions in (owner, attached)]
        for sessions in (attached, owner):
            await sessions.close()
            await sessions.close()
            with pytest.raises(ChannelClosed):
                await sessions.dispatch(req.ListSessions())

        assert [await follower.next() for follower in followers] == [[], []]


async def closed_owner(sharing: Programs) -> tuple[SessionRouter, SessionRouter, SessionRouter]:
    return await sharing.start("owner"), await sharing.start("second"), await sharing.start("third")


async def test_an_owner_that_closes_is_followed_by_exactly_one_other(home: Path) -> None:
    async with programs(home) as sharing:
        owner, second, third = await closed_owner(sharing)
        session_id = await owner.dispatch(req.CreateSession(model_ref=MODEL_REF))
        followers = [second.follow(session_id), third.follow(session_id)]
        first = [await follower.next() for follower in followers]
        await owner.close()
        await second.dispatch(req.RunCommand(session_id, SetTitle(now=0, title="after it")))
        rest = [await read_until(follower, "after it") for follower in followers]
        log = await whole_log(third, session_id)

        assert [before + after for before, after in zip(first, rest, strict=True)] == [log, log]
        assert [second.is_owner, third.is_owner].count(True) == 1
        assert len(sharing.took_over) == 1


async def test_executors_are_registered_again_with_the_next_owner(home: Path) -> None:
    async def execute(request: ToolRequest) -> ToolAnswer:
        return ToolAnswer(content=(Text(text="a fox"),))

    async with programs(home, CALLS_A_TOOL) as sharing:
        owner, second, third = await closed_owner(sharing)
        session_id = await session_with_a_tool(owner)
        await second.register_executor(session_id, execute)
        await third.register_executor(session_id, execute)
        await owner.close()
        await second.dispatch(req.RunCommand(session_id, send()))
        records = await read_until(second.follow(session_id), "run_finished")

    assert outcome(records).content == (Text(text="a fox"),)


async def test_a_question_that_outlives_its_owner_is_answered_and_the_tool_runs_once(home: Path, project: Path) -> None:
    script = 'tool: shell {"command": "echo once >> out.txt"}\n---\nsay: Done.'
    async with programs(home, script) as sharing:
        owner, second, _ = await closed_owner(sharing)
        terms = SessionTerms(builtin_tools=True)
        session_id = await owner.dispatch(req.CreateSession(model_ref=MODEL_REF, cwd=str(project), terms=terms))
        await second.dispatch(req.RunCommand(session_id, send()))
        follower = second.follow(session_id)
        await read_until(follower, "approval_requested")
        await owner.close()
        (question,) = await second.dispatch(req.ListApprovals())
        approval = ApproveCall(now=0, call_id=question.request.call_id, by="test")
        await second.dispatch(req.RunCommand(session_id, approval))
        rest = await read_until(follower, "run_finished")

    assert outcome(rest).exit_code == 0
    assert (project / "out.txt").read_text() == "once\n"


async def test_commands_given_while_the_owner_closes_are_carried_out_once(home: Path) -> None:
    async with programs(home) as sharing:
        owner, second, third = await closed_owner(sharing)
        session_id = await owner.dispatch(req.CreateSession(model_ref=MODEL_REF))
        closing = asyncio.ensure_future(owner.close())
        titles = [f"title {number}" for number in range(20)]
        asked = (
            program.dispatch(req.RunCommand(session_id, SetTitle(now=0, title=title)))
            for title, program in zip(titles, [second, third] * 10, strict=True)
        )
        await asyncio.gather(closing, *asked)
        lines = [record.line.decode() for record in await whole_log(third, session_id)]

    assert sorted(title for title in titles for line in lines if f'"{title}"' in line) == sorted(titles)


def server_offer() -> ToolServerOffer:
    return ToolServerOffer(server_id="desk", tools=(TOOL,), timeout_s=60.0)


async def call_a_served_tool(sessions: SessionRouter) -> str:
    """Start a run that calls the tool of a program; returns the session's id."""
    terms = SessionTerms(tool_servers=("desk",))
    session_id = await sessions.dispatch(req.CreateSession(model_ref=MODEL_REF, terms=terms))
    await sessions.dispatch(req.RunCommand(session_id, send()))
    return session_id


CALLS_A_SERVED_TOOL = CALLS_A_TOOL.replace("look", "desk__look")


@pytest.mark.req("MK-TOOL-012")
async def test_a_tool_server_of_an_attached_program_shows_its_output_and_answers(home: Path) -> None:
    async def execute(request: ToolRequest, report: Report) -> ToolAnswer:
        report("Looking.")
        return ToolAnswer(content=(Text(text=f"a fox {request.name}"),))

    async with pair(home, CALLS_A_SERVED_TOOL) as (owner, attached):
        await attached.register_tool_server(server_offer(), execute)
        session_id = await call_a_served_tool(owner)
        records = await read_until(owner.follow(session_id), "run_finished")

    assert outcome(records).content == (Text(text="a fox look"),)
    events = [logged.event for logged in encoding.decoded(records) if isinstance(logged, Logged)]
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["Looking."]


@pytest.mark.req("MK-TOOL-013")
async def test_a_timeout_at_an_attached_program_keeps_its_code(home: Path) -> None:
    async def execute(request: ToolRequest, report: Report) -> ToolAnswer:
        raise ToolTimeout("too slow")

    async with pair(home, CALLS_A_SERVED_TOOL) as (owner, attached):
        await attached.register_tool_server(server_offer(), execute)
        session_id = await call_a_served_tool(owner)
        finished = outcome(await read_until(owner.follow(session_id), "run_finished"))

    assert finished.content == (Text(text="tool_timeout: too slow"),)
    assert finished.details_json == '{"error_code":"tool_timeout"}'


@pytest.mark.req("MK-TOOL-013")
async def test_a_tool_server_is_registered_again_with_the_next_owner(home: Path) -> None:
    async def execute(request: ToolRequest, report: Report) -> ToolAnswer:
        return ToolAnswer(content=(Text(text="a fox"),))

    async with programs(home, CALLS_A_SERVED_TOOL) as sharing:
        owner, second, third = await closed_owner(sharing)
        await second.register_tool_server(server_offer(), execute)
        await owner.close()
        session_id = await call_a_served_tool(third)
        records = await read_until(third.follow(session_id), "run_finished")

    assert outcome(records).content == (Text(text="a fox"),)
