"""A process that owns a session, has many files changed and undoes that; made to be killed while it does.

`python -m support.undo_child FOLDER`. It prints the session's id, then "undoing" when the undo begins.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from makai.sessions.commands import RestoreFiles
from makai.sessions.requests import CreateSession
from support.file_work import HARNESS, FileWorker, Work, message
from support.live_sessions import Desk, owned_sessions

FILES = 60


def work() -> list[Work]:
    """Half of the files exist before."""
    return [Work("write", f"f{number}", f"new {number}\n") for number in range(FILES)]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def _main(root: Path) -> None:
    async with owned_sessions(root, "say: hi\n", harnesses=[FileWorker()]) as sessions:
        wanted = CreateSession(model_ref="", harness=HARNESS, cwd=str(root / "work"))
        desk = Desk(sessions, await sessions.dispatch(wanted))
        _say(desk.session_id)
        await desk.run(message(work()))
        _say("undoing")
        await desk.do(RestoreFiles(now=0))
        _say("undone")


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
