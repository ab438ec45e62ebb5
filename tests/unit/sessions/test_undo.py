"""Undo, redo and diff of a session: previews, refusals, what the log and the agent learn, crashes."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.file_work import HARNESS, FileWorker, Work, message, tree
from support.live_sessions import SCENARIO_MODEL, Desk, decoded, owned_sessions
from support.profiles import FAULTS
from support.undo_child import FILES

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import SessionRefused
from makai.core.messages import UserMessage
from makai.sessions.commands import RestoreFiles, Send
from makai.sessions.conversation import conversation
from makai.sessions.file_changes import BETWEEN, CLAIMED, NOT_KEPT
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import (
    CreateSession,
    FileRestorePlan,
    GetSessionDiff,
    GetState,
    PreviewRestore,
    ReadEvents,
    RestorePlan,
)
from makai.sessions.undo import CHANGED, INTERRUPTED
from makai.tools.edit import MAX_DIFF_BYTES, content_digest
from makai.tools.restoring import RestorableFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a").write_text("one\ntwo\n")
    (work / "a").chmod(0o750)
    return work


class Lab:
    def __init__(self, desk: Desk, worker: FileWorker, log: MemoryLog) -> None:
        self.desk, self.worker, self.log = desk, worker, log

    async def work(self, *work: Work, title: str = "work") -> None:
        await self.desk.run(message(list(work), title))

    async def plan(self, direction: ev.RestoreDirection = "undo", *paths: str, with_diffs: bool = False) -> RestorePlan:
        wanted = PreviewRestore(self.desk.session_id, direction, paths=paths, with_diffs=with_diffs)
        return await self.desk.sessions.dispatch(wanted)

    async def undo(self, *paths: str, count: int = 1, to: int | None = None) -> None:
        await self.desk.do(RestoreFiles(now=0, count=count, to=to, paths=paths))

    async def redo(self, *paths: str) -> None:
        await self.desk.do(RestoreFiles(now=0, direction="redo", paths=paths))

    async def logged(self) -> list[ev.Logged]:
        return decoded(await self.desk.sessions.dispatch(ReadEvents(self.desk.session_id)))

    async def refusal(self) -> str:
        """Why an undo is refused; the folder is the same before and after."""
        state = await self.desk.sessions.dispatch(GetState(self.desk.session_id))
        before = tree(Path(state.cwd or ""))
        with pytest.raises(SessionRefused) as refused:
            await self.undo()
        assert tree(Path(state.cwd or "")) == before
        assert (await self.desk.sessions.dispatch(GetState(self.desk.session_id))).last_event_id == state.last_event_id
        return refused.value.message


@asynccontextmanager
async def lab(folder: Path, log: MemoryLog | None = None) -> AsyncIterator[Lab]:
    worker, log = FileWorker(), log or MemoryLog()
    async with owned_sessions(folder.parent, "say: hi\n", log, harnesses=[worker]) as sessions:
        wanted = CreateSession(model_ref="", harness=HARNESS, cwd=str(folder))
        yield Lab(Desk(sessions, await sessions.dispatch(wanted)), worker, log)


async def test_a_preview_lists_every_file_and_changes_nothing(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "one\n2\n3\n"), Work("write", "new/deep/b", "b\n"), Work("delete", "a"))
        before = tree(folder)
        plan = await session.plan()

    assert tree(folder) == before
    assert plan == RestorePlan(
        direction="undo",
        message=4,
        text="work",
        files=(
            FileRestorePlan(path=f"{folder}/a", kind="create", added=2),
            FileRestorePlan(path=f"{folder}/new/deep/b", kind="remove", removed=1),
        ),
        plan_id=plan.plan_id,
    )


async def test_undo_restores_content_and_mode_and_removes_what_was_made(folder: Path) -> None:
    before = tree(folder)
    async with lab(folder) as session:
        await session.work(Work("write", "a", "new\n"), Work("write", "new/deep/b", "b\n"))
        after = tree(folder)
        await session.undo()
        undone = tree(folder)
        await session.redo()
        facts = [logged.event for logged in await session.logged()]

    assert stat.S_IMODE(before["a"][1]) == 0o750
    assert (undone, tree(folder)) == (before, after)
    restored = [fact for fact in facts if isinstance(fact, ev.FilesRestored)]
    assert [(fact.direction, [(file.kind, file.outcome) for file in fact.files]) for fact in restored] == [
        ("undo", [("change", "restored"), ("remove", "restored")]),
        ("redo", [("change", "restored"), ("create", "restored")]),
    ]
    assert [fact.message for fact in facts if isinstance(fact, ev.Notice)] == [
        f"Undid the changes of {folder}/a (restored), {folder}/new/deep/b (removed).",
        f"Redid the changes of {folder}/a (restored), {folder}/new/deep/b (made again).",
    ]


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (Work("foreign", "a", "mine\n"), CHANGED),
        (Work("chmod", "a"), CHANGED),
        (Work("foreign_delete", "a"), CHANGED),
        (Work("link", "a"), "leads through a link that cannot be followed"),
    ],
)
async def test_undo_is_refused_when_a_file_is_another_one_now(folder: Path, later: Work, why: str) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "new\n"), Work("write", "b", "b\n"), later)
        refusal = await session.refusal()
        plan = await session.plan()

    assert refusal.startswith(f"Nothing was undone. {folder}/a: ")
    assert why in refusal
    assert [bool(file.refusal) for file in plan.files] == [True, False]


async def test_undo_is_refused_when_something_else_changed_a_file_between_two_edits(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "1\n"), Work("command", "a", "2\n"), Work("edit", "a", "3\n"))
        refusal = await session.refusal()

    assert refusal == f"Nothing was undone. {folder}/a: {BETWEEN}."


@pytest.mark.parametrize("old", [b"\xff\x00", b"x" * (MAX_DIFF_BYTES + 1)], ids=["binary", "large"])
async def test_what_was_not_kept_is_not_undone(folder: Path, old: bytes) -> None:
    (folder / "a").write_bytes(old)
    async with lab(folder) as session:
        await session.work(Work("write", "a", "text\n"))
        refusal = await session.refusal()
        versions = [
            logged.event.file_versions for logged in await session.logged() if isinstance(logged.event, ev.ToolFinished)
        ]

    assert refusal == f"Nothing was undone. {folder}/a: {NOT_KEPT}."
    assert versions[0][0].old_digest == content_digest(old)


async def test_undo_is_refused_outside_of_the_folders_of_the_session(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("claim", "../outside", "new\n"))
        refusal = await session.refusal()

    assert "is outside the session's folders" in refusal
    assert (folder.parent / "outside").read_text() == "new\n"


async def test_what_commands_changed_is_named_and_stays(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "new\n"), Work("command", "made", "by a command\n"))
        plan = await session.plan()
        await session.undo()

    assert plan.notes == ("What commands changed is not undone: `command made`.",)
    assert ((folder / "a").read_text(), (folder / "made").read_text()) == ("one\ntwo\n", "by a command\n")


async def test_commands_that_could_only_look_are_not_named(folder: Path) -> None:
    script = """say: I write.
tool: write {"path": "a", "content": "new\\n"}
tool: shell {"command": "ls"}
tool: shell {"command": "touch made"}
---
say: Done."""
    async with owned_sessions(folder.parent, script) as sessions:
        terms = ev.SessionTerms(builtin_tools=True)
        wanted = CreateSession(model_ref=SCENARIO_MODEL, mode="accept_edits", cwd=str(folder), terms=terms)
        desk = Desk(sessions, await sessions.dispatch(wanted))
        await desk.send("go")
        await desk.approve((await desk.until_asked()).call_id)
        await desk.until_settled()
        plan = await sessions.dispatch(PreviewRestore(desk.session_id))

    assert plan.notes == ("What commands changed is not undone: `touch made`.",)


async def test_undo_goes_back_over_messages_one_by_one_or_to_a_named_one(folder: Path) -> None:
    async with lab(folder) as session:
        for text in ("1\n", "2\n", "3\n"):
            await session.work(Work("write", "a", text))
        await session.work(title="only words")
        messages = [logged.event_id for logged in await session.logged() if isinstance(logged.event, ev.UserInput)]
        await session.undo()
        assert (folder / "a").read_text() == "2\n"
        await session.undo(to=messages[0])
        assert (folder / "a").read_text() == "one\ntwo\n"
        await session.redo()
        assert (folder / "a").read_text() == "2\n"
        await session.redo()
        assert (folder / "a").read_text() == "3\n"
        await session.undo(count=2)
        assert (folder / "a").read_text() == "1\n"
        with pytest.raises(SessionRefused, match="Event 2 is not a message of this session"):
            await session.undo(to=2)


async def test_only_the_named_files_are_undone_and_redone(folder: Path) -> None:
    start = tree(folder)
    async with lab(folder) as session:
        await session.work(Work("write", "a", "1\n"), Work("write", "new/b", "b\n"), Work("write", "new/c", "c\n"))
        worked = tree(folder)
        plan = await session.plan("undo", "new/b", with_diffs=True)
        assert plan.files == (FileRestorePlan(path=f"{folder}/new/b", kind="remove", removed=1),)
        assert plan.diffs == (ev.FileDiff(path=f"{folder}/new/b", old_text="b\n", new_text=""),)
        await session.desk.do(RestoreFiles(now=0, paths=("new/b",), plan_id=plan.plan_id))
        without_b = {name: entry for name, entry in worked.items() if name != "new/b"}
        assert tree(folder) == without_b
        await session.undo(f"{folder}/a")
        await session.redo("new/./b")
        assert tree(folder) == worked | {"a": start["a"]}
        await session.undo("new/b")
        await session.undo()
        assert tree(folder) == start
        await session.redo("a", "new/b", "new/c")
        assert tree(folder) == worked
        found = [
            [file.path.removeprefix(f"{folder}/") for file in logged.event.files]
            for logged in await session.logged()
            if isinstance(logged.event, ev.FilesRestored)
        ]

    assert found == [["new/b"], ["a"], ["new/b"], ["new/b"], ["new/c"], ["a", "new/b", "new/c"]]


async def test_a_file_that_was_changed_since_does_not_stop_the_undo_of_others(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "1\n"), Work("write", "b", "b\n"), Work("foreign", "b", "mine\n"))
        await session.undo("a")

    assert ((folder / "a").read_text(), (folder / "b").read_text()) == ("one\ntwo\n", "mine\n")


@pytest.mark.parametrize("direction", ["undo", "redo"])
async def test_a_file_that_was_not_changed_is_refused_with_those_that_were(
    folder: Path, direction: ev.RestoreDirection
) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "1\n"), Work("write", "b", "b\n"))
        if direction == "redo":
            await session.undo()
        before = tree(folder)
        with pytest.raises(SessionRefused) as refused:
            await session.plan(direction, "a", "../../etc/passwd")

    assert tree(folder) == before
    outside = folder.parent.parent / "etc/passwd"
    named = f"There is nothing to {direction} in {outside}. The files are: `{folder}/a`, `{folder}/b`."
    assert (refused.value.code, refused.value.message) == ("BAD_ARGUMENT", named)


async def test_nothing_is_redone_after_a_new_change(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "1\n"))
        await session.undo()
        await session.work(Work("write", "b", "b\n"))
        with pytest.raises(SessionRefused, match="There are no file changes to redo"):
            await session.redo()


async def test_a_plan_that_is_not_the_one_that_was_shown_is_not_carried_out(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "1\n"))
        seen = await session.plan()
        await session.work(Work("write", "b", "b\n"))
        with pytest.raises(SessionRefused, match="is not what you were shown"):
            await session.desk.do(RestoreFiles(now=0, plan_id=seen.plan_id))

    assert (folder / "b").exists()


async def test_no_file_is_restored_while_a_run_is_active(folder: Path) -> None:
    worker = FileWorker()
    async with owned_sessions(folder.parent, "wait: 60\nsay: hi\n", harnesses=[worker]) as sessions:
        desk = Desk(sessions, await sessions.dispatch(CreateSession(model_ref=SCENARIO_MODEL, cwd=str(folder))))
        await desk.send("go")
        with pytest.raises(SessionRefused) as refused:
            await desk.do(RestoreFiles(now=0))

    assert refused.value.code == "BUSY"


async def test_the_whole_change_of_an_external_agent_is_undone_and_a_part_is_not(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("claim", "a", "new\n"))
        await session.undo()
        assert (folder / "a").read_text() == "one\ntwo\n"
        await session.redo()
        (folder / "a").write_text("new\nand more\n")
        refusal = await session.refusal()

    assert refusal == f"Nothing was undone. {folder}/a: {CLAIMED}."
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o750


async def test_the_agent_learns_what_was_undone_with_the_next_message(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "new\n"), title="first")
        await session.undo()
        await session.work(title="second")
        await session.work(title="third")
        told = (await conversation(session.log, session.desk.session_id)).messages()

    note = (
        f"[The user undid file changes that you made: {folder}/a (has its earlier content). Read these files again "
        "before you rely on what is in them.]"
    )
    assert session.worker.heard == ["first", note, "second", "third"]
    said = [one.content for one in told if isinstance(one, UserMessage)]
    assert said[1] == (Text(text=note), Text(text="second\n[]"))
    assert said[2] == "third\n[]"


async def test_the_diff_of_a_session_is_from_before_the_first_change_to_after_the_last(folder: Path) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "1\n"), Work("write", "a", "2\n"), Work("write", "b", "b\n"))
        await session.work(Work("write", "c", "c\n"))
        await session.undo()
        found = await session.desk.sessions.dispatch(GetSessionDiff(session.desk.session_id))

    assert found == [
        ev.FileDiff(path=f"{folder}/a", old_text="one\ntwo\n", new_text="2\n"),
        ev.FileDiff(path=f"{folder}/b", old_text=None, new_text="b\n"),
    ]


async def test_a_failing_write_takes_back_what_was_written_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab(folder) as session:
        await session.work(Work("write", "a", "1\n"), Work("write", "new/b", "b\n"), Work("write", "c", "c\n"))
        before = tree(folder)
        real = RestorableFiles._put
        failures = iter([None, None, OSError(28, "No space left on device")])

        def put(self: RestorableFiles, *arguments: object) -> None:
            real(self, *arguments)  # type: ignore[arg-type]
            if (failure := next(failures, None)) is not None:
                raise failure

        monkeypatch.setattr(RestorableFiles, "_put", put)
        with pytest.raises(SessionRefused, match=r"No space left on device\. What was restored before was taken back"):
            await session.undo()
        monkeypatch.undo()
        assert tree(folder) == before
        (fact,) = [logged.event for logged in await session.logged() if isinstance(logged.event, ev.FilesRestored)]
        assert [file.outcome for file in fact.files] == ["unchanged"] * 3
        await session.undo()

    assert tree(folder) == {"a": ("file", 0o750, b"one\ntwo\n")}


async def test_no_message_is_taken_while_files_are_restored_and_a_restart_says_how_they_are(folder: Path) -> None:
    log = MemoryLog()
    async with lab(folder, log) as session:
        await session.work(Work("write", "a", "1\n"), Work("write", "b", "b\n"))
        plan = await session.plan()
        owner = session.desk.sessions
        live = await owner._session(session.desk.session_id)  # type: ignore[attr-defined]
        prepared = await owner._undo._prepare(live, RestoreFiles(now=0))  # type: ignore[attr-defined]
        begin = RestoreFiles(now=0, message=plan.message, events=prepared.events, files=prepared.files)
        await live.submit(begin)
        with pytest.raises(SessionRefused, match="Files of this session are being restored"):
            await live.submit(Send(now=0, input_id="i", content="hello"))
        (folder / "b").unlink()  # as far as the undo came
        session_id = session.desk.session_id
    async with owned_sessions(folder.parent, "say: hi\n", MemoryLog(log), harnesses=[FileWorker()]) as sessions:
        desk = Desk(sessions, session_id)
        state = await sessions.dispatch(GetState(session_id))
        assert state.restoring is None
        await desk.do(RestoreFiles(now=0))
        events = [
            logged.event
            for logged in decoded(await sessions.dispatch(ReadEvents(session_id)))
            if isinstance(logged.event, ev.FilesRestored)
        ]

    assert [(fact.problem, [file.outcome for file in fact.files]) for fact in events] == [
        (INTERRUPTED, ["unchanged", "restored"]),
        ("", ["restored"]),
    ]
    assert tree(folder) == {"a": ("file", 0o750, b"one\ntwo\n")}


@pytest.mark.scaled
@pytest.mark.parametrize("trial", range(10 if FAULTS else 2))
async def test_after_a_kill_in_the_middle_of_an_undo_the_log_says_how_each_file_is(tmp_path: Path, trial: int) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(0, FILES, 2):
        (folder / f"f{number}").write_text(f"old {number}\n")
    before = tree(folder)
    session_id = await asyncio.to_thread(_killed_child, tmp_path, folder, FILES * 3 // 4 - trial)
    found = tree(folder)
    async with owned_sessions(tmp_path, "say: hi\n", harnesses=[FileWorker()]) as sessions:
        await sessions.dispatch(GetState(session_id))
        facts = [
            logged.event
            for logged in decoded(await sessions.dispatch(ReadEvents(session_id, limit=10_000)))
            if isinstance(logged.event, ev.FilesRestored)
        ]
        (fact,) = facts
        for file in fact.files:
            name = Path(file.path).name
            is_before = found.get(name) == before.get(name)
            assert is_before or found[name][2] == f"new {name[1:]}\n".encode()
            assert file.outcome == ("restored" if is_before else "unchanged")
        if any(file.outcome == "unchanged" for file in fact.files):
            await Desk(sessions, session_id).do(RestoreFiles(now=0))

    assert {name: entry for name, entry in tree(folder).items() if not name.startswith(".makai-")} == before


def _killed_child(root: Path, folder: Path, left: int) -> str:
    """Kill the child when so many new files are left, or as soon as that is seen; returns the session's id."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "support.undo_child", str(root)]
    environ = {**os.environ, "PYTHONPATH": path, "MAKAI_HOME": str(root / "makai-home")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as child:
        assert child.stdout is not None
        try:
            session_id = child.stdout.readline().strip()
            assert child.stdout.readline().strip() == "undoing"
            while child.poll() is None and len(os.listdir(folder)) > left:
                pass
        finally:
            child.send_signal(signal.SIGKILL)
    return session_id
