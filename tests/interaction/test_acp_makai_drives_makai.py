"""makai as client of makai: one session drives another process of makai over the Agent Client Protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.driven_makai import HARNESS, add_driven_makai
from support.live_sessions import Desk, desk, owned_sessions
from support.orphan_trials import processes_with

from makai.core import session_events as ev
from makai.core.content import Text
from makai.sessions import commands as cmd
from makai.sessions.log.memory import MemoryLog

SCENARIO = """\
think: Let me see
say: I write it.
tool: write {"path": "new.txt", "content": "hi"}
---
say: Written.
"""


@asynccontextmanager
async def driving(folder: Path) -> AsyncIterator[Desk]:
    (folder / "work").mkdir()
    add_driven_makai(folder, SCENARIO)
    async with owned_sessions(folder, "say: not me", MemoryLog()) as sessions:
        yield await desk(sessions, cwd=folder / "work", harness=HARNESS)


@pytest.mark.req("ACP-CLIENT-001", "ACP-CLIENT-004", "ACP-CLIENT-006")
async def test_a_question_of_the_inner_agent_is_answered_in_the_outer_session(tmp_path: Path) -> None:
    async with driving(tmp_path) as client:
        await client.send("Write it")
        asked = await client.until_asked()
        assert {option.kind for option in asked.options} == {
            "allow_once", "allow_always", "reject_once", "reject_always",
        }  # fmt: skip
        assert (asked.name, asked.diffs[0].new_text) == ("write", "hi")
        assert not (tmp_path / "work/new.txt").exists()
        await client.approve(asked.call_id)
        assert (await client.until_settled()).stop_reason == "end_turn"  # type: ignore[union-attr]
        assert (tmp_path / "work/new.txt").read_text() == "hi"
        assert [event.text for event in client.events(ev.AssistantText)] == ["I write it.", "Written."]
        assert [event.text for event in client.events(ev.Reasoning)] == ["Let me see"]
        (finished,) = client.events(ev.ToolFinished)
        assert (finished.content, finished.is_error) == ((Text(text="Created new.txt (2 bytes)."),), False)
        agent = client.events(ev.AgentSession)[-1]
        assert {"ask", "accept_edits", "plan"} <= {mode.id for mode in agent.modes}


@pytest.mark.req("ACP-CLIENT-007")
async def test_an_abort_of_the_outer_session_ends_the_inner_run_and_leaves_no_process(tmp_path: Path) -> None:
    async with driving(tmp_path) as client:
        await client.send("Write it")
        await client.until_asked()
        await client.do(cmd.Abort(now=0, by="me"))
        assert await client.until_settled() == ev.RunFinished(stop_reason="aborted")
        assert not (tmp_path / "work/new.txt").exists()
    assert processes_with(str(tmp_path)) == []
