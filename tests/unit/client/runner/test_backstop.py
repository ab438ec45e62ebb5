"""What the backstop commits and publishes, with real repositories."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.fake_harness import git, make_repository

from makai.client.runner.backstop import (
    CommitStep,
    PublishStep,
    backstop_report,
    commit_leftovers,
    is_excluded,
    publish,
    refuse_protected,
)
from makai.client.runner.commands import Git
from makai.core.errors import InvalidRequest
from makai.harness.contract.result import BackstopReport


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository on the branch of a run, with a remote."""
    folder = make_repository(tmp_path / "repo")
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    git(folder, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(folder, "checkout", "--quiet", "-b", "agent/x")
    return folder


@pytest.mark.parametrize(
    ("path", "excluded"),
    [
        ("src/a.py", False),
        ("a/node_modules/b/index.js", True),
        ("dist/x.js", True),
        ("src/dist.py", False),
        ("x/__pycache__/a.cpython-311.pyc", True),
        ("a.pyc", True),
        ("notes.log", True),
        ("__debug_bin123", True),
        ("rust/target/debug/x", True),
        ("target/release/x", True),
        ("target/x", False),
        (".agent/events.jsonl", True),
        ("sub/.agent/a", False),
        (".venv/bin/python", True),
    ],
)
def test_build_output_and_records_are_excluded(path: str, excluded: bool) -> None:
    assert is_excluded(path) is excluded


async def test_changed_new_and_removed_files_are_committed_without_build_output(work: Path) -> None:
    (work / "a.txt").write_text("changed\n", encoding="utf-8")
    (work / "sub/b.txt").unlink()
    for name in ("ü new.txt", "node_modules/x.js", "z.log", ".agent/events.jsonl"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("x", encoding="utf-8")

    step = await commit_leftovers(Git(work), "Finish\n\nmore")

    assert step == CommitStep(committed=True, files=3)
    named = git(work, "-c", "core.quotePath=false", "show", "--name-status", "--format=%s", "HEAD").splitlines()
    assert named == ["Finish", "", "M\ta.txt", "D\tsub/b.txt", "A\tü new.txt"]
    assert sorted(git(work, "status", "--porcelain").splitlines()) == ["?? .agent/", "?? node_modules/", "?? z.log"]


async def test_a_clean_tree_and_one_with_build_output_only_need_no_commit(work: Path) -> None:
    before = git(work, "rev-parse", "HEAD")
    assert await commit_leftovers(Git(work), "x") == CommitStep()
    (work / "z.log").write_text("x", encoding="utf-8")
    assert await commit_leftovers(Git(work), "x") == CommitStep()
    assert git(work, "rev-parse", "HEAD") == before


async def test_more_files_than_the_limit_are_left_for_a_person(work: Path) -> None:
    for number in range(4):
        (work / f"{number}.txt").write_text("x", encoding="utf-8")

    step = await commit_leftovers(Git(work), "x", max_files=3)

    assert step == CommitStep(problem="4 files changed, more than 3: look at them first")
    assert git(work, "diff", "--cached", "--name-only") == ""


async def test_many_excluded_files_are_unstaged_in_batches(work: Path) -> None:
    (work / "node_modules").mkdir()
    for number in range(250):
        (work / f"node_modules/{number}.js").write_text("x", encoding="utf-8")
    (work / "new.txt").write_text("x", encoding="utf-8")

    assert await commit_leftovers(Git(work), "x") == CommitStep(committed=True, files=1)


@pytest.mark.parametrize("branch", ["main", "master"])
async def test_nothing_is_committed_or_pushed_on_a_protected_branch(work: Path, branch: str) -> None:
    git(work, "checkout", "--quiet", "-B", branch)
    (work / "a.txt").write_text("changed\n", encoding="utf-8")

    assert (await commit_leftovers(Git(work), "x")).problem.startswith(f"the worktree is on {branch}")
    published = await publish(Git(work), remote="origin", pull_request=False, title="t", body="b")
    assert published == PublishStep(problems=(f"the worktree is on {branch}, which is never pushed",))
    with pytest.raises(InvalidRequest, match=f"do not work on {branch}"):
        refuse_protected(branch)


async def test_hooks_of_the_repository_do_not_run(work: Path, tmp_path: Path) -> None:
    for name in ("pre-commit", "commit-msg", "post-commit", "pre-push"):
        hook = work / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n", encoding="utf-8")
        hook.chmod(0o755)
    (work / "a.txt").write_text("changed\n", encoding="utf-8")

    assert (await commit_leftovers(Git(work), "x")).committed
    assert (await publish(Git(work), remote="origin", pull_request=False, title="t", body="b")).pushed
    assert not (tmp_path / "ran").exists()


async def test_a_branch_is_pushed_again_after_it_was_rewritten(work: Path, tmp_path: Path) -> None:
    assert await publish(Git(work), remote="origin", pull_request=False, title="t", body="b") == PublishStep(
        pushed=True
    )
    git(work, "commit", "--quiet", "--amend", "-m", "other")
    assert await publish(Git(work), remote="origin", pull_request=False, title="t", body="b") == PublishStep(
        pushed=True
    )

    assert git(tmp_path / "remote.git", "log", "-1", "--format=%s", "agent/x") == "other"


async def test_a_missing_remote_and_one_that_fails_are_reported(work: Path) -> None:
    async def problems(remote: str) -> tuple[str, ...]:
        return (await publish(Git(work), remote=remote, pull_request=False, title="t", body="b")).problems

    assert await problems("upstream") == ("there is no remote 'upstream' to push to",)
    git(work, "remote", "add", "gone", "/nowhere/at/all.git")
    (problem,) = await problems("gone")
    assert problem.startswith("git push failed: ")


async def test_a_pull_request_needs_gh_and_its_url_is_what_gh_prints(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def published() -> PublishStep:
        return await publish(Git(work), remote="origin", pull_request=True, title="t", body="b")

    gh = tmp_path / "bin/gh"
    gh.parent.mkdir()
    (gh.parent / "git").symlink_to(shutil.which("git") or "")
    (work / "gh").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")  # by the agent
    (work / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f":{work}:{gh.parent}")
    assert await published() == PublishStep(
        pushed=True, problems=("gh is not installed, so no pull request was opened",)
    )
    assert not (tmp_path / "ran").exists()
    gh.write_text('#!/bin/sh\necho "Creating"\necho "https://github.com/o/r/pull/5"\n', encoding="utf-8")
    gh.chmod(0o755)
    assert await published() == PublishStep(pushed=True, pr_created=True, pr_url="https://github.com/o/r/pull/5")
    gh.write_text("#!/bin/sh\necho 'not logged in' >&2\nexit 4\n", encoding="utf-8")
    assert await published() == PublishStep(pushed=True, problems=("gh pr create failed: not logged in",))


@pytest.mark.req("DM-RES-003")
def test_the_report_says_what_happened_and_what_is_left_to_do() -> None:
    assert backstop_report(CommitStep(), None, unfilled=()) == BackstopReport(triggered=False)
    assert backstop_report(CommitStep(committed=True, files=2), None, unfilled=["work_result"]) == BackstopReport(
        triggered=True,
        unfilled_fields=("work_result",),
        diagnostics="Committed 2 files that the agent had left uncommitted.",
    )
    pushed = PublishStep(pushed=True, problems=("gh is not installed",))
    assert backstop_report(CommitStep(problem="too many files"), pushed, unfilled=()) == BackstopReport(
        triggered=True, pushed=True, diagnostics="Nothing was committed: too many files. Gh is not installed."
    )
