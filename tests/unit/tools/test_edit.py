"""The tool edit."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from support.orphan_trials import Silent

from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff, FilePlace, FileVersions
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.edit import EditTool, content_digest
from makai.tools.permissions.judge import judge
from makai.tools.permissions.rules import denied_paths, parse_rules
from makai.tools.workspace import Workspace


async def edited(folder: Path, before: bytes, old: str, new: str, **more: Any) -> tuple[bytes, ToolOutcome]:
    (folder / "file").write_bytes(before)
    outcome = await EditTool(Workspace([folder])).run(
        {"path": "file", "old_text": old, "new_text": new, **more}, Silent()
    )
    return (folder / "file").read_bytes(), outcome


@pytest.fixture
def tool(workspace: Workspace) -> EditTool:
    return EditTool(workspace)


async def test_a_text_that_occurs_once_is_replaced(tmp_path: Path) -> None:
    after, outcome = await edited(tmp_path, b"a = 1\nb = 2\n", "b = 2", "b = 3")

    mode = stat.S_IMODE((tmp_path / "file").stat().st_mode)
    assert after == b"a = 1\nb = 3\n"
    assert outcome == ToolOutcome(
        content=(Text(text="Edited file."),),
        diffs=(FileDiff(path=f"{tmp_path}/file", old_text="a = 1\nb = 2\n", new_text="a = 1\nb = 3\n"),),
        file_versions=(
            FileVersions(
                path=f"{tmp_path}/file",
                old_digest=content_digest(b"a = 1\nb = 2\n"),
                new_digest=content_digest(b"a = 1\nb = 3\n"),
                old_mode=mode,
                new_mode=mode,
            ),
        ),
    )


async def test_every_occurrence_is_replaced_when_asked(tmp_path: Path) -> None:
    after, outcome = await edited(tmp_path, b"x x x", "x", "y", replace_all=True)

    assert (after, outcome.content) == (b"y y y", (Text(text="Edited file in 3 places."),))


NOWHERE = "`old_text` does not occur in file. "


@pytest.mark.parametrize(
    ("before", "old", "told"),
    [
        (
            b"x\nx\n\nx",
            "x",
            "`old_text` occurs 3 times in file (lines 1, 2, 4). Add more of the text around it, or pass replace_all.",
        ),
        (
            b"def f():\n\treturn 1\n",
            "def f():\n    return 1",
            f"{NOWHERE}Line 1 differs from it only in white space; copy that exactly.",
        ),
        (b"a\nb\nc\n", "b\nd", f"{NOWHERE}Its first line is line 2, but line 3 differs. Read the file again."),
        (b"a\nb\n", "b\nd", f"{NOWHERE}Its first line is line 2, but line 3 differs. Read the file again."),
        (b"a\n", "zebra", f"{NOWHERE}Read the file again; it may have changed."),
        (b"a\n", "\n\n", f"{NOWHERE}Read the file again."),
        (b"a", "new", "`old_text` and `new_text` are the same."),
    ],
    ids=[
        *("several occurrences are listed with their lines", "other white space is pointed at"),
        *("a wrong second line is pointed at", "a missing second line is pointed at", "another text", "blank lines"),
        "the same text twice",
    ],
)
async def test_an_edit_that_cannot_be_made_says_why(tmp_path: Path, before: bytes, old: str, told: str) -> None:
    after, outcome = await edited(tmp_path, before, old, "new")

    assert (after, outcome) == (before, text_outcome(told, is_error=True))


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"\xff\xfe caf\xe9 one", "one", "two", b"\xff\xfe caf\xe9 two"),
    ],
    ids=["carriage returns", "bytes that are not UTF-8"],
)
async def test_the_rest_of_a_file_stays_the_same(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    assert (await edited(tmp_path, before, old, new))[0] == after


async def test_a_file_too_large_to_edit_is_refused(tmp_path: Path, tool: EditTool) -> None:
    with open(tmp_path / "huge", "wb") as file:  # noqa: ASYNC230 - nothing else waits
        file.truncate(2 * 1024**3)

    described = await tool.describe({"path": "huge", "old_text": "a", "new_text": "b"})
    assert described.problem == "huge is larger than 16,777,216 bytes. Use the shell for it."


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "file", "old_text": "", "new_text": "b"},
        {"path": "../file", "old_text": "a", "new_text": "b"},
    ],
)
async def test_an_edit_that_cannot_be_meant_is_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    (tmp_path / "file").write_text("a")

    with pytest.raises(InvalidRequest):
        await EditTool(Workspace([tmp_path])).describe(arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            {"path": "file", "old_text": "nowhere", "new_text": "b"},
            "`old_text` does not occur in file. Read the file again; it may have changed.",
        ),
        ({"path": "missing", "old_text": "a", "new_text": "b"}, "missing does not exist."),
        (
            {"path": "file", "old_text": "a", "new_text": "\ud800"},
            "The text has half of a surrogate pair at position 0.",
        ),
    ],
)
async def test_an_edit_that_cannot_be_made_is_described_with_its_problem(
    tmp_path: Path, arguments: dict[str, Any], problem: str
) -> None:
    (tmp_path / "file").write_text("a")

    described = await EditTool(Workspace([tmp_path])).describe(arguments)
    assert (described.problem, described.diffs) == (problem, ())


@pytest.mark.parametrize("rule", ["Edit(secret)", "Read(secret)", "Edit", "edit"])
@pytest.mark.parametrize("name", ["secret", "hard-link", "SECRET", "link"])
async def test_what_is_denied_cannot_be_guessed(tmp_path: Path, rule: str, name: str) -> None:
    """The answer to a right guess and to a wrong one is the same, so 449 of them tell nothing."""
    (tmp_path / "secret").write_text("the key is 42")
    (tmp_path / "hard-link").hardlink_to(tmp_path / "secret")
    (tmp_path / "link").symlink_to("secret")
    rules = parse_rules(workspace=str(tmp_path), deny=[rule])
    tool = EditTool(Workspace([tmp_path]), denied_paths(rules, "Read", "Edit", "Write"))

    async def answer(guess: str) -> str:
        call = await tool.describe({"path": name, "old_text": guess, "new_text": "x"})
        denied = judge("accept_edits", rules, (), "edit", call).decision == "deny"
        return "denied" if denied else call.problem

    assert await answer("4") == await answer("5")


@pytest.mark.parametrize("name", ["secret", "hard-link", "link"])
async def test_what_a_rule_wants_to_be_asked_about_cannot_be_guessed_unasked(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("the key is 42")
    (tmp_path / "hard-link").hardlink_to(tmp_path / "secret")
    (tmp_path / "link").symlink_to("secret")
    rules = parse_rules(workspace=str(tmp_path), ask=["Read(secret)"])
    tool = EditTool(Workspace([tmp_path]), denied_paths(rules, "Read", "Edit", "Write"))

    async def answer(guess: str) -> str:
        call = await tool.describe({"path": name, "old_text": guess, "new_text": "x"})
        return call.problem or judge("accept_edits", rules, (), "edit", call).decision

    expected = "hard-link does not exist." if name == "hard-link" else "ask"
    assert (await answer("4"), await answer("5")) == (expected, expected)


async def test_an_edit_that_was_shown_without_its_change_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("4")
    denied = denied_paths(parse_rules(workspace=str(tmp_path), ask=["Read(secret)"]), "Read")
    tool = EditTool(Workspace([tmp_path]), denied)
    wanted = {"path": "secret", "old_text": "5", "new_text": "x"}

    await tool.describe(wanted)
    (tmp_path / "secret").write_text("5")
    assert (await tool.run(wanted, Silent())).is_error
    assert (tmp_path / "secret").read_text() == "5"


async def test_an_edit_is_described_by_its_diff_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a")

    described = await EditTool(Workspace([tmp_path])).describe({"path": "file", "old_text": "a", "new_text": "b"})
    assert described == CallDescription(
        kind="edit",
        title="Edit file",
        subject="file",
        locations=(FilePlace(path=f"{tmp_path}/file"),),
        diffs=(FileDiff(path=f"{tmp_path}/file", old_text="a", new_text="b"),),
    )
    assert (tmp_path / "file").read_text() == "a"


async def test_a_file_that_changed_after_the_edit_was_shown_is_left_alone(tmp_path: Path, tool: EditTool) -> None:
    arguments = {"path": "file", "old_text": "b = 2", "new_text": "b = 3"}
    (tmp_path / "file").write_text("a = 1\nb = 2\n")
    await tool.describe(arguments)
    (tmp_path / "file").write_text("a = 100\nb = 2\n")

    refused = await tool.run(arguments, Silent())
    assert refused == text_outcome(
        "file is not what it was when this call was shown for approval. Nothing was done. "
        "Read it again, and repeat the call if it is still what you want.",
        is_error=True,
    )
    assert (tmp_path / "file").read_text() == "a = 100\nb = 2\n"

    await tool.describe(arguments)
    assert not (await tool.run(arguments, Silent())).is_error
    assert (tmp_path / "file").read_text() == "a = 100\nb = 3\n"


async def test_a_link_that_was_turned_after_the_edit_was_shown_is_not_followed(tmp_path: Path, tool: EditTool) -> None:
    for name in ("shown", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("old")
    (tmp_path / "link").symlink_to("shown")
    arguments = {"path": "link/file", "old_text": "old", "new_text": "new"}
    await tool.describe(arguments)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("other")

    assert (await tool.run(arguments, Silent())).is_error
    assert [(tmp_path / name / "file").read_text() for name in ("shown", "other")] == ["old", "old"]


async def test_an_edit_of_a_file_that_makes_later_commands_run_code_is_told(tmp_path: Path, tool: EditTool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("old")
    (tmp_path / "config").write_text("old")

    async def is_protected(path: str) -> bool:
        return (await tool.describe({"path": path, "old_text": "old", "new_text": "new"})).protected

    assert (await is_protected(".git/config"), await is_protected("config")) == (True, False)
