"""A session changes its agent between two runs, keeps its conversation and its budget, and says what was dropped."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from support.acp_lab import HARNESS, AcpLab
from support.live_sessions import SCENARIO_MODEL, Desk

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest, SessionRefused
from makai.core.messages import AssistantMessage, Message, UserMessage
from makai.core.request import ToolDefinition
from makai.core.usage import Usage
from makai.sessions.commands import Abort, SetHarness, SetTerms
from makai.sessions.conversation import conversation
from makai.sessions.requests import CreateSession, ForkSession, GetSession, GetState

COSTS = "update " + json.dumps(
    {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.6, "currency": "USD"}}
)


def said(messages: tuple[Message, ...]) -> list[str]:
    return [
        str(message.content) if isinstance(message, UserMessage) else message.text()
        for message in messages
        if isinstance(message, UserMessage | AssistantMessage)
    ]


def to_native() -> SetHarness:
    return SetHarness(now=0, harness="native", model_ref=SCENARIO_MODEL)


def to_scripted() -> SetHarness:
    return SetHarness(now=0, harness=HARNESS)


async def test_a_session_moves_to_another_agent_and_back_with_its_whole_conversation(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (sessions, client):
        await client.run("say One")
        await client.do(to_native())
        assert await client.run("and you?") == ev.RunFinished(stop_reason="end_turn", usage=Usage(cost_usd=0.0))
        await client.do(to_scripted())
        await client.run("say Three")
        whole = (await conversation(lab.log, client.session_id)).messages()
        summary = await sessions.dispatch(GetSession(client.session_id))

    assert said(whole) == ["say One", "One", "and you?", "Hi", "say Three", "Three"]
    assert summary is not None
    assert (summary.harness, summary.model_ref) == (HARNESS, "")
    transcript, prompt = lab.heard_of("session/prompt")[-1]["prompt"]
    lines = "User: say One\n\nAssistant: One\n\nUser: and you?\n\nAssistant: Hi"
    assert f"<transcript>\n{lines}\n</transcript>" in transcript["text"]
    assert prompt == {"type": "text", "text": "say Three"}
    assert lab.transports[0].stopped


async def test_what_another_agent_does_not_take_over_is_listed(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    tool = ToolDefinition(name="look", description="", parameters_schema_json="{}")
    terms = ev.SessionTerms(system="Be brief.", tools=(tool,), tool_servers=("desk",), reasoning_effort="low")
    async with lab.open() as sessions:
        wanted = CreateSession(model_ref=SCENARIO_MODEL, cwd=str(lab.work), terms=terms)
        client = Desk(sessions, await sessions.dispatch(wanted))
        await client.run("hello")
        await client.do(to_scripted())
        await client.run("say Hi")
        state = await sessions.dispatch(GetState(client.session_id))

    assert [event.dropped for event in client.events(ev.HarnessChanged)] == [
        (
            "the system prompt of the session: the agent has its own",
            "tools of a client: look, desk",
            "the reasoning effort low",
            f"the model {SCENARIO_MODEL}: the agent uses its own, or the one you choose",
            "compaction by makai",
            "continuing a run after a restart",
        )
    ]
    assert state.terms == ev.SessionTerms(reasoning_effort="low")
    assert (state.harness, state.capabilities.has_turns) == (HARNESS, False)


@pytest.mark.parametrize(
    ("terms", "dropped"),
    [
        (ev.SessionTerms(builtin_tools=True), "the sandbox workspace-write: makai does not confine the agent"),
        (ev.SessionTerms(sandbox="read-only"), "the sandbox read-only: makai does not confine the agent"),
        (ev.SessionTerms(system_append="Be brief."), "instructions that were added to the agent's own"),
        (ev.SessionTerms(agent_options_json='{"a":1}'), "settings that only the agent before knows"),
    ],
)
async def test_settings_that_another_agent_does_not_take_are_listed(
    tmp_path: Path, terms: ev.SessionTerms, dropped: str
) -> None:
    lab = AcpLab(tmp_path)
    async with lab.open() as sessions:
        wanted = CreateSession(model_ref=SCENARIO_MODEL, cwd=str(lab.work), terms=terms)
        client = Desk(sessions, await sessions.dispatch(wanted))
        await client.run("hello")
        await client.do(to_scripted())
        assert isinstance(await client.run("say Hi"), ev.RunFinished)
        changed = await sessions.dispatch(GetState(client.session_id))

    assert client.events(ev.HarnessChanged)[0].dropped[0] == dropped
    assert changed.terms == msgspec.structs.replace(terms, agent_options_json="")


async def test_an_agent_that_cannot_keep_the_budget_of_a_session_does_not_take_it_over(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.open() as sessions:
        wanted = CreateSession(model_ref=SCENARIO_MODEL, cwd=str(lab.work), terms=ev.SessionTerms(max_usd=1.0))
        client = Desk(sessions, await sessions.dispatch(wanted))
        message = "acp:scripted does not say what it costs: the budget of 1 USD cannot be kept."
        with pytest.raises(InvalidRequest, match=message) as refused:
            await client.do(to_scripted())
        assert refused.value.hint == "Remove the budget first (/budget none)."
        await client.do(SetTerms(now=0, terms=ev.SessionTerms()))
        await client.do(to_scripted())


async def test_an_agent_is_changed_only_between_runs_and_only_to_one_that_can_work(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        with pytest.raises(SessionRefused, match="runs the session already"):
            await client.do(to_scripted())
        with pytest.raises(SessionRefused, match="model_ref is empty"):
            await client.do(SetHarness(now=0, harness="native"))
        with pytest.raises(InvalidRequest, match="There is no harness 'nonsense'"):
            await client.do(SetHarness(now=0, harness="nonsense"))
        await client.send("say Wait\nstuck")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        with pytest.raises(SessionRefused, match="A run is active") as refused:
            await client.do(to_native())
        assert refused.value.code == "BUSY"
        await client.do(Abort(now=0, by="me"))
        await client.until_settled()
        assert client.events(ev.HarnessChanged) == []


async def test_a_fork_of_a_session_that_changed_its_agent_has_all_of_its_history(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (sessions, client):
        await client.run("say One")
        await client.do(to_native())
        await client.run("and you?")
        fork = await sessions.dispatch(ForkSession(origin=client.session_id))
        assert said((await conversation(lab.log, fork)).messages()) == ["say One", "One", "and you?", "Hi"]


async def test_a_run_that_has_cost_what_the_session_may_is_stopped_and_no_other_begins(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    accepted = ev.RunTerms(allow_unknown_price=True)
    async with lab.session(terms=ev.SessionTerms(max_usd=0.5)) as (_, client):
        settled = await client.run(f"say Dear\n{COSTS}\nstuck", terms=accepted)
        assert settled == ev.RunFinished(stop_reason="max_tokens", usage=Usage(cost_usd=0.6))
        assert [notice.message for notice in client.events(ev.Notice)] == ["The run reached its limit of 0.5 USD."]
        await client.do(to_native())
        failed = await client.run("and you?")
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.message) == (
            "invalid_request",
            "The session's budget of 0.5 USD is used up (0.6000 USD spent).",
        )


async def test_a_budget_is_refused_for_an_agent_that_does_not_say_what_it_costs(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(terms=ev.SessionTerms(max_usd=0.5)) as (_, client):
        failed = await client.run("say Hi")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message == "Scripted does not say what it costs: the limit of 0.5 USD cannot be kept."
    assert lab.transports == []
