"""fs/read_text_file and fs/write_text_file as makai serves them to an agent that it drives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.served_agent import Served, rpc_refused, served_agent

from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.sessions.commands import ApproveCall

INTERNAL, INVALID, MISSING = -32603, -32602, -32002
FACTS = ["tool_call", "approval_requested", "approval_decided", "tool_started", "tool_finished"]


def facts(served: Served) -> list[str]:
    """What was logged about calls."""
    return [kind for kind in served.desk.kinds() if kind.startswith(("tool", "approval"))]


@pytest.mark.req("ACP-CLIENT-008")
@pytest.mark.parametrize(
    ("line", "limit", "content"),
    [
        (None, None, "one\r\ntwo\n\nfour\rstill four"),
        (1, None, "one\r\ntwo\n\nfour\rstill four"),
        (0, None, "one\r\ntwo\n\nfour\rstill four"),
        (2, None, "two\n\nfour\rstill four"),
        (None, 1, "one\r\n"),
        (2, 2, "two\n\n"),
        (3, 1, "\n"),
        (4, 1, "four\rstill four"),
        (4, 100, "four\rstill four"),
        (None, 0, ""),
        (5, None, ""),
        (4_000_000_000, 4_000_000_000, ""),
    ],
)
async def test_lines_are_counted_from_one_and_keep_their_ends(
    tmp_path: Path, line: int | None, limit: int | None, content: str
) -> None:
    async with served_agent(tmp_path, "plan") as served:
        (served.folder / "a.txt").write_bytes(b"one\r\ntwo\n\nfour\rstill four")
        assert await served.read("a.txt", line, limit) == content
    assert facts(served) == []


@pytest.mark.proof("P5")
@pytest.mark.req("ACP-CLIENT-008")
async def test_what_cannot_be_read_is_refused_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("outside")
    async with served_agent(tmp_path, permissions='deny = ["Read(secret.txt)"]') as served:
        folder = served.folder
        (folder / "latin.txt").write_bytes(b"fine\ncaf\xe9\n")
        (folder / "secret.txt").write_text("secret")
        (folder / "link.txt").symlink_to("../outside.txt")
        (folder / "empty.txt").touch()
        with rpc_refused(INVALID, "is not an absolute path"):
            await served.read("./latin.txt")
        with rpc_refused(MISSING, "does not exist"):
            await served.read("missing.txt")
        with rpc_refused(INVALID, "is outside the session's folders"):
            await served.read(str(tmp_path / "outside.txt"))
        with rpc_refused(INVALID, "outside"):
            await served.read("link.txt")
        with rpc_refused(INVALID, "is a directory"):
            await served.read(str(folder))
        with rpc_refused(INVALID, "NUL"):
            await served.read("a\0b")
        with rpc_refused(INVALID, "counts from 1"):
            await served.read("latin.txt", -1)
        with rpc_refused(INVALID, "is not UTF-8 text: invalid continuation byte at byte 8"):
            await served.read("latin.txt")
        assert await served.read("latin.txt", 1, 1) == "fine\n"
        assert await served.read("empty.txt") == ""
        with rpc_refused(INTERNAL, "Denied: A permission rule forbids this"):
            await served.read("secret.txt")
        with rpc_refused(INVALID, "16,777,216 bytes. Read it in parts"):
            (folder / "large.txt").write_bytes(b"x" * (16 * 1024 * 1024 + 1))
            await served.read("large.txt")
    assert facts(served) == ["tool_call", "approval_decided", "tool_finished"]


@pytest.mark.req("ACP-CLIENT-008")
@pytest.mark.parametrize("mode", ["accept_edits", "never_ask"])
async def test_a_write_makes_exactly_this_content_and_its_folders(tmp_path: Path, mode: ev.PermissionMode) -> None:
    content = "\ufeffone\r\ntwo\n\ttab \U0001f600 \0 end\r"
    async with served_agent(tmp_path, mode) as served:
        await served.write("new/deep/a.txt", content)
        assert (served.folder / "new/deep/a.txt").read_bytes() == content.encode()
        assert await served.read("new/deep/a.txt") == content
        await served.write("new/deep/a.txt", "")
        assert (served.folder / "new/deep/a.txt").read_bytes() == b""
    assert facts(served) == []


@pytest.mark.req("ACP-CLIENT-008")
async def test_a_write_that_the_mode_asks_about_is_shown_as_a_diff(tmp_path: Path) -> None:
    async with served_agent(tmp_path) as served:
        path = served.folder / "a.txt"
        path.write_text("old\n")
        writing = asyncio.create_task(served.write("a.txt", "new\n"))
        asked = await served.desk.until_asked()
        assert (asked.name, asked.title, asked.grant) == ("write", "Write a.txt", "Edit(./a.txt)")
        assert asked.diffs == (ev.FileDiff(path=str(path), old_text="old\n", new_text="new\n"),)
        assert path.read_text() == "old\n"
        await served.desk.approve(asked.call_id)
        await writing
        assert path.read_text() == "new\n"

        writing = asyncio.create_task(served.write("b.txt", "new\n"))
        asked = await served.desk.until_asked()
        await served.desk.deny(asked.call_id, "Not this one.")
        with rpc_refused(INTERNAL, "Denied: Not this one."):
            await writing
        assert not (served.folder / "b.txt").exists()
    assert facts(served) == [*FACTS, "tool_call", "approval_requested", "approval_decided", "tool_finished"]
    assert [each.is_error for each in served.desk.events(ev.ToolFinished)] == [False, True]


async def test_a_grant_for_the_session_covers_later_writes(tmp_path: Path) -> None:
    async with served_agent(tmp_path) as served:
        writing = asyncio.create_task(served.write("a.txt", "1"))
        asked = await served.desk.until_asked()
        await served.desk.do(ApproveCall(now=0, call_id=asked.call_id, by="tester", scope="session"))
        await writing
        await served.write("a.txt", "2")
        assert (served.folder / "a.txt").read_text() == "2"
    assert [each.by for each in served.desk.events(ev.ApprovalDecided)] == ["tester", "rule"]


@pytest.mark.req("ACP-CLIENT-008")
async def test_a_write_in_plan_mode_is_refused(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "plan") as served:
        with rpc_refused(INTERNAL, "plan mode"):
            await served.write("a.txt", "new")
        assert list(served.folder.iterdir()) == []


@pytest.mark.proof("P5")
@pytest.mark.req("ACP-CLIENT-008")
async def test_what_cannot_be_written_is_refused_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("outside")
    async with served_agent(tmp_path, "never_ask", permissions='deny = ["Edit(fixed.txt)"]') as served:
        (served.folder / "folder").mkdir()
        (served.folder / "file").touch()
        with rpc_refused(INVALID, "is not an absolute path"):
            await served.write("./a.txt", "")
        with rpc_refused(INVALID, "is outside the session's folders"):
            await served.write(str(tmp_path / "outside.txt"), "")
        with rpc_refused(INVALID, "is a directory"):
            await served.write("folder", "")
        with rpc_refused(INVALID, "a part of it is a file"):
            await served.write("file/a.txt", "")
        with rpc_refused(INTERNAL, "Denied: A permission rule forbids this"):
            await served.write("fixed.txt", "")
        assert (tmp_path / "outside.txt").read_text() == "outside"


async def test_a_protected_file_is_asked_about_although_edits_are_accepted(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "accept_edits") as served:
        (served.folder / ".git").mkdir()
        served.agent.files.expect([ev.FileDiff(path=str(served.folder / ".git/config"), old_text=None, new_text="x")])
        writing = asyncio.create_task(served.write(".git/config", "x"))
        asked = await served.desk.until_asked()
        await served.desk.deny(asked.call_id)
        with rpc_refused(INTERNAL, "Denied"):
            await writing
        assert not (served.folder / ".git/config").exists()


async def test_a_file_that_changed_since_the_question_is_not_overwritten(tmp_path: Path) -> None:
    async with served_agent(tmp_path) as served:
        path = served.folder / "a.txt"
        path.write_text("old")
        writing = asyncio.create_task(served.write("a.txt", "new"))
        asked = await served.desk.until_asked()
        path.write_text("changed by a person")
        await served.desk.approve(asked.call_id)
        with rpc_refused(INVALID, "is not what it was when this call was shown"):
            await writing
        assert path.read_text() == "changed by a person"


async def test_a_change_that_was_approved_on_the_agents_own_question_is_not_asked_about_again(tmp_path: Path) -> None:
    async with served_agent(tmp_path) as served:
        path = served.folder / "a.txt"
        path.write_text("one\ntwo\n")
        shown = str(path)
        served.agent.files.expect([ev.FileDiff(path=shown, old_text="one\ntwo\n", new_text="1\n2\n")])
        await served.write("a.txt", "1\n2\n")  # the whole file
        served.agent.files.expect([ev.FileDiff(path=shown, old_text="2\n", new_text="zwei\n")])
        await served.write("a.txt", "1\nzwei\n")  # a part of it
        assert path.read_text() == "1\nzwei\n"
        served.agent.files.expect([ev.FileDiff(path=shown, old_text="1\n", new_text="eins\n")])
        writing = asyncio.create_task(served.write("a.txt", "eins\nand more\n"))  # not what was shown
        asked = await served.desk.until_asked()
        await served.desk.deny(asked.call_id)
        with rpc_refused(INTERNAL, "Denied"):
            await writing
        await served.write("a.txt", "eins\nzwei\n")
        writing = asyncio.create_task(served.write("a.txt", "eins\nzwei\n"))  # an approval is used once
        await served.desk.deny((await served.desk.until_asked()).call_id)
        with rpc_refused(INTERNAL, "Denied"):
            await writing


async def test_a_write_that_the_log_cannot_hold_is_refused_and_the_run_continues(tmp_path: Path) -> None:
    async with served_agent(tmp_path) as served:
        with rpc_refused(INVALID, "bytes"):
            await served.write("a.txt", "x" * 40_000_000)
        writing = asyncio.create_task(served.write("a.txt", "x"))
        await served.desk.approve((await served.desk.until_asked()).call_id)
        await writing


async def test_a_cancelled_request_withdraws_its_question(tmp_path: Path) -> None:
    async with served_agent(tmp_path) as served:
        writing = asyncio.create_task(served.write("a.txt", "new"))
        asked = await served.desk.until_asked()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        decided = await served.desk.until(lambda logged: isinstance(logged.event, ev.ApprovalDecided))
        assert decided.event == ev.ApprovalDecided(
            call_id=asked.call_id, decision="deny_continue", by="agent", reason="The call is no longer wanted."
        )
        with pytest.raises(SessionRefused, match="does not wait"):
            await served.desk.approve(asked.call_id)
        assert not (served.folder / "a.txt").exists()


async def test_makais_own_state_in_the_sessions_folder_is_not_there_for_the_agent(tmp_path: Path) -> None:
    (tmp_path / "project").symlink_to(tmp_path, target_is_directory=True)  # makai-home lies in the session's folder
    async with served_agent(tmp_path, "never_ask", permissions="allow = []") as served:
        with rpc_refused(MISSING, "does not exist"):
            await served.read(str(tmp_path / "makai-home/config.toml"))
        with rpc_refused(MISSING, "does not exist"):
            await served.write(str(tmp_path / "makai-home/config.toml"), "")


async def test_between_two_runs_files_are_read_and_not_written(tmp_path: Path) -> None:
    async with served_agent(tmp_path, permissions='allow = ["Edit(notes.txt)"]') as served:
        served.agent.calls.end()
        (served.folder / "a.txt").write_text("a")
        assert await served.read("a.txt") == "a"
        with rpc_refused(INTERNAL, "between two prompts"):
            await served.write("a.txt", "b")
        await served.write("notes.txt", "b")
        assert (served.folder / "notes.txt").read_text() == "b"
