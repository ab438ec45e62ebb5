"""Commands in terminals of an editor: what is sent, how output is followed, and that every terminal is released."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from support.editor import EVERYTHING, EditorRun, ScriptedEditor, ScriptedTerminal, connected
from support.orphan_trials import Silent

from makai.agent.workbench import Workbench, WorkbenchSpec
from makai.core.content import Text
from makai.core.session_events import ToolUpdated
from makai.server.acp_client_calls import ClientCalls
from makai.tools import editor_terminals
from makai.tools.base import ToolOutcome, text_outcome
from makai.tools.commands import LocalCommands
from makai.tools.editor_terminals import LEFT_OUT, UNKNOWN_END, EditorCommands
from makai.tools.shell import ShellTool
from makai.tools.workspace import Workspace
from makai.wire.acp.client_calls import TerminalExit
from makai.wire.acp.connecting import AcpClientCapabilities
from makai.wire.json_rpc_errors import RpcError

TERMINAL_METHODS = {"terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"}


class Trial:
    """A shell tool over an editor; its only call, `call_1`, is approved for the editor's terminal."""

    def __init__(
        self, folder: Path, terminal: Any = ScriptedTerminal, offered: AcpClientCapabilities = EVERYTHING
    ) -> None:
        self.heard = Silent()
        self.editor = ScriptedEditor(terminal=terminal)
        self.calls: ClientCalls = connected(self.editor, offered)
        self.run = EditorRun(self.calls)
        workspace = Workspace([folder])
        local = LocalCommands(workspace, confined=_unconfined)
        commands = EditorCommands(local, workspace, self.run.editor)
        environ = {"PATH": os.environ["PATH"], "MAKAI_TOKEN": "s"}
        self.tool = ShellTool(workspace, commands, environ=environ, spill_directory=folder)

    async def command(self, command: str = "make", *, approved: bool = True, **more: Any) -> ToolOutcome:
        self.heard.heard.clear()
        if approved:
            self.run.editor.approve_terminal(self.heard.call_id)
        async with asyncio.timeout(30):
            return await self.tool.run({"command": command, **more}, self.heard)


def _unconfined(argv: Any, opened: Any = None, *, read_only: bool = False) -> Any:
    from contextlib import nullcontext

    return nullcontext(argv)


@pytest.mark.req("ACP-TERM-002", "ACP-TERM-008", "ACP-TERM-009")
async def test_an_approved_command_runs_in_a_terminal_of_the_editor_and_is_released(tmp_path: Path) -> None:
    trial = Trial(tmp_path, lambda: ScriptedTerminal("compiled\n", 2))
    outcome = await trial.command()
    [created] = trial.editor.asked("terminal/create")
    [updated] = trial.run.facts

    assert outcome == ToolOutcome(content=(Text(text="compiled\n[exit code 2]"),), is_error=True, exit_code=2)
    assert trial.heard.heard == ["compiled\n"]
    assert created["command"].endswith("bash")
    assert created["args"] == ["--noprofile", "--norc", "-c", "make"]
    assert (created["sessionId"], created["cwd"], created["outputByteLimit"]) == ("acp-1", str(tmp_path), 512 * 1024)
    assert {"name": "AI_AGENT", "value": "makai"} in created["env"]
    assert "MAKAI_TOKEN" not in str(created)
    assert isinstance(updated, ToolUpdated)
    assert (updated.call_id, trial.calls.terminal_id(updated.terminal_id or "")) == ("call_1", "term-1")
    assert trial.editor.released == ["term-1"]


async def test_a_command_that_was_not_approved_for_it_runs_locally(tmp_path: Path) -> None:
    trial = Trial(tmp_path)

    assert await trial.command("echo here", approved=False) == ToolOutcome(content=(Text(text="here"),), exit_code=0)
    assert trial.editor.requests == []


@pytest.mark.req("ACP-TERM-001")
async def test_without_terminals_or_without_an_editor_an_approved_command_runs_locally(tmp_path: Path) -> None:
    without = Trial(tmp_path, offered=AcpClientCapabilities())
    gone = Trial(tmp_path)
    gone.run.registrations[0].unregister()
    for trial in (without, gone):
        assert (await trial.command("echo here")).content == (Text(text="here"),)
        assert trial.editor.requests == []


async def test_output_is_shown_as_it_comes_although_the_editor_repeats_it(tmp_path: Path) -> None:
    terminal = ScriptedTerminal("", None)
    trial = Trial(tmp_path, lambda: terminal)
    running = asyncio.create_task(trial.command())
    for word in ("one\n", "two\n", "häß 🙂\n"):
        terminal.output += word
        await trial.editor.until(lambda: "".join(trial.heard.heard) == terminal.output)
    terminal.output += "last\n"
    terminal.end(exitCode=0)
    outcome = await running

    assert outcome.content == (Text(text="one\ntwo\nhäß 🙂\nlast"),)
    assert "".join(trial.heard.heard) == "one\ntwo\nhäß 🙂\nlast\n"


@pytest.mark.parametrize(
    ("outputs", "seen"),
    [
        ([("abc", False), ("abcdef", False)], "abcdef"),
        ([("10%", False), ("20%", False), ("20% done", False)], "10%20% done"),
        ([("a" * 50 + "b" * 50, False), ("b" * 50 + "c" * 50, True)], "a" * 50 + "b" * 50 + "c" * 50),
        ([("one", False), ("two", True)], f"one{LEFT_OUT}two"),
        ([("one", False), ("", False)], "one"),
    ],
)
async def test_what_is_new_in_an_output_is_found_by_comparison(
    tmp_path: Path, outputs: list[tuple[str, bool]], seen: str
) -> None:
    trial = Trial(tmp_path, lambda: ScriptedTerminal("", None))
    rest = list(outputs)

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        output, truncated = rest.pop(0) if len(rest) > 1 else rest[0]
        if len(rest) == 1:
            trial.editor.terminals["term-1"].end(exitCode=0)
        return {"output": output, "truncated": truncated}

    trial.editor.answers = {"terminal/output": answer}
    await trial.command()

    assert "".join(trial.heard.heard) == seen


@pytest.mark.req("ACP-TERM-008")
async def test_a_terminal_is_killed_and_released_when_its_call_is_late_or_cancelled(tmp_path: Path) -> None:
    trial = Trial(tmp_path, lambda: ScriptedTerminal("begun\n", None))
    late = await trial.command("sleep 600", timeout_s=0.1)
    call = asyncio.create_task(trial.command("sleep 600"))
    await trial.editor.until(lambda: len(trial.editor.terminals) == 2 and trial.heard.heard != [])
    call.cancel()
    await asyncio.wait([call])

    assert late.content == (
        Text(text="begun\n[ended after 0.1 s with all it started; pass a longer timeout_s if it needs one]"),
    )
    assert call.cancelled()
    assert trial.editor.released == ["term-1", "term-2"]
    assert [params["terminalId"] for params in trial.editor.asked("terminal/kill")] == ["term-1", "term-2"]


@pytest.mark.req("ACP-TERM-008")
async def test_a_call_that_is_cancelled_while_its_terminal_is_made_leaves_none(tmp_path: Path) -> None:
    trial = Trial(tmp_path, lambda: ScriptedTerminal("", None))
    call = asyncio.create_task(trial.command())
    await trial.editor.until(lambda: trial.editor.requests != [])
    call.cancel()
    await asyncio.wait([call])
    await trial.editor.until(lambda: trial.editor.released == ["term-1"])

    assert call.cancelled()


async def test_an_editor_that_never_answers_ends_with_the_timeout_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editor_terminals, "_STEP_S", 0.1)
    trial = Trial(tmp_path, lambda: ScriptedTerminal("", None))
    trial.editor.answers = dict.fromkeys(TERMINAL_METHODS, lambda params: ...)
    outcome = await trial.command(timeout_s=0.1)

    assert outcome.is_error
    assert trial.editor.asked("terminal/release") == [{"sessionId": "acp-1", "terminalId": "term-1"}]


@pytest.mark.parametrize("method", ["terminal/create", *sorted(TERMINAL_METHODS)])
async def test_an_error_of_the_editor_fails_at_most_this_call(tmp_path: Path, method: str) -> None:
    trial = Trial(tmp_path, lambda: ScriptedTerminal("said\n", 0))

    def refuse(params: dict[str, Any]) -> None:
        raise RpcError(-32603, "no window")

    trial.editor.answers = {method: refuse}
    outcome = await trial.command()

    if method == "terminal/create":
        assert outcome == text_outcome("Your editor could not start a terminal: no window", is_error=True)
    elif method == "terminal/output":
        assert outcome == text_outcome("no window", is_error=True)
    else:
        assert outcome.content == (Text(text="said"),)
    assert trial.editor.asked("terminal/release") != [] or method == "terminal/create"


async def test_an_editor_that_leaves_while_a_command_runs_fails_the_call(tmp_path: Path) -> None:
    trial = Trial(tmp_path, lambda: ScriptedTerminal("begun\n", None))
    call = asyncio.create_task(trial.command())
    await trial.editor.until(lambda: trial.heard.heard != [])
    trial.run.registrations[0].unregister()
    outcome = await call
    await trial.calls.close()

    assert outcome == text_outcome("Your editor is gone. What became of the command is not known.", is_error=True)
    assert trial.editor.released == ["term-1"]


@pytest.mark.parametrize(
    ("status", "code", "note"),
    [
        (TerminalExit(exit_code=3), 3, "[exit code 3]"),
        (TerminalExit(signal="SIGTERM"), 143, "[exit code 143]"),
        (TerminalExit(signal="strange"), 137, "[exit code 137]"),
        (TerminalExit(), 0, UNKNOWN_END),
    ],
)
async def test_how_a_command_ended_is_as_the_editor_says(
    tmp_path: Path, status: TerminalExit, code: int, note: str
) -> None:
    trial = Trial(tmp_path, lambda: ScriptedTerminal("", None))
    ended = {"exitCode": status.exit_code, "signal": status.signal}
    trial.editor.answers = {
        "terminal/wait_for_exit": lambda params: ended,
        "terminal/output": lambda params: {"output": "", "truncated": False, "exitStatus": ended},
    }
    outcome = await trial.command()

    assert (outcome.exit_code, outcome.content) == (code, (Text(text=note),))


async def test_a_workbench_gives_its_tools_the_editor_of_the_run(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache")}
    spec = WorkbenchSpec(session_id="s", cwd=str(repo), makai_home=tmp_path / "home", environ=environ)
    editor = ScriptedEditor({str(repo / "new"): "only in the editor\n"}, terminal=lambda: ScriptedTerminal("ran\n"))
    run = EditorRun(connected(editor))
    async with Workbench(spec) as bench:
        tools = bench.tools(bench.rules(), run.editor)
        read = await tools["read"].run({"path": "new"}, Silent())
        run.editor.approve_terminal("call_1")
        ran = await tools["shell"].run({"command": "make"}, Silent())
        plain = await bench.tools(bench.rules())["read"].run({"path": "new"}, Silent())

    assert read == text_outcome("     1\tonly in the editor")
    assert ran.content == (Text(text="ran"),)
    assert plain == text_outcome("new does not exist.", is_error=True)
