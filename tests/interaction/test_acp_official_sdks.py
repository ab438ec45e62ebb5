"""The official SDKs of ACP: their clients drive `makai acp`, and makai drives agents that are made with them."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.acp_peer import acp_command, acp_environment
from support.acp_schema import FrameChecker
from support.acp_sdks import FOLDER, python_sdk, typescript_sdk
from support.cli import SOURCES
from support.live_sessions import Desk, owned_sessions

from makai.core import session_events as ev
from makai.sessions.commands import Abort
from makai.sessions.requests import CreateSession

SCENARIO = """
say: Let me write that down.
tool: write {"path": "note.txt", "content": "written"}
---
say: It is written.
---
when: at length
pace: 5ms
repeat: 100000 word
"""
WITHIN_S = 120
OFFICIAL_EXAMPLE = "node_modules/acp-sdk-with-examples/dist/examples/agent.js"
"""The example agent that the TypeScript SDK itself came with; later versions of the package are without examples."""


def client_of(language: str) -> tuple[list[str], dict[str, str]]:
    if language == "python":
        return [sys.executable, str(FOLDER / "client.py")], {"PYTHONPATH": f"{python_sdk()}:{SOURCES}"}
    return [typescript_sdk(), str(FOLDER / "client.mjs")], {}


@pytest.mark.req("ACP-INIT-001", "ACP-PERM-002", "ACP-SESS-009")
@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_the_client_of_an_official_sdk_can_use_everything(tmp_path: Path, project: Path, language: str) -> None:
    client, environ = client_of(language)
    (tmp_path / "scenario.txt").write_text(SCENARIO, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(*client, str(project), *acp_command()),
        env=acp_environment(tmp_path, environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WITHIN_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    report: dict[str, Any] = json.loads(out)

    assert report == {
        "version": 1,
        "agent": "makai",
        "stops": ["end_turn", "cancelled"],
        "text": "Let me write that down.It is written.",
        "tools": ["completed"],
        "asked": [["allow_always", "allow_once", "reject_always", "reject_once"]],
        "options": True,
        "changed": True,
        "listed": [True],
        "replayed": "Please write.at length",
        "answered": True,
        "refused": -32002,
        "exit": 0,
    }
    assert err.decode() == ""
    assert (project / "note.txt").read_text() == "written"


@asynccontextmanager
async def driven(tmp_path: Path, project: Path, language: str) -> AsyncIterator[Desk]:
    """A session whose agent is made with an official SDK. At the end, every frame that makai sent is checked."""
    if language == "python":
        agent = ["env", f"PYTHONPATH={python_sdk()}", sys.executable, str(FOLDER / "agent.py")]
    else:
        agent = [typescript_sdk(), str(FOLDER / (OFFICIAL_EXAMPLE if language == "example" else "agent.mjs"))]
    record = tmp_path / "record.txt"
    command = shlex.join([sys.executable, str(FOLDER / "tee.py"), str(record), *agent])
    async with owned_sessions(tmp_path, "say: Not asked.") as sessions:
        wanted = CreateSession(model_ref="", harness=f"acp:{command}", cwd=str(project))
        yield Desk(sessions, await sessions.dispatch(wanted))
    checker = FrameChecker("client")
    for line in record.read_bytes().splitlines():
        (checker.sent if line.startswith(b">") else checker.received)(line[1:])
    assert checker.checked > 0


def said(desk: Desk) -> str:
    return "".join(delta.delta for delta in desk.events(ev.AssistantTextDelta))


@pytest.mark.req("ACP-CLIENT-001", "ACP-CLIENT-004")
@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_an_agent_of_an_official_sdk_answers_and_asks_before_it_edits(
    tmp_path: Path, project: Path, language: str
) -> None:
    async with driven(tmp_path, project, language) as desk:
        assert isinstance(await desk.run("Hello there"), ev.RunFinished)
        await desk.send("edit")
        asked = await desk.until_asked()
        await desk.approve(asked.call_id)
        assert isinstance(await desk.until_settled(), ev.RunFinished)
        await desk.send("edit")
        asked = await desk.until_asked()
        await desk.deny(asked.call_id)
        assert isinstance(await desk.until_settled(), ev.RunFinished)

    assert said(desk) == "Hello thereThe edit completed.The edit failed."
    assert "".join(delta.delta for delta in desk.events(ev.ReasoningDelta)) == "Hm."


@pytest.mark.req("ACP-CLIENT-007")
@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_an_agent_of_an_official_sdk_is_stopped_in_the_middle_of_a_prompt(
    tmp_path: Path, project: Path, language: str
) -> None:
    async with driven(tmp_path, project, language) as desk:
        await desk.send("wait")
        await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        await desk.do(Abort(now=0, by="tester"))
        settled = await desk.until_settled()
        assert isinstance(await desk.run("Still there?"), ev.RunFinished)

    assert isinstance(settled, ev.RunFinished | ev.RunFailed)
    assert said(desk) == "Waiting. Still there?"


@pytest.mark.req("ACP-CLIENT-004", "ACP-CLIENT-006")
@pytest.mark.parametrize(
    ("is_allowed", "last"),
    [
        (True, "Perfect! I've successfully updated the configuration. The changes have been applied."),
        (False, "I understand you prefer not to make that change. I'll skip the configuration update."),
    ],
)
async def test_the_example_agent_of_the_official_sdk_runs_and_asks(
    tmp_path: Path, project: Path, is_allowed: bool, last: str
) -> None:
    async with driven(tmp_path, project, "example") as desk:
        await desk.send("Please configure it.")
        asked = await desk.until_asked()
        await (desk.approve if is_allowed else desk.deny)(asked.call_id)
        settled = await desk.until_settled()

    assert isinstance(settled, ev.RunFinished)
    assert asked.title == "Modifying critical configuration file"
    assert [(option.id, option.kind) for option in asked.options] == [
        ("allow", "allow_once"),
        ("reject", "reject_once"),
    ]
    assert said(desk).endswith(last)
