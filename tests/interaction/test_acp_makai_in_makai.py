"""makai drives makai over the Agent Client Protocol: what the outer one asks is true of where the command runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.acp_peer import acp_command, acp_environment
from support.live_sessions import Desk, owned_sessions

from makai.core import session_events as ev
from makai.sessions.requests import CreateSession
from makai.tools.sandbox.detect import detect

pytestmark = pytest.mark.skipif(detect().backend is None, reason="no sandbox works here")
SCENARIO = """
tool: shell {"command": "touch made.txt"}
---
say: Done.
"""


@pytest.mark.req("ACP-CLIENT-006")
@pytest.mark.parametrize(
    ("sandbox", "says"),
    [
        ("workspace-write", "in a terminal of your editor, in its own sandbox (workspace-write)"),
        ("full-access", "in a terminal of your editor, without the sandbox"),
    ],
)
async def test_a_question_of_the_inner_makai_says_whether_the_outer_one_confines_the_command(
    tmp_path: Path, project: Path, sandbox: ev.SandboxLevel, says: str
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "scenario.txt").write_text(SCENARIO, encoding="utf-8")
    variables = [f"{name}={value}" for name, value in acp_environment(inner).items()]
    async with owned_sessions(tmp_path, "say: Not asked.") as sessions:
        wanted = CreateSession(
            model_ref="",
            harness=f"acp:{shlex.join(['env', *variables, *acp_command()])}",
            cwd=str(project),
            terms=ev.SessionTerms(builtin_tools=True, sandbox=sandbox),
        )
        desk = Desk(sessions, await sessions.dispatch(wanted))
        await desk.send("Make a file.")
        asked = await desk.until_asked()
        await desk.approve(asked.call_id)
        settled = await desk.until_settled()

    assert asked.title == f"touch made.txt [{says}]"
    assert isinstance(settled, ev.RunFinished)
    assert (project / "made.txt").exists()
