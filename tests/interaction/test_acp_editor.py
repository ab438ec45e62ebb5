"""What an editor does for its agent over ACP: reads unsaved text, writes, and shows commands in its terminals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.acp_client import JSON, AcpClient, Place, RpcFailed, acp_place, connected
from support.live_sessions import whole_log
from support.plain_mcp import PYTHON, SERVER

from makai.core.session_events import UserInput

ALLOW_ONCE = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
EVERYTHING: JSON = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


@asynccontextmanager
async def editor(folder: Path, scenario: str, capabilities: JSON) -> AsyncIterator[tuple[Place, AcpClient]]:
    async with acp_place(folder, scenario) as place, connected(place.server) as client:
        await client.initialize(capabilities)
        client.answers["session/request_permission"] = lambda question: ALLOW_ONCE
        yield place, client


def asked_for(client: AcpClient, method: str) -> list[Any]:
    return [frame["params"] for frame in client.frames if frame.get("method") == method]


@pytest.mark.req("ACP-FS-001", "ACP-FS-002", "ACP-FS-003")
async def test_unsaved_text_is_read_and_edits_land_in_the_editor(tmp_path: Path) -> None:
    scenario = """
tool: read {"path": "a.txt"}
---
tool: edit {"path": "a.txt", "old_text": "unsaved", "new_text": "changed"}
---
say: Done.
"""
    async with editor(tmp_path, scenario, EVERYTHING) as (place, client):
        (place.folder / "a.txt").write_text("saved\n")
        client.answers["fs/read_text_file"] = lambda params: {"content": "unsaved\n"}
        client.answers["fs/write_text_file"] = lambda params: {}
        session_id = await client.new_session(place.folder)
        assert await client.run(session_id, "go") == "end_turn"
        path = str(place.folder / "a.txt")
        assert {(params["sessionId"], params["path"]) for params in asked_for(client, "fs/read_text_file")} == {
            (session_id, path)
        }
        assert [(params["path"], params["content"]) for params in asked_for(client, "fs/write_text_file")] == [
            (path, "changed\n")
        ]
        assert (place.folder / "a.txt").read_text() == "saved\n"


@pytest.mark.req("ACP-FS-001", "ACP-INIT-005")
@pytest.mark.parametrize(("declared", "asked"), [("readTextFile", (True, False)), ("writeTextFile", (False, False))])
async def test_what_an_editor_does_not_declare_of_files_is_done_on_disk(
    tmp_path: Path, declared: str, asked: tuple[bool, bool]
) -> None:
    scenario = """
tool: read {"path": "a.txt"}
---
tool: edit {"path": "a.txt", "old_text": "saved", "new_text": "changed"}
---
say: Done.
"""
    async with editor(tmp_path, scenario, {"fs": {declared: True}}) as (place, client):
        (place.folder / "a.txt").write_text("saved\n")
        client.answers["fs/read_text_file"] = lambda params: {"content": "saved\n"}
        client.answers["fs/write_text_file"] = lambda params: {}
        assert await client.run(await client.new_session(place.folder), "go") == "end_turn"

        calls = ("fs/read_text_file", "fs/write_text_file")
        assert tuple(asked_for(client, method) != [] for method in calls) == asked
        assert (place.folder / "a.txt").read_text() == "changed\n"


@pytest.mark.req("ACP-FS-004")
async def test_an_error_of_the_editor_fails_the_call_and_nothing_else(tmp_path: Path) -> None:
    scenario = 'tool: read {"path": "a.txt"}\n---\nsay: It failed.\n'
    async with editor(tmp_path, scenario, EVERYTHING) as (place, client):
        (place.folder / "a.txt").write_text("saved\n")
        session_id = await client.new_session(place.folder)
        prompt = client.prompt(session_id, "go")
        request = await client.until_asked("fs/read_text_file")
        await client.say({"id": request["id"], "error": {"code": -32603, "message": "the buffer is gone"}})
        assert await prompt == {"stopReason": "end_turn"}
        assert client.updates(session_id, "tool_call_update")[-1]["status"] == "failed"


@pytest.mark.req("ACP-FS-004")
@pytest.mark.parametrize(
    ("call", "method"),
    [
        ('read {"path": "a.txt"}', "fs/read_text_file"),
        ('write {"path": "b.txt", "content": "B"}', "fs/write_text_file"),
    ],
    ids=["read", "write"],
)
async def test_a_prompt_is_cancelled_while_the_editor_owes_a_file(tmp_path: Path, call: str, method: str) -> None:
    async with editor(tmp_path, f"tool: {call}\n---\nsay: Never.\n", EVERYTHING) as (place, client):
        (place.folder / "a.txt").write_text("saved\n")
        client.answers["fs/read_text_file"] = lambda params: {"content": "unsaved"}
        client.answers["fs/write_text_file"] = lambda params: {}
        del client.answers[method]
        session_id = await client.new_session(place.folder)
        prompt = client.prompt(session_id, "go")
        request = await client.until_asked(method)
        async with asyncio.timeout(1):
            await client.say({"method": "session/cancel", "params": {"sessionId": session_id}})
            assert await prompt == {"stopReason": "cancelled"}
        await client.say({"id": request["id"], "result": {"content": "late"}})  # too late, and no harm
        assert client.updates(session_id, "tool_call_update")[-1]["status"] == "failed"
        assert not (place.folder / "b.txt").exists()
        assert await client.run(session_id, "again") == "end_turn"


@pytest.mark.req("ACP-TERM-001", "ACP-TERM-008", "ACP-TERM-009")
async def test_a_command_runs_in_a_terminal_of_the_editor(tmp_path: Path) -> None:
    scenario = 'tool: shell {"command": "make"}\n---\nsay: Done.\n'
    async with editor(tmp_path, scenario, EVERYTHING) as (place, client):
        client.answers |= {
            "terminal/create": lambda params: {"terminalId": "t1"},
            "terminal/output": lambda params: {"output": "made\n", "truncated": False, "exitStatus": {"exitCode": 0}},
            "terminal/wait_for_exit": lambda params: {"exitCode": 0},
            "terminal/release": lambda params: {},
            "terminal/kill": lambda params: {},
        }
        session_id = await client.new_session(place.folder)
        assert await client.run(session_id, "go") == "end_turn"
        shown = [
            item
            for update in client.updates(session_id, "tool_call_update")
            for item in update.get("content", ())
            if item["type"] == "terminal"
        ]
        assert shown[0] == {"type": "terminal", "terminalId": "t1"}
        assert [params["terminalId"] for params in asked_for(client, "terminal/release")] == ["t1"]
        async with connected(place.server) as other:
            await other.initialize()
            await other.ask("session/load", {"sessionId": session_id, "cwd": str(place.folder), "mcpServers": []})
            assert "terminal" not in repr(other.updates(session_id))  # that one is gone


@pytest.mark.req("ACP-FS-001", "ACP-TERM-001")
async def test_an_editor_is_asked_for_nothing_that_it_does_not_offer(tmp_path: Path) -> None:
    scenario = """
tool: read {"path": "a.txt"}
---
tool: write {"path": "b.txt", "content": "B"}
---
tool: shell {"command": "cat a.txt"}
---
say: Done.
"""
    async with editor(tmp_path, scenario, {}) as (place, client):
        (place.folder / "a.txt").write_text("saved\n")
        session_id = await client.new_session(place.folder)
        assert await client.run(session_id, "go") == "end_turn"
        methods = {frame["method"] for frame in client.frames if "method" in frame}
        assert methods <= {"session/update", "session/request_permission"}
        assert (place.folder / "b.txt").read_text() == "B"
        assert "saved" in repr(await whole_log(place.sessions, session_id))


@pytest.mark.req("ACP-SESS-003", "ACP-UPD-010")
async def test_an_mcp_server_of_the_editor_gives_tools_and_commands(tmp_path: Path) -> None:
    scenario = 'tool: mcp__plain__echo {"text": "from the server"}\n---\nsay: Done.\n'
    server = {"name": "plain", "command": PYTHON, "args": ["-c", SERVER], "env": [{"name": "KEY", "value": "s3cret"}]}
    async with editor(tmp_path, scenario, {}) as (place, client):
        session_id = await client.new_session(place.folder, [server])
        await client.until(lambda: "plain:summary" in repr(client.updates(session_id, "available_commands_update")))
        with pytest.raises(RpcFailed, match="topic"):
            await client.run(session_id, "/plain:summary")
        assert await client.run(session_id, "/plain:summary topic=cats") == "end_turn"
        ended = client.updates(session_id, "tool_call_update")[-1]
        assert ended["status"] == "completed"
        assert "from the server" in repr(ended)
        log = await whole_log(place.sessions, session_id)
        (said,) = [logged.event.content for logged in log if isinstance(logged.event, UserInput)]
        assert said == 'Summarise {"topic": "cats"}'
        assert "s3cret" not in repr(log)


@pytest.mark.req("ACP-UPD-010")
@pytest.mark.parametrize("is_first", [True, False])
async def test_commands_of_an_mcp_server_are_offered_and_carried_out_while_another_one_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    monkeypatch.setattr("makai.agent.workbench._PROMPTS_WAIT_S", 3_600.0)
    monkeypatch.setattr("makai.harness.native.harness.MCP_WAIT_S", 0.0)
    plain: JSON = {"name": "plain", "command": PYTHON, "args": ["-c", SERVER], "env": []}
    hung: JSON = {"name": "hung", "command": PYTHON, "args": ["-c", "import time; time.sleep(600)"], "env": []}
    async with editor(tmp_path, "echo", {}) as (place, client):
        session_id = await client.new_session(place.folder, [hung, plain])
        if not is_first:
            assert await client.run(session_id, "Hi") == "end_turn"
        assert await client.run(session_id, "/plain:summary topic=cats") == "end_turn"
        await client.until(lambda: "plain:summary" in repr(client.updates(session_id, "available_commands_update")))
        assert client.text(session_id) == ("" if is_first else "Hi") + 'Summarise {"topic": "cats"}'


@pytest.mark.req("ACP-SESS-003")
async def test_an_mcp_server_that_does_not_start_leaves_the_session_usable(tmp_path: Path) -> None:
    server: JSON = {"name": "gone", "command": "/nowhere/at/all", "args": [], "env": []}
    async with editor(tmp_path, "say: Hello.", {}) as (place, client):
        session_id = await client.new_session(place.folder, [server])
        assert await client.run(session_id, "go") == "end_turn"
        assert client.text(session_id) == "Hello."
