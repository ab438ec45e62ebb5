"""The tool edit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.orphan_trials import Silent

from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff, FilePlace
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.edit import EditTool
from makai.tools.workspace import Workspace


async def edited(folder: Path, before: bytes, old: str, new: str, **more: Any) -> tuple[bytes, ToolOutcome]:
    (folder / "file").write_bytes(before)
    outcome = await EditTool(Workspace([folder])).run(
        {"path": "file", "old_text": old, "new_text": new, **more}, Silent()
    )
    return (folder / "file").read_bytes(), outcome


async def refusal(folder: Path, before: bytes, old: str, new: str, **more: Any) -> str:
    """What the model is told when nothing was changed."""
    after, outcome = await edited(folder, before, old, new, **more)
    [part] = outcome.content
    assert isinstance(part, Text)
    assert (after, outcome.is_error, outcome.diffs) == (before, True, ())
    return part.text


async def test_a_text_that_occurs_once_is_replaced(tmp_path: Path) -> None:
    after, outcome = await edited(tmp_path, b"a = 1\nb = 2\n", "b = 2", "b = 3")

    assert after == b"a = 1\nb = 3\n"
    assert outcome == ToolOutcome(
        content=(Text(text="Edited file."),),
        diffs=(FileDiff(path=f"{tmp_path}/file", old_text="a = 1\nb = 2\n", new_text="a = 1\nb = 3\n"),),
    )


async def test_every_occurrence_is_replaced_when_asked(tmp_path: Path) -> None:
    after, outcome = await edited(tmp_path, b"x x x", "x", "y", replace_all=True)

    assert (after, outcome.content) == (b"y y y", (Text(text="Edited file in 3 places."),))


async def test_many_occurrences_are_told_with_their_lines(tmp_path: Path) -> None:
    assert await refusal(tmp_path, b"x\nx\n\nx", "x", "y") == (
        "`old_text` occurs 3 times in file (lines 1, 2, 4). Add more of the text around it, or pass replace_all."
    )


async def test_a_text_that_differs_in_white_space_is_pointed_at(tmp_path: Path) -> None:
    assert await refusal(tmp_path, b"def f():\n\treturn 1\n", "def f():\n    return 1", "x") == (
        "`old_text` does not occur in file. Line 1 differs from it only in white space; copy that exactly."
    )


async def test_a_text_that_begins_right_is_told_where_it_goes_wrong(tmp_path: Path) -> None:
    assert await refusal(tmp_path, b"a\nb\nc\n", "b\nd", "x") == (
        "`old_text` does not occur in file. Its first line is line 2, but line 3 differs. Read the file again."
    )


async def test_a_text_that_is_nowhere_is_told_so(tmp_path: Path) -> None:
    assert await refusal(tmp_path, b"a\n", "zebra", "x") == (
        "`old_text` does not occur in file. Read the file again; it may have changed."
    )
    assert "Read the file again" in await refusal(tmp_path, b"a\n", "\n\n", "x")


async def test_the_same_text_twice_is_refused(tmp_path: Path) -> None:
    assert await refusal(tmp_path, b"a", "a", "a") == "`old_text` and `new_text` are the same."


async def test_lines_that_end_in_carriage_returns_stay_so(tmp_path: Path) -> None:
    after, _ = await edited(tmp_path, b"a\r\nb\r\nc\r\n", "a\nb", "x\ny")

    assert after == b"x\r\ny\r\nc\r\n"


async def test_bytes_that_are_not_utf_8_stay_as_they_are(tmp_path: Path) -> None:
    after, _ = await edited(tmp_path, b"\xff\xfe caf\xe9 one", "one", "two")

    assert after == b"\xff\xfe caf\xe9 two"


async def test_a_file_too_large_to_edit_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:  # noqa: ASYNC230 - nothing else waits
        file.truncate(2 * 1024**3)
    tool = EditTool(Workspace([tmp_path]))

    with pytest.raises(InvalidRequest, match="larger than 16,777,216 bytes"):
        await tool.describe({"path": "huge", "old_text": "a", "new_text": "b"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "file", "old_text": "", "new_text": "b"},
        {"path": "file", "old_text": "nowhere", "new_text": "b"},
        {"path": "missing", "old_text": "a", "new_text": "b"},
        {"path": "../file", "old_text": "a", "new_text": "b"},
        {"path": "file", "old_text": "a", "new_text": "\ud800"},
    ],
)
async def test_no_one_is_asked_about_an_edit_that_cannot_be_made(tmp_path: Path, arguments: dict[str, Any]) -> None:
    (tmp_path / "file").write_text("a")

    with pytest.raises(InvalidRequest):
        await EditTool(Workspace([tmp_path])).describe(arguments)


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


async def test_a_file_that_changed_after_the_edit_was_shown_is_left_alone(tmp_path: Path) -> None:
    tool = EditTool(Workspace([tmp_path]))
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


async def test_a_link_that_was_turned_after_the_edit_was_shown_is_not_followed(tmp_path: Path) -> None:
    for name in ("shown", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("old")
    (tmp_path / "link").symlink_to("shown")
    tool = EditTool(Workspace([tmp_path]))
    arguments = {"path": "link/file", "old_text": "old", "new_text": "new"}
    await tool.describe(arguments)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("other")

    assert (await tool.run(arguments, Silent())).is_error
    assert [(tmp_path / name / "file").read_text() for name in ("shown", "other")] == ["old", "old"]


async def test_an_edit_of_a_file_that_makes_later_commands_run_code_is_told(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("old")
    (tmp_path / "config").write_text("old")
    tool = EditTool(Workspace([tmp_path]))

    async def is_protected(path: str) -> bool:
        return (await tool.describe({"path": path, "old_text": "old", "new_text": "new"})).protected

    assert (await is_protected(".git/config"), await is_protected("config")) == (True, False)
