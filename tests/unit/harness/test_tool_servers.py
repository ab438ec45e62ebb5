"""Tools of programs in real sessions: whose registration counts, what is shown, and how calls fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.live_sessions import SCENARIO_MODEL, Desk, desk, owned_sessions

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import Forbidden, InvalidRequest, Overloaded, ToolTimeout, ToolUnavailable
from makai.core.request import ToolDefinition
from makai.harness import tool_servers
from makai.harness.base import ExecuteServed, Report, ToolAnswer, ToolRequest, ToolServerOffer
from makai.harness.tool_servers import ToolServers
from makai.sessions.commands import Abort
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession

LOOK = ToolDefinition(name="look", description="Looks.", parameters_schema_json='{"type":"object"}')
CALLS = 'tool: desk__look {"at": "sea"}\n---\nsay: Seen.'
NAMED = ev.SessionTerms(tool_servers=("desk",))
REQUEST = ToolRequest(session_id="s", run_id="r", call_id="c", name="look", arguments={}, server_id="desk")


def offer(**fields: Any) -> ToolServerOffer:
    given: dict[str, Any] = {"server_id": "desk", "tools": (LOOK,), "timeout_s": 60.0}
    return ToolServerOffer(**(given | fields))


def answering(text: str) -> ExecuteServed:
    async def execute(request: ToolRequest, report: Report) -> ToolAnswer:
        return ToolAnswer(content=(Text(text=text),))

    return execute


async def waiting(request: ToolRequest, report: Report) -> ToolAnswer:
    await asyncio.Event().wait()
    raise AssertionError


def ignored(text: str) -> None:
    """Takes a report that a test does not look at."""


async def answer(servers: ToolServers, terms: ev.SessionTerms = NAMED) -> str:
    (part,) = (await servers.execute(terms, REQUEST, ignored)).content
    assert isinstance(part, Text)
    return part.text


@pytest.mark.req("MK-TOOL-014")
async def test_the_newest_registration_gets_the_calls_and_the_one_before_it_when_that_ends() -> None:
    servers = ToolServers()
    servers.register(offer(), answering("old"))
    newest = servers.register(offer(), answering("new"))
    answers = [await answer(servers)]
    newest.unregister()
    newest.unregister()
    answers.append(await answer(servers))
    assert answers == ["new", "old"]


@pytest.mark.req("MK-TOOL-014")
async def test_another_token_is_refused_until_the_registration_ends() -> None:
    servers = ToolServers()
    registration = servers.register(offer(token="a/1", is_shared=False), answering("a"))
    for token in ("", "b/2"):
        with pytest.raises(Forbidden):
            servers.register(offer(token=token), answering("b"))
    registration.unregister()
    servers.register(offer(token="b/2"), answering("b"))
    assert await answer(servers) == "b"


@pytest.mark.req("MK-TOOL-014")
@pytest.mark.parametrize(
    ("token", "is_shared", "named_by", "is_available"),
    [
        ("", True, "", True),
        ("a/1", True, "", True),
        ("a/1", False, "", False),
        ("a/1", False, "a/1", True),
        ("a/1", False, "b/2", False),
        ("", True, "b/2", False),
    ],
)
async def test_a_server_that_may_only_prompt_serves_its_own_sessions(
    token: str, is_shared: bool, named_by: str, is_available: bool
) -> None:
    servers = ToolServers()
    registered = offer(token=token, is_shared=is_shared)
    servers.register(registered, answering("here"))
    terms = msgspec.structs.replace(NAMED, tool_servers_token=named_by)
    assert servers.offer("desk", terms) == ((registered, True) if is_available else (None, False))
    if is_available:
        assert await answer(servers, terms) == "here"
    else:
        with pytest.raises(ToolUnavailable):
            await answer(servers, terms)


@pytest.mark.parametrize(
    "wrong",
    [
        {"server_id": "mcp"},
        {"server_id": "a__b"},
        {"tools": ()},
        {"tools": (LOOK, LOOK)},
        {"tools": (msgspec.structs.replace(LOOK, name=""),)},
        {"tools": (msgspec.structs.replace(LOOK, name="x" * 59),)},
        {"timeout_s": 0.0},
        {"timeout_s": 86_401.0},
    ],
)
def test_an_offer_that_no_model_could_use_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        ToolServers().register(offer(**wrong), answering(""))


async def test_servers_and_calls_are_bounded_and_forgotten_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_servers, "MAX_SERVERS", 2)
    monkeypatch.setattr(tool_servers, "MAX_CALLS", 1)
    servers = ToolServers()
    begun = asyncio.Event()

    async def execute(request: ToolRequest, report: Report) -> ToolAnswer:
        begun.set()
        return await waiting(request, report)

    first = servers.register(offer(), execute)
    servers.register(offer(server_id="b"), waiting)
    with pytest.raises(Overloaded):
        servers.register(offer(server_id="c"), waiting)
    call = asyncio.ensure_future(answer(servers))
    await begun.wait()
    with pytest.raises(Overloaded):
        await answer(servers)
    first.unregister()
    with pytest.raises(ToolUnavailable, match="disconnected during the call"):
        await call
    servers.register(offer(server_id="c"), waiting)
    assert servers.offer("desk", NAMED) == (None, False)


@pytest.mark.req("MK-TOOL-013")
async def test_an_executor_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_servers, "_SLACK_S", 0.0)
    servers = ToolServers()
    servers.register(offer(timeout_s=0.001), waiting)
    with pytest.raises(ToolTimeout):
        await answer(servers)


async def named_session(sessions: OwnedSessions, **terms: Any) -> Desk:
    wanted = CreateSession(model_ref=SCENARIO_MODEL, terms=ev.SessionTerms(tool_servers=("desk",), **terms))
    return Desk(sessions, await sessions.dispatch(wanted))


def facts(client: Desk, *kinds: type[ev.Fact]) -> list[ev.Fact]:
    return [logged.event for logged in client.seen if isinstance(logged.event, kinds)]


def text_of(client: Desk) -> str:
    """What the model got of the one call."""
    (finished,) = facts(client, ev.ToolFinished)
    assert isinstance(finished, ev.ToolFinished)
    (part,) = finished.content
    assert isinstance(part, Text)
    return part.text


@pytest.mark.req("MK-TOOL-012")
async def test_output_is_shown_while_the_tool_runs_and_the_model_gets_the_answer(tmp_path: Path) -> None:
    seen: list[ToolRequest] = []

    async def execute(request: ToolRequest, report: Report) -> ToolAnswer:
        seen.append(request)
        report("Looking.")
        return ToolAnswer(content=(Text(text="Water."),), details_json="{}")

    async with owned_sessions(tmp_path, CALLS) as sessions:
        await sessions.register_tool_server(offer(), execute)
        client = await named_session(sessions)
        settled = await client.run("look")

    assert isinstance(settled, ev.RunFinished)
    (call,) = facts(client, ev.ToolCalled)
    assert isinstance(call, ev.ToolCalled)
    assert (call.name, call.title) == ("desk__look", "look of the tool server desk")
    assert [(one.name, one.server_id, one.arguments) for one in seen] == [("look", "desk", {"at": "sea"})]
    assert facts(client, ev.ToolProgress, ev.ToolFinished) == [
        ev.ToolProgress(call_id=call.call_id, text="Looking."),
        ev.ToolFinished(call_id=call.call_id, content=(Text(text="Water."),), details_json="{}"),
    ]


@pytest.mark.req("MK-TOOL-013")
@pytest.mark.parametrize("was_there", [False, True])
async def test_a_call_of_a_server_that_is_gone_is_unavailable_and_the_run_continues(
    tmp_path: Path, was_there: bool
) -> None:
    async with owned_sessions(tmp_path, CALLS) as sessions:
        if was_there:
            (await sessions.register_tool_server(offer(), waiting)).unregister()
        client = await named_session(sessions)
        settled = await client.run("look")

    assert isinstance(settled, ev.RunFinished)
    (finished,) = facts(client, ev.ToolFinished)
    assert isinstance(finished, ev.ToolFinished)
    assert finished.is_error
    assert finished.details_json == ('{"error_code":"tool_unavailable"}' if was_there else None)
    assert text_of(client).startswith("tool_unavailable: ")
    message = "The tool server 'desk' is not connected. Calls of its tools fail until it is."
    assert facts(client, ev.Notice) == [ev.Notice(level="warning", code="tool_unavailable", message=message)]


@pytest.mark.req("MK-TOOL-013")
async def test_an_abort_cancels_the_call(tmp_path: Path) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def execute(request: ToolRequest, report: Report) -> ToolAnswer:
        begun.set()
        try:
            return await waiting(request, report)
        finally:
            cancelled.set()

    async with owned_sessions(tmp_path, CALLS) as sessions:
        await sessions.register_tool_server(offer(), execute)
        client = await named_session(sessions)
        await client.send("look")
        await begun.wait()
        await client.do(Abort(now=0, by="test"))
        await client.until_settled()
        await cancelled.wait()
    (finished,) = facts(client, ev.ToolFinished)
    assert isinstance(finished, ev.ToolFinished)
    assert finished.is_error


@pytest.mark.req("MK-TOOL-012")
@pytest.mark.parametrize("rule", ["desk__look", "desk__*"])
@pytest.mark.parametrize("builtin_tools", [False, True])
async def test_rules_that_deny_or_ask_apply_and_the_mode_does_not(
    tmp_path: Path, rule: str, builtin_tools: bool
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "makai-home").mkdir()
    config = tmp_path / "makai-home" / "config.toml"
    terms = ev.SessionTerms(tool_servers=("desk",), builtin_tools=builtin_tools)
    wanted = CreateSession(model_ref=SCENARIO_MODEL, mode="plan", cwd=str(tmp_path / "project"), terms=terms)
    async with owned_sessions(tmp_path, CALLS) as sessions:
        await sessions.register_tool_server(offer(), answering("Water."))
        free, denied, asked = [Desk(sessions, await sessions.dispatch(wanted)) for _ in range(3)]
        await free.run("look")
        await denied.run("look", terms=ev.RunTerms(deny=(rule,)))
        config.write_text(f'[permissions]\nask = ["{rule}"]\n')
        await asked.send("look")
        question = await asked.until_asked()
        await asked.deny(question.call_id, "No.")
        await asked.until_settled()

    assert question.title == "look of the tool server desk"
    assert [text_of(client) for client in (free, denied, asked)] == [
        "Water.",
        "denied: A permission rule forbids this.",
        "denied: No.",
    ]


async def test_names_that_no_server_can_have_are_refused_when_a_session_is_made(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, CALLS) as sessions:
        for wrong in (("mcp",), ("a", "a"), tuple(f"s{number}" for number in range(33))):
            with pytest.raises(InvalidRequest):
                await sessions.dispatch(
                    CreateSession(model_ref=SCENARIO_MODEL, terms=ev.SessionTerms(tool_servers=wrong))
                )
        assert await desk(sessions)
