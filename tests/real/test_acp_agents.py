"""Real coding agents, driven by makai over ACP on a scripted model, and a real client that drives `makai acp`.

`make test-real` installs them and runs this; see tests/agents/package.json for their versions.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.acp_peer import acp_command, acp_environment
from support.live_sessions import Desk, owned_sessions
from support.machine import RecordMeasure
from support.model_apis import FINAL_WORDS, WORDS, model_apis

from makai.client.harness.opening import open_harness
from makai.core import session_events as ev
from makai.harness import complete
from makai.harness.contract.one_shot import OneShotMessage, OneShotRequest
from makai.sessions.requests import CreateSession

pytestmark = pytest.mark.agents
MODULES = Path(__file__).resolve().parents[2] / "build/agents/node_modules"
WITHIN_S = 300
CONTENT = "by a real agent\n"


class RealAgent(NamedTuple):
    package: str
    environ: dict[str, str]
    """`@ADDRESS@` stands for the address of the model."""


OPENCODE = {
    "model": "scripted/model",
    "permission": {"edit": "ask", "bash": "ask"},
    "provider": {
        "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Scripted",
            "options": {"baseURL": "@ADDRESS@/v1", "apiKey": "none"},
            "models": {
                "model": {"name": "Scripted model", "tool_call": True, "limit": {"context": 100000, "output": 4096}}
            },
        }
    },
}
AGENTS = {
    "claude-agent-acp": RealAgent(
        "@agentclientprotocol/claude-agent-acp",
        {"ANTHROPIC_BASE_URL": "@ADDRESS@", "ANTHROPIC_API_KEY": "sk-none", "ANTHROPIC_MODEL": "claude-sonnet-4-5"},
    ),
    "opencode": RealAgent(
        "opencode-ai",
        {
            "OPENCODE_CONFIG_CONTENT": json.dumps(OPENCODE),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
    ),
    "gemini": RealAgent(
        "@google/gemini-cli",
        {
            "GOOGLE_GEMINI_BASE_URL": "@ADDRESS@",
            "GEMINI_API_KEY": "none",
            "GEMINI_MODEL": "gemini-2.5-flash",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
    ),
}


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The programs on PATH, with the Node that they need, and a home that has none of the developer's logins."""
    if not MODULES.is_dir():
        pytest.skip("NOT TESTED: real agents, which `make test-real` installs")
    # Node, and opencode, which a script of its package would link: no script of a package runs.
    programs = [
        str(program.parent) for name in ("node", "opencode") for program in MODULES.glob(f"{name}-*/bin/{name}")
    ]
    monkeypatch.setenv("PATH", os.pathsep.join([*programs, str(MODULES / ".bin"), os.environ["PATH"]]))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    shutil.rmtree(tmp_path / ".npm", ignore_errors=True)


def version_of(package: str) -> str:
    return str(json.loads((MODULES / package / "package.json").read_text())["version"])


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("name", AGENTS)
async def test_a_real_agent_writes_a_file_after_our_approval(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure, name: str
) -> None:
    agent, target = AGENTS[name], project / "real.txt"
    async with model_apis(str(target), CONTENT) as model:
        for variable, value in agent.environ.items():
            monkeypatch.setenv(variable, value.replace("@ADDRESS@", model.url))
        async with owned_sessions(tmp_path, "say: Not asked.") as sessions, asyncio.timeout(WITHIN_S):
            wanted = CreateSession(model_ref="", harness=f"acp:{name}", cwd=str(project))
            desk = Desk(sessions, await sessions.dispatch(wanted))
            began = time.monotonic()
            await desk.send("Please write real.txt.")
            event = (await desk.until(_asked_or_settled)).event
            assert isinstance(event, ev.ApprovalRequested), (event, model.asked)
            await desk.approve(event.call_id)
            settled = await desk.until_settled()
            seconds = time.monotonic() - began
        said = "".join(delta.delta for delta in desk.events(ev.AssistantTextDelta))

    record_measure(f"{agent.package} {version_of(agent.package)}: asked, wrote, finished", "yes", f"{seconds:.1f} s")
    assert isinstance(settled, ev.RunFinished), settled
    assert target.read_text() == CONTENT
    assert FINAL_WORDS in said


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("name", ["opencode", "gemini"])
async def test_a_real_agent_completes_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_measure: RecordMeasure, name: str
) -> None:
    async with model_apis("", "") as model, asyncio.timeout(WITHIN_S):
        for variable, value in AGENTS[name].environ.items():
            monkeypatch.setenv(variable, value.replace("@ADDRESS@", model.url))
        began = time.monotonic()
        request = OneShotRequest(messages=(OneShotMessage(content="One word, please."),))
        result = await complete(open_harness(name, home=tmp_path / "makai"), request)
        record_measure(f"{name}: one-shot", "yes", f"{time.monotonic() - began:.1f} s")

    assert (result.text, result.structured, result.schema_ok) == (WORDS, None, False)


def _asked_or_settled(logged: ev.Logged) -> bool:
    return isinstance(logged.event, ev.ApprovalRequested | ev.RunFinished | ev.RunFailed)


SCENARIO = """
say: Let me write that down.
tool: write {"path": "note.txt", "content": "written"}
---
say: It is written.
"""


@pytest.mark.usefixtures("_installed")
async def test_acpx_drives_makai(tmp_path: Path, project: Path, record_measure: RecordMeasure) -> None:
    (tmp_path / "scenario.txt").write_text(SCENARIO, encoding="utf-8")
    agent = tmp_path / "agent"
    agent.write_text(f"#!/bin/sh\nexec {' '.join(acp_command())}\n")
    agent.chmod(0o700)
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *("acpx", "--agent", str(agent), "--format", "json", "--approve-all", "exec", "Please write."),
        env=acp_environment(tmp_path) | {"PATH": os.environ["PATH"]},
        cwd=project,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WITHIN_S):
        out, err = await process.communicate()
    frames: list[Any] = [json.loads(line) for line in out.splitlines()]

    record_measure(f"acpx {version_of('acpx')}: drove makai acp", "yes", f"{time.monotonic() - began:.1f} s")
    assert process.returncode == 0, err.decode()
    assert (project / "note.txt").read_text() == "written"
    assert any(frame.get("result", {}).get("stopReason") == "end_turn" for frame in frames), out.decode()
