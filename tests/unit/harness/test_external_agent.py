"""Sessions run an agent that is not the native loop, through the port alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.external_agent import MODES, OPTIONS, ExternalAgent
from support.live_sessions import Desk, owned_sessions

from makai.core import session_events as ev
from makai.core.content import Image, Resource, Text
from makai.core.errors import InvalidRequest, SessionRefused
from makai.sessions import commands as cmd
from makai.sessions.conversation import conversation
from makai.sessions.history import TextItem, ToolItem, history
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, DeleteSession, ForkSession, GetState, RunCommand


class Lab:
    """An agent, its log, and sessions over both that can be closed and opened again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agent = ExternalAgent()
        self.log = MemoryLog()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OwnedSessions]:
        async with owned_sessions(self.folder, "say: Hi", self.log, harnesses=[self.agent]) as sessions:
            yield sessions

    async def client(self, sessions: OwnedSessions) -> Desk:
        wanted = CreateSession(model_ref="", harness="external", cwd=str(self.folder))
        return Desk(sessions, await sessions.dispatch(wanted))

    @asynccontextmanager
    async def session(self) -> AsyncIterator[tuple[OwnedSessions, Desk]]:
        async with self.open() as sessions:
            yield sessions, await self.client(sessions)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


async def test_a_session_without_a_model_runs_an_agent_without_turns(lab: Lab) -> None:
    async with lab.session() as (sessions, client):
        assert await client.run("say") == ev.RunFinished(stop_reason="end_turn")
        assert client.kinds() == [
            "session_created", "run_started", "run_status", "user_message", "run_status", "agent_session",
            "text_delta", "assistant_text", "text_delta", "assistant_text", "run_status", "run_finished",
        ]  # fmt: skip
        state = await sessions.dispatch(GetState(client.session_id))
        assert (state.model_ref, state.capabilities, state.agent_mode) == ("", ExternalAgent.capabilities, "code")
        assert state.agent is not None
        assert state.agent.agent_session_id == "own-1"
        said = (await conversation(lab.log, client.session_id)).messages()
        assert [message.content for message in said] == ["say", (Text(text="One"), Text(text="Two"))]  # type: ignore[union-attr]
        await sessions.dispatch(DeleteSession(client.session_id))
    assert lab.agent.forgotten == [client.session_id]


@pytest.mark.parametrize(
    ("command", "option_id"),
    [
        (cmd.ApproveCall(now=0, call_id="edit", by="me"), "yes"),
        (cmd.ApproveCall(now=0, call_id="edit", by="me", scope="always"), "yes-always"),
        (cmd.ApproveCall(now=0, call_id="edit", by="me", option_id="yes-always"), "yes-always"),
        (cmd.DenyCall(now=0, call_id="edit", by="me", scope="always"), "no"),
    ],
)
async def test_the_agent_learns_which_of_its_options_was_chosen(
    lab: Lab, command: cmd.ApproveCall | cmd.DenyCall, option_id: str
) -> None:
    async with lab.session() as (sessions, client):
        await client.send("ask")
        asked = await client.until_asked()
        assert (asked.call_id, asked.options) == ("edit", OPTIONS)
        unknown = cmd.ApproveCall(now=0, call_id="edit", by="me", option_id="no")
        with pytest.raises(SessionRefused, match="offers no such option"):
            await sessions.dispatch(RunCommand(client.session_id, unknown))
        await sessions.dispatch(RunCommand(client.session_id, command))
        await client.until_settled()
    assert [decided.option_id for decided in client.events(ev.ApprovalDecided)] == [option_id]
    changed = Resource(uri="file:///a", text="changed")
    assert client.events(ev.ToolFinished) == [ev.ToolFinished(call_id="edit", content=(Text(text=option_id), changed))]
    item = next(item for item in history(client.seen).items() if isinstance(item, ToolItem))
    assert item.call.title == ("Edit" if option_id == "no" else "Editing a")
    assert "changed" in str(history(client.seen).messages()[-1])


async def test_what_a_sub_agent_says_and_calls_belongs_to_the_call_that_runs_it(lab: Lab) -> None:
    async with lab.session() as (_, client):
        await client.run("nest")
    assert [event.call_id for event in client.events(ev.ToolFinished)] == ["look", "task"]
    assert client.events(ev.ToolFinished)[0].interrupted  # its sub-agent ended before it said what came of it
    items = history(client.seen).items()
    assert [(item.text, item.parent_call_id) for item in items if isinstance(item, TextItem)] == [
        ("Looking", "task"),
        ("Done", ""),
    ]
    assert "Looking" not in str(history(client.seen).messages())


async def test_input_during_a_run_is_read_by_the_agent(lab: Lab) -> None:
    async with lab.session() as (_, client):
        await client.send("read")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantText))
        await client.send("more", delivery="steer")
        await client.until_settled()
    assert [event.text for event in client.events(ev.AssistantText)] == ["Ready", "Read more"]


async def test_an_abort_stops_the_agent_and_keeps_what_it_said(lab: Lab) -> None:
    async with lab.session() as (_, client):
        await client.send("hang")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await client.do(cmd.Abort(now=0, by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
    assert lab.agent.aborted == [True]
    assert "Wait" in str((await conversation(lab.log, client.session_id)).messages())


async def test_a_run_continues_after_a_restart_by_the_agents_own_session_id(lab: Lab) -> None:
    async with lab.session() as (sessions, client):
        await client.send("ask")
        await client.until_asked()
    assert lab.agent.aborted == [False]
    async with lab.open() as sessions:
        again = Desk(sessions, client.session_id, client.seen[-1].event_id)
        await sessions.dispatch(GetState(client.session_id))
        asked = await again.until_asked()
        # The question of the process that is gone was withdrawn, and the agent asked again.
        assert (asked.call_id, [event.by for event in again.events(ev.ApprovalDecided)]) == ("edit#2", ["run_ended"])
        await again.approve("edit#2")
        assert await again.until_settled() == ev.RunFinished(stop_reason="end_turn")
        kinds = again.kinds()
        assert kinds.index("run_resumed") < kinds.index("approval_requested")
    assert lab.agent.sessions == {"own-1": ["ask", "resumed"]}


async def test_the_engine_asks_what_an_agent_can_do(lab: Lab) -> None:
    async with lab.session() as (sessions, client):
        await client.run("say")
        picture = (Image(data="aGk=", mime_type="image/png"),)
        for command, message in (
            (cmd.Compact(now=0, input_id="i"), "compacts its conversation itself"),
            (cmd.SetModel(now=0, model_ref="m"), "chooses its model itself"),
            (cmd.Send(now=0, input_id="i", content=picture), "takes no image"),
            (cmd.SetMode(now=0, mode="ask", agent_mode="chef"), "offers no mode 'chef'"),
        ):
            with pytest.raises(SessionRefused, match=message):
                await sessions.dispatch(RunCommand(client.session_id, command))
        await client.do(cmd.SetMode(now=0, mode="ask", agent_mode=MODES[1].id))
        assert (await sessions.dispatch(GetState(client.session_id))).agent_mode == "architect"
        fork = await sessions.dispatch(ForkSession(origin=client.session_id))
        assert (
            await sessions.dispatch(GetState(fork))
        ).agent is None  # two sessions must not continue one of the agent's


async def test_a_session_that_its_harness_cannot_run_is_refused_at_its_creation(lab: Lab) -> None:
    async with lab.open() as sessions:
        with pytest.raises(InvalidRequest, match="needs a folder"):
            await sessions.dispatch(CreateSession(model_ref="", harness="external"))
        with pytest.raises(InvalidRequest) as refused:
            await sessions.dispatch(CreateSession(model_ref="m", harness="elsewhere"))
        assert refused.value.hint == "Use one of: acp, amp, antigravity, claude-code, codex, external, native, stub."
        with pytest.raises(SessionRefused, match="model_ref is empty"):
            await sessions.dispatch(CreateSession(model_ref=""))
        terms = ev.SessionTerms(mcp_servers=(ev.McpServer(name="docs", command="docs-server", env_names=("TOKEN",)),))
        with pytest.raises(InvalidRequest, match="need the built-in tools"):
            await sessions.dispatch(CreateSession(model_ref="scripted/scripted@scenario", terms=terms))


async def test_a_session_of_a_harness_that_is_gone_can_be_read_but_not_run(lab: Lab) -> None:
    async with lab.session() as (sessions, client):
        await client.send("ask")
        await client.until_asked()
    async with owned_sessions(lab.folder, "say: Hi", lab.log) as sessions:
        again = Desk(sessions, client.session_id)
        await sessions.dispatch(GetState(client.session_id))
        assert (await again.until_settled()).code == "interrupted"  # type: ignore[union-attr]
        failed = await again.run("say")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message == "There is no harness 'external'."
