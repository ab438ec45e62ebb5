"""Tools over an editor's buffers and terminals: they see its text, and the rules still hold."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from support.editor import Editor, EditorCommands, EditorFiles
from support.orphan_trials import Silent

from makai.agent.workbench import Workbench, WorkbenchSpec
from makai.core.content import Text
from makai.core.session_events import FileDiff
from makai.tools.base import ToolOutcome, text_outcome
from makai.tools.edit import EditTool, WriteTool
from makai.tools.file_errors import FileRefused
from makai.tools.files import ListTool, ReadTool
from makai.tools.permissions.judge import judge
from makai.tools.permissions.path_patterns import DeniedPaths, parse_path_pattern
from makai.tools.shell import ShellTool
from makai.tools.workspace import Workspace


def editor_with(folder: Path, **buffers: str) -> tuple[Editor, EditorFiles]:
    editor = Editor({str(folder / name): text for name, text in buffers.items()})
    return editor, EditorFiles(Workspace([folder]), editor)


async def test_a_read_sees_the_unsaved_buffer_and_the_disk_for_files_that_are_not_open(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("saved\n")
    (tmp_path / "closed").write_text("on disk\n")
    _, files = editor_with(tmp_path, open="one\ntwo\nthree\n")
    read = ReadTool(files)

    assert await read.run({"path": "open", "offset": 2, "limit": 1}, Silent()) == text_outcome(
        "     2\ttwo\n[more lines follow; continue with offset=3]"
    )
    assert await read.run({"path": "closed"}, Silent()) == text_outcome("     1\ton disk")
    assert await ListTool(files).run({}, Silent()) == text_outcome("closed  8\nopen  6")


async def test_an_edit_changes_the_buffer_and_leaves_saving_to_the_editor(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("saved\n")
    editor, files = editor_with(tmp_path, file="unsaved text\n")
    tool = EditTool(files)
    arguments = {"path": "file", "old_text": "unsaved", "new_text": "changed"}
    diff = FileDiff(path=str(tmp_path / "file"), old_text="unsaved text\n", new_text="changed text\n")
    described = await tool.describe(arguments)
    outcome = await tool.run(arguments, Silent())

    assert described.diffs == (diff,)
    assert outcome == ToolOutcome(content=(Text(text="Edited file."),), diffs=(diff,))
    assert editor.saved == [(str(tmp_path / "file"), "changed text\n")]
    assert (tmp_path / "file").read_text() == "saved\n"


async def test_a_buffer_that_changed_after_the_edit_was_shown_is_left_alone(tmp_path: Path) -> None:
    editor, files = editor_with(tmp_path, file="one\n")
    (tmp_path / "file").touch()
    tool = EditTool(files)
    arguments = {"path": "file", "old_text": "one", "new_text": "two"}
    await tool.describe(arguments)
    editor.buffers[str(tmp_path / "file")] = "one more\n"
    outcome = await tool.run(arguments, Silent())

    assert (outcome.is_error, editor.saved) == (True, [])


async def test_a_write_goes_to_the_editor_by_the_absolute_path_of_the_real_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_text("old")
    editor, files = editor_with(tmp_path)
    outcome = await WriteTool(files).run({"path": "link", "content": "new"}, Silent())

    assert outcome.diffs == (FileDiff(path=str(tmp_path / "file"), old_text="old", new_text="new"),)
    assert editor.saved == [(str(tmp_path / "file"), "new")]


@pytest.mark.parametrize("path", ["../outside", "away/file", ".git/", "alias"])
async def test_no_buffer_is_written_where_a_local_file_could_not_be(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / ".git/config").write_text("")
    (root / "away").symlink_to(tmp_path)
    (root / "alias").symlink_to(".git/config")
    editor, files = editor_with(root)
    outcome = await WriteTool(files).run({"path": path, "content": "x"}, Silent())

    assert (outcome.is_error, editor.saved) == (True, [])


async def test_denied_and_protected_files_are_so_in_the_editor_too(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".env").touch()
    secret = parse_path_pattern(".env")
    assert secret is not None
    _, files = editor_with(tmp_path, **{".env": "KEY=1", ".git/config": "[core]\n"})
    denied = DeniedPaths(workspace=str(tmp_path), patterns=(secret,))
    outcome = await ReadTool(files, denied).run({"path": ".env"}, Silent())
    described = await WriteTool(files).describe({"path": ".git/config", "content": "[alias]\n"})

    assert outcome == text_outcome(".env does not exist.", is_error=True)
    assert described.protected
    with pytest.raises(FileRefused):
        await EditTool(files).describe({"path": "../x", "old_text": "a", "new_text": "b"})


async def test_a_command_runs_in_a_terminal_of_the_editor_with_a_scrubbed_environment(tmp_path: Path) -> None:
    editor, files = editor_with(tmp_path)
    commands = EditorCommands(editor, "compiled\n", 2)
    tool = ShellTool(files, commands, environ={"PATH": "/nowhere", "MAKAI_TOKEN": "s"}, spill_directory=tmp_path)
    outcome = await tool.run({"command": "make"}, Silent())
    [terminal] = editor.terminals

    assert outcome == ToolOutcome(content=(Text(text="compiled\n[exit code 2]"),), is_error=True, exit_code=2)
    assert terminal.request.argv == ("/bin/sh", "-c", "make")
    assert terminal.request.directory.absolute == str(tmp_path)
    assert "MAKAI_TOKEN" not in terminal.request.environ
    assert terminal.is_released


async def test_a_terminal_is_killed_and_released_when_its_call_is_cancelled_or_late(tmp_path: Path) -> None:
    editor, files = editor_with(tmp_path)
    tool = ShellTool(files, EditorCommands(editor, "begun\n", None), environ={}, spill_directory=tmp_path)
    late = await tool.run({"command": "sleep 600", "timeout_s": 0.1}, Silent())
    call = asyncio.create_task(tool.run({"command": "sleep 600"}, Silent()))
    await asyncio.wait([call], timeout=0.1)
    call.cancel()
    await asyncio.wait([call])

    assert late.content == (
        Text(text="begun\n[ended after 0.1 s with all it started; pass a longer timeout_s if it needs one]"),
    )
    assert call.cancelled()
    assert [terminal.is_released for terminal in editor.terminals] == [True, True]


async def test_a_session_with_an_editor_asks_about_every_command_that_no_sandbox_confines(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    spec = WorkbenchSpec(session_id="s", cwd=str(repo), makai_home=tmp_path / "home", environ=environ)
    editor = Editor({str(repo / "new"): "only in the editor\n"})
    async with Workbench(
        spec, files=lambda local: EditorFiles(local, editor), commands=EditorCommands(editor, "ran\n").instead_of
    ) as bench:
        rules = bench.rules(allow=["Bash(make:*)"])
        tools = bench.tools(rules)
        described = await tools["shell"].describe({"command": "make"})
        verdict = judge("never_ask", rules, (), "shell", described)
        read = await tools["read"].run({"path": "new"}, Silent())
        ran = await tools["shell"].run({"command": "make"}, Silent())

    assert verdict.decision == "ask"
    assert read == text_outcome("     1\tonly in the editor")
    assert ran.content == (Text(text="ran"),)
