"""A new session has the same settings, whichever face begins it: those of the project where it may say so, else those
of the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from support.acp_client import AcpClient, connected
from support.agents import AgentPeer
from support.cli import Cli
from support.driven_makai import HARNESS, add_driven_makai
from support.live_sessions import trust_folder
from support.minicodex_client import BOTH
from support.peers import Peer
from support.serving import Site, serving
from support.tokens import bearer, make_token

import makai
from makai.core.access import TokenScope
from makai.server.acp_connection import AcpServer
from makai.sessions.log.base import SessionFilter
from makai.sessions.requests import ForkSession, GetState, ListSessions
from makai.sessions.service import Sessions
from makai.transports.memory import memory_pair

USER = """
model = "mine"
mode = "accept_edits"
effort = "low"
sandbox = "read-only"
[aliases]
mine = "scripted/scenario"
"""
PROJECT = 'mode = "plan"\nsandbox = "full-access"\neffort = "high"\n'
EXPECTED = ("scripted/scripted@scenario", "plan", "read-only", "high")
HELLO = "say: Hello."
Found: TypeAlias = tuple[str, str, str, str | None]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings, in which the server is started."""
    home = tmp_path / "makai-home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(USER)
    folder = tmp_path / "project"
    (folder / ".makai").mkdir(parents=True)
    (folder / ".makai/config.toml").write_text(PROJECT)
    monkeypatch.chdir(folder)
    return folder


class NewSessions:
    """The settings of sessions that have begun since it was last asked."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: set[str] = set()

    async def settings(self) -> list[Found]:
        listed = {each.session_id for each in await self._sessions.dispatch(ListSessions(SessionFilter()))}
        begun, self._known = listed - self._known, listed
        states = [await self._sessions.dispatch(GetState(session_id)) for session_id in begun]
        return [(each.model_ref, each.mode, each.terms.sandbox, each.terms.reasoning_effort) for each in states]


@asynccontextmanager
async def makai_peer(site: Site) -> AsyncIterator[Peer]:
    ours, theirs = memory_pair()
    serving = asyncio.create_task(site.makai.serve(theirs))
    yield Peer(ours)
    await ours.close()
    await serving


@asynccontextmanager
async def editor(site: Site) -> AsyncIterator[AcpClient]:
    assert site.makai.sessions is not None
    server = AcpServer(site.makai.sessions, site.makai.backend, settings=site.makai.settings)
    async with connected(server) as client:
        await client.initialize()
        yield client


async def begin_with_the_makai_protocol(site: Site, folder: Path) -> None:
    async with makai_peer(site) as peer:
        await AgentPeer(peer).start(model_ref="mine", cwd=str(folder), builtin_tools=True)


async def begin_as_an_editor(site: Site, folder: Path) -> None:
    async with editor(site) as client:
        await client.new_session(folder)


async def test_the_page_an_editor_and_both_protocols_begin_sessions_alike(tmp_path: Path, project: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        await trust_folder(site.sessions, project)
        new = NewSessions(site.sessions)
        found = {}
        await site.ask("POST", "/api/sessions", {})
        found["page"] = await new.settings()
        await (await site.client()).close()
        found["socket"] = await new.settings()
        await begin_with_the_makai_protocol(site, project)
        found["makai"] = await new.settings()
        await begin_as_an_editor(site, project)
        found["editor"] = await new.settings()
        _, info = await site.ask("GET", "/api/info")

    assert found == {face: [EXPECTED] for face in ("page", "socket", "makai", "editor")}
    shown = (info["default_model_ref"], info["default_mode"], info["default_sandbox"])
    assert shown == ("scripted/scripted@scenario", "plan", "read-only")


async def test_a_run_and_a_chat_begin_sessions_like_the_page(tmp_path: Path, project: Path) -> None:
    (tmp_path / "scenario.txt").write_text(HELLO)
    makai = Cli(tmp_path / "makai-home", {"MAKAI_SCENARIO": str(tmp_path / "scenario.txt")})
    assert (await makai("sessions", "trust", "--yes")).code == 0
    for words, stdin in ((("run", "Hi"), b""), (("What is this?",), b""), (("chat",), b"Hi\n")):
        finished = await makai(*words, stdin=stdin)
        assert (finished.code, "Hello." in finished.out) == (0, True), finished.err
    async with serving(tmp_path, HELLO) as site:
        found = await NewSessions(site.sessions).settings()

    assert found == [EXPECTED] * 3


@pytest.mark.proof("L6")
async def test_an_untrusted_project_has_no_say_and_the_environment_wins_over_the_user(
    tmp_path: Path, project: Path
) -> None:
    (tmp_path / "scenario.txt").write_text(HELLO)
    makai = Cli(tmp_path / "makai-home", {"MAKAI_SCENARIO": str(tmp_path / "scenario.txt")})
    await makai("run", "Hi", environ={"MAKAI_MODEL": "scripted/echo"})
    await makai("run", "Hi", "-m", "mine", "--mode", "never_ask", environ={"MAKAI_MODEL": "scripted/echo"})
    async with serving(tmp_path, HELLO) as site:
        found = await NewSessions(site.sessions).settings()

    assert sorted(found) == [
        ("scripted/scripted@echo", "accept_edits", "read-only", "low"),
        ("scripted/scripted@scenario", "never_ask", "read-only", "low"),
    ]


async def test_a_token_that_may_not_approve_gets_no_default_that_asks_less(tmp_path: Path, project: Path) -> None:
    (tmp_path / "makai-home/config.toml").write_text(USER.replace("read-only", "full-access"))
    async with serving(tmp_path, HELLO) as site:
        _, token = await make_token(site.sessions, "prompt")
        status, made = await site.ask("POST", "/api/sessions", {}, headers=bearer(token))
        found = await NewSessions(site.sessions).settings()

    assert (status, found) == (201, [("scripted/scripted@scenario", "ask", "workspace-write", "low")]), made


TEAM = '[aliases]\nteam = "scripted/echo"\n'
ECHO = "scripted/scripted@echo"


@pytest.fixture
def team(project: Path) -> Path:
    """A project with a name of its own for a model."""
    (project / ".makai/config.toml").write_text(TEAM)
    return project


async def model_of(site: Site, session_id: str) -> str:
    return (await site.sessions.dispatch(GetState(session_id))).model_ref


async def test_an_alias_of_the_project_counts_on_the_page(tmp_path: Path, team: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        await trust_folder(site.sessions, team)
        begun = (await site.ask("POST", "/api/sessions", {"model_ref": "team", "cwd": str(team)}))[1]["session_id"]
        changed = (await site.ask("POST", "/api/sessions", {"cwd": str(team)}))[1]["session_id"]
        client = await site.client(changed, *BOTH)
        accepted = await client.ask("set_model", model_ref="team")
        forked = await site.sessions.dispatch(ForkSession(origin=changed, model_ref="team"))
        elsewhere = (await site.ask("POST", "/api/sessions", {"cwd": str(tmp_path)}))[1]["session_id"]
        other = await site.client(elsewhere, *BOTH)
        refused = await other.ask("set_model", model_ref="team")
        found = [await model_of(site, session_id) for session_id in (begun, changed, forked, elsewhere)]
        await client.close()
        await other.close()

    assert (found, accepted) == ([ECHO, ECHO, ECHO, "scripted/scripted@scenario"], "accepted")
    assert refused != "accepted"


async def test_an_alias_of_the_project_counts_in_an_editor(tmp_path: Path, team: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        await trust_folder(site.sessions, team)
        async with editor(site) as client:
            named = {"sessionId": await client.new_session(team)}
            await client.ask("session/set_model", {**named, "modelId": "team"})
            first = await model_of(site, named["sessionId"])
            await client.ask("session/set_config_option", {**named, "configId": "model", "value": "mine"})
            second = await model_of(site, named["sessionId"])
            answer = await client.ask("session/set_config_option", {**named, "configId": "model", "value": "team"})

    options = {option["id"]: option["currentValue"] for option in answer["configOptions"]}
    assert (first, second, options["model"]) == (ECHO, "scripted/scripted@scenario", ECHO)


async def test_an_alias_of_the_project_counts_in_the_makai_protocol(tmp_path: Path, team: Path) -> None:
    async with serving(tmp_path, HELLO) as site:
        await trust_folder(site.sessions, team)
        async with makai_peer(site) as peer:
            begun = await AgentPeer(peer).start(model_ref="team", cwd=str(team))
            agent = AgentPeer(peer)
            await agent.start(model_ref="mine", cwd=str(team))
            frames = await agent.run("Hi there", model_ref="team")
            await agent.ask("agent_stop", {"detach": True}, "agent_stopped")
            await agent.run("Hi", model_ref="mine")
            await agent.ask("agent_stop", {"detach": True}, "agent_stopped")
            resumed = await agent.attach(model_ref="team")

    assert (begun["model_ref"], resumed["model_ref"]) == (ECHO, ECHO)
    assert frames[-1]["payload"]["message"]["content"] == [{"type": "text", "text": "Hi there"}]


async def test_an_alias_of_the_project_counts_in_a_program_and_on_the_command_line(
    tmp_path: Path, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scenario.txt").write_text(HELLO)
    home = {"MAKAI_HOME": str(tmp_path / "makai-home"), "MAKAI_SCENARIO": str(tmp_path / "scenario.txt")}
    command = Cli(tmp_path / "makai-home", home)
    assert (await command("sessions", "trust", "--yes", str(team))).code == 0
    async with makai.connect(environ={**home, "HOME": str(tmp_path)}) as client:
        run = await client.agent.run(model_ref="team", messages="Say this", cwd=str(team))
        assert run.text == "Say this"
    assert (await command("run", "-m", "team", "Echo")).out.strip() == "Echo"
    session_id = run.session_id or ""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    back = await command("run", "-r", session_id, "-m", "mine", "Hi")
    again = await command("run", "-r", session_id, "-m", "team", "Echo again")
    chatted = await command("chat", "-r", session_id, stdin=b"/model mine\nHi\n/model team\nAnd again\n")

    assert [back.out.strip(), again.out.strip()] == ["Hello.", "Echo again"], (back.err, again.err)
    assert f"The model is now {ECHO}" in chatted.out, (chatted.out, chatted.err)


@pytest.fixture
def agent_by_default(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose user wants another agent for every new session."""
    add_driven_makai(tmp_path, HELLO)
    monkeypatch.setenv("MAKAI_HOME", str(tmp_path / "makai-home"))
    file = tmp_path / "makai-home/config.toml"
    file.write_text(f'agent = "inner"\nmodel = "scripted/scenario"\n{file.read_text()}')
    return project


async def harness_of(sessions: Sessions) -> dict[str, str]:
    """The title of every session and its harness."""
    return {each.title: each.harness for each in await sessions.dispatch(ListSessions(SessionFilter()))}


async def test_the_page_and_an_editor_begin_sessions_with_the_default_agent(
    tmp_path: Path, agent_by_default: Path
) -> None:
    async with serving(tmp_path, HELLO) as site:
        new = NewSessions(site.sessions)
        await site.ask("POST", "/api/sessions", {"title": "page"})
        await site.ask("POST", "/api/sessions", {"title": "native", "harness": "native"})
        await site.ask("POST", "/api/sessions", {"title": "model", "model_ref": "scripted/echo"})
        found = await harness_of(site.sessions)
        await new.settings()
        await (await site.client()).close()
        await begin_as_an_editor(site, agent_by_default)
        unnamed = await new.settings()
        _, info = await site.ask("GET", "/api/info")

    assert found == {"page": HARNESS, "native": "native", "model": "native"}
    assert [model for model, *_ in unnamed] == ["", ""]  # of the socket and the editor: the agent has its own
    assert info["default_agent"] == HARNESS


async def test_a_run_and_a_chat_begin_with_the_default_agent_unless_told_otherwise(
    tmp_path: Path, agent_by_default: Path
) -> None:
    (tmp_path / "scenario.txt").write_text("say: Mine.")
    makai = Cli(tmp_path / "makai-home", {"MAKAI_SCENARIO": str(tmp_path / "scenario.txt")})
    ran = await makai("run", "-n", "run", "Hi")
    chatted = await makai("chat", "-n", "chat", stdin=b"Hi\n")
    native = await makai("run", "-n", "native", "-a", "native", "Hi")
    async with serving(tmp_path, HELLO) as site:
        found = await harness_of(site.sessions)

    assert (ran.out.strip(), native.out.strip()) == ("Hello.", "Mine."), (ran.err, native.err)
    assert "Hello." in chatted.out, chatted.err
    assert found == {"run": HARNESS, "chat": HARNESS, "native": "native"}


@pytest.mark.parametrize(
    ("agent", "scope", "expected"),
    [
        ("inner", "prompt", "native"),  # it may give a session no other agent
        ("inner", "approve", HARNESS),
        ("acp:true --acp", "approve", "native"),  # any program can be an agent
        ("acp:true --acp", "admin", "acp:true --acp"),
    ],
)
async def test_a_token_gets_the_default_agent_only_where_it_may_choose_it(
    tmp_path: Path, agent_by_default: Path, agent: str, scope: TokenScope, expected: str
) -> None:
    file = tmp_path / "makai-home/config.toml"
    file.write_text(file.read_text().replace('agent = "inner"', f'agent = "{agent}"'))
    async with serving(tmp_path, HELLO) as site:
        _, token = await make_token(site.sessions, scope)
        status, made = await site.ask("POST", "/api/sessions", {"title": "made"}, headers=bearer(token))
        found = await harness_of(site.sessions)

    assert (status, found) == (201, {"made": expected}), made
