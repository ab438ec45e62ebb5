"""Short-lived commands of the runner: git, gh and the user's quality commands. Each has a deadline and bounded output.

They run below makai's supervisor, so that nothing they start outlives them. They see the scrubbed environment of tools:
the folder holds files that an agent wrote, and programs that run them must not find keys.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core.errors import AgentFailed, InvalidRequest
from makai.core.programs import trusted_environment
from makai.tools.commands import child_environment
from makai.tools.launching import launcher

GIT_TIMEOUT_S: Final = 60.0
MAX_OUTPUT_BYTES: Final = 4 * 1024 * 1024
NOT_FOUND: Final = 127
_GIT_OPTIONS: Final = (
    # An agent may have written hooks, and a commit of the runner must not execute them or wait for a passphrase.
    *("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false"),
    *("-c", "core.quotePath=false", "-c", "advice.detachedHead=false", "-c", "gc.auto=0"),
)
_GIT_ENVIRONMENT: Final = {"GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never", "GIT_OPTIONAL_LOCKS": "0"}
_CONFIG_NAMES: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
_SSH: Final = {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
_SSH_NAMES: Final = ("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_SSH")


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. Of longer output than `MAX_OUTPUT_BYTES` only the end is kept."""

    code: int
    output: str
    errors: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.timed_out


async def run_command(
    argv: Sequence[str],
    cwd: Path,
    *,
    timeout_s: float,
    environ: Mapping[str, str] | None = None,
    merge_stderr: bool = False,
) -> CommandOutcome:
    """Run a command to its end or its deadline. A program that does not exist is code 127."""
    return await _run(argv, cwd, child_environment(os.environ) | dict(environ or {}), timeout_s, merge_stderr)


async def run_trusted(
    argv: Sequence[str], cwd: Path, *, timeout_s: float, environ: Mapping[str, str]
) -> CommandOutcome:
    """The same for a program of the runner's own, which is none of those in `cwd`."""
    env = trusted_environment(child_environment(os.environ), [str(cwd)])
    return await _run(argv, cwd, env | dict(environ), timeout_s, merge_stderr=False)


async def _run(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, merge_stderr: bool
) -> CommandOutcome:
    try:
        child = await ChildProcess.start(
            argv, env=env, cwd=str(cwd), launcher=launcher(), takes_input=False, merge_stderr=merge_stderr
        )
    except OSError as error:
        return CommandOutcome(code=NOT_FOUND, output="", errors=str(error.strerror))
    kept = bytearray()
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            while chunk := await child.read():
                kept += chunk
                if len(kept) > 2 * MAX_OUTPUT_BYTES:
                    del kept[:-MAX_OUTPUT_BYTES]
            await child.wait()
            await child.wait_for_errors(1.0)
    except TimeoutError:
        timed_out = True
    finally:
        code = await child.stop()
    output = bytes(kept[-MAX_OUTPUT_BYTES:]).decode("utf-8", "replace")
    return CommandOutcome(code=code, output=output, errors=child.stderr_tail.strip(), timed_out=timed_out)


class Git:
    """git in one folder. It never prompts, runs no hooks and signs nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def run(
        self, *arguments: str, timeout_s: float = GIT_TIMEOUT_S, uses_network: bool = False
    ) -> CommandOutcome:
        """Run a command; `uses_network` lets it log in with the user's SSH agent."""
        environ = _GIT_ENVIRONMENT | _own(_CONFIG_NAMES) | (_SSH | _own(_SSH_NAMES) if uses_network else {})
        argv = ("git", *_GIT_OPTIONS, *arguments)
        outcome = await run_trusted(argv, self.folder, timeout_s=timeout_s, environ=environ)
        if outcome.code == NOT_FOUND:
            raise InvalidRequest("git is not installed.", hint="Install git, or run without --worktree.")
        return outcome

    async def text(self, *arguments: str, timeout_s: float = GIT_TIMEOUT_S) -> str:
        """The output of a command that must succeed, without its last line end. Raises `AgentFailed`."""
        outcome = await self.run(*arguments, timeout_s=timeout_s)
        if not outcome.ok:
            raise AgentFailed(f"git {arguments[0]} failed: {reason(outcome)}")
        return outcome.output.removesuffix("\n")

    async def branch(self) -> str:
        """The branch of the folder. Empty for a detached HEAD."""
        return (await self.run("symbolic-ref", "--quiet", "--short", "HEAD")).output.strip()

    async def commit(self) -> str:
        """The id of HEAD. Empty in a repository without commits."""
        outcome = await self.run("rev-parse", "--quiet", "--verify", "HEAD")
        return outcome.output.strip() if outcome.ok else ""


def reason(outcome: CommandOutcome) -> str:
    """Why a command failed, in at most 500 characters."""
    if outcome.timed_out:
        return "it took too long"
    said = (outcome.errors or outcome.output).strip()
    return said[-500:] or f"exit code {outcome.code}"


def _own(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}
