"""Sessions whose editor has files, terminals and MCP servers, with the editor in the owner's process and in another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from aiohttp import web
from support.attach import pair
from support.editor import ALL_TERMS, EVERYTHING, ScriptedEditor, ScriptedTerminal, connected
from support.live_sessions import Desk, new_session, owned_sessions, whole_log
from support.places import folder_outside_tmp
from support.plain_mcp import PYTHON, SERVER

from makai.core import session_events as ev
from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition
from makai.harness.editor_calls import McpServerValues
from makai.sessions import commands as cmd
from makai.sessions.requests import CreateSession
from makai.tools.sandbox.detect import detect
from makai.wire.acp.connecting import AcpClientCapabilities, FileSystemCapabilities
from makai.wire.json_rpc_errors import RpcError

TERMS = ev.SessionTerms(builtin_tools=True, client=ALL_TERMS)
STREAMS: web.AppKey[list[web.StreamResponse]] = web.AppKey("STREAMS")
needs_sandbox = pytest.mark.skipif(detect().backend is None, reason="no sandbox works here")


def tool(name: str, **arguments: Any) -> str:
    return f"tool: {name} {msgspec.json.encode(arguments).decode()}"


def results(client: Desk) -> list[tuple[str, bool]]:
    return [
        ("\n".join(part.text for part in each.content if isinstance(part, Text)), each.is_error)
        for each in client.events(ev.ToolFinished)
    ]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "file").write_text("saved\n")
    return folder


class Turn:
    """A session with an editor, in one process."""

    def __init__(self, client: Desk, editor: ScriptedEditor) -> None:
        self.client = client
        self.editor = editor

    async def ends(self, words: str = "go") -> list[tuple[str, bool]]:
        await self.client.run(words)
        return results(self.client)


@asynccontextmanager
async def session(
    tmp_path: Path,
    repo: Path,
    script: str,
    editor: ScriptedEditor | None,
    *,
    mode: ev.PermissionMode = "ask",
    terms: ev.SessionTerms = TERMS,
    mcp_values: Mapping[str, McpServerValues] | None = None,
) -> AsyncIterator[Turn]:
    async with new_session(tmp_path, script, mode=mode, cwd=repo, terms=terms) as (sessions, client):
        if editor is not None:
            calls = connected(editor, mcp_values=mcp_values)
            await sessions.register_executor(client.session_id, calls.execute)
        yield Turn(client, editor or ScriptedEditor())


@pytest.mark.req("ACP-FS-002", "ACP-FS-003")
async def test_an_agent_reads_unsaved_text_and_its_edits_land_in_the_editor(tmp_path: Path, repo: Path) -> None:
    script = "\n---\n".join(
        [
            tool("read", path="file"),
            tool("edit", path="file", old_text="unsaved", new_text="changed"),
            "say: Done.",
        ]
    )
    editor = ScriptedEditor({str(repo / "file"): "unsaved\n"})
    async with session(tmp_path, repo, script, editor, mode="accept_edits") as turn:
        ended = await turn.ends()
        [_, edited] = turn.client.events(ev.ToolFinished)

    assert ended == [("     1\tunsaved", False), ("Edited file.", False)]
    assert edited.diffs == (ev.FileDiff(path=str(repo / "file"), old_text="unsaved\n", new_text="changed\n"),)
    assert (repo / "file").read_text() == "changed\n"


@pytest.mark.req("ACP-FS-004")
async def test_an_editor_that_refuses_fails_the_call_and_the_turn_continues(tmp_path: Path, repo: Path) -> None:
    def refuse(params: dict[str, Any]) -> Any:
        raise InvalidRequest("no such window")

    editor = ScriptedEditor()
    editor.answers = {"fs/read_text_file": refuse}
    async with session(tmp_path, repo, f"{tool('read', path='file')}\n---\nsay: Done.", editor) as turn:
        ended = await turn.ends()
        [finished] = turn.client.events(ev.RunFinished)

    assert ended == [("Your editor did not read file: no such window", True)]
    assert finished.stop_reason == "end_turn"


@needs_sandbox
@pytest.mark.req("ACP-TERM-001", "ACP-TERM-009")
async def test_a_command_that_a_person_approves_runs_in_the_editors_terminal_and_the_question_says_so(
    tmp_path: Path, repo: Path
) -> None:
    script = "\n---\n".join([tool("shell", command="make test"), "say: Done."] * 2)
    editor = ScriptedEditor(terminal=lambda: ScriptedTerminal("ok\n", 0))
    async with session(tmp_path, repo, script, editor) as turn:
        await turn.client.send("go")
        asked = await turn.client.until_asked()
        assert editor.requests == []
        await turn.client.do(cmd.ApproveCall(now=0, call_id=asked.call_id, by="me", scope="session", grant=asked.grant))
        await turn.client.until_settled()
        first = turn.client.kinds()
        again = await turn.ends("again")

    assert asked.confinement == Confinement(unsandboxed=True, terminal=True)
    assert asked.title == "make test [in a terminal of your editor, without the sandbox]"
    assert [(grant.rule, grant.session_only) for grant in asked.grants] == [("Bash(make test)+no-sandbox", True)]
    assert again == [("ok", False), ("ok", False)]
    assert editor.methods.count("terminal/create") == 2
    assert editor.released == ["term-1", "term-2"]
    assert first.index("tool_started") < first.index("tool_updated") < first.index("tool_finished")


@needs_sandbox
@pytest.mark.req("ACP-TERM-001")
async def test_what_is_approved_for_a_sandboxed_terminal_does_not_run_in_that_of_an_editor_without_one(
    tmp_path: Path, repo: Path
) -> None:
    confined, other = ScriptedEditor(), ScriptedEditor()
    script = f"{tool('shell', command='touch made')}\n---\nsay: Done."
    sandboxed = msgspec.structs.replace(EVERYTHING, meta={"makai.terminal_sandbox": "workspace-write"})
    async with new_session(tmp_path, script, cwd=repo, terms=TERMS) as (sessions, client):
        await sessions.register_executor(client.session_id, connected(confined, sandboxed).execute)
        await client.send("go")
        asked = await client.until_asked()
        await sessions.register_executor(client.session_id, connected(other).execute)
        await client.approve(asked.call_id)
        await client.until_settled()

    assert asked.title == "touch made [in a terminal of your editor, in its own sandbox (workspace-write)]"
    assert (confined.methods.count("terminal/create"), other.methods.count("terminal/create")) == (0, 0)
    assert (repo / "made").exists()


@needs_sandbox
async def test_an_approval_for_a_terminal_is_never_remembered_for_always(tmp_path: Path, repo: Path) -> None:
    editor = ScriptedEditor()
    async with session(tmp_path, repo, f"{tool('shell', command='make test')}\n---\nsay: Done.", editor) as turn:
        await turn.client.send("go")
        asked = await turn.client.until_asked()
        always = cmd.ApproveCall(now=0, call_id=asked.call_id, by="me", scope="always", grant=asked.grant)
        with pytest.raises(Exception, match="session"):
            await turn.client.do(always)
        await turn.client.deny(asked.call_id)
        await turn.client.until_settled()

    assert editor.requests == []


@needs_sandbox
@pytest.mark.parametrize(
    ("command", "mode", "terms"),
    [
        ("cat file", "ask", ev.RunTerms()),
        ("echo x > made", "never_ask", ev.RunTerms()),
        ("touch made", "ask", ev.RunTerms(allow=("Bash(touch:*)",))),
    ],
)
async def test_a_command_that_runs_unasked_runs_in_the_sandbox(
    tmp_path: Path, repo: Path, command: str, mode: ev.PermissionMode, terms: ev.RunTerms
) -> None:
    editor = ScriptedEditor()
    async with session(tmp_path, repo, f"{tool('shell', command=command)}\n---\nsay: Done.", editor, mode=mode) as turn:
        await turn.client.run("go", terms=terms)
        [(_, is_error)] = results(turn.client)

    assert (is_error, editor.requests) == (False, [])


@needs_sandbox
async def test_a_rule_against_commands_without_a_sandbox_keeps_them_in_it(tmp_path: Path, repo: Path) -> None:
    editor = ScriptedEditor()
    async with session(tmp_path, repo, f"{tool('shell', command='touch made')}\n---\nsay: Done.", editor) as turn:
        await turn.client.send("go", terms=ev.RunTerms(deny=("Bash+no-sandbox",)))
        asked = await turn.client.until_asked()
        await turn.client.approve(asked.call_id)
        await turn.client.until_settled()

    assert (asked.confinement, editor.requests) == (SESSION_SANDBOX, [])
    assert (repo / "made").exists()


@needs_sandbox
async def test_without_its_editor_a_session_asks_about_a_command_in_the_sandbox_and_reads_the_disk(
    tmp_path: Path, repo: Path
) -> None:
    script = f"{tool('read', path='file')}\n{tool('shell', command='touch made')}\n---\nsay: Done."
    async with session(tmp_path, repo, script, None) as turn:
        await turn.client.send("go")
        asked = await turn.client.until_asked()
        await turn.client.approve(asked.call_id)
        await turn.client.until_settled()

    assert asked.confinement == SESSION_SANDBOX
    assert results(turn.client)[0] == ("     1\tsaved", False)
    assert (repo / "made").exists()


@needs_sandbox
@pytest.mark.req("ACP-TERM-008")
async def test_an_abort_kills_the_command_and_releases_its_terminal(tmp_path: Path, repo: Path) -> None:
    editor = ScriptedEditor(terminal=lambda: ScriptedTerminal("begun\n", None))
    async with session(tmp_path, repo, tool("shell", command="make"), editor) as turn:
        await turn.client.send("go")
        await turn.client.approve((await turn.client.until_asked()).call_id)
        await turn.client.until(lambda logged: isinstance(logged.event, ev.ToolProgress))
        await turn.client.do(cmd.Abort(now=0, by="me"))
        ended = await turn.client.until_settled()

    assert isinstance(ended, ev.RunFinished)
    assert ended.stop_reason == "aborted"
    assert editor.released == ["term-1"]


@needs_sandbox
async def test_a_command_approved_for_a_terminal_runs_after_a_restart_where_the_editor_is(
    tmp_path: Path, repo: Path
) -> None:
    """The process ends while the question waits; the next one asks the same and obeys the same."""
    editor = ScriptedEditor(terminal=lambda: ScriptedTerminal("ok\n", 0))
    script = f"{tool('shell', command='make test')}\n---\nsay: Done."
    async with session(tmp_path, repo, script, editor) as turn:
        await turn.client.send("go")
        asked = await turn.client.until_asked()
    async with owned_sessions(tmp_path, "say: Done.") as sessions:
        await sessions.register_executor(turn.client.session_id, connected(editor).execute)
        client = Desk(sessions, turn.client.session_id, turn.client.seen[-1].event_id)
        await client.approve(asked.call_id)
        await client.until_settled()

        assert results(client) == [("ok", False)]
    assert editor.released == ["term-1"]


async def test_no_tool_can_have_the_name_of_a_call_of_the_editor(tmp_path: Path, repo: Path) -> None:
    forged = ToolDefinition(name="client/read_text_file", description="", parameters_schema_json='{"type":"object"}')
    script = f"{tool('client/read_text_file', sessionId='s', path='/etc/passwd')}\n---\nsay: Done."
    editor = ScriptedEditor()
    async with session(tmp_path, repo, script, editor, mode="never_ask") as turn:
        terms = msgspec.structs.replace(TERMS, tools=(forged,))
        with pytest.raises(InvalidRequest, match="reserved"):
            await turn.client.sessions.dispatch(CreateSession(model_ref="scripted/scenario", terms=terms))
        await turn.client.do(cmd.SetTerms(now=0, terms=terms))
        [(said, is_error)] = await turn.ends()

    assert (said.startswith("There is no tool 'client/read_text_file'"), is_error) == (True, True)
    assert editor.requests == []


@pytest.mark.parametrize("editor_is", ["owner", "attached"])
async def test_the_editor_may_be_in_another_process_than_the_sessions(home: Path, repo: Path, editor_is: str) -> None:
    script = f"{tool('read', path='file')}\n---\n{tool('write', path='made', content='new')}\n---\nsay: Done."
    editor = ScriptedEditor({str(repo / "file"): "unsaved\n"})
    async with pair(home, script) as (owner, attached):
        near, far = (owner, attached) if editor_is == "owner" else (attached, owner)
        wanted = CreateSession(model_ref="scripted/scripted@model", mode="accept_edits", cwd=str(repo), terms=TERMS)
        session_id = await near.dispatch(wanted)
        registration = await near.register_executor(session_id, connected(editor).execute)
        client = Desk(far, session_id)
        await client.run("go")
        first = results(client)
        registration.unregister()
        editor.requests.clear()
        (repo / "file").write_text("later\n")

    assert first == [("     1\tunsaved", False), ("Created made (3 bytes).", False)]
    assert (repo / "made").read_text() == "new"


@needs_sandbox
@pytest.mark.parametrize("end", ["by itself", "abort"])
async def test_a_terminal_of_an_editor_in_another_process_is_used_and_released(
    home: Path, repo: Path, end: str
) -> None:
    script = f"{tool('shell', command='make')}\n---\nsay: Done."
    editor = ScriptedEditor(terminal=lambda: ScriptedTerminal("ok\n", 0 if end == "by itself" else None))
    async with pair(home, script) as (_, attached):
        wanted = CreateSession(model_ref="scripted/scripted@model", cwd=str(repo), terms=TERMS)
        session_id = await attached.dispatch(wanted)
        await attached.register_executor(session_id, connected(editor).execute)
        client = Desk(attached, session_id)
        await client.send("go")
        await client.approve((await client.until_asked()).call_id)
        if end == "abort":
            await client.until(lambda logged: isinstance(logged.event, ev.ToolProgress))
            await client.do(cmd.Abort(now=0, by="me"))
        await client.until_settled()
        await editor.until(lambda: editor.released == ["term-1"])

    assert results(client)[0][0].startswith("ok" if end == "by itself" else "Interrupted")


@pytest.mark.parametrize(
    ("reads", "written", "methods"),
    [
        (False, ("Replaced file (3 bytes).", False), set()),
        (True, ("Your editor did not write file: no such window", True), {"fs/read_text_file", "fs/write_text_file"}),
    ],
)
async def test_what_an_editor_in_another_process_does_not_offer_or_refuses_is_local_or_fails(
    home: Path, repo: Path, reads: bool, written: tuple[str, bool], methods: set[str]
) -> None:
    script = f"{tool('read', path='file')}\n---\n{tool('write', path='file', content='new')}\n---\nsay: Done."

    def refuse(params: dict[str, Any]) -> Any:
        raise RpcError(-32603, "no such window")

    editor = ScriptedEditor()
    editor.answers = {"fs/write_text_file": refuse}
    offered = AcpClientCapabilities(fs=FileSystemCapabilities(read_text_file=reads, write_text_file=True))
    async with pair(home, script) as (_, attached):
        wanted = CreateSession(model_ref="scripted/scripted@model", mode="accept_edits", cwd=str(repo), terms=TERMS)
        session_id = await attached.dispatch(wanted)
        await attached.register_executor(session_id, connected(editor, offered).execute)
        client = Desk(attached, session_id)
        await client.run("go")

    assert results(client) == [("     1\tsaved", False), written]
    assert set(editor.methods) == methods


@pytest.fixture
def outside() -> Any:
    with folder_outside_tmp() as folder:
        (folder / "repo").mkdir()
        (folder / "repo/server.py").write_text(SERVER)
        yield folder


ENVIRONMENT_SERVER = SERVER.replace('return os.getcwd() if name == "cwd"', 'return os.environ["KEY"] if name == "cwd"')


@needs_sandbox
@pytest.mark.req("ACP-SESS-003")
async def test_an_mcp_program_of_the_editor_runs_in_the_session_with_values_that_no_log_has(outside: Path) -> None:
    repo = outside / "repo"
    (repo / "server.py").write_text(ENVIRONMENT_SERVER)
    server = ev.McpServer(name="mine", command=PYTHON, args=("-I", str(repo / "server.py")), env_names=("KEY",))
    terms = msgspec.structs.replace(TERMS, mcp_servers=(server,))
    script = f"{tool('mcp__mine__cwd')}\n---\nsay: Done."
    values = {"mine": McpServerValues(env={"KEY": "the-value-of-it"})}
    wait = ev.RunTerms(mcp_wait_s=60.0, allow=("mcp__mine__*",))
    async with session(outside, repo, script, ScriptedEditor(), terms=terms, mcp_values=values) as turn:
        await turn.client.run("go", terms=wait)
        told = results(turn.client)
        logged = await whole_log(turn.client.sessions, turn.client.session_id)

    assert told == [("the-value-of-it", False)]
    notices = [each.event.message for each in logged if isinstance(each.event, ev.Notice)]
    assert "The MCP server mine comes from your editor; it may use the network." in notices
    before_the_call = [each for each in logged if not isinstance(each.event, ev.ToolFinished)]
    assert "the-value-of-it" not in str(before_the_call)


@needs_sandbox
async def test_mcp_servers_that_fail_or_lack_their_values_are_notices_and_the_turn_goes_on(outside: Path) -> None:
    servers = (
        ev.McpServer(name="broken", command="no-such-program-anywhere"),
        ev.McpServer(name="needs", command=PYTHON, env_names=("KEY",)),
    )
    terms = msgspec.structs.replace(TERMS, mcp_servers=servers)
    async with session(outside, outside / "repo", "say: Done.", ScriptedEditor(), terms=terms) as turn:
        await turn.client.run("go", terms=ev.RunTerms(mcp_wait_s=60.0))
        [finished] = turn.client.events(ev.RunFinished)
        failed = sorted(each.message for each in turn.client.events(ev.Notice) if each.code == "mcp_server_failed")

    assert finished.stop_reason == "end_turn"
    assert failed == [
        "The MCP server broken failed: The program no-such-program-anywhere is not on your PATH. Install it, or "
        'correct "command" in its entry.',
        "The MCP server needs failed: The value of KEY is known only to the editor, which is not connected.",
    ]


@pytest.mark.req("ACP-SESS-004")
@pytest.mark.parametrize(
    ("server", "message"),
    [
        (ev.McpServer(name="a"), "has no command"),
        (ev.McpServer(name="a", transport="http", url="ftp://x"), "no http or https URL"),
        (ev.McpServer(name="a", transport="sse", url="https://x", header_names=("a b",)), "no header"),
        (ev.McpServer(name="a", command="x", env_names=("A=B",)), "environment variable"),
        (ev.McpServer(name="a\0", command="x\0"), "NUL"),
    ],
)
async def test_an_mcp_server_that_cannot_be_meant_is_refused_with_the_session(
    tmp_path: Path, repo: Path, server: ev.McpServer, message: str
) -> None:
    async with owned_sessions(tmp_path, "say: Hi") as sessions:
        for terms, wanted in (
            (msgspec.structs.replace(TERMS, mcp_servers=(server,)), message),
            (msgspec.structs.replace(TERMS, mcp_servers=(ev.McpServer(name="b", command="x"),) * 2), "Two MCP servers"),
            (ev.SessionTerms(mcp_servers=(ev.McpServer(name="b", command="x"),)), "builtin_tools"),
        ):
            with pytest.raises(InvalidRequest, match=wanted):
                await sessions.dispatch(CreateSession(model_ref="scripted/scenario", cwd=str(repo), terms=terms))


async def _speak_mcp(request: web.Request) -> web.Response:
    """A tool server with one tool, which says the header that the call came with."""
    if request.method != "POST":
        return web.Response(status=405)
    answer = await _mcp_answer(request)
    return web.Response(status=202) if answer is None else web.json_response(answer)


async def _speak_mcp_by_events(request: web.Request) -> web.StreamResponse:
    """The same over server-sent events: answers come on the stream that a GET opens."""
    streams = request.app[STREAMS]
    if request.method == "POST":
        if (answer := await _mcp_answer(request)) is not None:
            await streams[0].write(b"event: message\ndata: " + msgspec.json.encode(answer) + b"\n\n")
        return web.Response(status=202)
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    streams.append(stream)
    await stream.write(b"event: endpoint\ndata: /mcp\n\n")
    await asyncio.Event().wait()
    return stream


async def _mcp_answer(request: web.Request) -> dict[str, Any] | None:
    message = await request.json()
    if "id" not in message:
        return None
    said = {"content": [{"type": "text", "text": request.headers["X-Key"]}]}
    results = {
        "initialize": {
            "protocolVersion": message.get("params", {}).get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "site", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "key", "inputSchema": {"type": "object"}}]},
        "tools/call": said,
    }
    return {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}


@pytest.mark.req("ACP-SESS-004", "ACP-INIT-006")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_mcp_address_of_the_editor_is_called_with_its_headers(
    tmp_path: Path, repo: Path, transport: Literal["http", "sse"]
) -> None:
    app = web.Application()
    app[STREAMS] = []
    app.router.add_route("*", "/mcp", _speak_mcp if transport == "http" else _speak_mcp_by_events)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        server = ev.McpServer(name="web", transport=transport, url=url, header_names=("X-Key",))
        terms = msgspec.structs.replace(TERMS, mcp_servers=(server,))
        values = {"web": McpServerValues(headers={"X-Key": "hush"})}
        script = f"{tool('mcp__web__key')}\n---\nsay: Done."
        async with session(tmp_path, repo, script, ScriptedEditor(), terms=terms, mcp_values=values) as turn:
            await turn.client.run("go", terms=ev.RunTerms(mcp_wait_s=60.0, allow=("mcp__web__*",)))

        assert results(turn.client) == [("hush", False)]
    finally:
        await runner.cleanup()
