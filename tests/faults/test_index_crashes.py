"""The search index under kill -9: whatever it was doing, the next owner has an index that is right."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.indexes import contents, created, exchange, indexing
from support.machine import RecordMeasure

from makai.sessions.index.indexer import INDEX_NAME
from makai.sessions.log.sqlite import SqliteLog

POINTS = 40
TESTS = Path(__file__).parents[1]


def killed(home: Path, mark: str, steps: int, more_s: float) -> None:
    """Let a process work for some steps, and a moment more."""
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"}
    command = [sys.executable, "-m", "support.index_child", str(home), mark]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline() == b"step\n"
        time.sleep(more_s)  # anywhere: in a page, in a deletion, while text is erased
        process.kill()


async def test_kill_9_at_any_moment_leaves_an_index_that_catches_up(home: Path, record_measure: RecordMeasure) -> None:
    chance = random.Random(5)
    wrong = left = 0
    for point in range(POINTS):
        killed(home, f"m{point}", chance.randint(1, 12), chance.uniform(0, 0.05))
        log = await SqliteLog.open(home)
        for number in range(6):  # what was deleted, and what could not be
            await log.delete(f"m{point}-{number}")
        with tempfile.TemporaryDirectory() as rebuilt:
            async with indexing(log, home) as index, indexing(log, Path(rebuilt)) as other:
                everything = [set(await one.found("tea", limit=100)) for one in (index, other)]
                wrong += everything[0] != everything[1]
            wrong += contents(home) != contents(Path(rebuilt))
        left += f"erasedm{point}".encode() in (home / INDEX_NAME).read_bytes()
        await log.append(f"kept-{point}", [*created("Tea"), *exchange("tea", f"kept {point}")], 0)
        await log.close()

    what = f"index: kill -9 at {POINTS} points: wrong entries, text that was not erased"
    record_measure(what, "0, 0", f"{wrong}, {left}")
    assert (wrong, left) == (0, 0)
