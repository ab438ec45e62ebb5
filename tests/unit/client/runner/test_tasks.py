"""The file of tasks, and runs side by side."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.fake_harness import DONE, INIT, FakeHarness, Step, git, make_repository, writes

from makai.client.runner.run import RunnerOptions, run_in_worktree
from makai.client.runner.tasks import RunTask, read_tasks, run_side_by_side
from makai.core.errors import InvalidRequest, SpawnFailed
from makai.harness.contract.result import Result
from makai.harness.contract.spec import Spec

OK = Result(status="completed", provider_name="fake")


def written(folder: Path, text: str) -> Path:
    path = folder / "tasks.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_settings_of_the_file_hold_for_tasks_that_leave_them_out(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'harness = "codex"\nmax-usd = 2.5\n[[task]]\nprompt = "one"\n'
        '[[task]]\nname = "b"\nprompt = "two"\nharness = "stub"\nmax-usd = 1\nmax-turns = 3\nbranch = "x"\n',
    )

    assert read_tasks(path) == (
        RunTask(name="task-1", prompt="one", harness="codex", max_usd=2.5),
        RunTask(name="b", prompt="two", harness="stub", max_usd=1.0, max_turns=3, branch="x"),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "0 tasks"),
        ("[[task]", "not a file of tasks"),
        ("harness = 3\n[[task]]\nprompt='x'", r"\$.harness"),
        ("[[task]]\nprompt='x'\nprice=1", "price"),
        ("[[task]]\nname='a'", "a has no prompt"),
        ("[[task]]\nname='a'\nprompt='x'\n[[task]]\nname='a'\nprompt='y'", "the name a occurs 2 times"),
        ("[[task]]\nprompt='x'\nbranch='b'\n[[task]]\nprompt='y'\nbranch='b'", "2 tasks name the branch b"),
        ("[[task]]\nprompt='x'\nmax-usd=0", "greater than zero"),
        ("[[task]]\nprompt='x'\nmax-usd=nan", "greater than zero"),
        ("[[task]]\nprompt='x'\nmax-turns=-1", "greater than zero"),
        ("[[task]]\nprompt='x'\neffort='huge'", "huge"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong_and_an_example(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem) as refused:
        read_tasks(written(tmp_path, text))

    assert "[[task]]" in str(refused.value.hint)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_tasks(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match="not a file of tasks"):
        read_tasks(tmp_path / "b.toml")


async def test_no_more_than_the_given_number_run_at_once_and_a_failure_stays_alone() -> None:
    active, peak = 0, 0
    everyone = asyncio.Barrier(2)

    async def start(task: RunTask) -> Result:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await everyone.wait()
        active -= 1
        if task.name == "2":
            raise SpawnFailed("no")
        return OK

    tasks = [RunTask(name=str(number), prompt="x", harness="h") for number in range(4)]
    finished: list[str] = []

    results = await run_side_by_side(
        tasks, start, at_once=2, stop=asyncio.Event(), done=lambda task, _: finished.append(task.name)
    )

    assert peak == 2
    assert sorted(finished) == list(results) == ["0", "1", "2", "3"]
    assert [results[name].status for name in results] == ["completed", "completed", "failed", "completed"]
    assert results["2"].error == "no"


async def test_tasks_that_did_not_begin_are_stopped_with_the_others() -> None:
    stop = asyncio.Event()

    async def start(task: RunTask) -> Result:
        stop.set()
        return OK

    tasks = [RunTask(name=str(number), prompt="x", harness="claude-code") for number in range(3)]
    results = await run_side_by_side(tasks, start, at_once=1, stop=stop, done=lambda *_: None)

    stopped = Result(status="stopped", provider_name="claude", failure_mode="operator-cancelled")
    assert results == {"0": OK, "1": stopped, "2": stopped}


async def test_five_worktrees_of_one_repository_at_the_same_time(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo")
    script: list[Step] = [INIT, writes("new.txt"), DONE]
    harness = FakeHarness(*[script] * 5)
    making = asyncio.Lock()

    async def start(task: RunTask) -> Result:
        options = RunnerOptions(name=task.name, backstop=True)
        return await run_in_worktree(harness, Spec(prompt="x", cwd=str(repository)), options, making=making)

    tasks = [RunTask(name=f"t{number}", prompt="x") for number in range(5)]
    results = await run_side_by_side(tasks, start, at_once=5, stop=asyncio.Event(), done=lambda *_: None)

    assert [result.status for result in results.values()] == ["completed"] * 5
    branches = git(repository, "branch", "--list", "agent/*", "--format=%(refname:short)").splitlines()
    assert [name.rpartition("-")[0] for name in branches] == [f"agent/t{number}" for number in range(5)]
    assert len({result.commit_sha for result in results.values()} | {git(repository, "rev-parse", "HEAD")}) >= 2
