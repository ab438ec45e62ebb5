"""Sessions drive a scripted Amp: a program of its own that is started once per prompt."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.live_sessions import Desk, owned_sessions

from makai.core import session_events as ev
from makai.core.usage import Usage
from makai.sessions import commands as cmd
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession

THREAD = "T-0123abcd-0000-4000-8000-000000000000"
PROGRAM = f"""#!{sys.executable} -P
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(here + "/heard", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
settings = json.load(open(here + "/settings"))
def say(**line):
    print(json.dumps({{"session_id": "{THREAD}", **line}}), flush=True)
if sys.argv[1:] == ["--version"]:
    print(settings.get("version", "0.0.1790142911-g7618fb (released)"))
elif sys.argv[1:] == ["threads", "new"]:
    print(settings.get("new", "https://ampcode.com/threads/{THREAD}"))
else:
    prompt = sys.stdin.read()
    say(type="system", subtype="init", tools=["Bash"])
    say(type="user", message={{"role": "user", "content": [{{"type": "text", "text": prompt}}]}})
    if prompt == "die":
        sys.stderr.write("it broke\\n")
        sys.exit(5)
    call = {{"type": "tool_use", "id": "c", "name": "Bash", "input": {{"command": "ls"}}}}
    result = {{"type": "tool_result", "tool_use_id": "c", "content": "a.txt", "is_error": False}}
    usage = {{"input_tokens": 4, "output_tokens": 3}}
    say(type="assistant", message={{"id": "m1", "content": [{{"type": "thinking", "thinking": "Hm"}}, call]}})
    say(type="user", message={{"content": [result]}})
    say(type="assistant", message={{"id": "m2", "content": [{{"type": "text", "text": "heard " + prompt}}]}})
    if prompt == "wait":
        time.sleep(600)
    if prompt == "fail":
        say(type="result", subtype="error_during_execution", is_error=True, error="out of credits")
    elif prompt == "login":
        say(type="result", subtype="error_during_execution", is_error=True, error="Invalid API key")
    else:
        say(type="result", subtype="success", is_error=False, result="heard", usage=usage)
"""


@asynccontextmanager
async def amp(
    folder: Path, monkeypatch: pytest.MonkeyPatch, log: MemoryLog | None = None, **settings: str
) -> AsyncIterator[Desk]:
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "amp").write_text(PROGRAM)
    (programs / "amp").chmod(0o755)
    (programs / "settings").write_text(json.dumps(settings))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    project = folder / "project"
    project.mkdir(exist_ok=True)  # no program of the session's own folder is started
    async with owned_sessions(folder, "say: Hi", log or MemoryLog()) as sessions:
        wanted = CreateSession(model_ref="", harness="amp", cwd=str(project))
        yield Desk(sessions, await sessions.dispatch(wanted))


def commands(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "bin/heard").read_text().splitlines()]


async def test_each_prompt_continues_the_thread_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ev.RunFinished(stop_reason="end_turn", usage=Usage(input=4, output=3))
    async with amp(tmp_path, monkeypatch) as desk:
        assert await desk.run("one") == done
        await desk.do(cmd.SetMode(now=0, mode="ask", agent_mode="high"))
        assert await desk.run("two") == done
        assert [one.text for one in desk.events(ev.AssistantText)] == ["heard one", "heard two"]
        assert [one.text for one in desk.events(ev.Reasoning)] == ["Hm", "Hm"]
        assert [(one.name, one.title, one.kind) for one in desk.events(ev.ToolCalled)] == [
            ("Bash", "ls", "execute")
        ] * 2
        agent = desk.events(ev.AgentSession)[-1]
        assert (agent.agent_session_id, agent.version) == (THREAD, "0.0.1790142911-g7618fb")
    run = ["threads", "continue", THREAD, "--execute", "--stream-json-thinking", "--no-ide", "--no-notifications"]
    assert commands(tmp_path) == [["--version"], ["threads", "new"], run, [*run, "--mode=high"]]


async def test_a_thread_is_continued_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog()
    async with amp(tmp_path, monkeypatch, log) as desk:
        await desk.run("one")
    async with owned_sessions(tmp_path, "say: Hi", log) as sessions:
        again = Desk(sessions, desk.session_id, after=desk.seen[-1].event_id)
        assert isinstance(await again.run("two"), ev.RunFinished)
        assert [one.code for one in again.events(ev.Notice)] == ["agent_session_resumed"]
    assert ["threads", "new"] not in commands(tmp_path)[3:]


@pytest.mark.parametrize(
    ("prompt", "code", "message"),
    [
        ("fail", "agent_failed", "Amp could not answer: out of credits"),
        ("login", "auth_required", "Amp needs a login: Invalid API key"),
        ("die", "agent_failed", "Amp ended with exit code 5. It said last:\nit broke"),
    ],
)
async def test_failures_are_told_and_the_session_stays_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: str, code: str, message: str
) -> None:
    async with amp(tmp_path, monkeypatch) as desk:
        failed = await desk.run(prompt)
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.message) == (code, message)
        assert isinstance(await desk.run("again"), ev.RunFinished)


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ({"new": "Please log in first"}, "auth_required", "Amp needs a login: it began no thread"),
        ({"new": "Hm"}, "agent_failed", "Amp began no thread: Hm"),
        ({"version": "prose"}, "agent_failed", "Amp did not say its version: prose"),
    ],
)
async def test_a_thread_that_cannot_begin_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], code: str, message: str
) -> None:
    async with amp(tmp_path, monkeypatch, None, **settings) as desk:
        failed = await desk.run("one")
        assert isinstance(failed, ev.RunFailed)
        assert (failed.code, failed.message) == (code, message)


async def test_a_prompt_is_stopped_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with amp(tmp_path, monkeypatch) as desk:
        await desk.send("wait")
        await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await desk.do(cmd.Abort(now=0, by="me"))
        assert await desk.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert isinstance(await desk.run("again"), ev.RunFinished)
    assert [name for name in os.listdir(tmp_path) if name.startswith("makai-amp-")] == []
