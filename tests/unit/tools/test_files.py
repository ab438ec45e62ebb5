"""The tools read, write and list."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.orphan_trials import Silent, text_of

from makai.core.content import Image, Text
from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff, FilePlace, FileVersions
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.edit import MAX_DIFF_BYTES, WriteTool
from makai.tools.files import DEFAULT_LINES, ListTool, ReadTool
from makai.tools.permissions.judge import judge
from makai.tools.permissions.rules import denied_paths, parse_rules
from makai.tools.search import GrepTool
from makai.tools.workspace import Workspace

UTF_16 = "file is UTF-16 text; convert it to UTF-8 to read it"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


async def read(folder: Path, path: str, **arguments: Any) -> ToolOutcome:
    return await ReadTool(Workspace([folder])).run({"path": path, **arguments}, Silent())


async def text(folder: Path, path: str, **arguments: Any) -> str:
    return text_of(await read(folder, path, **arguments))


@pytest.fixture
def tool(workspace: Workspace) -> WriteTool:
    return WriteTool(workspace)


async def test_lines_come_with_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one\ntwo\r\nthree")

    assert await read(tmp_path, "file") == text_outcome("     1\tone\n     2\ttwo\n     3\tthree")


@pytest.mark.parametrize(
    ("path", "wanted", "shown"),
    [
        ("long", {"offset": 50, "limit": 1}, "    50\tline 50\n[more lines follow; continue with offset=51]"),
        ("long", {"offset": "100"}, "   100\tline 100"),  # models write numbers as text at times
        ("long", {"offset": 101}, "[the file has only 100 lines]"),
        ("long", {"offset": 5000}, "[the file has only 100 lines]"),
        ("empty", {}, "[the file is empty]"),
        ("empty", {"offset": 9}, "[the file is empty]"),
    ],
)
async def test_a_range_of_lines_tells_the_next(tmp_path: Path, path: str, wanted: dict[str, Any], shown: str) -> None:
    (tmp_path / "long").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    (tmp_path / "empty").touch()

    assert await text(tmp_path, path, **wanted) == shown


async def test_long_files_and_lines_are_cut_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "many").write_text("x\n" * 5000)
    (tmp_path / "long").write_text("é" * 5000 + "\nnext\n", encoding="utf-8")
    (tmp_path / "wide").write_text(("y" * 1000 + "\n") * 1000)

    many = (await text(tmp_path, "many")).split("\n")
    assert (len(many), many[-1]) == (DEFAULT_LINES + 1, "[more lines follow; continue with offset=2001]")
    assert await text(tmp_path, "long") == (f"     1\t{'é' * 1000} [cut: 8,001 more bytes in this line]\n     2\tnext")
    wide = (await text(tmp_path, "wide")).split("\n")
    assert wide[-1] == f"[more lines follow; continue with offset={len(wide)}]"
    assert len("\n".join(wide)) < 270_000


async def test_a_file_of_2_gb_is_read_in_parts(tmp_path: Path) -> None:
    """Sparse, so that it costs no disk; its first block is text."""
    (tmp_path / "huge").write_bytes(b"first\n" * 2000)
    os.truncate(tmp_path / "huge", 2 * 1024**3)

    assert await text(tmp_path, "huge", limit=1) == "     1\tfirst\n[more lines follow; continue with offset=2]"
    assert (await text(tmp_path, "huge", offset=1999, limit=2)).startswith("  1999\tfirst\n  2000\tfirst\n[more")


async def test_lines_behind_one_of_many_megabytes_are_found(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"first\n" * 2000)
    os.truncate(tmp_path / "huge", 64 * 1024**2)
    with open(tmp_path / "huge", "ab") as file:  # noqa: ASYNC230 - nothing else waits
        file.write(b"\nlast\n")

    assert await text(tmp_path, "huge", offset=2002) == "  2002\tlast"
    assert f"[cut: {64 * 1024**2 - 14_000 + 1:,} more bytes in this line]" in await text(tmp_path, "huge", offset=2001)


async def test_images_are_shown_as_images(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(PNG)
    (tmp_path / "b.webp").write_bytes(b"RIFF....WEBPVP8 ")
    with open(tmp_path / "big.png", "wb") as file:  # noqa: ASYNC230 - nothing else waits
        file.write(PNG)
        file.truncate(6 * 1024 * 1024)

    for path, data, kind in (("a.txt", PNG, "image/png"), ("b.webp", b"RIFF....WEBPVP8 ", "image/webp")):
        image = Image(data=base64.b64encode(data).decode(), mime_type=kind)
        assert (await read(tmp_path, path)).content == (image,)
    assert await read(tmp_path, "big.png") == text_outcome("The image is larger than 5,242,880 bytes.", is_error=True)


@pytest.mark.parametrize(
    ("content", "outcome"),
    [
        (b"\x7fELF\0\0", text_outcome("file is a binary file (6 bytes).", is_error=True)),
        ("text".encode("utf-16"), text_outcome(f"{UTF_16} (10 bytes).", is_error=True)),
        (b"caf\xe9\n", text_outcome("     1\tcaf\ufffd\n[not all of it is UTF-8: \ufffd stands for other bytes]")),
    ],
)
async def test_what_is_not_utf_8_is_shown_with_a_note(tmp_path: Path, content: bytes, outcome: ToolOutcome) -> None:
    (tmp_path / "file").write_bytes(content)

    assert await read(tmp_path, "file") == outcome


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": 1},
        {"path": "x", "offset": 0},
        {"path": "x", "limit": -1},
        {"path": "x", "limit": 2**31},
        {"path": "x", "lines": 3},
        {"path": ""},
        {"path": "../x"},
        {"path": "x\0"},
    ],
)
async def test_arguments_that_cannot_be_meant_are_refused_by_both(tmp_path: Path, arguments: dict[str, Any]) -> None:
    tool = ReadTool(Workspace([tmp_path]))

    with pytest.raises(InvalidRequest):
        await tool.describe(arguments)
    assert (await tool.run(arguments, Silent())).is_error


async def test_a_read_is_described_by_the_file_it_reaches(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to("real")

    assert await ReadTool(Workspace([tmp_path])).describe({"path": "link", "offset": 3}) == CallDescription(
        kind="read", title="Read real", subject="real", locations=(FilePlace(path=f"{tmp_path}/real", line=3),)
    )


async def test_a_write_creates_then_replaces_and_returns_the_diff(tmp_path: Path, tool: WriteTool) -> None:
    path = f"{tmp_path}/new/file"

    described = await tool.describe({"path": "new/file", "content": "one\n"})
    created = await tool.run({"path": "new/file", "content": "one\n"}, Silent())
    replaced = await tool.run({"path": "new/file", "content": "two\n"}, Silent())

    diff = FileDiff(path=path, old_text=None, new_text="one\n")
    assert described == CallDescription(
        kind="edit", title="Write new/file", subject="new/file", locations=(FilePlace(path=path),), diffs=(diff,)
    )
    one, two = (hashlib.sha256(text).hexdigest() for text in (b"one\n", b"two\n"))
    mode = stat.S_IMODE((tmp_path / "new" / "file").stat().st_mode)
    made = FileVersions(path=path, new_digest=one, new_mode=mode, made_folders=(f"{tmp_path}/new",))
    assert created == ToolOutcome(
        content=(Text(text="Created new/file (4 bytes)."),), diffs=(diff,), file_versions=(made,)
    )
    assert replaced == ToolOutcome(
        content=(Text(text="Replaced new/file (4 bytes)."),),
        diffs=(FileDiff(path=path, old_text="one\n", new_text="two\n"),),
        file_versions=(FileVersions(path=path, old_digest=one, new_digest=two, old_mode=mode, new_mode=mode),),
    )
    assert (tmp_path / "new" / "file").read_text() == "two\n"


async def test_a_diff_names_old_content_it_cannot_show(tmp_path: Path, tool: WriteTool) -> None:
    (tmp_path / "binary").write_bytes(b"\0\1")
    (tmp_path / "large").write_bytes(b"x" * (MAX_DIFF_BYTES + 1))

    outcomes = [await tool.run({"path": name, "content": ""}, Silent()) for name in ("binary", "large")]
    told = [outcome.diffs[0].old_text for outcome in outcomes]
    assert told == ["[a binary file, 2 bytes]\n", "[more than 1,048,576 bytes, not shown]\n"]


async def test_half_a_surrogate_pair_is_not_written(tmp_path: Path, tool: WriteTool) -> None:
    outcome = await tool.run({"path": "file", "content": "a\ud800"}, Silent())
    assert outcome == text_outcome("The text has half of a surrogate pair at position 1.", is_error=True)
    assert not (tmp_path / "file").exists()


async def test_a_listing_is_sorted_and_says_what_is_what(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x" * 1234)
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")

    outcome = await ListTool(Workspace([tmp_path])).run({}, Silent())
    assert outcome == text_outcome("file  1,234\nfolder/\nlink@\npipe  (device, pipe or socket)")


async def test_a_listing_of_many_names_is_cut(tmp_path: Path) -> None:
    for number in range(1001):
        (tmp_path / f"{number:04}").touch()

    outcome = await ListTool(Workspace([tmp_path])).run({"path": "."}, Silent())
    assert text_of(outcome).split("\n")[-1] == "[cut: more than 1,000 names; use glob to narrow it down]"


async def test_names_no_text_can_hold_are_shown_escaped(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff\x1b[31m")).touch()

    outcome = await ListTool(Workspace([tmp_path])).run({}, Silent())
    assert outcome == text_outcome(r"\udcff\x1b[31m  0")
    assert msgspec.json.encode(outcome)


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [(None, "made by someone"), ("old", "newer"), ("old", None), ("x" * 2_000_000, "x" * 1_999_999 + "y")],
)
async def test_a_file_that_changed_after_the_write_was_shown_is_left_alone(
    tmp_path: Path, before: str | None, meanwhile: str | None
) -> None:
    def is_now(content: str | None) -> None:
        (tmp_path / "file").unlink(missing_ok=True)
        if content is not None:
            (tmp_path / "file").write_text(content)

    tool = WriteTool(Workspace([tmp_path]))
    arguments = {"path": "file", "content": "mine"}
    is_now(before)
    await tool.describe(arguments)
    is_now(meanwhile)

    refused = await tool.run(arguments, Silent())
    assert refused.is_error
    assert "shown for approval" in str(refused.content)
    assert (tmp_path / "file").exists() == (meanwhile is not None)
    assert meanwhile is None or (tmp_path / "file").read_text() == meanwhile


async def test_what_a_rule_denies_is_not_listed(tmp_path: Path) -> None:
    for name in ("a.txt", ".ENV", "secrets"):
        (tmp_path / name).touch()
    (tmp_path / "private").mkdir()
    denied = denied_paths(
        parse_rules(workspace=str(tmp_path), deny=["Read(.env)", "Read(secrets)", "Read(/private)"]), "Read"
    )
    tool = ListTool(Workspace([tmp_path]), denied)

    assert await tool.run({}, Silent()) == text_outcome("a.txt  0")
    assert await tool.run({"path": "private"}, Silent()) == text_outcome("private does not exist.", is_error=True)


async def test_a_hard_link_to_a_denied_file_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "other").hardlink_to(tmp_path / "secret")
    (tmp_path / "twice").write_text("harmless")
    (tmp_path / "again").hardlink_to(tmp_path / "twice")
    denied = denied_paths(parse_rules(workspace=str(tmp_path), deny=["Read(secret)"]), "Read")
    read, grep = ReadTool(Workspace([tmp_path]), denied), GrepTool(Workspace([tmp_path]), denied)

    assert await read.run({"path": "other"}, Silent()) == text_outcome("other does not exist.", is_error=True)
    assert await read.run({"path": "again"}, Silent()) == text_outcome("     1\tharmless")
    assert await grep.run({"pattern": "."}, Silent()) == text_outcome("again:1: harmless\ntwice:1: harmless")


@pytest.mark.proof("P4")
async def test_a_link_that_was_turned_to_a_denied_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "harmless").write_text("harmless")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to("harmless")
    tool = ReadTool(
        Workspace([tmp_path]), denied_paths(parse_rules(workspace=str(tmp_path), deny=["Read(secret)"]), "Read")
    )
    assert await tool.run({"path": "link"}, Silent()) == text_outcome("     1\tharmless")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("secret")

    assert await tool.run({"path": "link"}, Silent()) == text_outcome("link does not exist.", is_error=True)


@pytest.mark.parametrize("rule", ["//{other}/secret", "//{other}", "//{parent}/**/secret"])
async def test_a_hard_link_to_a_denied_file_elsewhere_is_the_same_file(tmp_path: Path, rule: str) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for folder in (root, other):
        folder.mkdir()
    (other / "secret").write_text("secret")
    (root / "name").hardlink_to(other / "secret")
    (root / "twice").write_text("harmless")
    (root / "again").hardlink_to(root / "twice")
    pattern = rule.format(other=str(other)[1:], parent=str(tmp_path)[1:])
    denied = denied_paths(parse_rules(workspace=str(root), deny=[f"Read({pattern})"]), "Read")
    for roots in ([root], [root, other]):
        read, grep = ReadTool(Workspace(roots), denied), GrepTool(Workspace(roots), denied)
        assert await read.run({"path": "name"}, Silent()) == text_outcome("name does not exist.", is_error=True)
        assert await read.run({"path": "again"}, Silent()) == text_outcome("     1\tharmless")
        assert await grep.run({"pattern": "."}, Silent()) == text_outcome("again:1: harmless\ntwice:1: harmless")


async def test_what_a_rule_wants_to_be_asked_about_is_shown_only_to_a_call_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "a").write_text("harmless")
    for name in ("secret", "keys/one", "keys/secret"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "other").hardlink_to(tmp_path / "secret")
    (tmp_path / "link").symlink_to("secret")
    rules = parse_rules(workspace=str(tmp_path), ask=["Read(secret)", "Read(keys/**)"])
    denied, workspace = denied_paths(rules, "Read"), Workspace([tmp_path])
    read, grep, listed = ReadTool(workspace, denied), GrepTool(workspace, denied), ListTool(workspace, denied)

    async def answer(tool: ReadTool | GrepTool, **arguments: str) -> tuple[str, str]:
        """What the rules say, and what the tool shows once that is done."""
        description = await tool.describe(arguments)
        decision = judge("ask", rules, (), tool.definition.name, description).decision
        return decision, text_of(await tool.run(arguments, Silent()))

    assert await answer(read, path="secret") == ("ask", "     1\tsecret")
    assert await answer(read, path="link") == ("ask", "     1\tsecret")
    assert await answer(read, path="other") == ("allow", "other does not exist.")
    assert await answer(grep, pattern=".") == ("allow", "a:1: harmless")
    assert await answer(grep, pattern=".", path="secret") == ("ask", "secret:1: secret")
    assert await answer(grep, pattern=".", path="keys") == ("ask", "keys/one:1: secret")
    assert await answer(grep, pattern=".", path="other") == ("allow", "[nothing found]")
    assert text_of(await listed.run({}, Silent())) == "a  8\nkeys/\nlink@\nother  6\nsecret  6"


async def test_a_link_that_was_turned_to_a_file_that_was_not_asked_about_is_not_read(tmp_path: Path) -> None:
    for name in ("harmless", "secret"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("harmless")
    denied = denied_paths(parse_rules(workspace=str(tmp_path), ask=["Read(secret)"]), "Read")
    read, grep = ReadTool(Workspace([tmp_path]), denied), GrepTool(Workspace([tmp_path]), denied)
    await read.describe({"path": "link"})
    await grep.describe({"path": "link", "pattern": "."})
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("secret")

    gone = text_outcome("link does not exist.", is_error=True)
    assert await read.run({"path": "link"}, Silent()) == gone
    assert await grep.run({"path": "link", "pattern": "."}, Silent()) == gone
