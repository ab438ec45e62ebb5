"""Owners that are killed while others follow."""

from __future__ import annotations

import asyncio
import os
import random
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import msgspec

from makai.core.session_events import Logged, UserInput
from makai.sessions.log import encoding
from makai.sessions.log.sqlite import SqliteLog
from support.attach_child import Said

TESTS = Path(__file__).resolve().parents[1]
SESSION = "the-session"
DEADLINE_S = 60.0


class Program:
    def __init__(self, home: Path, name: str) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"}
        command = [sys.executable, "-m", "support.attach_child", str(home), SESSION, name]
        self.name = name
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout.fileno()
        os.set_blocking(self.pipe, False)
        self._heard = bytearray()
        self.said: list[Said] = []
        self.has_ended = False

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(order.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> bool:
        """Take what was said; False at the end."""
        try:
            heard = os.read(self.pipe, 1 << 20)
        except BlockingIOError:
            return True
        self.has_ended = not heard
        self._heard += heard
        *lines, rest = self._heard.split(b"\n")
        self._heard = rest
        self.said += [msgspec.json.decode(line, type=Said) for line in lines]
        return bool(heard)

    def kill(self) -> None:
        self.process.kill()
        while self.hear():
            time.sleep(0.001)
        self.process.wait(DEADLINE_S)

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def opened(self) -> bool:
        return any(said.opened for said in self.said)

    @property
    def is_owner(self) -> bool:
        return any(said.owner for said in self.said)

    @property
    def received(self) -> list[tuple[int, int]]:
        return [pair for said in self.said for pair in said.received]

    @property
    def acknowledged(self) -> list[str]:
        return [said.acknowledged for said in self.said if said.acknowledged]


class TakeoverReport(msgspec.Struct, frozen=True):
    rounds: int
    takeovers: tuple[int, ...]
    """How many processes took over, per round."""
    acknowledged: int
    lost: int
    """Words that were acknowledged and are not in the log."""
    repeated: int
    """Words that are in the log more than once."""
    unlike_the_log: tuple[str, ...]
    """Programs that did not receive the log from its first event on, or, if they lived, not all of it."""
    problems: tuple[str, ...]
    slowest_takeover_s: float


class _Rounds:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.programs: list[Program] = []
        self.killed: list[Program] = []
        self._count = 0

    def start(self) -> Program:
        self._count += 1
        return Program(self.home, f"program-{self._count}")

    def until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            for program in self.programs:
                selector.register(program.pipe, selectors.EVENT_READ, program)
            while not is_done():
                if time.monotonic() > deadline:
                    said = {program.name: program.said[-1:] for program in self.programs}
                    raise AssertionError(f"nothing happened for {DEADLINE_S} s: {said}")
                for key, _ in selector.select(timeout=0.05):
                    deadline = time.monotonic() + DEADLINE_S  # many queued inputs are answered before the last title
                    if not key.data.hear():
                        selector.unregister(key.fileobj)

    def until_all_received(self, more: int) -> None:
        before = {program.name: len(program.received) for program in self.programs}
        self.until(lambda: all(len(p.received) >= before[p.name] + more for p in self.programs))

    def owners(self) -> list[Program]:
        return [program for program in self.programs if program.is_owner]


def killed_owners(home: Path, *, rounds: int) -> TakeoverReport:
    """Kill -9 the owner while two others follow and talk; one takes over, and a new process joins."""
    chance = random.Random(20)
    takeovers = []
    slowest = 0.0
    trial = _Rounds(home)
    with ExitStack() as stack:

        def join(program: Program) -> None:
            program.tell("go")
            trial.programs.append(program)
            trial.until(lambda: program.opened)

        def prepare() -> Program:
            program = trial.start()
            stack.callback(program.stop)
            return program

        for program in [prepare() for _ in range(3)]:
            join(program)
        for _ in range(rounds):
            newcomer = prepare()
            trial.until_all_received(20)
            time.sleep(chance.uniform(0, 0.03))  # anywhere: in a commit, in a frame, between the two
            (owner,) = trial.owners()
            start = time.monotonic()
            owner.kill()
            trial.programs.remove(owner)
            trial.killed.append(owner)
            trial.until(lambda: bool(trial.owners()))
            slowest = max(slowest, time.monotonic() - start)
            trial.until_all_received(1)
            takeovers.append(len(trial.owners()))
            join(newcomer)
        for program in trial.programs:
            program.tell("quiet")
        trial.until(lambda: all(any(said.quiet for said in program.said) for program in trial.programs))
        trial.programs[-1].tell("end")
        trial.until(lambda: all(program.has_ended for program in trial.programs))
        return asyncio.run(_compare(home, trial, tuple(takeovers), slowest))


async def _compare(home: Path, trial: _Rounds, takeovers: tuple[int, ...], slowest: float) -> TakeoverReport:
    log = await SqliteLog.open(home)
    lines: list[tuple[int, int]] = []
    words: list[str | None] = []
    while records := await log.read_raw(SESSION, len(lines)):
        lines += [(record.event_id, crc32(record.line)) for record in records]
        for logged in encoding.decoded(records):
            assert isinstance(logged, Logged)
            if isinstance(logged.event, UserInput):
                words.append(logged.event.client_msg_id)
    await log.close()
    everyone = [*trial.programs, *trial.killed]
    acknowledged = [word for program in everyone for word in program.acknowledged]
    unlike = [program.name for program in trial.programs if program.received != lines]
    unlike += [program.name for program in trial.killed if program.received != lines[: len(program.received)]]
    return TakeoverReport(
        rounds=len(takeovers),
        takeovers=takeovers,
        acknowledged=len(acknowledged),
        lost=len(set(acknowledged) - set(words)),
        repeated=len(words) - len(set(words)),
        unlike_the_log=tuple(unlike),
        problems=tuple(said.failed for program in everyone for said in program.said if said.failed),
        slowest_takeover_s=slowest,
    )
