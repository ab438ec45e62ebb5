"""The git worktree in which a run works: a folder beside the repository, on a new branch `agent/<run id>`."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

import msgspec

from makai.client.runner.backstop import refuse_protected
from makai.client.runner.commands import Git, reason
from makai.core.errors import AgentFailed, InvalidRequest


class Worktree(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    path: Path
    prefix: str
    """Where the caller stands in the repository, relative to its top."""
    branch: str
    base_commit: str

    @property
    def cwd(self) -> str:
        """The agent's folder; the top of the worktree if there is none at `prefix`."""
        top, inside = os.path.realpath(self.path), os.path.realpath(self.path / self.prefix)
        return inside if os.path.isdir(inside) and os.path.commonpath((top, inside)) == top else top

    @property
    def git(self) -> Git:
        return Git(self.path)


def new_run_id(name: str = "") -> str:
    """A short id, with `name` in front of it as far as it can be part of a branch."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{slug}-{secrets.token_hex(4)}" if slug else secrets.token_hex(4)


class RunBase(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run starts: the repository, its commit, and the path of the caller's folder in it."""

    repository: Path
    commit: str
    prefix: str


async def base_of(cwd: Path, *, allow_dirty: bool) -> RunBase:
    """The base of a run. Raises `InvalidRequest` when none can start from this folder."""
    git = Git(cwd)
    found = await git.run("rev-parse", "--show-toplevel")
    if not found.ok:
        raise InvalidRequest(
            f"{cwd} is not in a git repository.", hint="Run `git init` and commit, or run without --worktree."
        )
    if not (commit := await git.commit()):
        raise InvalidRequest("The repository has no commit yet.", hint="Commit something first.")
    changed = [entry for entry in (await git.text("status", "--porcelain", "-z")).split("\0") if entry]
    if changed and not allow_dirty:
        count = f"{len(changed)} uncommitted change{'s' if len(changed) > 1 else ''}"
        raise InvalidRequest(
            f"The repository has {count}, which a worktree would not have.",
            hint="Commit or stash them, or use --allow-dirty to start from the last commit.",
        )
    prefix = await git.text("rev-parse", "--show-prefix")
    return RunBase(repository=Path(found.output.removesuffix("\n")), commit=commit, prefix=prefix)


async def make_worktree(
    cwd: Path, *, run_id: str, branch: str = "", parent: Path | None = None, allow_dirty: bool = False
) -> Worktree:
    """Add a worktree. Raises `InvalidRequest` for what the caller can change, `AgentFailed` when git fails."""
    branch = branch or f"agent/{run_id}"
    refuse_protected(branch)
    base = await base_of(cwd, allow_dirty=allow_dirty)
    git = Git(base.repository)
    if not (await git.run("check-ref-format", "--branch", branch)).ok:
        raise InvalidRequest(f"{branch!r} is no name for a branch.")
    if (await git.run("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")).ok:
        raise InvalidRequest(f"There is a branch {branch} already.", hint="Choose another name with --branch.")
    path = (parent or base.repository.parent / f"{base.repository.name}.worktrees") / run_id
    added = await git.run("worktree", "add", "--quiet", "-b", branch, str(path), base.commit)
    if not added.ok:
        raise AgentFailed(f"The worktree {path} could not be made: {reason(added)}")
    return Worktree(run_id=run_id, path=path, prefix=base.prefix, branch=branch, base_commit=base.commit)
