"""A scripted agent as a program of its own: its process, its standard error and its end."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.acp_agent import AGENT_COMMAND
from support.live_sessions import Desk, owned_sessions
from support.orphan_trials import processes_with, unique_mark

from makai.core import session_events as ev
from makai.harness.acp import agent_run
from makai.sessions import commands as cmd
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession


@asynccontextmanager
async def agent_session(folder: Path, settings: str = "{}") -> AsyncIterator[Desk]:
    harness = f"{AGENT_COMMAND} {shlex.quote(settings)}"
    async with owned_sessions(folder, "say: Hi", MemoryLog()) as sessions:
        wanted = CreateSession(model_ref="", harness=harness, cwd=str(folder))
        yield Desk(sessions, await sessions.dispatch(wanted))


@pytest.mark.req("ACP-CLIENT-001", "ACP-CLIENT-010")
async def test_a_megabyte_of_errors_and_a_minimal_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IS_SANDBOX", "1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    async with agent_session(tmp_path) as client:
        assert await client.run("stderr 1000000\nenv") == ev.RunFinished(stop_reason="end_turn")
        names = json.loads(client.events(ev.AssistantText)[-1].text)
        assert not {"IS_SANDBOX", "ANTHROPIC_API_KEY", "MAKAI_HOME"} & set(names)
        failed = await client.run("stderr 1000000\ndie 4")
        assert isinstance(failed, ev.RunFailed)
        assert failed.message.endswith("last words\nit broke")
        assert len(failed.message) < 3_000


@pytest.mark.req("ACP-CLIENT-007", "ACP-CLIENT-010")
async def test_an_agent_with_children_that_ignores_everything_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_run, "CANCEL_S", 0.2)
    mark = unique_mark()
    async with agent_session(tmp_path, json.dumps({"memory": f"/{mark}"})) as client:
        await client.send("spawn\nsay Wait\nstuck")
        await client.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
        assert len(processes_with(mark)) >= 2
        await client.do(cmd.Abort(now=0, by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert processes_with(mark) == []
        assert await client.run("say Again") == ev.RunFinished(stop_reason="end_turn")
    assert processes_with(mark) == []
