"""Commands that try to survive their end, and a look at which processes are left."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.content import Text
from makai.tools.base import ToolOutcome
from makai.tools.commands import Confine, LocalCommands
from makai.tools.shell import ShellTool
from makai.tools.workspace import Workspace

WILD_COMMANDS = {
    "waits": "exec -a MARK sleep 600",
    "forks": "for i in 1 2 3; do (exec -a MARK sleep 600) & done; wait",
    "double-forks": "(setsid bash -c 'exec -a MARK sleep 600' &) ; exec -a MARK sleep 600",
    "detaches twice": "(setsid bash -c '(setsid bash -c \"exec -a MARK sleep 600\" &)' &); exec -a MARK sleep 600",
    "ignores TERM": "trap '' TERM INT HUP; while :; do sleep 0.05; : MARK; done",
    "ignores TERM, detached": "(setsid bash -c 'trap \"\" TERM; while :; do sleep 0.05; : MARK; done' &); sleep 600",
    "stops itself": "kill -STOP $$; : MARK",
    "closes its output": "exec >&- 2>&-; exec -a MARK sleep 600",
    "floods": "while :; do echo MARK MARK MARK MARK; done",
    "leaves zombies": "(exec -a MARK sleep 0.01) & exec -a MARK sleep 600",
    "forks without end": "f() { (sleep 0.02; f) & }; f; f; exec -a MARK sleep 600",
    "nohup": "nohup bash -c 'exec -a MARK sleep 600' >/dev/null 2>&1 & disown; sleep 600; : MARK",
}


class AbortReport(msgspec.Struct, frozen=True):
    runs: int
    left: list[str]
    """One line per process that was still there one second after the cancellation."""
    slowest_s: float


class Silent:
    """A context of a call that keeps the progress it is told."""

    call_id = "call_1"

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.first = asyncio.Event()

    def progress(self, text: str) -> None:
        self.heard.append(text)
        self.first.set()


def text_of(outcome: ToolOutcome) -> str:
    return "\n".join(part.text for part in outcome.content if isinstance(part, Text))


def confining(wrap: Callable[[Sequence[str]], Sequence[str]] = list) -> Confine:
    @contextmanager
    def confined(
        argv: Sequence[str], opened: Confinement = SESSION_SANDBOX, *, read_only: bool = False
    ) -> Iterator[Sequence[str]]:
        yield wrap(argv)

    return confined


def shell_tool(folder: Path, *, confined: Confine | None = None, environ: Mapping[str, str] | None = None) -> ShellTool:
    """A shell, by default without a sandbox."""
    workspace = Workspace([folder])
    return ShellTool(
        workspace,
        LocalCommands(workspace, confined=confined or confining()),
        environ={"PATH": os.environ["PATH"]} if environ is None else environ,
        spill_directory=folder / "spilled",
    )


async def aborted_runs(folder: Path, runs: int, *, seed: int) -> AbortReport:
    """Cancel commands at random moments; after each, look which of its processes are left."""
    chance = random.Random(seed)
    left: list[str] = []
    slowest = 0.0
    for number in range(runs):
        name = list(WILD_COMMANDS)[number % len(WILD_COMMANDS)]
        mark = unique_mark()
        command = {"command": WILD_COMMANDS[name].replace("MARK", mark)}
        call = asyncio.create_task(shell_tool(folder).run(command, Silent()))
        await asyncio.wait([call], timeout=chance.uniform(0, 0.2))
        begun = time.monotonic()
        call.cancel()
        await asyncio.wait([call])
        slowest = max(slowest, time.monotonic() - begun)
        assert call.cancelled()
        left += [f"{name}: {process}" for process in processes_with(mark)]
    return AbortReport(runs, left, slowest)


def unique_mark() -> str:
    """A word for `processes_with`, which looks at the whole machine: another run of the same test has another one."""
    return f"makai-{uuid.uuid4().hex}"


def processes_with(mark: str) -> list[str]:
    """The command lines of living processes that carry the mark; zombies have none."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", pid, "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in line:
            found.append(line.replace(b"\0", b" ").decode("utf-8", "replace"))
    return found
