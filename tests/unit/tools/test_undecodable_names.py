"""File names that are not UTF-8: tools show them with escapes, and take them in the same form."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import pytest
from support.orphan_trials import Silent, text_of

from makai.core.content import Text
from makai.core.session_events import FileDiff, FilePlace, FileVersions
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.edit import EditTool, WriteTool
from makai.tools.file_errors import FileRefused, escape_bytes, unescape_bytes
from makai.tools.files import ListTool, ReadTool
from makai.tools.permissions.rules import denied_paths, parse_rules
from makai.tools.restoring import FileState, Replacement, RestorableFiles
from makai.tools.search import GlobTool, GrepTool
from makai.tools.workspace import Workspace

SHOWN = r"alt\udce4/caf\udce9.txt"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / os.fsdecode(b"alt\xe4/caf\xe9.txt")
    path.parent.mkdir()
    path.write_text("one\n")
    return path


async def test_a_name_that_a_tool_shows_can_be_given_to_every_tool(tmp_path: Path, file: Path) -> None:
    workspace = Workspace([tmp_path])
    folder = r"alt\udce4"

    assert await ListTool(workspace).run({"path": folder}, Silent()) == text_outcome(r"caf\udce9.txt  4")
    assert await GlobTool(workspace).run({"pattern": "**/*.txt"}, Silent()) == text_outcome(SHOWN)
    assert await GlobTool(workspace).run({"pattern": "*.txt", "path": folder}, Silent()) == text_outcome(SHOWN)
    assert await GrepTool(workspace).run({"pattern": "o", "path": SHOWN}, Silent()) == text_outcome(f"{SHOWN}:1: one")
    assert await ReadTool(workspace).run({"path": SHOWN}, Silent()) == text_outcome("     1\tone")
    assert await ReadTool(workspace).run({"path": f"{tmp_path}/{SHOWN}"}, Silent()) == text_outcome("     1\tone")


@pytest.mark.parametrize("pattern", [r"**/caf\udce9.*", r"alt\udce4/*", r"alt\udce4/caf?.txt", r"**/{caf\udce9,x}.txt"])
async def test_a_pattern_may_have_such_a_name(tmp_path: Path, file: Path, pattern: str) -> None:
    workspace = Workspace([tmp_path])

    assert await GlobTool(workspace).run({"pattern": pattern}, Silent()) == text_outcome(SHOWN)
    assert await GrepTool(workspace).run({"pattern": "o", "glob": pattern}, Silent()) == text_outcome(f"{SHOWN}:1: one")


async def test_an_ignore_file_may_have_such_a_name(tmp_path: Path, file: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"caf\xe9.txt\n")

    assert await GlobTool(Workspace([tmp_path])).run({"pattern": "**/*.txt"}, Silent()) == text_outcome(
        "[nothing found]"
    )


async def test_a_file_with_such_a_name_is_edited_and_its_change_can_be_stored(tmp_path: Path, file: Path) -> None:
    tool, wanted = EditTool(Workspace([tmp_path])), {"path": SHOWN, "old_text": "one", "new_text": "two"}
    where = f"{tmp_path}/{SHOWN}"
    diff = FileDiff(path=where, old_text="one\n", new_text="two\n")
    mode = os.stat(file).st_mode & 0o777

    assert await tool.describe(wanted) == CallDescription(
        kind="edit", title=f"Edit {SHOWN}", subject=SHOWN, locations=(FilePlace(path=where),), diffs=(diff,)
    )
    outcome = await tool.run(wanted, Silent())
    versions = FileVersions(
        path=where,
        old_digest=hashlib.sha256(b"one\n").hexdigest(),
        new_digest=hashlib.sha256(b"two\n").hexdigest(),
        old_mode=mode,
        new_mode=mode,
    )
    said = Text(text=f"Edited {SHOWN}.")
    assert outcome == ToolOutcome(content=(said,), diffs=(diff,), file_versions=(versions,))
    assert (await ReadTool(Workspace([tmp_path])).run({"path": SHOWN}, Silent())) == text_outcome("     1\ttwo")
    assert msgspec.json.encode(outcome)


async def test_a_new_file_gets_the_bytes_that_its_name_says_and_an_undo_takes_it_away(tmp_path: Path) -> None:
    tool, made = WriteTool(Workspace([tmp_path])), tmp_path / os.fsdecode(b"neu\xff/a\xfe")

    outcome = await tool.run({"path": r"neu\udcff/a\udcfe", "content": "x"}, Silent())
    assert made.read_text() == "x"
    assert msgspec.json.encode(outcome)

    (versions,) = outcome.file_versions
    before = FileState(content=b"x", mode=versions.new_mode)
    gone = Replacement(path=versions.path, before=before, after=None, removed_folders=versions.made_folders)
    RestorableFiles([tmp_path]).restore([gone])
    assert os.listdir(os.fsencode(tmp_path)) == []


async def test_a_file_that_has_an_escape_in_its_name_comes_before_the_one_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / r"a\udcff").write_text("the escape")
    (tmp_path / os.fsdecode(b"a\xff")).write_text("the byte")

    assert await ReadTool(Workspace([tmp_path])).run({"path": r"a\udcff"}, Silent()) == text_outcome(
        "     1\tthe escape"
    )
    found = text_of(await GrepTool(Workspace([tmp_path])).run({"pattern": "the"}, Silent()))
    assert found == "a\\udcff:1: the escape\na\\udcff:1: the byte"


@pytest.mark.parametrize("path", [r"geheim\udcc3\udcbc/a", r"neu/geheim\udcc3\udcbc/b"])
def test_escapes_of_bytes_that_are_utf_8_are_no_second_spelling_for_rules(tmp_path: Path, path: str) -> None:
    denied = denied_paths(parse_rules(workspace=str(tmp_path), deny=["Read(**/geheimü/**)"]), "Read")

    place = Workspace([tmp_path]).place(path)
    assert place.shown == path.replace(r"\udcc3\udcbc", "ü")
    assert denied.cover(place.absolute)


@pytest.mark.parametrize(
    "path", [r"\udc2e\udc2e/x", r"\udc2f", r"..\udc2fx", r"a\udc00", r"\ud800", r"\uDCFF", r"\udcf"]
)
def test_only_bytes_that_are_not_ascii_are_written_as_escapes(path: str) -> None:
    assert unescape_bytes(path) == path


@pytest.mark.parametrize(
    "name", [b"\xff", b"caf\xe9", b"\xf0\x9f", b"plain", "Füße".encode(), b"\xc3", b"\xed\xa0\x80"]
)
def test_what_is_escaped_comes_back_as_it_was(name: bytes) -> None:
    assert os.fsencode(unescape_bytes(escape_bytes(os.fsdecode(name)))) == name


def test_a_long_name_of_bytes_fits_and_one_that_is_too_long_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff" * 255)).write_text("x")
    workspace = Workspace([tmp_path])

    with workspace.open_read(r"\udcff" * 255) as stream:
        assert stream.read() == b"x"
    with pytest.raises(FileRefused, match="too long"):
        workspace.open_read(r"\udcff" * 256)
