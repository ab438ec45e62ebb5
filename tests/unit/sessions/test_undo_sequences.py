"""Undo over generated work: the folder is as before the message, or the undo is refused and nothing changed."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.file_work import HARNESS, FileWorker, Tree, Work, foreign, message, tree
from support.live_sessions import Desk, owned_sessions
from support.profiles import examples

from makai.core.errors import SessionRefused
from makai.core.session_events import RestoreDirection
from makai.sessions.commands import RestoreFiles
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession, GetSessionDiff, PreviewRestore

PATHS = st.sampled_from(["a", "b", "d/x", "d/e/y", "n/m/z", "binary"])
TEXTS = st.sampled_from(["", "one\n", "two\r\nlines", "drei ü\n", "line\n" * 40])
BY_TOOLS = st.builds(Work, st.sampled_from(["write", "write", "edit", "delete", "move"]), PATHS, TEXTS, PATHS)
BY_OTHERS = st.builds(
    Work, st.sampled_from(["foreign", "foreign_delete", "chmod", "link", "command"]), PATHS, TEXTS, PATHS
)
CLEAN = st.lists(st.lists(BY_TOOLS, min_size=1, max_size=5), min_size=1, max_size=3)
MIXED = st.lists(st.lists(BY_TOOLS | BY_TOOLS | BY_OTHERS, min_size=1, max_size=5), min_size=1, max_size=3)


def start(folder: Path) -> None:
    (folder / "d").mkdir(parents=True)
    (folder / "a").write_text("a\n", encoding="utf-8")
    (folder / "a").chmod(0o755)
    (folder / "d/x").write_text("x\r\n", encoding="utf-8", newline="")
    (folder / "binary").write_bytes(b"\xff\x00\xfe")


def as_before(now: Tree, steps: list[tuple[Tree, tuple[str, ...]]]) -> Tree:
    """The folder as it is, but each file that a tool changed as it was just before its first change. Folders that were
    not there then are gone, unless something else is in them."""
    before: dict[str, tuple[str, int, bytes] | None] = {}
    made: set[str] = set()
    for earlier, paths in steps:
        for path in paths:
            before.setdefault(path, earlier.get(path))
            made |= {str(above) for above in Path(path).parents} - earlier.keys() - {"."}
    wanted = {path: entry for path, entry in now.items() if path not in before}
    wanted |= {path: entry for path, entry in before.items() if entry is not None}
    for folder in sorted(made, reverse=True):
        if folder in wanted and not any(path.startswith(f"{folder}/") for path in wanted):
            del wanted[folder]
    return wanted


def files(entries: Tree, without: set[str]) -> Tree:
    return {path: entry for path, entry in entries.items() if entry[0] == "file" and path not in without}


class Trial:
    def __init__(self, desk: Desk, worker: FileWorker, folder: Path) -> None:
        self.desk, self.worker, self.folder = desk, worker, folder

    async def restore(self, direction: RestoreDirection, count: int = 1, paths: tuple[str, ...] = ()) -> str:
        """Restore what a preview showed; why not, when it was refused. Files that it does not name stay as they are."""
        before = tree(self.folder)
        try:
            plan = await self.desk.sessions.dispatch(
                PreviewRestore(self.desk.session_id, direction, count, paths=paths)
            )
        except SessionRefused as refusal:
            assert tree(self.folder) == before
            return refusal.message
        assert tree(self.folder) == before
        assert not paths or {file.path for file in plan.files} == {f"{self.folder}/{path}" for path in paths}
        command = RestoreFiles(now=0, direction=direction, count=count, paths=paths, plan_id=plan.plan_id)
        try:
            await self.desk.do(command)
        except SessionRefused as refusal:
            assert plan.is_refused
            assert tree(self.folder) == before
            return refusal.message
        assert not plan.is_refused
        named = {str(Path(file.path).relative_to(self.folder)) for file in plan.files}
        assert files(tree(self.folder), named) == files(before, named)
        return ""


def tried(messages: list[list[Work]], count: int, later: Work | None, *, is_clean: bool) -> None:
    with tempfile.TemporaryDirectory() as given_folder:
        root = Path(given_folder).resolve()
        start(root / "work")
        asyncio.run(worked(root, messages, count, later, is_clean=is_clean))


async def worked(root: Path, messages: list[list[Work]], count: int, later: Work | None, *, is_clean: bool) -> None:
    folder, worker = root / "work", FileWorker()
    async with owned_sessions(root, "say: hi\n", MemoryLog(), harnesses=[worker]) as sessions:
        wanted = CreateSession(model_ref="", harness=HARNESS, cwd=str(folder))
        desk = Desk(sessions, await sessions.dispatch(wanted))
        trees: list[tuple[Tree, int]] = []
        for work in messages:
            known = len(worker.steps)
            before = tree(folder)
            await desk.run(message(work))
            if len(worker.steps) > known:
                trees.append((before, known))
        if later is not None:
            foreign(folder, later)
        await check(Trial(desk, worker, folder), trees, count, is_clean=is_clean)


async def check(trial: Trial, trees: list[tuple[Tree, int]], count: int, *, is_clean: bool) -> None:
    now = tree(trial.folder)
    refusal = await trial.restore("undo", count)
    if not trees:
        assert refusal == "There are no file changes to undo."
        return
    earliest, first = trees[-count:][0]
    if refusal:
        assert tree(trial.folder) == now
        assert not is_clean or "not UTF-8 text" in refusal, refusal  # the binary file, by whatever name it had then
        return
    assert tree(trial.folder) == as_before(now, trial.worker.steps[first:])
    if is_clean:
        assert tree(trial.folder) == earliest
    assert await trial.restore("redo") == ""
    assert tree(trial.folder) == now
    assert await trial.restore("redo") == "There are no file changes to redo."


@pytest.mark.timeout(1800)
@example(messages=[[Work("move", "binary", "", "b")], [Work("write", "b", "")]], count=1)
@examples(25)
@given(messages=CLEAN, count=st.integers(1, 3))
def test_undo_brings_the_folder_back_to_before_the_message_and_redo_forward_again(
    messages: list[list[Work]], count: int
) -> None:
    tried(messages, count, None, is_clean=True)


@pytest.mark.timeout(1800)
@example(messages=[[Work("write", "n/m/z", "z"), Work("delete", "n/m/z")]], count=1, later=None)
@examples(25)
@given(messages=MIXED, count=st.integers(1, 3), later=st.none() | BY_OTHERS)
def test_undo_after_foreign_changes_restores_what_tools_changed_or_changes_nothing(
    messages: list[list[Work]], count: int, later: Work | None
) -> None:
    tried(messages, count, later, is_clean=False)


Step: TypeAlias = list[Work] | tuple[RestoreDirection, int, tuple[str, ...]]
SOME_PATHS = st.sampled_from(["a", "b", "d/x", "d/e/y", "n/m/z", "n/k"])
KEPT = st.builds(Work, st.sampled_from(["write", "write", "edit", "delete"]), SOME_PATHS, TEXTS)
RESTORES = st.tuples(
    st.sampled_from(["undo", "redo"]), st.integers(1, 2), st.lists(SOME_PATHS, max_size=2, unique=True).map(tuple)
)
STEPS = st.lists(st.lists(KEPT, min_size=1, max_size=4) | RESTORES | RESTORES, min_size=2, max_size=9)


async def mixed(root: Path, steps: list[Step]) -> None:
    folder, worker = root / "work", FileWorker()
    initial = tree(folder)
    async with owned_sessions(root, "say: hi\n", MemoryLog(), harnesses=[worker]) as sessions:
        wanted = CreateSession(model_ref="", harness=HARNESS, cwd=str(folder))
        trial = Trial(Desk(sessions, await sessions.dispatch(wanted)), worker, folder)
        for step in steps:
            if isinstance(step, list):
                await trial.desk.run(message(step))
                continue
            direction, count, paths = step
            before = tree(folder)
            if await trial.restore(direction, count, paths) == "" and direction == "undo":
                restored = tree(folder)
                assert await trial.restore("redo", 1, paths) == ""
                assert tree(folder) == before
                assert await trial.restore("undo", count, paths) == ""
                assert tree(folder) == restored
        diffs = {diff.path: diff for diff in await sessions.dispatch(GetSessionDiff(trial.desk.session_id))}
        changed = files(initial, set()).items() ^ files(tree(folder), set()).items()
        assert diffs.keys() == {f"{folder}/{path}" for path, _ in changed}
        assert await trial.restore("undo", 100) in ("", "There are no file changes to undo.")
        assert tree(folder) == initial


@pytest.mark.timeout(1800)
@example(
    steps=[[Work("write", "n/m/z", "1"), Work("write", "n/k", "2")], ("undo", 1, ("n/m/z",)), [Work("write", "b")]]
)
@examples(25)
@given(steps=STEPS)
def test_whatever_was_undone_and_redone_file_by_file_undoing_the_rest_brings_the_folder_back(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as given_folder:
        root = Path(given_folder).resolve()
        start(root / "work")
        asyncio.run(mixed(root, steps))
