"""Commands in terminals of an ACP client: what it is asked, shown and told, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.acp_client import AcpClient, acp_place, connected
from support.editor import ScriptedEditor, ScriptedTerminal

from makai.server import acp_client_calls
from makai.tools.sandbox.detect import detect

pytestmark = pytest.mark.skipif(detect().backend is None, reason="no sandbox works here")
CAPABILITIES = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
TERMINAL_METHODS = ("create", "output", "wait_for_exit", "kill", "release")


def tool(name: str, **arguments: Any) -> str:
    return f"tool: {name} {msgspec.json.encode(arguments).decode()}"


class Window:
    """An editor with one session."""

    def __init__(self, client: AcpClient, editor: ScriptedEditor, session_id: str) -> None:
        self.client = client
        self.editor = editor
        self.session_id = session_id

    async def permit(self, kind: str = "allow_once") -> dict[str, Any]:
        asked = await self.client.until_asked("session/request_permission")
        option = next(each["optionId"] for each in asked["params"]["options"] if each["kind"] == kind)
        await self.client.answer(asked, {"outcome": {"outcome": "selected", "optionId": option}})
        params: dict[str, Any] = asked["params"]
        return params

    def position(self, wanted: str) -> int:
        """Where a request of the agent is among all frames."""
        return next(index for index, frame in enumerate(self.client.frames) if frame.get("method") == wanted)

    def embedded(self) -> list[int]:
        """Where a call shows a terminal of this client."""
        shown = {"type": "terminal", "terminalId": "term-1"}
        return [
            index
            for index, frame in enumerate(self.client.frames)
            if isinstance(content := frame.get("params", {}).get("update", {}).get("content"), list)
            and shown in content
        ]


@asynccontextmanager
async def window(
    folder: Path, script: str, editor: ScriptedEditor, meta: dict[str, Any] | None = None
) -> AsyncIterator[Window]:
    async with acp_place(folder, script) as place, connected(place.server) as client:
        for method in ("fs/read_text_file", "fs/write_text_file", *(f"terminal/{each}" for each in TERMINAL_METHODS)):

            async def answer(params: dict[str, Any], method: str = method) -> dict[str, Any]:
                result = await editor.on_request(method, msgspec.Raw(msgspec.json.encode(params)))
                return result if result is not None else {}

            if method != "terminal/wait_for_exit":
                client.answers[method] = answer
        await client.initialize({**CAPABILITIES, "_meta": meta} if meta else CAPABILITIES)
        waiting = asyncio.create_task(_wait_for_exits(client, editor))
        try:
            yield Window(client, editor, await client.new_session(place.folder))
        finally:
            waiting.cancel()


async def _wait_for_exits(client: AcpClient, editor: ScriptedEditor) -> None:
    """Beside the other answers, for these take as long as the command."""
    while True:
        asked = await client.until_asked("terminal/wait_for_exit")
        params = msgspec.Raw(msgspec.json.encode(asked["params"]))
        await client.answer(asked, await editor.on_request(asked["method"], params))


@pytest.mark.req("ACP-TERM-001", "ACP-TERM-008", "ACP-TERM-009")
async def test_a_permitted_command_is_shown_as_a_terminal_while_it_runs(tmp_path: Path) -> None:
    terminal = ScriptedTerminal("building\n", None)
    editor = ScriptedEditor(terminal=lambda: terminal)
    async with window(tmp_path, f"{tool('shell', command='make')}\n---\nsay: Done.", editor) as opened:
        turn = opened.client.prompt(opened.session_id, "go")
        asked = await opened.permit()
        await opened.client.until(opened.embedded)
        terminal.end(exitCode=0)
        assert (await turn)["stopReason"] == "end_turn"
        statuses = [each["status"] for each in opened.client.updates(kind="tool_call_update") if "status" in each]

    assert "in a terminal of your editor, without the sandbox" in str(asked)
    assert opened.position("terminal/create") < opened.embedded()[0] < opened.position("terminal/release")
    assert statuses[-1] == "completed"
    assert editor.released == ["term-1"]


@pytest.mark.req("ACP-TERM-008", "ACP-TERM-009")
async def test_the_terminal_of_a_short_command_is_shown_before_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acp_client_calls, "EMBED_S", 3_600.0)
    editor = ScriptedEditor(terminal=lambda: ScriptedTerminal("built\n", 0))
    async with window(tmp_path, f"{tool('shell', command='make')}\n---\nsay: Done.", editor) as opened:
        turn = opened.client.prompt(opened.session_id, "go")
        await opened.permit()
        assert (await turn)["stopReason"] == "end_turn"
        await editor.until(lambda: editor.released == ["term-1"])

    assert opened.embedded()[0] < opened.position("terminal/release")


async def test_an_editor_with_terminals_that_shows_output_gets_a_displayed_terminal_for_a_local_command(
    tmp_path: Path,
) -> None:
    editor = ScriptedEditor()
    script = f"{tool('shell', command='echo plain')}\n---\nsay: Done."
    async with window(tmp_path, script, editor, {"terminal_output": True}) as opened:
        assert await opened.client.run(opened.session_id, "go") == "end_turn"
        (call,) = opened.client.updates(kind="tool_call")
        said = [update.get("_meta", {}) for update in opened.client.updates(kind="tool_call_update")]

    terminal = {"terminal_id": call["toolCallId"]}
    assert call["content"] == [{"type": "terminal", "terminalId": call["toolCallId"]}]
    assert call["_meta"]["terminal_info"] == {**terminal, "cwd": str(tmp_path / "work")}
    assert [meta["terminal_output"] for meta in said if "terminal_output" in meta] == [{**terminal, "data": "plain\n"}]
    assert said[-1]["terminal_exit"] == {**terminal, "exit_code": 0, "signal": None}
    assert editor.requests == []


@pytest.mark.req("ACP-TERM-008")
async def test_a_cancel_ends_the_command_in_the_terminal_and_answers_cancelled(tmp_path: Path) -> None:
    editor = ScriptedEditor(terminal=lambda: ScriptedTerminal("building\n", None))
    async with window(tmp_path, tool("shell", command="make"), editor) as opened:
        turn = opened.client.prompt(opened.session_id, "go")
        await opened.permit()
        await opened.client.until(opened.embedded)
        began_at = asyncio.get_running_loop().time()
        await opened.client.notify("session/cancel", {"sessionId": opened.session_id})
        assert (await turn)["stopReason"] == "cancelled"
        took_s = asyncio.get_running_loop().time() - began_at

    assert editor.released == ["term-1"]
    assert took_s < 10


async def test_a_session_that_is_closed_releases_its_terminals(tmp_path: Path) -> None:
    editor = ScriptedEditor(terminal=lambda: ScriptedTerminal("building\n", None))
    async with window(tmp_path, tool("shell", command="make"), editor) as opened:
        turn = opened.client.prompt(opened.session_id, "go")
        await opened.permit()
        await opened.client.until(opened.embedded)
        await opened.client.ask("session/close", {"sessionId": opened.session_id})
        await asyncio.wait({turn}, timeout=30)
        await editor.until(lambda: editor.released == ["term-1"])
