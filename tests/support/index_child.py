"""A process that writes, searches and deletes sessions without end; made to be killed.

`python -m support.index_child HOME MARK`. It says a line after each step. A deleted session had the word `erased-MARK`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from makai.sessions.log.sqlite import SqliteLog
from support.indexes import created, exchange, indexing

SESSIONS = 6


async def _main(home: Path, mark: str) -> None:
    log = await SqliteLog.open(home)
    async with indexing(log, home) as index:
        for step in count():
            name = f"{mark}-{step % SESSIONS}"
            last = await log.last(name)
            said = exchange(f"tea erased{mark} {step}", "more " * 200, run_id=f"{mark}-{step}")
            await log.append(name, said if last else created("Tea") + said, last)
            await index.found("tea")
            if step % 4 == 3:
                await log.delete(name)
                await index.indexer.forget(name)
            os.write(sys.stdout.fileno(), b"step\n")


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2]))
