"""Counts failing tests, type errors and lint errors before and after a run, and compares them.

The commands are the user's own words, but they execute what an agent wrote, so they run in the sandbox of the run:
they write to the worktree only and have no network. A command that fails without a count that this module can read
counts as one failure. A command that cannot run, or does not end, has no count, and then nothing is compared.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from makai.client.runner.commands import NOT_FOUND, CommandOutcome, run_command
from makai.core.errors import InvalidRequest, NotSupported
from makai.core.home import home_directory
from makai.core.session_terms import SandboxLevel
from makai.harness.contract.result import QualityReport
from makai.tools.sandbox.detect import Detection, detect
from makai.tools.sandbox.guard import FileGuard, GuardedWork
from makai.tools.sandbox.policy import SandboxPolicy, not_to_be_made, session_policy

CheckKind: TypeAlias = Literal["test", "types", "lint"]
CHECK_KINDS: Final[tuple[CheckKind, ...]] = ("test", "types", "lint")
DEFAULT_CHECK_TIMEOUT_S: Final = 600.0
_CANNOT_EXECUTE: Final = 126
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

_COUNTS: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # cargo test (one line per target), then cargo's compiler
        r"^test result: FAILED\. \d+ passed; (\d+) failed;",
        r"^error: could not compile .* due to (\d+) previous errors?",
        # unittest
        r"^FAILED \((?:failures=(\d+))?(?:, )?(?:errors=(\d+))?",
        # mypy, ruff
        r"^Found (\d+) errors?\b",
        r"^(\d+) files? would be reformatted",
        # eslint: warnings do not count
        r"^✖ \d+ problems? \((\d+) errors?",
        # pyright
        r"^(\d+) errors?, \d+ warnings?",
        # jest and vitest
        r"^\s*Tests:?\s+(\d+) failed",
    )
)
_PYTEST: Final = re.compile(r"^[= ]*\d+ [a-z]+(?:, \d+ [a-z]+)* in [\d.]+s", re.MULTILINE)
"""The last line of pytest, with and without its frame: "= 2 failed, 1 passed, 1 error in 0.1s ="."""
_PYTEST_COUNT: Final = re.compile(r"(\d+) (?:failed|errors?)\b")
_LINES: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^\s*--- FAIL: ",  # go test
        r"^FAIL\s+\S+ \[(?:build|setup) failed\]",  # go test
        r"error TS\d+: ",  # tsc
    )
)
"""Tools without a sum: every such line is one failure."""


def count_failures(output: str, exit_code: int) -> int:
    """How many failures a test runner, a type checker or a linter reports."""
    if exit_code == 0:
        return 0
    text = _ANSI.sub("", output)
    if summaries := _PYTEST.findall(text):
        return sum(map(int, _PYTEST_COUNT.findall(summaries[-1]))) or 1
    for pattern in _COUNTS:
        found = sum(int(count) for match in pattern.finditer(text) for count in match.groups() if count)
        if found:
            return found
    return sum(len(pattern.findall(text)) for pattern in _LINES) or 1


class QualityChecks(msgspec.Struct, frozen=True, kw_only=True):
    """The commands that the user gave, and how long each may take."""

    test: str = ""
    types: str = ""
    lint: str = ""
    timeout_s: float = DEFAULT_CHECK_TIMEOUT_S

    @property
    def commands(self) -> dict[CheckKind, str]:
        given: dict[CheckKind, str] = {"test": self.test, "types": self.types, "lint": self.lint}
        return {kind: command for kind, command in given.items() if command.strip()}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Failures per check. A check that could not be counted is in `problems` instead."""

    counts: dict[str, int]
    problems: dict[str, str] = {}


async def measure(checks: QualityChecks, folder: Path, sandbox: SandboxLevel = "workspace-write") -> Measured:
    """Run the commands one after the other: they often share a cache or a port."""
    if not checks.commands:
        return Measured(counts={})
    with tempfile.TemporaryDirectory(prefix="makai-checks-") as temporary:
        try:
            place = await asyncio.to_thread(_Place, folder, Path(temporary), sandbox)
        except (InvalidRequest, NotSupported) as error:
            return Measured(counts={}, problems=dict.fromkeys(checks.commands, error.message))
        counts, problems = dict[str, int](), dict[str, str]()
        for kind, command in checks.commands.items():
            outcome = await place.run(command, checks.timeout_s)
            if problem := _problem(outcome, checks.timeout_s):
                problems[kind] = problem
            else:
                counts[kind] = count_failures(outcome.output, outcome.code)
    return Measured(counts=counts, problems=problems)


class _Place:
    """A worktree and the sandbox in which its checks run. Making it blocks."""

    def __init__(self, folder: Path, temporary: Path, sandbox: SandboxLevel) -> None:
        """`NotSupported` where no sandbox works, `InvalidRequest` for a folder that cannot be confined."""
        self._folder = folder
        self._home = Path(os.environ.get("HOME") or Path.home())
        self._tmp = temporary / "tmp"
        self._tmp.mkdir()
        # The checks of a session that may only read still write caches and reports.
        self._level: SandboxLevel = "full-access" if sandbox == "full-access" else "workspace-write"
        self._detection = detect() if self._level != "full-access" else Detection(backend=None)
        self._guard: FileGuard | None = None
        if self._level != "full-access":
            self._detection.wrap(self._policy(), ("true",))
            not_new = not_to_be_made(self._home)
            self._guard = FileGuard((os.path.realpath(folder),), temporary / "taken", not_new, [str(self._tmp)])
            self._guard.look()

    async def run(self, command: str, timeout_s: float) -> CommandOutcome:
        policy = await asyncio.to_thread(self._policy)
        async with GuardedWork(self._guard):
            with self._detection.holding(policy):
                return await run_command(
                    self._detection.wrap(policy, ("/bin/sh", "-c", command)),
                    self._folder,
                    timeout_s=timeout_s,
                    merge_stderr=True,
                )

    def _policy(self) -> SandboxPolicy:
        return session_policy(
            self._level,
            (self._folder,),
            makai_home=home_directory(os.environ),
            user_home=self._home,
            private_tmp=self._tmp,
            guarded=None if self._guard is None else self._guard.read_only,
        )


def _problem(outcome: CommandOutcome, timeout_s: float) -> str:
    if outcome.timed_out:
        return f"it did not end within {timeout_s:g} s"
    if outcome.code in (NOT_FOUND, _CANNOT_EXECUTE):
        return f"it cannot run: {outcome.output.strip()[-200:]}"
    return ""


def compare(before: Mapping[str, int] | None, after: Mapping[str, int], expected: Mapping[str, str]) -> QualityReport:
    """What changed. A regression, and a check that can no longer be counted, block the promotion of the work."""
    if before is None or any(kind not in before for kind in expected):
        return QualityReport(baseline_captured=False)
    deltas = {kind: after[kind] - before[kind] for kind in expected if kind in after}
    return QualityReport(
        baseline_captured=True,
        test_delta=deltas.get("test", 0),
        type_delta=deltas.get("types", 0),
        lint_delta=deltas.get("lint", 0),
        blocked_promotion=len(deltas) < len(expected) or any(delta > 0 for delta in deltas.values()),
    )
