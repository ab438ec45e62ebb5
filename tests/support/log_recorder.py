"""Records session logs with this version, for `tests/recorded_logs`: once per released format.

`PYTHONPATH=tests:src python -m support.log_recorder tests/recorded_logs/DATE`. Sessions with a real owner have tools,
an approval, undo and redo, settings, a fork and what it continues with; one of the engine alone has what external
agents and sub-agents report, a given history, a withdrawn input and a kind of event that no version knows.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.usage import Usage
from makai.sessions import commands as cmd
from makai.sessions.requests import ForkSession, ReadEvents, RunCommand
from makai.sessions.service import Sessions
from support.live_sessions import Desk, desk, owned_sessions
from support.session_trials import Trial, asked, finished

SCENARIO = """
think: I should write it down.
say: Writing.
tool: write {"path": "a.txt", "content": "one\\ntwo\\n"}
usage: input=12 output=34 cache_read=5
---
say: It is written.
usage: input=20 output=2
---
say: As I said.
---
say: In the fork.
"""
UNKNOWN = b'{"event_id":%d,"ts":2000,"event":{"type":"from_the_future","shape":{"of":["things"]}}}'


async def work(sessions: Sessions, project: Path) -> tuple[str, str]:
    """A session with most of what people do, and its fork."""
    client = await desk(sessions, cwd=project)
    await client.send("Write it down")
    await client.approve((await client.until_asked()).call_id)
    await client.until_settled()
    for direction in ("undo", "redo"):
        await client.do(cmd.RestoreFiles(now=0, direction=direction))
    await client.do(cmd.SetTitle(now=0, title="Words in a file"))
    await client.do(cmd.SetMode(now=0, mode="plan"))
    await client.run("And now?")
    fork = await sessions.dispatch(ForkSession(origin=client.session_id))
    await Desk(sessions, fork).run("Go on")
    await sessions.dispatch(RunCommand(client.session_id, cmd.Archive(now=0)))
    return client.session_id, fork


async def lines_of(sessions: Sessions, session_id: str) -> list[bytes]:
    return [record.line for record in await sessions.dispatch(ReadEvents(session_id, 0, 1_000))]


def agents() -> list[bytes]:
    """What external agents and sub-agents report, in a session of the engine alone."""
    trial = Trial().create()
    given = (UserMessage(content="hello"), AssistantMessage(content=(Text(text="Hi."),)))
    trial.do(cmd.Send(now=1_001, input_id="i1", content="look around", history=given))
    trial.report(ev.AgentSession(agent_session_id="theirs-1", agent="external", version="2", mode="code"))
    trial.call("task")
    trial.report(ev.ToolStarted(call_id="task"), ev.TurnStarted(turn=1, parent_call_id="task"))
    trial.report(ev.AssistantText(content_index=0, text="I look", parent_call_id="task"))
    nested = {"call_id": "look", "name": "shell", "arguments_json": '{"command":"echo look"}', "parent_call_id": "task"}
    trial.report(msgspec.convert(nested, ev.ToolCalled, strict=False))
    trial.report(ev.TurnEnded(turn=1, stop_reason="tool_use", usage=Usage(output=3), parent_call_id="task"))
    trial.report(asked("look"))
    trial.approve("look")
    trial.report(ev.ToolStarted(call_id="look"), ev.ToolUpdated(call_id="look", title="Look", status="in_progress"))
    trial.report(finished("look"), finished("task"))
    trial.send("later", delivery="queue")
    trial.do(cmd.WithdrawInput(now=1_002, input_id="input-later"))
    trial.answer("done", turn=2)
    trial.do(cmd.SetHarness(now=1_003, harness="external", model_ref="theirs", dropped=("its rules",)))
    trial.restart()
    lines = [msgspec.json.encode(logged) for logged in trial.log]
    return [*lines, UNKNOWN % (len(lines) + 1)]


async def record(place: str) -> dict[str, bytes]:
    """The lines of each log, without the folder in which it was made."""
    (project := Path(place) / "project").mkdir()
    async with owned_sessions(Path(place), SCENARIO) as sessions:
        names = dict(zip(("work", "fork"), await work(sessions, project), strict=True))
        logs = {name: await lines_of(sessions, session_id) for name, session_id in names.items()}
    logs["agents"] = agents()
    return {name: b"\n".join([*lines, b""]).replace(place.encode(), b"/recorded") for name, lines in logs.items()}


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        for name, text in asyncio.run(record(place)).items():
            (folder / f"{name}.jsonl").write_bytes(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
