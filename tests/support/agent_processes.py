"""Command-line agents that resist their end, sessions that run them, and what is left of their processes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import msgspec

from makai.client.harness.opening import MakaiHarness, open_harness
from makai.core import session_events as ev
from makai.harness.contract.events import Event, is_terminal
from makai.harness.contract.spec import Spec
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession
from support.live_sessions import Desk, decoded, kind_of, scripted_models

DRIVERS = ("claude-code", "codex", "acp")
SUPPORT = Path(__file__).parent
MARK = "MAKAI_TRIAL_MARK"
PER_AGENT = 4
"""The processes of one agent that resists: its shell, the scripted program, and two children."""
OUTPUT_LINES = {"claude-code": 23, "codex": 15, "acp": 9}
"""How many lines a program writes until the prompt of `agent_cut_off` is answered, at least."""
READY = "ready"

_PROGRAMS = {
    "claude-code": [sys.executable, "-P", str(SUPPORT / "scripted_claude.py"), "{}"],
    "codex": [sys.executable, "-S", "-P", str(SUPPORT / "codex_server.py"), "{}"],
    "acp": [sys.executable, "-P", str(SUPPORT / "acp_agent.py"), "{}"],
}
_NAMES = {"claude-code": "claude", "codex": "codex", "acp": "agent"}
_DEAF = {"claude-code": "deaf", "codex": "deaf", "acp": "stuck"}
_WAITING = {"claude-code": "wait", "codex": "slow c1", "acp": "wait"}
_ASKING = {"claude-code": 'ask c1 Bash {"command": "touch x"}', "codex": "run c1 touch x", "acp": "ask c1"}

_HEAD = """#!/bin/bash
export {mark_name}={mark}
case "$*" in *--version*) exec {program} "$@";; esac
"""
_RESISTING = """trap '' TERM INT HUP
(setsid sleep 600 &)
sleep 600 &
{program} "$@"
while :; do sleep 600; done
"""
_CUT = """{program} "$@" | {{
    for ((sent = 0; sent < {lines}; sent++)); do IFS= read -r line || exit; printf '%s\\n' "$line"; done
    IFS= read -r line
    printf '%s' "${{line:0:{kept}}}"
    kill -KILL $$
}}
"""


class AgentPrograms:
    """A folder with the three programs. They ignore SIGTERM, SIGINT and the end of their input, and have a child in
    their session and one in a session of its own. With `cut`, they end after so many lines and a piece of the next."""

    def __init__(self, folder: Path, *, mark: str = "", cut: tuple[int, int] | None = None) -> None:
        self.folder = folder
        self.mark = mark or uuid4().hex
        self.work, self.home, self._bin = folder / "work", folder / "home", folder / "bin"
        for made in (self.work, self.home, self._bin):
            made.mkdir(parents=True, exist_ok=True)
        for driver, program in _PROGRAMS.items():
            path = self._bin / _NAMES[driver]
            lines, kept = cut or (0, 0)
            text = (_HEAD + (_CUT if cut else _RESISTING)).format(
                mark_name=MARK, mark=self.mark, program=shlex.join(program), lines=lines, kept=kept
            )
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)
        self.environ = {"PATH": f"{self._bin}:/usr/bin:/bin", "HOME": str(folder)}

    def harness_id(self, driver: str) -> str:
        return f"acp:{self._bin}/agent" if driver == "acp" else driver

    def open(self, driver: str) -> MakaiHarness:
        return open_harness(self.harness_id(driver), environ=self.environ, home=self.home)

    def spec(self, driver: str, *, is_deaf: bool) -> Spec:
        prompt = f"say Hi\n{(_DEAF if is_deaf else _WAITING)[driver]}"
        return Spec(prompt=prompt, cwd=str(self.work), autonomous=True)

    @asynccontextmanager
    async def session(self, driver: str, log: MemoryLog, *, mode: ev.PermissionMode = "ask") -> AsyncIterator[Desk]:
        async with scripted_models(self.folder, "say: Hi") as models:
            sessions = await OwnedSessions.open(self.home, models, log=log, environ=self.environ)
            try:
                wanted = CreateSession(model_ref="", harness=self.harness_id(driver), cwd=str(self.work), mode=mode)
                yield Desk(sessions, await sessions.dispatch(wanted))
            finally:
                await sessions.close()

    def running(self) -> list[int]:
        """The living processes of the programs, by their paths and the variable that they set; zombies have neither."""
        mark = f"{MARK}={self.mark}".encode()
        return [pid for pid in _pids() if self._is_program(pid) or mark in _content(pid, "environ")]

    def leader(self) -> int:
        """The process that was started as the agent: the one whose parent is none of the programs."""
        running = set(filter(self._is_program, _pids()))
        (leader,) = (pid for pid in running if _parent(pid) not in running)
        return leader

    def _is_program(self, pid: int) -> bool:
        return f"{self._bin}/".encode() in _content(pid, "cmdline")


class CycleReport(msgspec.Struct, frozen=True):
    left: list[int]
    """Processes that ran after their session was stopped."""
    unlawful: int
    """Streams that did not end with one terminal event."""
    open_files: tuple[int, int]
    """Our descriptors after the first round, and the most after a later one."""
    slowest_s: float
    quickest_kill_s: float
    """The shortest stop of an agent that had to be killed: a busy machine does not make it shorter."""


async def stopped_agents(folder: Path, cycles: int, at_once: int) -> CycleReport:
    """Start agents of each driver and stop them, in rounds. Every second one ignores the request to stop as well."""
    programs = AgentPrograms(folder)
    harnesses = [programs.open(driver) for driver in DRIVERS]
    left: list[int] = []
    open_files: list[int] = []
    times: dict[int, float] = {}
    unlawful = 0

    def is_deaf(number: int) -> bool:
        return number % 2 == 0

    async def cycle(number: int) -> None:
        nonlocal unlawful
        driver = number % len(DRIVERS)
        handle = await harnesses[driver].spawn(programs.spec(DRIVERS[driver], is_deaf=is_deaf(number)))
        await started.wait()
        begun = time.monotonic()
        await handle.stop()
        times[number] = time.monotonic() - begun
        events: list[Event] = [event async for event in handle]
        unlawful += [is_terminal(event) for event in events].count(True) != 1 or not is_terminal(events[-1])

    try:
        for first in range(0, cycles, at_once):
            numbers = range(first, min(first + at_once, cycles))
            started = asyncio.Barrier(len(numbers) + 1)
            async with asyncio.timeout(120), asyncio.TaskGroup() as group:
                for number in numbers:
                    group.create_task(cycle(number))
                await started.wait()
                assert len(programs.running()) >= PER_AGENT * len(numbers)
            left += programs.running()
            open_files.append(len(os.listdir("/proc/self/fd")))
    finally:
        for harness in harnesses:
            await harness.shutdown()
    killed = min(seconds for number, seconds in times.items() if is_deaf(number))
    return CycleReport(left, unlawful, (open_files[0], max(open_files[1:])), max(times.values()), killed)


class KillReport(msgspec.Struct, frozen=True):
    processes: int
    """How many there were below makai."""
    gone_after_s: float | None
    """None when not all of them had ended in time."""


async def killed_makai(folder: Path, agents: int, *, deadline_s: float) -> KillReport:
    """Kill a process with running agents; how long it takes until nothing that it started is left."""
    programs = AgentPrograms(folder)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", __file__, str(folder), programs.mark, str(agents),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": _python_path()},
    )  # fmt: skip
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert (await child.stdout.readline()).decode().strip() == READY
        below = descendants(child.pid)
        agents_of_it = programs.running()
        assert len(agents_of_it) >= PER_AGENT * agents
        assert set(agents_of_it) <= set(below)
        watched = [os.pidfd_open(pid) for pid in below]
    finally:
        begun = time.monotonic()
        child.kill()
        await child.wait()
    try:
        async with asyncio.timeout(deadline_s):
            for descriptor in watched:
                await _readable(descriptor)
        return KillReport(len(below), time.monotonic() - begun)
    except TimeoutError:
        for pid in programs.running():
            os.kill(pid, signal.SIGKILL)
        return KillReport(len(below), None)
    finally:
        for descriptor in watched:
            os.close(descriptor)


class SettleReport(msgspec.Struct, frozen=True):
    settlements: list[str]
    """How the run ended, each time that the log says so."""
    after_s: float
    left: list[int]


async def agent_killed_while_it_asks(folder: Path, driver: str) -> SettleReport:
    """Kill an agent whose question waits for a person; how its run settles."""
    programs, log = AgentPrograms(folder), MemoryLog()
    async with programs.session(driver, log) as client:
        await client.send(f"say Hi\n{_ASKING[driver]}")
        await client.until_asked()
        begun = time.monotonic()
        os.kill(programs.leader(), signal.SIGKILL)
        assert isinstance(await client.until_settled(), ev.RunFailed)
        taken, left = time.monotonic() - begun, programs.running()
        session_id = client.session_id
    return SettleReport(await _settlements(log, session_id), taken, left)


async def agent_cut_off(folder: Path, driver: str, cut: tuple[int, int]) -> SettleReport:
    """Run an agent that is killed after some lines of its output and a piece of the next; how its run settles."""
    programs, log = AgentPrograms(folder, cut=cut), MemoryLog()
    async with programs.session(driver, log, mode="never_ask") as client:
        begun = time.monotonic()
        await client.run(f"say Hi\n{_ASKING[driver]}\nsay Bye")
        taken, session_id = time.monotonic() - begun, client.session_id
    return SettleReport(await _settlements(log, session_id), taken, programs.running())


async def _settlements(log: MemoryLog, session_id: str) -> list[str]:
    events = [logged.event for logged in decoded(await log.read_raw(session_id, 0))]
    return [kind_of(event) for event in events if isinstance(event, ev.RunFinished | ev.RunFailed)]


def descendants(pid: int) -> list[int]:
    """Every process below this one."""
    children: dict[int, list[int]] = {}
    for number in _pids():
        if (parent := _parent(number)) is not None:
            children.setdefault(parent, []).append(number)
    found = [pid]
    for number in found:
        found.extend(children.get(number, ()))
    return found[1:]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int | None:
    fields = _content(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else None


def _content(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""


async def _readable(descriptor: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _python_path() -> str:
    return os.pathsep.join([str(SUPPORT.parent), *filter(None, sys.path)])


async def _own_agents(folder: Path, mark: str, agents: int) -> None:
    """As a process: run agents until it is killed."""
    programs = AgentPrograms(folder, mark=mark)
    harnesses = [programs.open(DRIVERS[number % len(DRIVERS)]) for number in range(agents)]
    await asyncio.gather(
        *(
            harness.spawn(programs.spec(DRIVERS[number % len(DRIVERS)], is_deaf=True))
            for number, harness in enumerate(harnesses)
        )
    )
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_own_agents(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
