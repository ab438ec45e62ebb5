"""makai as the client of an agent, in a session with its log on the disk: `makai_client.py COUNT COMMAND ARGS...`."""

from __future__ import annotations

import shlex
import sys
import tempfile
import uuid
from pathlib import Path

import msgspec
import uvloop

from makai.core import session_events as ev
from makai.providers.runtime import ModelRuntime
from makai.sessions.commands import Send
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, RunCommand


async def main(count: int, *command: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with ModelRuntime({}, home=home) as models:
            sessions = await OwnedSessions.open(home, models)
            try:
                wanted = CreateSession(model_ref="", harness=f"acp:{shlex.join(command)}", cwd=folder)
                session_id = await sessions.dispatch(wanted)
                send = Send(now=0, input_id=str(uuid.uuid4()), content=str(count))
                await sessions.dispatch(RunCommand(session_id, send))
                follower = sessions.follow(session_id, 0)
                text, settled = "", False
                while not settled:
                    for record in await follower.next():
                        event = msgspec.json.decode(record.line, type=ev.Logged).event
                        settled = settled or isinstance(event, ev.RunFinished | ev.RunFailed)
                        text += event.delta if isinstance(event, ev.AssistantTextDelta) else ""
            finally:
                await sessions.close()
    if len(text) != count * len("word,"):
        sys.exit(f"{len(text)} characters instead of {count * 5}")


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), *sys.argv[2:]))
