"""One session from its client's side: make it, say something, read everything to the end of the run.

In: `service.Sessions`. Out: what was read, counted and summed up so that it can be compared with the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4
from zlib import crc32

from sessions.model import MODEL_REF, BenchModels, Wish

from makai.sessions.commands import Send
from makai.sessions.log.base import Record
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, RunCommand
from makai.sessions.service import Sessions

RUN_END = b'"type":"run_finished"'
RUN_FAILED = b'"type":"run_failed"'


@asynccontextmanager
async def owned(home: Path) -> AsyncIterator[OwnedSessions]:
    """The sessions of a folder, over their real log."""
    sessions = await OwnedSessions.open(home, BenchModels())
    try:
        yield sessions
    finally:
        await sessions.close()


async def new_session(sessions: Sessions) -> str:
    """An empty session with the benchmark's model."""
    return await sessions.dispatch(CreateSession(model_ref=MODEL_REF, mode="never_ask", title="benchmark"))


async def say(sessions: Sessions, session_id: str, wish: Wish) -> None:
    """Start a run."""
    await sessions.dispatch(RunCommand(session_id, Send(now=0, input_id=str(uuid4()), content=wish.text())))


@dataclass
class Read:
    """What a follower got: gapless, or it would have raised."""

    cursor: int = 0
    events: int = 0
    checksum: int | None = 0
    """Of everything, or None when it is not wanted."""

    def take(self, records: list[Record]) -> None:
        """Count them, and make sure that they follow what came before."""
        first, last = records[0].event_id, records[-1].event_id
        if first != self.cursor + 1 or last - first + 1 != len(records):
            raise RuntimeError(f"event {self.cursor} is followed by {len(records)} events {first} to {last}")
        self.cursor = last
        self.events += len(records)
        if self.checksum is not None:
            self.checksum = crc32(b"".join([record.line for record in records]), self.checksum)


async def read_run(
    sessions: Sessions,
    session_id: str,
    after: int,
    *,
    on_records: Callable[[list[Record]], None] | None = None,
    checked: bool = True,
) -> Read:
    """Follow to the end of the active run, or of the next one; `checked` sums up what is read."""
    follower = sessions.follow(session_id, after)
    read = Read(after, checksum=0 if checked else None)
    try:
        while True:
            records = await follower.next()
            if on_records is not None:
                on_records(records)
            read.take(records)
            line = records[-1].line
            if RUN_FAILED in line:
                raise RuntimeError(f"the run failed: {line!r}"[:500])
            if RUN_END in line:
                return read
    finally:
        follower.close()


def checksum_of(deltas: Iterable[tuple[int, str]]) -> int:
    """Of numbers and words of deltas, however they were read."""
    checksum = 0
    for event_id, text in deltas:
        checksum = crc32(f"{event_id}:{text}".encode(), checksum)
    return checksum
