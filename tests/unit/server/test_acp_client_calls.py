"""Calls of an editor over its ACP connection, and who of several executors gets them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from support.editor import EVERYTHING, EditorRun, ScriptedEditor, ScriptedTerminal, connected

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import InvalidRequest, NotSupported
from makai.harness import editor_calls as calls
from makai.harness.base import ToolAnswer, ToolRequest
from makai.harness.client_tools import ToolExecutors
from makai.harness.editor_calls import McpServerValues
from makai.server import acp_client_calls
from makai.server.acp_client_calls import described_servers, offered_by
from makai.wire.acp.client_calls import CreateTerminalRequest, TerminalExit
from makai.wire.acp.connecting import AcpClientCapabilities, FileSystemCapabilities
from makai.wire.acp.sessions import mcp_server


def request(name: str, call_id: str = "c1", **arguments: Any) -> ToolRequest:
    return ToolRequest(session_id="s1", run_id="r1", call_id=call_id, name=name, arguments=arguments)


def answer_of(answer: ToolAnswer) -> Any:
    assert (answer.content, answer.is_error) == ((), False)
    return msgspec.json.decode(answer.details_json or "")


CREATE = {"sessionId": "s1", "command": "make"}


@pytest.mark.req("ACP-FS-001", "ACP-TERM-001")
async def test_what_an_editor_did_not_declare_is_never_sent(tmp_path: Any) -> None:
    editor = ScriptedEditor()
    client = connected(editor, AcpClientCapabilities())
    wanted = {"sessionId": "s1", "path": "/f", "content": "", "command": "c", "terminalId": "t"}
    for name in acp_client_calls._FORWARDED:
        with pytest.raises(NotSupported):
            await client.execute(request(name, **wanted))
    with pytest.raises(NotSupported):
        await client.execute(request("a tool of another client"))

    assert editor.requests == []
    assert answer_of(await client.execute(request("client/capabilities"))) == {}
    full = connected(editor, EVERYTHING)
    assert answer_of(await full.execute(request("client/capabilities"))) == {
        "read_files": True,
        "write_files": True,
        "terminals": True,
    }


FILE = {"sessionId": "s1", "path": "/f"}
ONE_CALL_PER_CAPABILITY = {
    "read": ("client/read_text_file", FILE),
    "write": ("client/write_text_file", {**FILE, "content": "new"}),
    "terminal": ("client/terminal_create", CREATE),
}


@pytest.mark.req("ACP-FS-001", "ACP-TERM-001")
@pytest.mark.parametrize(
    ("declared", "allowed", "sent"),
    [
        (AcpClientCapabilities(fs=FileSystemCapabilities(read_text_file=True)), "read", "fs/read_text_file"),
        (AcpClientCapabilities(fs=FileSystemCapabilities(write_text_file=True)), "write", "fs/write_text_file"),
        (AcpClientCapabilities(terminal=True), "terminal", "terminal/create"),
    ],
)
async def test_each_capability_of_an_editor_opens_its_own_calls_and_no_others(
    declared: AcpClientCapabilities, allowed: str, sent: str
) -> None:
    editor = ScriptedEditor({"/f": "text"}, terminal=lambda: ScriptedTerminal("", None))
    client = connected(editor, declared)
    refused = []
    for capability, (name, arguments) in ONE_CALL_PER_CAPABILITY.items():
        try:
            await client.execute(request(name, **arguments))
        except NotSupported:
            refused.append(capability)

    assert refused == [capability for capability in ONE_CALL_PER_CAPABILITY if capability != allowed]
    assert [method for method, _ in editor.requests] == [sent]


async def test_a_call_carries_the_session_id_of_the_editor_and_a_refusal_its_message() -> None:
    editor = ScriptedEditor({"/f": "text"})
    client = connected(editor)
    read = await client.execute(request("client/read_text_file", sessionId="s1", path="/f"))
    missing = await client.execute(request("client/read_text_file", sessionId="s1", path="/none"))

    assert answer_of(read) == {"content": "text"}
    assert missing == ToolAnswer(content=(Text(text="Resource not found"),), is_error=True)
    assert [params["sessionId"] for _, params in editor.requests] == ["acp-1", "acp-1"]
    with pytest.raises(InvalidRequest):
        await client.execute(request("client/read_text_file", sessionId="s1"))


async def test_an_editor_that_does_not_answer_in_time_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = msgspec.structs.replace(calls.READ_TEXT_FILE, seconds=0.05)
    monkeypatch.setitem(acp_client_calls._FORWARDED, quick.name, quick)
    monkeypatch.setattr(calls, "READ_TEXT_FILE", quick)
    editor = ScriptedEditor()
    editor.answers = {"fs/read_text_file": lambda params: ...}
    answer = await connected(editor).execute(request("client/read_text_file", sessionId="s1", path="/f"))

    assert answer == ToolAnswer(content=(Text(text="No answer to fs/read_text_file within 0.05 s."),), is_error=True)
    await editor.until(lambda: editor.cancelled == ["fs/read_text_file"])


@pytest.mark.proof("P5")
async def test_what_an_editor_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_TEXT", 10)
    editor = ScriptedEditor({"/f": "x" * 11}, terminal=lambda: ScriptedTerminal("y" * 30, None))
    client = connected(editor)
    read = await client.execute(request("client/read_text_file", sessionId="s1", path="/f"))
    made = answer_of(await client.execute(request("client/terminal_create", **CREATE)))["terminalId"]
    shown = await client.execute(request("client/terminal_output", sessionId="s1", terminalId=made))

    editor.answers = {"terminal/create": lambda params: {"terminalId": "x" * 257}}
    refused = await client.execute(request("client/terminal_create", **CREATE))

    assert read.is_error
    assert refused.is_error
    assert editor.asked("terminal/release")[-1]["terminalId"] == "x" * 257
    assert answer_of(shown) == {"output": "y" * 10, "truncated": True}


async def test_a_whole_large_file_passes(tmp_path: Any) -> None:
    text = '\u20ac"\n' * 600_000
    editor = EditorRun(connected(ScriptedEditor({"/f": text}))).editor

    assert await editor.read_text_file("/f") == text


@pytest.mark.req("ACP-TERM-008")
async def test_terminals_are_released_when_a_later_call_makes_one_and_at_the_end() -> None:
    editor = ScriptedEditor(terminal=lambda: ScriptedTerminal("", None))
    client = connected(editor)
    first = answer_of(await client.execute(request("client/terminal_create", "c1", **CREATE)))["terminalId"]
    await client.execute(request("client/terminal_create", "c2", **CREATE))
    late = await client.execute(request("client/terminal_output", sessionId="s1", terminalId=first))
    await client.close()

    assert late == ToolAnswer(content=(Text(text="This terminal was released."),), is_error=True)
    assert editor.released == ["term-1", "term-2"]


@pytest.mark.req("ACP-TERM-009")
async def test_a_terminal_is_released_after_a_call_has_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_client_calls, "EMBED_S", 3_600.0)
    editor = ScriptedEditor({"/f": "text"})
    client = connected(editor)
    made = answer_of(await client.execute(request("client/terminal_create", **CREATE)))["terminalId"]
    release = request("client/terminal_release", sessionId="s1", terminalId=made)
    releasing = asyncio.create_task(client.execute(release))
    await client.execute(request("client/read_text_file", sessionId="s1", path="/f"))
    before = editor.released[:]
    releasing.cancel()  # its call was cancelled: the terminal is released all the same
    client.on_shown(made)
    await editor.until(lambda: editor.released == ["term-1"])
    await client.close()

    assert before == []
    assert editor.methods == ["terminal/create", "fs/read_text_file", "terminal/release"]


@pytest.mark.req("ACP-TERM-008")
async def test_a_terminal_that_no_call_shows_is_released_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_client_calls, "EMBED_S", 0.0)
    editor = ScriptedEditor()
    client = connected(editor)
    made = answer_of(await client.execute(request("client/terminal_create", **CREATE)))["terminalId"]
    await client.execute(request("client/terminal_release", sessionId="s1", terminalId=made))

    assert editor.released == ["term-1"]


async def test_two_editors_of_a_session_each_keep_their_own_terminals() -> None:
    older, newer = ScriptedEditor(), ScriptedEditor()
    client_calls = [connected(older), connected(newer)]
    run = EditorRun(client_calls[0])
    made = await run.editor.create_terminal("c1", CreateTerminalRequest(session_id="", command="make"))
    assert made is not None
    both = EditorRun(*client_calls)
    ended = await both.editor.wait_for_terminal(made)

    assert ended == TerminalExit(exit_code=0)
    assert (older.methods, newer.methods) == (["terminal/create", "terminal/wait_for_exit"], [])
    assert [each.terminal_id(made) for each in client_calls] == ["term-1", None]


async def test_an_executor_that_is_no_editor_is_passed_over_and_a_tool_is_not_the_editors() -> None:
    editor = ScriptedEditor({"/f": "text"})
    executors = ToolExecutors()

    async def tool(wanted: ToolRequest) -> ToolAnswer:
        if wanted.name.startswith("client/"):
            raise NotSupported("no editor")
        return ToolAnswer(content=(Text(text=f"ran {wanted.name}"),))

    executors.add(connected(editor).execute)
    sdk = executors.add(tool)
    read = await executors.execute(request("client/read_text_file", sessionId="s1", path="/f"))
    assert read is not None
    assert answer_of(read) == {"content": "text"}
    executors.add(connected(editor).execute)
    ran = await executors.execute(request("look"))
    assert ran == ToolAnswer(content=(Text(text="ran look"),))
    sdk.unregister()
    assert await executors.execute(request("look")) is None


async def test_an_executor_that_leaves_ends_its_call() -> None:
    editor = ScriptedEditor()
    editor.answers = {"fs/read_text_file": lambda params: ...}
    run = EditorRun(connected(editor))
    reading = asyncio.create_task(run.editor.read_text_file("/f"))
    await editor.until(lambda: editor.requests != [])
    run.registrations[0].unregister()

    assert await reading is None


@pytest.mark.req("ACP-SESS-003", "ACP-SESS-004")
async def test_terms_name_variables_and_headers_and_the_values_stay_with_the_connection() -> None:
    servers = [
        mcp_server(msgspec.Raw(msgspec.json.encode(entry)))
        for entry in (
            {"name": "local", "command": "serve", "args": ["-x"], "env": [{"name": "KEY", "value": "hush"}]},
            {"type": "http", "name": "web", "url": "https://a.example/", "headers": [{"name": "Auth", "value": "pst"}]},
            {"type": "sse", "name": "old", "url": "https://b.example/", "headers": []},
        )
    ]
    described, values = described_servers(servers)
    client = connected(ScriptedEditor(), mcp_values=values)
    known = answer_of(await client.execute(request("client/mcp_values", servers=["web", "local", "other"])))

    assert described == (
        ev.McpServer(name="local", command="serve", args=("-x",), env_names=("KEY",)),
        ev.McpServer(name="web", url="https://a.example/", transport="http", header_names=("Auth",)),
        ev.McpServer(name="old", url="https://b.example/", transport="sse"),
    )
    assert values["local"] == McpServerValues(env={"KEY": "hush"})
    assert known == {
        "servers": {
            "web": {"env": {}, "headers": {"Auth": "pst"}},
            "local": {"env": {"KEY": "hush"}, "headers": {}},
        }
    }
    with pytest.raises(NotSupported):
        await client.execute(request("client/mcp_values", servers=["other"]))
    assert offered_by(EVERYTHING) == ev.ClientCapabilities(read_files=True, write_files=True, terminals=True)


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("workspace-write", "workspace-write"),
        ("read-only", "read-only"),
        ("full-access", ""),
        ("safe", ""),
        ([], ""),
        (1, ""),
    ],
)
def test_a_client_says_which_sandbox_its_terminals_have(said: object, known: str) -> None:
    capabilities = AcpClientCapabilities(terminal=True, meta={"makai.terminal_sandbox": said})

    assert offered_by(capabilities) == ev.ClientCapabilities(terminals=True, terminal_sandbox=known)
    assert offered_by(msgspec.structs.replace(capabilities, terminal=False)) == ev.ClientCapabilities()
