"""Commits what an agent left uncommitted, and publishes the branch if the caller asked for it.

It never works on main or master, commits neither build output nor makai's own files, and stops when more files changed
than one task explains. Its report says what it did and what is left to do.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from makai.client.runner.commands import NOT_FOUND, Git, reason, run_trusted
from makai.client.runner.records import AGENT_FOLDER
from makai.core.errors import InvalidRequest
from makai.harness.contract.result import BackstopReport

MAX_FILES: Final = 200
PUSH_TIMEOUT_S: Final = 90.0
PROTECTED_BRANCHES: Final = frozenset({"main", "master"})
_BATCH: Final = 100
# fmt: off
_FOLDERS: Final = frozenset({
    "node_modules", ".next", ".nuxt", "dist", ".turbo", "__pycache__", ".venv", "go-build", ".gocache", "gocache",
    ".golangci-lint-cache", ".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache",
})
# fmt: on
_ENDINGS: Final = (".pyc", ".tmp", ".log")
_PREFIXES: Final = ("__debug_bin",)
_PAIRS: Final = frozenset({("target", "debug"), ("target", "release")})


def is_excluded(path: str) -> bool:
    """Whether a changed file is build output, a cache or a record of the run, which no commit should hold."""
    parts = path.strip("/").split("/")
    return (
        parts[0] == AGENT_FOLDER
        or not _FOLDERS.isdisjoint(parts)
        or parts[-1].endswith(_ENDINGS)
        or parts[-1].startswith(_PREFIXES)
        or any(pair in _PAIRS for pair in itertools.pairwise(parts))
    )


def refuse_protected(branch: str) -> None:
    """Raise `InvalidRequest` for a branch on which no agent works."""
    if branch in PROTECTED_BRANCHES:
        raise InvalidRequest(
            f"Agents do not work on {branch}.", hint="Use --worktree, which makes a branch agent/<id> for the run."
        )


class CommitStep(msgspec.Struct, frozen=True, kw_only=True):
    """What became of uncommitted work. `problem` says why it is still uncommitted."""

    committed: bool = False
    files: int = 0
    problem: str = ""


async def commit_leftovers(git: Git, message: str, *, max_files: int = MAX_FILES) -> CommitStep:
    """Commit all changes of the worktree except excluded ones."""
    if (branch := await git.branch()) in PROTECTED_BRANCHES or not branch:
        return CommitStep(problem=f"the worktree is on {branch or 'no branch'}, where nothing is committed")
    if not await _changed(git):
        return CommitStep()
    await git.text("add", "--all")
    staged = (await git.text("diff", "--cached", "--name-only", "--no-renames", "-z")).split("\0")
    excluded = [path for path in staged if path and is_excluded(path)]
    wanted = [path for path in staged if path and not is_excluded(path)]
    for batch in _batches(excluded):
        await git.text("reset", "--quiet", "HEAD", "--", *batch)
    if len(wanted) > max_files:
        await git.text("reset", "--quiet")
        return CommitStep(problem=f"{len(wanted)} files changed, more than {max_files}: look at them first")
    if not wanted:
        return CommitStep()
    committed = await git.run(*await _identity(git), "commit", "--quiet", "--no-verify", "-m", message)
    if not committed.ok:
        return CommitStep(files=len(wanted), problem=f"git commit failed: {reason(committed)}")
    return CommitStep(committed=True, files=len(wanted))


async def _changed(git: Git) -> bool:
    return bool(await git.text("status", "--porcelain", "-z"))


async def _identity(git: Git) -> tuple[str, ...]:
    """The user's own name, else makai's: a commit needs one."""
    if (await git.run("config", "user.email")).output.strip() and (await git.run("config", "user.name")).output.strip():
        return ()
    return ("-c", "user.name=makai", "-c", "user.email=makai@localhost")


def _batches(paths: Sequence[str]) -> list[Sequence[str]]:
    return [paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH)]


class PublishStep(msgspec.Struct, frozen=True, kw_only=True):
    pushed: bool = False
    pr_created: bool = False
    pr_url: str = ""
    problems: tuple[str, ...] = ()


async def publish(git: Git, *, remote: str, pull_request: bool, title: str, body: str) -> PublishStep:
    """Push the branch, and open a pull request with `gh` if that is wanted."""
    branch = await git.branch()
    if branch in PROTECTED_BRANCHES or not branch:
        return PublishStep(problems=(f"the worktree is on {branch or 'no branch'}, which is never pushed",))
    if remote not in (await git.text("remote")).split():
        return PublishStep(problems=(f"there is no remote {remote!r} to push to",))
    command = ["push", "--quiet", "--no-verify", "--set-upstream", remote, branch]
    pushed = await git.run(*command, timeout_s=PUSH_TIMEOUT_S, uses_network=True)
    if not pushed.ok and "rejected" in pushed.errors:
        # The branch is the run's own; an earlier attempt may have pushed it and rewritten it since.
        pushed = await git.run(*command, "--force-with-lease", timeout_s=PUSH_TIMEOUT_S, uses_network=True)
    if not pushed.ok:
        return PublishStep(problems=(f"git push failed: {reason(pushed)}",))
    if not pull_request:
        return PublishStep(pushed=True)
    return await _pull_request(git.folder, title, body)


async def _pull_request(folder: Path, title: str, body: str) -> PublishStep:
    command = ("gh", "pr", "create", "--title", title, "--body", body)
    login = {name: os.environ[name] for name in ("GH_TOKEN", "GITHUB_TOKEN", "GH_HOST") if name in os.environ}
    outcome = await run_trusted(command, folder, timeout_s=PUSH_TIMEOUT_S, environ={"GH_PROMPT_DISABLED": "1"} | login)
    if outcome.code == NOT_FOUND:
        return PublishStep(pushed=True, problems=("gh is not installed, so no pull request was opened",))
    if not outcome.ok:
        return PublishStep(pushed=True, problems=(f"gh pr create failed: {reason(outcome)}",))
    return PublishStep(pushed=True, pr_created=True, pr_url=outcome.output.strip().rpartition("\n")[2])


def backstop_report(
    commit: CommitStep, publishing: PublishStep | None, *, unfilled: Sequence[str], held_back: str = ""
) -> BackstopReport:
    """The report of the steps. `held_back` says why nothing was published although the caller asked for it."""
    count = f"{commit.files} file{'' if commit.files == 1 else 's'}"
    said = [f"Committed {count} that the agent had left uncommitted."] if commit.committed else []
    said += [f"Nothing was committed: {commit.problem}."] if commit.problem else []
    said += [f"Nothing was pushed: {held_back}."] if held_back else []
    steps = publishing or PublishStep()
    said += [f"{problem[0].upper()}{problem[1:]}." for problem in steps.problems]
    return BackstopReport(
        triggered=commit.committed or bool(commit.problem) or publishing is not None or bool(unfilled),
        pushed=steps.pushed,
        pr_created=steps.pr_created,
        pr_url=steps.pr_url,
        unfilled_fields=tuple(unfilled),
        diagnostics=" ".join(said),
    )
