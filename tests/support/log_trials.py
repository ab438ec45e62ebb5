"""Trials of a log in two sizes: small in tests/unit, whole in tests/faults. Each returns what happened."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from makai.core.session_events import Logged, Notice
from makai.sessions.log.base import replay
from makai.sessions.log.repair import check
from makai.sessions.log.sqlite import SqliteLog
from support.log_child import SESSIONS, Ack
from support.log_disk import Disk

TESTS = Path(__file__).resolve().parents[1]
DEADLINE_S = 60
FOR_EVER = "-1"
COMPARE_EVERY = 5
"""Crashes: a comparison reads everything there is, and sees what each crash before it lost."""


class CrashReport(msgspec.Struct, frozen=True):
    rounds: int
    acknowledged: int
    lost: int
    """Events that were acknowledged and are not there, or are another's."""
    reused: int
    """Numbers that were acknowledged a second time."""
    problems: tuple[str, ...]
    """Gaps, damage, entries that do not fit the events."""
    slowest_open_s: float = 0.0


class Ledger:
    """What a log acknowledged, over the lives of its processes."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, int], str] = {}
        self._lost: set[tuple[str, int]] = set()
        self._reused: set[tuple[str, int]] = set()
        self._problems: list[str] = []
        self._slowest_open_s = 0.0

    def note(self, acks: Sequence[Ack], mark: str) -> None:
        for ack in acks:
            for number in range(ack.first, ack.last + 1):
                event = (ack.session_id, number)
                if event in self._marks:
                    self._reused.add(event)
                self._marks[event] = mark

    def compare(self, home: Path) -> None:
        stored, seconds = asyncio.run(_stored(home))
        self._problems += [f"{problem}" for problem in check(home).problems]
        self._slowest_open_s = max(self._slowest_open_s, seconds)
        self._lost |= {event for event, mark in self._marks.items() if stored.get(event) != mark}

    def report(self, rounds: int) -> CrashReport:
        counts = (len(self._marks), len(self._lost), len(self._reused))
        return CrashReport(rounds, *counts, tuple(self._problems), self._slowest_open_s)


async def _stored(home: Path) -> tuple[dict[tuple[str, int], str], float]:
    """The mark of every event there is, and how long it took until the log was open."""
    start = time.perf_counter()
    log = await SqliteLog.open(home)
    lasts = [await log.last(session_id) for session_id in SESSIONS]
    seconds = time.perf_counter() - start
    marks = {}
    for session_id, last in zip(SESSIONS, lasts, strict=True):
        count = 0
        async for logged in replay(log, session_id):
            count += 1
            assert isinstance(logged, Logged)
            assert isinstance(logged.event, Notice)
            assert logged.event_id == count
            name, number, mark = logged.event.message.split()
            assert (name, int(number)) == (session_id, count)
            marks[session_id, count] = mark
        assert count == last
    await log.close()
    return marks, seconds


@contextmanager
def child(home: Path, mark: str, *arguments: str, wrapper: Sequence[str] = ()) -> Iterator[Listener]:
    """A process that writes until it is done or killed; it does not outlive the block."""
    source = TESTS.parent / "src"
    environment = {**os.environ, "PYTHONPATH": f"{source}:{TESTS}"}
    command = [*wrapper, sys.executable, "-m", "support.log_child", str(home), mark, *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield Listener(process)
        finally:
            process.kill()


class Listener:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.process = process
        self._pipe = process.stdout.fileno()
        self._heard = bytearray()

    def acks(self) -> list[Ack]:
        """So far; a line that is cut short was not said."""
        lines = self._heard[: self._heard.rfind(b"\n") + 1].splitlines()
        return [msgspec.json.decode(line, type=Ack) for line in lines]

    def wait_for(self, count: int) -> None:
        """Until so many acks were heard, or the writer is gone."""
        while self._heard.count(b"\n") < count and self._hear():
            pass

    def hear_what_is_there(self) -> None:
        os.set_blocking(self._pipe, False)
        with suppress(BlockingIOError):
            while self._hear():
                pass
        os.set_blocking(self._pipe, True)

    def wait_for_the_end(self) -> None:
        while self._hear():
            pass
        self.process.wait(DEADLINE_S)

    def _hear(self) -> bool:
        heard = os.read(self._pipe, 65536)
        self._heard += heard
        return bool(heard)


def killed_writers(home: Path, *, points: int) -> CrashReport:
    """Kill -9 a process that writes eight sessions, again and again; the next one continues."""
    chance = random.Random(9)
    ledger = Ledger()
    for point in range(points):
        with child(home, f"{point}", FOR_EVER) as listener:
            listener.wait_for(chance.randint(1, 60))
            time.sleep(chance.uniform(0, 0.004))  # anywhere: in a commit, between two of them, in a checkpoint
            listener.process.kill()
            listener.wait_for_the_end()
        ledger.note(listener.acks(), f"{point}")
        if point % COMPARE_EVERY == COMPARE_EVERY - 1 or point == points - 1:
            ledger.compare(home)
    return ledger.report(points)


def power_cuts(disk: Disk, *, rounds: int, careless: bool = False) -> CrashReport:
    """Take the power away while eight sessions are written, again and again.

    What counts is what was heard before the cut. The kernel goes on for a moment after it and can still report success
    for a sync whose data it can no longer write; a machine without power reports nothing.
    """
    chance = random.Random(1)
    ledger = Ledger()
    for number in range(rounds):
        with child(disk.folder / "home", f"{number}", FOR_EVER, *(["careless"] if careless else [])) as listener:
            listener.wait_for(chance.randint(1, 200))
            time.sleep(chance.uniform(0, 0.02))
            listener.hear_what_is_there()
            disk.cut_power()
            acks = listener.acks()
            listener.process.kill()
            listener.wait_for_the_end()
        disk.reattach()
        ledger.note(acks, f"{number}")
        if number % COMPARE_EVERY == COMPARE_EVERY - 1 or number == rounds - 1:
            ledger.compare(disk.folder / "home")
    return ledger.report(rounds)


class TracedReport(msgspec.Struct, frozen=True):
    acknowledged: int
    refused: tuple[str, ...]
    unreadable: int
    """Refusals after which not everything acknowledged could be read."""
    acknowledged_after_refusal: int
    crash: CrashReport


def tampered(home: Path, injection: str, *, appends: int) -> TracedReport:
    """Run a writer with `strace -e inject=...`, then compare."""
    traced = f"trace={injection.split(':')[0]}"
    wrapper = ["strace", "-f", "-qq", "-o", os.devnull, "-e", traced, "-e", f"inject={injection}"]
    with child(home, injection, str(appends), wrapper=wrapper) as listener:
        listener.wait_for_the_end()
    acks = listener.acks()
    ledger = Ledger()
    ledger.note(acks, injection)
    ledger.compare(home)
    refusals = [index for index, ack in enumerate(acks) if ack.refused]
    return TracedReport(
        acknowledged=sum(not ack.refused for ack in acks),
        refused=tuple(sorted({ack.refused for ack in acks if ack.refused})),
        unreadable=sum(ack.read != ack.last for ack in acks if ack.refused),
        acknowledged_after_refusal=sum(not ack.refused for ack in acks[refusals[-1] :]) if refusals else 0,
        crash=ledger.report(1),
    )
