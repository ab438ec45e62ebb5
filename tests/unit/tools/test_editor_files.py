"""Tools over the files of an editor: they see its text, and the rules still hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.editor import ALL_TERMS, EVERYTHING, EditorRun, ScriptedEditor, connected
from support.orphan_trials import Silent

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.session_events import FileDiff, FileVersions
from makai.tools.base import Tool, ToolOutcome, text_outcome
from makai.tools.edit import EditTool, WriteTool, content_digest
from makai.tools.editor_files import MAX_BYTES, NOT_SAVED, EditorFiles
from makai.tools.file_errors import FileRefused
from makai.tools.files import ListTool, ReadTool
from makai.tools.permissions.path_patterns import DeniedPaths, parse_path_pattern
from makai.tools.workspace import Workspace
from makai.wire.acp.connecting import AcpClientCapabilities, FileSystemCapabilities
from makai.wire.json_rpc_errors import RpcError

READ, WRITE = "fs/read_text_file", "fs/write_text_file"


def files_of(
    editor: ScriptedEditor,
    folder: Path,
    offered: AcpClientCapabilities = EVERYTHING,
    *,
    for_edits: bool = False,
    **run: Any,
) -> EditorFiles:
    return EditorFiles(Workspace([folder]), EditorRun(connected(editor, offered), **run).editor, for_edits=for_edits)


def editor_with(folder: Path, **buffers: str) -> tuple[ScriptedEditor, EditorFiles]:
    editor = ScriptedEditor({str(folder / name): text for name, text in buffers.items()})
    return editor, files_of(editor, folder)


@pytest.mark.req("ACP-FS-002")
async def test_a_read_sees_the_unsaved_buffer_and_the_disk_for_files_that_are_not_open(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("saved\n")
    (tmp_path / "closed").write_text("on disk\n")
    editor, files = editor_with(tmp_path, open="one\ntwo\nthree\n", new="never saved\n")
    read = ReadTool(files)

    assert await read.run({"path": "open", "offset": 2, "limit": 1}, Silent()) == text_outcome(
        "     2\ttwo\n[more lines follow; continue with offset=3]"
    )
    assert await read.run({"path": "closed"}, Silent()) == text_outcome("     1\ton disk")
    assert await read.run({"path": "new"}, Silent()) == text_outcome("     1\tnever saved")
    assert await ListTool(files).run({}, Silent()) == text_outcome("closed  8\nopen  6")
    assert editor.asked(READ) == [
        {"sessionId": "acp-1", "path": str(tmp_path / name)} for name in ("open", "closed", "new")
    ]


@pytest.mark.req("ACP-FS-003")
async def test_an_edit_is_computed_from_the_buffer_and_written_by_the_editor(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("saved\n")
    editor, files = editor_with(tmp_path, file="unsaved text\n")
    tool = EditTool(files)
    arguments = {"path": "file", "old_text": "unsaved", "new_text": "changed"}
    diff = FileDiff(path=str(tmp_path / "file"), old_text="unsaved text\n", new_text="changed text\n")
    described = await tool.describe(arguments)
    outcome = await tool.run(arguments, Silent())

    assert described.diffs == (diff,)
    mode = stat.S_IMODE((tmp_path / "file").stat().st_mode)
    versions = FileVersions(
        path=str(tmp_path / "file"),
        old_digest=content_digest(b"unsaved text\n"),
        new_digest=content_digest(b"changed text\n"),
        old_mode=mode,
        new_mode=mode,
    )
    assert outcome == ToolOutcome(content=(Text(text="Edited file."),), diffs=(diff,), file_versions=(versions,))
    assert editor.asked(WRITE) == [{"sessionId": "acp-1", "path": str(tmp_path / "file"), "content": "changed text\n"}]
    assert (tmp_path / "file").read_text() == "changed text\n"


async def test_the_model_learns_that_an_edit_was_not_saved(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old\n")
    editor, files = editor_with(tmp_path)
    editor.saves = False
    outcome = await WriteTool(files).run({"path": "file", "content": "new\n"}, Silent())
    made = await WriteTool(files).run({"path": "folder/made", "content": "new\n"}, Silent())

    assert outcome.content == (Text(text=f"Replaced file (4 bytes). {NOT_SAVED}"),)
    assert made.content == (Text(text=f"Created folder/made (4 bytes). {NOT_SAVED}"),)
    assert (tmp_path / "file").read_text() == "old\n"
    assert await ReadTool(files).run({"path": "file"}, Silent()) == text_outcome("     1\tnew")


async def test_a_buffer_that_changed_after_the_edit_was_shown_is_left_alone(tmp_path: Path) -> None:
    editor, files = editor_with(tmp_path, file="one\n")
    (tmp_path / "file").touch()
    tool = EditTool(files)
    arguments = {"path": "file", "old_text": "one", "new_text": "two"}
    await tool.describe(arguments)
    editor.buffers[str(tmp_path / "file")] = "one more\n"
    outcome = await tool.run(arguments, Silent())

    assert (outcome.is_error, editor.asked(WRITE)) == (True, [])


async def test_a_write_goes_to_the_editor_by_the_absolute_path_of_the_real_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_text("old")
    editor, files = editor_with(tmp_path)
    outcome = await WriteTool(files).run({"path": "link", "content": "new"}, Silent())
    made = await WriteTool(files).run({"path": "a/b/c", "content": "made"}, Silent())

    assert outcome.diffs == (FileDiff(path=str(tmp_path / "file"), old_text="old", new_text="new"),)
    assert made.diffs == (FileDiff(path=str(tmp_path / "a/b/c"), old_text=None, new_text="made"),)
    assert [params["path"] for params in editor.asked(WRITE)] == [str(tmp_path / "file"), str(tmp_path / "a/b/c")]
    assert (tmp_path / "a/b/c").read_text() == "made"


@pytest.mark.parametrize("path", ["../outside", "away/file", ".git/", "alias"])
async def test_no_buffer_is_written_where_a_local_file_could_not_be(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / ".git/config").write_text("")
    (root / "away").symlink_to(tmp_path)
    (root / "alias").symlink_to(".git/config")
    editor, files = editor_with(root)
    outcome = await WriteTool(files).run({"path": path, "content": "x"}, Silent())

    assert (outcome.is_error, editor.asked(WRITE)) == (True, [])


async def test_denied_and_protected_files_are_so_in_the_editor_too(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".env").touch()
    os.link(tmp_path / ".env", tmp_path / "second-name")
    secret = parse_path_pattern(".env")
    assert secret is not None
    buffers = dict.fromkeys((".env", "second-name"), "KEY=1")
    _, files = editor_with(tmp_path, **buffers, **{".git/config": "[core]\n"})
    denied = DeniedPaths(workspace=str(tmp_path), patterns=(secret,))
    for name in buffers:
        outcome = await ReadTool(files, denied).run({"path": name}, Silent())
        assert outcome == text_outcome(f"{name} does not exist.", is_error=True)
    described = await WriteTool(files).describe({"path": ".git/config", "content": "[alias]\n"})

    assert described.protected
    with pytest.raises(FileRefused):
        await EditTool(files).describe({"path": "../x", "old_text": "a", "new_text": "b"})


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0", b"caf\xe9\n", b"\xef\xbb\xbfmarked\n", b"x" * (MAX_BYTES + 1)]
)
async def test_what_is_no_plain_text_is_read_and_written_locally(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    editor, files = editor_with(tmp_path, file="what the editor makes of it")
    read = await files.read("file", lambda file: file.stream.read())
    await files.write("file", data + b"more", files.place("file"))

    assert (read, editor.requests) == (data, [])
    assert (tmp_path / "file").read_bytes() == data + b"more"


@pytest.mark.req("ACP-FS-001")
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("by", ["capabilities", "terms"])
async def test_the_editor_is_asked_only_for_what_it_declared(
    tmp_path: Path, reads: bool, writes: bool, by: str
) -> None:
    (tmp_path / "file").write_text("disk\n")
    editor = ScriptedEditor({str(tmp_path / "file"): "buffer\n"})
    fs = FileSystemCapabilities(read_text_file=reads, write_text_file=writes)
    terms = ev.ClientCapabilities(read_files=reads, write_files=writes)
    if by == "capabilities":
        files = files_of(editor, tmp_path, AcpClientCapabilities(fs=fs), client=ALL_TERMS)
    else:
        files = files_of(editor, tmp_path, client=terms)
    read = await ReadTool(files).run({"path": "file"}, Silent())
    editor.requests.clear()
    written = await files.write("file", b"new\n", files.place("file"))

    assert read == text_outcome("     1\tbuffer" if reads else "     1\tdisk")
    assert (written, editor.methods) == ("", [WRITE] if reads and writes else [])
    assert (tmp_path / "file").read_text() == "new\n"


@pytest.mark.parametrize(("reads", "writes"), [(True, False), (False, True)])
async def test_an_editor_that_only_reads_or_only_writes_loses_neither_its_text_nor_that_of_the_disk(
    tmp_path: Path, reads: bool, writes: bool
) -> None:
    (tmp_path / "file").write_text("on disk\n")
    editor = ScriptedEditor({str(tmp_path / "file"): "unsaved\n"})
    fs = FileSystemCapabilities(read_text_file=reads, write_text_file=writes)
    files = files_of(editor, tmp_path, AcpClientCapabilities(fs=fs), for_edits=True)
    edited = await EditTool(files).run({"path": "file", "old_text": "on disk", "new_text": "edited"}, Silent())
    unseen = await EditTool(files).run({"path": "file", "old_text": "unsaved", "new_text": "lost"}, Silent())

    assert edited.diffs == (FileDiff(path=str(tmp_path / "file"), old_text="on disk\n", new_text="edited\n"),)
    assert (unseen.is_error, editor.requests) == (True, [])
    assert (tmp_path / "file").read_text() == "edited\n"
    assert editor.buffers == {str(tmp_path / "file"): "unsaved\n"}


@pytest.mark.req("ACP-FS-004")
async def test_an_error_of_the_editor_fails_the_call_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text\n")
    editor, files = editor_with(tmp_path)

    def refuse(params: dict[str, Any]) -> None:
        raise RpcError(-32603, "the window was closed")

    editor.answers = {READ: refuse, WRITE: refuse}
    read = await ReadTool(files).run({"path": "file"}, Silent())
    absent = await ReadTool(files).run({"path": "absent"}, Silent())
    editor.answers = {WRITE: refuse}
    wrote = await WriteTool(files).run({"path": "file", "content": "x"}, Silent())
    editor.answers = {READ: lambda params: {"text": "no content"}}
    malformed = await ReadTool(files).run({"path": "file"}, Silent())
    editor.answers = {}

    assert read == text_outcome("Your editor did not read file: the window was closed", is_error=True)
    assert absent == text_outcome("absent does not exist.", is_error=True)
    assert wrote == text_outcome("Your editor did not write file: the window was closed", is_error=True)
    assert malformed.is_error
    assert await ReadTool(files).run({"path": "file"}, Silent()) == text_outcome("     1\ttext")


async def test_without_an_editor_the_files_are_local_ones(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("disk\n")
    files = EditorFiles(Workspace([tmp_path]), EditorRun().editor)
    await WriteTool(files).run({"path": "new", "content": "made"}, Silent())

    assert await ReadTool(files).run({"path": "file"}, Silent()) == text_outcome("     1\tdisk")
    assert (tmp_path / "new").read_text() == "made"


SPELLED = st.sampled_from(
    ["file", "new/file", "../outside/secret", "/etc/passwd", "out", "out/secret", "hidden/key", "alias", ".", "a\0b"]
)
ANSWERED = st.one_of(
    st.none(), st.text(), st.dictionaries(st.text(), st.text()), st.builds(lambda text: {"content": text}, st.text()),
    st.just(RpcError(-32603, "refused")),
)  # fmt: skip


@settings(max_examples=60)
@given(calls=st.lists(st.tuples(st.sampled_from(["read", "write", "edit"]), SPELLED, ANSWERED), max_size=6))
async def test_whatever_an_editor_answers_the_rules_about_places_hold(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str, Any]]
) -> None:
    """It is asked about files of the session only, and no other file changes."""
    base = tmp_path_factory.mktemp("places")
    root = base / "root"
    for folder in (root / "hidden", base / "outside"):
        folder.mkdir(parents=True)
    for path in (root / "file", root / "hidden/key", base / "outside/secret"):
        path.write_text("as it was")
    (root / "out").symlink_to(base / "outside")
    (root / "alias").symlink_to("hidden/key")
    editor = ScriptedEditor()
    files = EditorFiles(Workspace([root], [root / "hidden"]), EditorRun(connected(editor)).editor)
    tools: dict[str, Tool] = {"read": ReadTool(files), "write": WriteTool(files), "edit": EditTool(files)}
    for name, spelled, answer in calls:

        def answered(params: dict[str, Any], answer: Any = answer) -> Any:
            if isinstance(answer, RpcError):
                raise answer
            return answer

        editor.answers = {READ: answered, WRITE: answered}
        more = {"write": {"content": "x"}, "edit": {"old_text": "a", "new_text": "b"}}.get(name, {})
        assert isinstance(await tools[name].run({"path": spelled, **more}, Silent()), ToolOutcome)

    assert {params["path"] for _, params in editor.requests} <= {str(root / "file"), str(root / "new/file")}
    assert [path.read_text() for path in (root / "hidden/key", base / "outside/secret")] == ["as it was"] * 2
