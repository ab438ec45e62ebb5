"""How the agent's own session is opened, found again and set up: logins, modes, models, prompts and MCP servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from support.acp_lab import HARNESS, AcpLab
from support.live_sessions import Desk, whole_log

from makai.core import session_events as ev
from makai.core.content import Audio, Image, Resource, ResourceLink, SessionPart, Text
from makai.core.errors import InvalidRequest, SessionRefused
from makai.core.usage import Usage
from makai.harness.base import ToolAnswer, ToolRequest
from makai.sessions import commands as cmd
from makai.sessions.requests import CreateSession, GetState

MODES = {
    "currentModeId": "code",
    "availableModes": [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan", "description": "No changes"}],
}
MODELS = {
    "currentModelId": "m1",
    "availableModels": [{"modelId": "m1", "name": "One"}, {"modelId": "m2", "name": "Two"}],
}
OPTIONS = [
    {"type": "select", "id": "mode-option", "name": "Mode", "category": "mode", "currentValue": "code",
     "options": [{"value": "code", "name": "Code"}, {"value": "plan", "name": "Plan"}]},
    {"type": "select", "id": "model-option", "name": "Model", "category": "model", "currentValue": "m1",
     "options": [{"group": "all", "name": "All", "options": [
         {"value": "m1", "name": "One"}, {"value": "m2", "name": "Two"}]}]},
    {"type": "knob", "id": "of a newer version", "name": "Knob", "currentValue": 3},
]  # fmt: skip


async def test_what_another_agent_cost_is_no_part_of_the_agents_own_count(tmp_path: Path) -> None:
    """The session cost 2 dollars with another agent, then half a dollar with this one, which counts from its start."""

    def spend(usd: float) -> str:
        cost = {"amount": usd, "currency": "USD"}
        return f"update {json.dumps({'sessionUpdate': 'usage_update', 'used': 1, 'size': 2, 'cost': cost})}"

    lab = AcpLab(tmp_path, offers={"loadSession": True})
    async with lab.session() as (_, client):
        await client.run(spend(2.0))
        for harness in ("stub", HARNESS):
            await client.do(cmd.SetHarness(now=0, harness=harness))
        await client.run(spend(0.5))
    async with lab.open() as sessions:
        again = Desk(sessions, client.session_id, client.seen[-1].event_id)
        await again.run(spend(0.75))
        assert [event.usage for event in again.events(ev.RunFinished)] == [Usage(cost_usd=0.25)]
        assert (await sessions.dispatch(GetState(client.session_id))).usage == Usage(cost_usd=2.75)


@pytest.mark.req("ACP-CLIENT-002")
@pytest.mark.parametrize("offers", [{"loadSession": True}, {"sessionCapabilities": {"resume": {}, "list": True}}])
async def test_after_a_restart_the_session_is_found_again_and_nothing_is_logged_twice(
    tmp_path: Path, offers: dict[str, Any]
) -> None:
    replay = [
        {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "say One"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "One"}},
        {"sessionUpdate": "tool_call", "toolCallId": "old", "title": "Old", "status": "completed"},
        {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "init", "description": "Begin"}]},
    ]
    lab = AcpLab(tmp_path, offers=offers, replay=replay)
    async with lab.session() as (_, client):
        await client.run("say One")
    async with lab.open() as sessions:
        again = Desk(sessions, client.session_id, client.seen[-1].event_id)
        await again.run("say Two")
        assert [event.text for event in again.events(ev.AssistantText)] == ["Two"]
        assert again.events(ev.ToolCalled) == []
        assert [notice.message for notice in again.events(ev.Notice)] == ["Scripted continues its own session."]
        assert [event.commands for event in again.events(ev.AgentSession)] == [
            (ev.AgentOption(id="init", description="Begin"),)
        ]
    method = "session/load" if "loadSession" in offers else "session/resume"
    assert [name for name, _ in lab.heard] == ["initialize", method, "session/prompt"]
    assert lab.heard_of(method)[0]["sessionId"] == lab.heard_of("session/prompt")[0]["sessionId"]


@pytest.mark.parametrize(
    ("replayed", "reported", "cost"),
    [
        ((), (0.6, 0.75), 0.25),  # it counts its session from the beginning, as the protocol says
        ((), (0.1, 0.75), 0.75),  # it counts what it did since it was started
        ((0.5,), (0.75,), 0.25),
        ((2.0,), (2.25,), 0.25),  # the session had cost more than makai knows
    ],
)
async def test_after_a_restart_a_run_costs_what_it_adds(
    tmp_path: Path, replayed: tuple[float, ...], reported: tuple[float, ...], cost: float
) -> None:
    def spent(usd: float) -> dict[str, Any]:
        return {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": usd, "currency": "USD"}}

    lab = AcpLab(tmp_path, offers={"loadSession": True}, replay=list(map(spent, replayed)))
    async with lab.session() as (_, client):
        await client.run(f"update {json.dumps(spent(0.5))}")
    async with lab.open() as sessions:
        again = Desk(sessions, client.session_id, client.seen[-1].event_id)
        await again.run("\n".join(f"update {json.dumps(spent(usd))}" for usd in reported))
        assert [event.usage for event in again.events(ev.RunFinished)] == [Usage(cost_usd=cost)]
        assert (await sessions.dispatch(GetState(client.session_id))).usage == Usage(cost_usd=0.5 + cost)


@pytest.mark.req("ACP-CLIENT-002")
async def test_a_session_is_not_loaded_from_an_agent_that_cannot_and_the_person_learns_it(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        await client.run("say One")
    async with lab.open() as sessions:
        again = Desk(sessions, client.session_id, client.seen[-1].event_id)
        await again.run("say Two")
        assert [notice.message for notice in again.events(ev.Notice)] == [
            "Scripted did not find its earlier session.",
            "Scripted begins a session of its own, with the transcript of this one.",
        ]
    assert lab.heard_of("session/load") == []
    transcript, said = lab.heard_of("session/prompt")[-1]["prompt"]
    assert "<transcript>\nUser: say One\n\nAssistant: One\n</transcript>" in transcript["text"]
    assert said == {"type": "text", "text": "say Two"}


@pytest.mark.req("ACP-CLIENT-002")
async def test_a_login_needs_an_advertised_method_and_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = AcpLab(tmp_path, login="key")
    async with lab.session() as (_, client):
        failed = await client.run("say Hi")
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.provider_id, failed.message) == (
            "auth_required",
            "scripted",
            "Scripted needs a login: API key is missing",
        )
        assert failed.hint == "Log in with the agent's own program (Key), then try again."
    assert lab.heard_of("authenticate") == []
    lab = AcpLab(tmp_path, {"KEY": "k"}, login="key")
    async with lab.session() as (_, client):
        assert await client.run("say Hi") == ev.RunFinished(stop_reason="end_turn")
    assert lab.heard_of("authenticate") == [{"methodId": "key"}]
    lab = AcpLab(tmp_path, {"KEY": "k"}, login="another")
    async with lab.session() as (_, client):
        assert isinstance(await client.run("say Hi"), ev.RunFailed)
    assert lab.heard_of("authenticate") == []


async def test_updates_before_the_session_is_named_are_kept(tmp_path: Path) -> None:
    early = [
        {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "init", "description": "Begin"}]},
        {"sessionUpdate": "of_a_newer_version", "x": 1},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Welcome!"}},
    ]
    lab = AcpLab(tmp_path, early=early)
    async with lab.session() as (_, client):
        await client.run("say Hi")
        assert client.events(ev.AgentSession)[0].commands == (ev.AgentOption(id="init", description="Begin"),)
        assert [event.text for event in client.events(ev.AssistantText)] == ["Hi"]


async def test_a_title_that_comes_after_the_answer_is_logged(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        await client.run("say Hi\nlate A better title")
        await client.run("say Hi")
        assert [event.title for event in client.events(ev.TitleChanged)][-1] == "A better title"


@pytest.mark.parametrize(
    ("session", "requests"),
    [
        (
            {"modes": MODES, "models": MODELS},
            [("session/set_mode", {"modeId": "plan"}), ("session/set_model", {"modelId": "m2"})],
        ),
        (
            {"modes": MODES, "configOptions": OPTIONS},
            [
                ("session/set_config_option", {"configId": "mode-option", "value": "plan"}),
                ("session/set_config_option", {"configId": "model-option", "value": "m2"}),
            ],
        ),
    ],
)
@pytest.mark.req("ACP-SESS-006")
@pytest.mark.parametrize("answer", [{}, {"meta": 1}, {"_meta": {"a": 1}}, None])
async def test_modes_and_models_of_the_agent_can_be_chosen(
    tmp_path: Path, session: dict[str, Any], requests: list[tuple[str, dict[str, str]]], answer: Any
) -> None:
    lab = AcpLab(tmp_path, session=session, set_answer=answer)
    async with lab.session() as (sessions, client):
        await client.run("say Hi")
        offered = client.events(ev.AgentSession)[-1]
        assert ([mode.id for mode in offered.modes], offered.mode) == (["code", "plan"], "code")
        assert ([model.id for model in offered.models], offered.model) == (["m1", "m2"], "m1")
        with pytest.raises(SessionRefused, match="offers no model 'm3'"):
            await client.do(cmd.SetModel(now=0, model_ref="m3"))
        await client.do(cmd.SetMode(now=0, mode="ask", agent_mode="plan"))
        await client.do(cmd.SetModel(now=0, model_ref="m2"))
        await client.run("say Hi")
        chosen = client.events(ev.AgentSession)[-1]
        assert (chosen.mode, chosen.model) == ("plan", "m2")
        state = await sessions.dispatch(GetState(client.session_id))
        assert (state.agent_mode, state.model_ref) == ("plan", "m2")
        await client.run("say Hi")
    session_id = lab.heard_of("session/prompt")[0]["sessionId"]
    made = [(name, params) for name, params in lab.heard if name.startswith("session/set_")]
    assert made == [(name, {"sessionId": session_id, **params}) for name, params in requests]


@pytest.mark.parametrize(
    ("harness", "model_ref", "words"),
    [("acp:makai", "m1", ["acp", "-m", "m1"]), ("acp:makai", "", ["-m", "makai", "acp"]), (HARNESS, "m1", ["true"])],
)
async def test_an_agent_whose_command_takes_a_model_is_started_with_the_chosen_one(
    tmp_path: Path, harness: str, model_ref: str, words: list[str]
) -> None:
    lab = AcpLab(tmp_path, session={"models": MODELS})
    async with lab.session(harness=harness, model_ref=model_ref) as (_, client):
        assert await client.run("say Hi") == ev.RunFinished(stop_reason="end_turn")
    assert [Path(word).name for word in lab.commands[0]][-len(words) :] == words


@pytest.mark.req("ACP-CLIENT-003")
async def test_a_prompt_is_adapted_to_what_the_agent_takes(tmp_path: Path) -> None:
    parts = (
        Text(text="echo"),
        Resource(uri="file:///a/b.txt", text="inside"),
        Resource(uri="note:1", text="inside"),
        ResourceLink(uri="https://example.com/x", name=""),
    )
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        await client.do(cmd.Send(now=0, input_id="1", content=parts))
        await client.until_settled()
        assert json.loads(client.events(ev.AssistantText)[-1].text) == [
            {"type": "text", "text": "echo"},
            {"type": "resource_link", "uri": "file:///a/b.txt", "name": "b.txt"},
            {"type": "text", "text": '<resource uri="note:1">\ninside\n</resource>'},
            {"type": "resource_link", "uri": "https://example.com/x", "name": "x"},
        ]
        for part in (Image(data="aGk=", mime_type="image/png"), Audio(data="aGk=", mime_type="audio/wav")):
            await client.do(cmd.Send(now=0, input_id=part.mime_type, content=(part,)))
            kind = type(part).__name__.lower()
            assert await client.until_settled() == ev.RunFailed(
                code="invalid_request",
                message=f"Scripted takes no {kind}.",
                hint=f"Send the message again without the {kind}.",
            )


@pytest.mark.req("ACP-CLIENT-003")
@pytest.mark.parametrize(
    ("capability", "part", "block"),
    [
        (
            "image",
            Image(data="aGk=", mime_type="image/png"),
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        ),
        (
            "audio",
            Audio(data="aGk=", mime_type="audio/wav"),
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        ),
        (
            "embeddedContext",
            Resource(uri="file:///a/b.txt", text="inside"),
            {"type": "resource", "resource": {"uri": "file:///a/b.txt", "text": "inside"}},
        ),
        (
            "embeddedContext",
            Resource(uri="note:1", data="aGk=", mime_type="text/plain"),
            {"type": "resource", "resource": {"uri": "note:1", "blob": "aGk=", "mimeType": "text/plain"}},
        ),
    ],
)
async def test_what_an_agent_takes_is_sent_as_it_is_and_by_its_own_capability(
    tmp_path: Path, capability: str, part: SessionPart, block: dict[str, Any]
) -> None:
    everything = dict.fromkeys(("image", "audio", "embeddedContext"), True)
    content = (Text(text="echo"), part)
    lab = AcpLab(tmp_path, offers={"promptCapabilities": {capability: True}})
    async with lab.session() as (_, client):
        await client.do(cmd.Send(now=0, input_id="1", content=content))
        await client.until_settled()
        assert json.loads(client.events(ev.AssistantText)[-1].text) == [{"type": "text", "text": "echo"}, block]
    lab = AcpLab(tmp_path, offers={"promptCapabilities": everything | {capability: False}})
    async with lab.session() as (_, client):
        await client.do(cmd.Send(now=0, input_id="1", content=content))
        await client.until_settled()
    assert block not in [sent for prompt in lab.heard_of("session/prompt") for sent in prompt["prompt"]]


@pytest.mark.req("ACP-CLIENT-002")
@pytest.mark.parametrize(("kind", "other"), [("http", "sse"), ("sse", "http")])
async def test_mcp_servers_are_passed_on_where_the_agent_takes_them(
    tmp_path: Path, kind: Literal["http", "sse"], other: str
) -> None:
    program = ev.McpServer(name="docs", command="docs-server", args=("-x",))
    servers = (program, ev.McpServer(name="web", url="https://example.com/mcp", transport=kind))
    lab = AcpLab(tmp_path, offers={"mcpCapabilities": {kind: True}})
    async with lab.session(terms=ev.SessionTerms(mcp_servers=servers)) as (_, client):
        await client.run("say Hi")
    assert lab.heard_of("session/new")[0]["mcpServers"] == [
        {"name": "docs", "command": "docs-server", "args": ["-x"], "env": []},
        {"type": kind, "name": "web", "url": "https://example.com/mcp", "headers": []},
    ]
    lab = AcpLab(tmp_path, offers={"mcpCapabilities": {other: True}})
    async with lab.session(terms=ev.SessionTerms(mcp_servers=servers)) as (_, client):
        failed = await client.run("say Hi")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message == f"Scripted cannot use the MCP server 'web': it takes none over {kind}."
    assert lab.heard_of("session/new") == []
    lab = AcpLab(tmp_path)
    async with lab.session(terms=ev.SessionTerms(mcp_servers=(program,))) as (_, client):
        assert await client.run("say Hi") == ev.RunFinished(stop_reason="end_turn")
    assert [server["name"] for server in lab.heard_of("session/new")[0]["mcpServers"]] == ["docs"]


@pytest.mark.req("ACP-EXT-001")
async def test_input_during_a_run_is_given_to_an_agent_that_takes_it(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path, steers=True)
    async with lab.session() as (_, client):
        await client.send("say Ready\nsteer")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await client.send("more", delivery="steer")
        await client.until_settled()
        assert [event.text for event in client.events(ev.AssistantText)] == ["Ready", "steered: more"]
        assert [event.content for event in client.events(ev.UserInput)] == ["say Ready\nsteer", "more"]
    named = {"sessionId": lab.heard_of("session/prompt")[0]["sessionId"]}
    assert lab.heard_of("_session/steering") == [{**named, "prompt": [{"type": "text", "text": "more"}]}]


async def test_input_during_a_run_waits_for_the_next_one_of_an_agent_that_takes_none(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session() as (_, client):
        await client.send("say Ready\nask x")
        await client.until_asked()
        await client.send("say more", delivery="steer")
        await client.approve("x")
        await client.until_settled()
        await client.until_settled()
        assert client.events(ev.AssistantText)[-1].text == "more"
    assert len(lab.heard_of("session/prompt")) == 2


async def test_a_session_that_cannot_work_is_refused_at_its_creation(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.open() as sessions:
        for wanted, message in (
            (CreateSession(model_ref="", harness=HARNESS), "needs a folder"),
            (CreateSession(model_ref="", harness="acp:no-such-agent", cwd=str(lab.work)), "no agent or program"),
            (CreateSession(model_ref="", harness="acp:", cwd=str(lab.work)), "names no agent"),
            (CreateSession(model_ref="", harness="acp:'", cwd=str(lab.work)), "names no agent"),
            (
                CreateSession(
                    model_ref="", harness=HARNESS, cwd=str(lab.work), terms=ev.SessionTerms(system="Be nice")
                ),
                "instructions of its own",
            ),
        ):
            with pytest.raises(InvalidRequest, match=message):
                await sessions.dispatch(wanted)


async def test_values_of_mcp_servers_come_from_their_client_and_are_not_logged(tmp_path: Path) -> None:
    server = ev.McpServer(name="docs", command="docs-server", env_names=("TOKEN",))

    async def execute(request: ToolRequest) -> ToolAnswer:
        assert (request.name, request.arguments) == ("client/mcp_values", {"servers": ("docs",)})
        return ToolAnswer(content=(), details_json='{"servers":{"docs":{"env":{"TOKEN":"s3cret"}}}}')

    lab = AcpLab(tmp_path)
    async with lab.session(terms=ev.SessionTerms(mcp_servers=(server,))) as (sessions, client):
        failed = await client.run("say Hi")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message == "The client that brought the MCP servers of this session is not connected."
        await sessions.register_executor(client.session_id, execute)
        assert await client.run("say Hi") == ev.RunFinished(stop_reason="end_turn")
        assert "s3cret" not in str(await whole_log(sessions, client.session_id))
    assert lab.heard_of("session/new")[0]["mcpServers"][0]["env"] == [{"name": "TOKEN", "value": "s3cret"}]
