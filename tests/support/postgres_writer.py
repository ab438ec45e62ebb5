"""A process that appends to sessions in PostgreSQL as fast as it can and says what it was told; made to be cut off,
stopped and continued. Also the side of the test that starts it and compares what it said with what is stored.

`python -m support.postgres_writer URL NAME LEASE_S SESSION...`. Each line of its output is one JSON `Told`. It claims a
session that it may not write to again and again, so it takes over sessions of a node that is gone. SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

import msgspec

from makai.core.errors import StorageUnavailable
from makai.core.session_events import Logged, Notice
from makai.sessions.log.base import LogProblem, replay
from makai.sessions.log.postgres.log import PostgresLog
from makai.sessions.log.postgres.membership import NodeSettings
from support.log_events import pending

RETRY_S: Final = 0.1
READ_S: Final = 0.25
WAIT_S: Final = 120.0
_BATCHES: Final = (1, 1, 2, 5, 20)


What: TypeAlias = Literal["stored", "refused", "read", "lease_lost"]


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer of the log. Times are of the clock that all processes of this machine share."""

    what: What
    session_id: str
    began: float
    at: float
    tag: str = ""
    """Which append this was: unique, and part of each of its events."""
    first: int = 0
    last: int = 0
    error: str = ""
    """The class of a refusal, and what it tells people to do."""
    hint: str = ""


# ---------------------------------------------------------------- the process


async def _write(log: PostgresLog, session_id: str) -> None:
    chance = random.Random(session_id)
    for number in itertools.count():
        tag = ""
        began = time.monotonic()
        try:
            generation = (await log.claim(session_id)).generation
            last = await log.last(session_id)
            for attempt in itertools.count():
                tag = f"{session_id}|{log.node.node_id}|{number}|{attempt}"
                notices = [
                    Notice(level="info", code="tag", message=f"{tag}/{index}")
                    for index in range(chance.choice(_BATCHES))
                ]
                began = time.monotonic()
                first, last = await log.append(session_id, pending(*notices), last, generation)
                _say("stored", session_id, began, tag=tag, first=first, last=last)
        except StorageUnavailable as error:
            _say("refused", session_id, began, tag=tag, error=type(error).__name__, hint=error.hint or "")
        await asyncio.sleep(RETRY_S)


async def _read(log: PostgresLog, session_id: str) -> None:
    """What a client on this node still sees while the database is away."""
    while True:
        await asyncio.sleep(READ_S)
        began = time.monotonic()
        try:
            last = await log.last(session_id)
            read = await log.read(session_id, last - 1)
            _say("read", session_id, began, last=read[-1].event_id if read else 0)
        except StorageUnavailable as error:
            _say("read", session_id, began, error=type(error).__name__, hint=error.hint or "")


def _say(what: What, session_id: str, began: float, **more: str | int) -> None:
    told = msgspec.convert(
        {"what": what, "session_id": session_id, "began": began, "at": time.monotonic(), **more}, Told
    )
    os.write(sys.stdout.fileno(), msgspec.json.encode(told) + b"\n")


async def _main(url: str, name: str, lease_s: float, session_ids: Sequence[str]) -> None:
    log = await PostgresLog.open(url, NodeSettings(name=name, lease_s=lease_s))
    log.on_lease_lost(lambda concerns: _say("lease_lost", "", time.monotonic()))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    tasks = [asyncio.create_task(_write(log, session_id)) for session_id in session_ids]
    tasks.append(asyncio.create_task(_read(log, session_ids[0])))
    await ended.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await log.close()


# ---------------------------------------------------------------- the test's side


class Writer:
    """The process, and everything it has said so far."""

    def __init__(self, url: str, name: str, lease_s: float, session_ids: Sequence[str]) -> None:
        command = [sys.executable, "-m", "support.postgres_writer", url, name, str(lease_s), *session_ids]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        self.told: list[Told] = []
        self._reading = threading.Thread(target=self._collect, daemon=True)
        self._reading.start()

    def wait_until(self, condition: Callable[[Told], bool], what: str, seconds: float = WAIT_S) -> Told:
        """The first line, of those before and those to come, that is meant."""
        deadline = time.monotonic() + seconds
        seen = 0
        while True:
            for told in self.told[seen:]:
                seen += 1
                if condition(told):
                    return told
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"{what}: not seen in {seen} lines; the last ones: {self.told[-5:]}")
            time.sleep(0.01)

    def wait_for_stored(self, session_id: str, after: float, seconds: float = WAIT_S) -> Told:
        """The first append of a session that was acknowledged after a moment."""
        return self.wait_until(
            lambda told: told.what == "stored" and told.session_id == session_id and told.at > after,
            f"an acknowledged append to {session_id}",
            seconds,
        )

    def told_of(self, what: str, after: float = 0.0, before: float = float("inf")) -> list[Told]:
        return [told for told in self.told if told.what == what and after < told.at < before]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reading.join(timeout=WAIT_S)

    def _collect(self) -> None:
        assert self.process.stdout is not None
        decode = msgspec.json.Decoder(Told).decode
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    self.told.append(decode(line))


@contextmanager
def writer(url: str, name: str, lease_s: float, session_ids: Sequence[str]) -> Iterator[Writer]:
    """A process that appends to these sessions until the block ends."""
    started = Writer(url, name, lease_s, session_ids)
    try:
        yield started
    finally:
        started.stop()


class Comparison(msgspec.Struct, frozen=True):
    """What was acknowledged beside what is stored."""

    lost: int
    """Acknowledged events that are not stored under the number that was promised."""
    repeated: int
    """Events that are stored twice."""
    gaps: int
    """Numbers that are missing."""
    fenced_yet_stored: int
    """Times that a node wrote to a session after another one had taken it over. One that joins again is another."""
    problems: tuple[LogProblem, ...]
    refused_yet_stored: int
    """Appends that were refused because their outcome could not be found out in time, and are stored: allowed, since a
    caller reads the session again after a refusal."""


async def compare(url: str, session_ids: Sequence[str], writers: Sequence[Writer]) -> Comparison:
    """Read everything back, as a new node."""
    log = await PostgresLog.open(url, NodeSettings(name="comparison", lease_s=6))
    stored: dict[tuple[str, int], str] = {}
    gaps = fenced = 0
    for session_id in session_ids:
        numbers, nodes = [], []
        async for logged in replay(log, session_id):
            assert isinstance(logged, Logged)
            assert isinstance(logged.event, Notice)
            stored[session_id, logged.event_id] = logged.event.message
            numbers.append(logged.event_id)
            nodes.append(logged.event.message.split("|")[1])
        spells = [node for node, _ in itertools.groupby(nodes)]
        fenced += len(spells) - len(set(spells))
        gaps += numbers != [*range(1, len(numbers) + 1)]
    report = await log.check()
    await log.close()
    told = [told for one in writers for told in one.told]
    promised = {
        (told.session_id, number): f"{told.tag}/{number - told.first}"
        for told in told
        if told.what == "stored"
        for number in range(told.first, told.last + 1)
    }
    marks = {text.rpartition("/")[0] for text in stored.values()}
    return Comparison(
        lost=sum(stored.get(place) != text for place, text in promised.items()),
        repeated=sum(count - 1 for count in Counter(stored.values()).values()),
        gaps=gaps,
        fenced_yet_stored=fenced,
        problems=report.problems,
        refused_yet_stored=sum(told.tag in marks for told in told if told.what == "refused" and told.tag),
    )


if __name__ == "__main__":
    _, _url, _name, _lease_s, *_session_ids = sys.argv
    asyncio.run(_main(_url, _name, float(_lease_s), _session_ids))
