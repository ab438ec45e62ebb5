"""A process that appends to a log and says what was acknowledged; made to be killed.

`python -m support.log_child HOME MARK APPENDS [careless]`. Each line of its output is one JSON `Ack`, written after the
append returned. -1 APPENDS never end. `careless` takes the fsync out of commits: a trial that cannot tell the
difference proves nothing.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import msgspec

from makai.core.errors import StorageUnavailable
from makai.sessions.log.base import replay
from makai.sessions.log.sqlite import SqliteLog
from support.log_events import marked

SESSIONS = tuple(f"session-{number}" for number in range(8))


class Ack(msgspec.Struct, frozen=True):
    session_id: str
    first: int
    last: int
    refused: str = ""
    """The code of the error, when nothing was stored."""
    read: int = 0
    """How many events could be read after a refusal."""


async def _write(log: SqliteLog, session_id: str, mark: str, appends: int) -> None:
    chance = random.Random(f"{session_id} {mark}")
    last = await log.last(session_id)
    while appends:
        appends -= 1
        count = chance.choice((1, 1, 2, 5, 40))
        try:
            first, last = await log.append(session_id, marked(session_id, last + 1, count, mark), last)
            _say(Ack(session_id, first, last))
        except StorageUnavailable as error:
            readable = [logged async for logged in replay(log, session_id)]
            _say(Ack(session_id, last + 1, last, error.code, len(readable)))


def _say(ack: Ack) -> None:
    os.write(sys.stdout.fileno(), msgspec.json.encode(ack) + b"\n")


async def _main(home: Path, mark: str, appends: int, is_careless: bool) -> None:
    log = await SqliteLog.open(home)
    if is_careless:
        log._writer._connection.execute("PRAGMA synchronous=NORMAL")
    await asyncio.gather(*(_write(log, session_id, mark, appends) for session_id in SESSIONS))
    await log.close()


if __name__ == "__main__":
    _, _home, _mark, _appends, *_careless = sys.argv
    asyncio.run(_main(Path(_home), _mark, int(_appends), bool(_careless)))
