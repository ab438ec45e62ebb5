"""The table of scopes has an entry for everything that a caller can ask for, and what it lacks is refused."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from support.live_sessions import SCENARIO_MODEL, Desk, desk, owned_sessions, trust_folder, whole_log
from support.serving import serving
from support.transports import TOKEN

from makai.core.access import SCOPES, Caller, TokenScope
from makai.core.content import Text
from makai.core.errors import Forbidden, InvalidRequest
from makai.core.request import ToolDefinition
from makai.core.session_events import InputWithdrawn, McpServer, RunTerms, SessionTerms, ToolFinished
from makai.core.settings import Settings
from makai.harness.base import Report, ToolAnswer, ToolRequest, ToolServerOffer
from makai.protocols.makai.agent_payloads import AgentRequest
from makai.protocols.makai.commands import AskSession, Command
from makai.protocols.minicodex import commands as minicodex
from makai.server import scopes
from makai.server.app import make_app
from makai.server.route_scopes import ROUTES
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.commands import UserCommand
from makai.sessions.requests import request_types
from makai.sessions.service import Sessions
from makai.transports.guard import Guard, GuardConfig

READING = {minicodex.HelloCommand, minicodex.ResumeCommand, minicodex.GetSnapshotCommand, minicodex.PingCommand}
"""Commands of MiniCodex that open or read a session; a session that `hello` begins is a `CreateSession`."""


def caller(scope: TokenScope, session_id: str | None = None) -> Caller:
    return Caller(name="ci", scope=scope, token_id="0123456789ab", session_id=session_id)


def test_each_scope_includes_the_ones_before_it() -> None:
    allowed = {scope: [needed for needed in SCOPES if caller(scope).may(needed)] for scope in SCOPES}

    assert allowed == {
        "observe": ["observe"],
        "prompt": ["observe", "prompt"],
        "approve": ["observe", "prompt", "approve"],
        "admin": ["observe", "prompt", "approve", "admin"],
    }


def test_every_request_and_every_command_has_a_scope() -> None:
    assert set(scopes.REQUESTS) == {kind for kind in request_types() if kind.__module__ == req.__name__}
    assert set(scopes.COMMANDS) == set(get_args(UserCommand))


def test_every_command_of_the_makai_protocol_has_a_scope() -> None:
    asked = {*get_args(Command), *get_args(AgentRequest)} - {AskSession}

    assert set(scopes.MAKAI_COMMANDS) == asked


def test_every_command_of_minicodex_reads_or_is_a_command_of_the_engine_with_a_scope() -> None:
    acting = {kind for kind in get_args(minicodex.ClientMessage) if kind not in READING}

    assert acting == set(minicodex._ENGINE_COMMANDS)
    assert set(minicodex._ENGINE_COMMANDS.values()) <= set(scopes.COMMANDS)


async def test_every_route_has_a_scope_and_every_entry_a_route(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        app = make_app(site.makai, Guard(GuardConfig(TOKEN, port=1)), acp=site.makai.serve)
        routes = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
        await app.cleanup()

    assert {route for route in routes if route[0] != "HEAD"} == set(ROUTES)


PROMPTED = [req.CreateSession, req.ForkSession, SessionTerms, RunTerms] + [
    kind for kind, needed in scopes.COMMANDS.items() if needed == "prompt"
]


@pytest.mark.parametrize("kind", PROMPTED, ids=lambda kind: kind.__name__)
def test_every_field_of_what_a_prompt_token_sends_is_judged(kind: type[msgspec.Struct]) -> None:
    assert set(kind.__struct_fields__) == set(scopes.FIELDS[kind])


def test_a_field_that_the_table_does_not_know_widens_unless_it_has_its_default() -> None:
    class Later(msgspec.Struct):
        listed: list[str] = []
        wide: str = "no"

    assert scopes.widening(Later()) == []
    assert scopes.widening(Later(listed=["x"], wide="yes")) == ["listed", "wide"]


def test_what_widens_is_named_by_its_path() -> None:
    terms = SessionTerms(sandbox="full-access", mcp_servers=(McpServer(name="m", command="c"),))
    wanted = req.CreateSession(model_ref="m", mode="never_ask", harness="other", terms=terms)

    assert scopes.widening(wanted) == ["mode", "harness", "terms.mcp_servers", "terms.sandbox"]
    assert scopes.widening(cmd.Send(now=0, input_id="i", content="x", terms=RunTerms(allow=("Bash(*)",)))) == [
        "terms.allow"
    ]


def test_an_operation_without_an_entry_is_refused_to_everyone() -> None:
    with pytest.raises(Forbidden):
        scopes.check(caller("admin"), None, "something new")


async def test_a_refusal_names_the_scope_and_the_next_step(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        session_id = (await desk(sessions)).session_id
        with pytest.raises(Forbidden) as refused:
            await scopes.ScopedSessions(sessions, caller("prompt")).dispatch(req.DeleteSession(session_id))

    assert refused.value.message == "The token 'ci' has the scope prompt; delete session needs admin."
    assert refused.value.hint == "Use a token of that scope: `makai tokens create --scope admin`."


async def test_a_fork_does_not_pass_on_more_than_the_caller_may_give(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        origin = (await desk(sessions, mode="never_ask")).session_id
        prompting = scopes.ScopedSessions(sessions, caller("prompt"))
        with pytest.raises(Forbidden, match="mode"):
            await prompting.dispatch(req.ForkSession(origin=origin))
        assert await prompting.dispatch(req.ForkSession(origin=origin, mode="ask"))


async def test_terms_may_change_beside_a_sandbox_that_a_person_opened(tmp_path: Path) -> None:
    opened = SessionTerms(sandbox="full-access")
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        session_id = await sessions.dispatch(req.CreateSession(model_ref="scripted/scripted@echo", terms=opened))
        prompting = scopes.ScopedSessions(sessions, caller("prompt"))
        kept = cmd.SetTerms(now=0, terms=msgspec.structs.replace(opened, system="Be kind."))
        await prompting.dispatch(req.RunCommand(session_id, kept))
        wider = msgspec.structs.replace(opened, mcp_servers=(McpServer(name="m", command="c"),))
        with pytest.raises(Forbidden, match="mcp_servers"):
            await prompting.dispatch(req.RunCommand(session_id, cmd.SetTerms(now=0, terms=wider)))


DEPLOY = ToolDefinition(name="deploy", description="", parameters_schema_json="{}", permission="ask")
LOOK = ToolDefinition(name="look", description="", parameters_schema_json="{}")
LIMITED = SessionTerms(sandbox="read-only", max_usd=1.0, tools=(DEPLOY, LOOK))


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        (cmd.SetTerms(now=0, terms=msgspec.structs.replace(LIMITED, sandbox="workspace-write")), "terms.sandbox"),
        (cmd.SetTerms(now=0, terms=msgspec.structs.replace(LIMITED, sandbox="full-access")), "terms.sandbox"),
        (cmd.SetTerms(now=0, terms=msgspec.structs.replace(LIMITED, builtin_tools=True)), "terms.builtin_tools"),
        (cmd.SetTerms(now=0, terms=msgspec.structs.replace(LIMITED, max_usd=2.0)), "terms.max_usd"),
        (
            cmd.SetTerms(
                now=0,
                terms=msgspec.structs.replace(LIMITED, tools=(msgspec.structs.replace(DEPLOY, permission="allow"),)),
            ),
            "terms.tools",
        ),
        (cmd.SetTerms(now=0, terms=msgspec.structs.replace(LIMITED, tools=(LOOK,))), "terms.tools"),
        (cmd.SetTerms(now=0, terms=SessionTerms()), "terms.max_usd, terms.tools, terms.sandbox"),
        (
            cmd.Send(now=0, input_id="1", content="Go", terms=RunTerms(allow_unknown_price=True)),
            "terms.allow_unknown_price",
        ),
    ],
)
async def test_a_prompt_token_lifts_no_limit_that_a_person_gave_a_session(
    tmp_path: Path, command: cmd.UserCommand, refused: str
) -> None:
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        wanted = req.CreateSession(model_ref="scripted/scripted@echo", mode="never_ask", terms=LIMITED)
        session_id = await sessions.dispatch(wanted)
        with pytest.raises(Forbidden) as error:
            await scopes.ScopedSessions(sessions, caller("prompt")).dispatch(req.RunCommand(session_id, command))
        assert error.value.message.endswith(f" with this {refused} needs approve.")
        await scopes.ScopedSessions(sessions, caller("approve")).dispatch(req.RunCommand(session_id, command))


async def test_a_prompt_token_creates_no_session_that_writes_where_the_settings_say_read_only(tmp_path: Path) -> None:
    async def reading(folder: str | None, caller: Caller) -> Settings:
        return Settings(sandbox="read-only")

    writing = SessionTerms(builtin_tools=True, sandbox="workspace-write")
    created = req.CreateSession(model_ref="scripted/scripted@echo", cwd=os.getcwd(), terms=writing)
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        prompting = scopes.ScopedSessions(sessions, caller("prompt"), reading)
        origin = await scopes.ScopedSessions(sessions, caller("approve"), reading).dispatch(created)
        for refused in (created, req.ForkSession(origin=origin), req.ForkSession(origin=origin, terms=writing)):
            with pytest.raises(Forbidden, match=r"with this terms\.sandbox needs approve"):
                await prompting.dispatch(refused)
        narrow = msgspec.structs.replace(writing, sandbox="read-only")
        for allowed in (
            msgspec.structs.replace(created, terms=narrow),
            msgspec.structs.replace(created, terms=SessionTerms()),  # without the tools that the sandbox is about
            req.ForkSession(origin=origin, terms=narrow),
        ):
            assert await prompting.dispatch(allowed)


async def test_a_prompt_token_may_make_the_limits_of_a_session_narrower(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        former = SessionTerms(max_usd=1.0, tools=(DEPLOY, LOOK))
        wanted = req.CreateSession(model_ref="scripted/scripted@echo", terms=former)
        session_id = await sessions.dispatch(wanted)
        prompting = scopes.ScopedSessions(sessions, caller("prompt"))
        asking = msgspec.structs.replace(LOOK, permission="ask")
        narrower = SessionTerms(sandbox="read-only", max_usd=0.5, tools=(asking, DEPLOY))
        await prompting.dispatch(req.RunCommand(session_id, cmd.SetTerms(now=0, terms=narrower)))
        assert (await sessions.dispatch(req.GetState(session_id))).terms == narrower


async def test_a_prompt_token_works_in_the_servers_folder_and_in_trusted_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, elsewhere, trusted = (tmp_path / name for name in ("server", "elsewhere", "trusted"))
    for folder in (server / "below", elsewhere, trusted / "below", tmp_path / "home"):
        folder.mkdir(parents=True)
    (server / "link").symlink_to(elsewhere)
    monkeypatch.chdir(server)

    async with owned_sessions(tmp_path / "home", "say: Hi.") as sessions:
        await trust_folder(sessions, trusted)
        prompting = scopes.ScopedSessions(sessions, caller("prompt"))

        async def is_open(cwd: Path, *roots: Path) -> bool:
            wanted = req.CreateSession(
                model_ref="scripted/scripted@echo",
                cwd=str(cwd),
                roots=tuple(map(str, roots)),
                terms=SessionTerms(builtin_tools=True),
            )
            try:
                return bool(await prompting.dispatch(wanted))
            except Forbidden:
                return False

        inside = [server, server / "below", trusted / "below"]
        outside = [elsewhere, server / "link", server / ".." / "elsewhere", Path("/"), tmp_path]
        assert [await is_open(folder) for folder in inside] == [True] * 3
        assert [await is_open(folder) for folder in outside] == [False] * 5
        assert not await is_open(server, elsewhere)


async def test_a_prompt_token_stops_its_own_runs_only(tmp_path: Path) -> None:
    async with asyncio.timeout(60), owned_sessions(tmp_path, "say: One.\npace: 5ms\nrepeat: 100000 word") as sessions:
        session_id = (await desk(sessions)).session_id
        mine = scopes.ScopedSessions(sessions, caller("prompt"))
        other = scopes.ScopedSessions(sessions, Caller(name="ci", scope="prompt", token_id="ba9876543210"))
        await mine.dispatch(req.RunCommand(session_id, cmd.Send(now=0, input_id="1", content="Go")))
        abort = req.RunCommand(session_id, cmd.Abort(now=0, by="x"))
        with pytest.raises(Forbidden, match="another caller"):
            await other.dispatch(abort)
        await mine.dispatch(abort)
        state = await sessions.dispatch(req.GetState(session_id))
        assert state.run is not None
        assert state.run.terms.token == "ci/0123456789ab"


async def test_a_prompt_token_retries_its_own_runs_only(tmp_path: Path) -> None:
    """The rules that came with a failed run hold in its retry too."""
    async with asyncio.timeout(60), owned_sessions(tmp_path, "fail: invalid_request No.") as sessions:
        client = await desk(sessions)
        mine = scopes.ScopedSessions(sessions, caller("prompt"))
        other = scopes.ScopedSessions(sessions, Caller(name="ci", scope="prompt", token_id="ba9876543210"))
        await mine.dispatch(req.RunCommand(client.session_id, cmd.Send(now=0, input_id="1", content="Go")))
        await client.until_settled()
        run = (await sessions.dispatch(req.GetState(client.session_id))).run
        assert run is not None
        retry = req.RunCommand(client.session_id, cmd.RetryRun(now=0, run_id=run.run_id, input_id="2", token="forged"))
        with pytest.raises(Forbidden, match="another caller"):
            await other.dispatch(retry)
        await mine.dispatch(retry)
        run = (await sessions.dispatch(req.GetState(client.session_id))).run
        assert run is not None
        assert (run.run_number, run.terms.token) == (2, "ci/0123456789ab")


async def test_a_prompt_token_takes_back_its_own_messages_only(tmp_path: Path) -> None:
    async with asyncio.timeout(60), owned_sessions(tmp_path, "say: One.\nstall") as sessions:
        session_id = (await desk(sessions)).session_id
        mine = scopes.ScopedSessions(sessions, caller("prompt"))
        other = scopes.ScopedSessions(sessions, Caller(name="ci", scope="prompt", token_id="ba9876543210"))
        for input_id in ("1", "2", "3"):
            send = cmd.Send(now=0, input_id=input_id, content="Go", delivery="queue")
            await mine.dispatch(req.RunCommand(session_id, send))

        def withdraw(input_id: str) -> req.RunCommand:
            return req.RunCommand(session_id, cmd.WithdrawInput(now=0, input_id=input_id, token="forged"))

        with pytest.raises(Forbidden, match="another caller"):
            await other.dispatch(withdraw("2"))
        await mine.dispatch(withdraw("2"))
        await scopes.ScopedSessions(sessions, caller("approve")).dispatch(withdraw("3"))
        state = await sessions.dispatch(req.GetState(session_id))
        withdrawn = [
            logged.event for logged in await whole_log(sessions, session_id) if isinstance(logged.event, InputWithdrawn)
        ]
        assert (state.waiting, withdrawn) == (
            (),
            [InputWithdrawn(input_id=name, token="ci/0123456789ab") for name in ("2", "3")],
        )


@pytest.mark.parametrize(
    "request_of",
    [
        lambda other: req.CreateSession(model_ref="m"),
        lambda other: req.ForkSession(origin=other),
        lambda other: req.ForkSession(origin=other, session_id="mine"),
        lambda other: req.GetState(other),
        lambda other: req.ReadEvents(other),
        lambda other: req.ListPrompts(other),
        lambda other: req.GetPrompt(other, "a", "b"),
        lambda other: req.ListCommands(other),
        lambda other: req.ExpandCommand(other, "a"),
        lambda other: req.HasFolder(other, ()),
        lambda other: req.FindFiles(other),
        lambda other: req.ReadMentioned(other, "@a"),
        lambda other: req.RunCommand(other, cmd.SetTitle(now=0, title="x")),
        lambda other: req.ListGrants(),
        lambda other: req.IsTrusted("/"),
        lambda other: req.CheckLog(),
    ],
)
async def test_a_token_of_one_session_opens_no_other(tmp_path: Path, request_of: Any) -> None:
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        own, other = (await desk(sessions)).session_id, (await desk(sessions)).session_id
        narrow = scopes.ScopedSessions(sessions, caller("admin", own))
        with pytest.raises(Forbidden, match="one session only"):
            await narrow.dispatch(request_of(other))
        with pytest.raises(Forbidden, match="one session only"):
            narrow.follow(other)
        assert [one.session_id for one in await narrow.dispatch(req.ListSessions())] == [own]
        assert (await narrow.dispatch(req.GetState(own))).last_event_id == 1


@pytest.mark.parametrize("agent", ["acp:sh -c 'touch x'", "acp:/bin/sh", "acp:gemini --yolo", "acp: gemini", "other"])
async def test_only_a_local_process_or_an_admin_token_chooses_the_program_of_an_agent(
    tmp_path: Path, agent: str
) -> None:
    wanted = req.CreateSession(model_ref="", harness=agent, cwd=str(tmp_path))
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        for scope in ("prompt", "approve"):
            with pytest.raises(Forbidden):
                await scopes.ScopedSessions(sessions, caller(scope)).dispatch(wanted)
        free = req.CreateSession(model_ref="", harness="acp:sh -c true", cwd=str(tmp_path))
        session_id = await scopes.ScopedSessions(sessions, caller("admin")).dispatch(free)
        with pytest.raises(Forbidden, match="an agent that is not known by name needs admin"):
            await scopes.ScopedSessions(sessions, caller("approve")).dispatch(req.ForkSession(origin=session_id))


async def test_only_a_local_process_or_an_admin_token_gives_an_agent_options_of_its_own(tmp_path: Path) -> None:
    """Those of Codex are its whole configuration, with programs that it starts."""
    terms = SessionTerms(agent_options_json='{"mcp_servers": {"x": {"command": "sh"}}}')
    created = req.CreateSession(model_ref=SCENARIO_MODEL, terms=terms)
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        plain, opened = (await desk(sessions)).session_id, await sessions.dispatch(created)
        kept = msgspec.structs.replace(terms, system="Be kind.")
        for scope in ("prompt", "approve"):
            limited = scopes.ScopedSessions(sessions, caller(scope))
            for wanted in (
                created,
                req.ForkSession(origin=plain, terms=terms),
                req.ForkSession(origin=opened),
                req.RunCommand(plain, cmd.SetTerms(now=0, terms=terms)),
            ):
                with pytest.raises(Forbidden, match=r"with this terms\.agent_options_json needs admin"):
                    await limited.dispatch(wanted)
            await limited.dispatch(req.RunCommand(opened, cmd.SetTerms(now=0, terms=kept)))
        await scopes.ScopedSessions(sessions, caller("admin")).dispatch(created)


async def test_an_agent_known_by_its_name_needs_approve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    wanted = req.CreateSession(model_ref="", harness="acp:gemini", cwd=str(tmp_path))
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        prompted = req.CreateSession(model_ref="", harness="acp:gemini")
        with pytest.raises(Forbidden, match="harness needs approve"):
            await scopes.ScopedSessions(sessions, caller("prompt")).dispatch(prompted)
        with pytest.raises(InvalidRequest, match="Gemini CLI is not installed"):
            await scopes.ScopedSessions(sessions, caller("approve")).dispatch(wanted)


async def answers(request: ToolRequest, report: Report) -> ToolAnswer:
    return ToolAnswer(content=(Text(text="here"),))


def server_offer(server_id: str = "desk") -> ToolServerOffer:
    tool = ToolDefinition(name="look", description="", parameters_schema_json="{}")
    return ToolServerOffer(server_id=server_id, tools=(tool,), timeout_s=60.0)


async def served(sessions: Sessions, session_id: str) -> bool:
    """Whether a run of the session gets an answer of the tool server."""
    client = Desk(sessions, session_id)
    await client.run("look")
    finished = [logged.event for logged in client.seen if isinstance(logged.event, ToolFinished)]
    return [event.is_error for event in finished] == [False]


@pytest.mark.req("MK-TOOL-014")
async def test_tool_servers_are_registered_from_prompt_on_and_by_no_token_of_one_session(tmp_path: Path) -> None:
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        allowed = {}
        for scope in SCOPES:
            try:
                offer = server_offer(f"desk-{scope}")
                await scopes.ScopedSessions(sessions, caller(scope)).register_tool_server(offer, answers)
                allowed[scope] = True
            except Forbidden:
                allowed[scope] = False
        with pytest.raises(Forbidden):
            await scopes.ScopedSessions(sessions, caller("admin", "s")).register_tool_server(server_offer(), answers)

    assert allowed == {"observe": False, "prompt": True, "approve": True, "admin": True}


@pytest.mark.req("MK-TOOL-014")
async def test_a_prompt_token_uses_its_own_tool_servers_and_serves_its_own_sessions(tmp_path: Path) -> None:
    calls = "tool: desk__look {}\n---\nsay: Seen."
    terms = SessionTerms(tool_servers=("desk",))
    wanted = req.CreateSession(model_ref=SCENARIO_MODEL, terms=terms)
    heard: dict[tuple[str, str], bool] = {}
    async with owned_sessions(tmp_path, calls) as sessions:
        prompt = scopes.ScopedSessions(sessions, caller("prompt"))
        other = scopes.ScopedSessions(sessions, Caller(name="other", scope="prompt", token_id="ba9876543210"))
        callers: dict[str, Sessions] = {"prompt": prompt, "other": other, "user": sessions}
        callers["approve"] = scopes.ScopedSessions(sessions, Caller(name="boss", scope="approve", token_id="1" * 12))
        for registering, registrar in callers.items():
            registration = await registrar.register_tool_server(server_offer(), answers)
            for name, each in callers.items():
                heard[registering, name] = await served(sessions, await each.dispatch(wanted))
                if name != registering:
                    with pytest.raises(Forbidden, match="registered by another token"):
                        await each.register_tool_server(server_offer(), answers)
            registration.unregister()

    own = {(name, name) for name in callers}
    shared = {(registering, name) for registering in ("user", "approve") for name in ("user", "approve")}
    assert {pair for pair, is_served in heard.items() if is_served} == own | shared


@pytest.mark.req("MK-TOOL-014")
async def test_a_prompt_token_gets_no_tool_server_by_a_fork_or_by_new_terms(tmp_path: Path) -> None:
    terms = SessionTerms(tool_servers=("desk",))
    async with owned_sessions(tmp_path, "say: Hi.") as sessions:
        prompt = scopes.ScopedSessions(sessions, caller("prompt"))
        origin = await sessions.dispatch(req.CreateSession(model_ref=SCENARIO_MODEL, terms=terms))
        fork = await prompt.dispatch(req.ForkSession(origin=origin))
        kept = msgspec.structs.replace(terms, system="Be brief.")
        changed = msgspec.structs.replace(terms, tool_servers=("desk", "other"))
        tokens = [(await sessions.dispatch(req.GetState(fork))).terms.tool_servers_token]
        for wanted in (kept, changed):
            await prompt.dispatch(req.RunCommand(origin, cmd.SetTerms(now=0, terms=wanted)))
            tokens.append((await sessions.dispatch(req.GetState(origin))).terms.tool_servers_token)

    assert tokens == ["ci/0123456789ab", "", "ci/0123456789ab"]
