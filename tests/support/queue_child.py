"""A process that owns a session with a run that does not end and with queued messages, of which one was taken back;
made to be killed.

`python -m support.queue_child FOLDER`. It prints the session's id when the withdrawal is durable.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from makai.sessions.commands import Send, WithdrawInput
from support.live_sessions import desk, owned_sessions


async def _main(root: Path) -> None:
    async with owned_sessions(root, "say: Let me think\nstall") as sessions:
        client = await desk(sessions)
        await client.send("First")
        for name in ("taken back", "kept"):
            await client.do(Send(now=0, input_id=name, content=name, delivery="queue"))
        await client.do(WithdrawInput(now=0, input_id="taken back"))
        sys.stdout.write(f"{client.session_id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
