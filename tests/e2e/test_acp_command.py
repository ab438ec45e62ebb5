"""`makai acp` as an editor starts it: a real child process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from support.acp_client import RpcFailed, child
from support.cli import Cli

SCENARIO = """
say: Hello.
---
when: stall
say: Hel
stall
---
when: write
tool: write {"path": "a.txt", "content": "A"}
---
when: echo
echo
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "work").mkdir()
    return {"MAKAI_SCENARIO": str(scenario)}


@pytest.mark.req("ACP-INIT-001", "ACP-INIT-002")
async def test_a_turn_in_a_child_that_ends_with_its_input(tmp_path: Path, environ: dict[str, str]) -> None:
    async with child(tmp_path, "-m", "scripted/scenario", environ=environ) as agent:
        await agent.say_raw(b"noise", b"[1]")
        assert (await agent.initialize())["protocolVersion"] == 1
        session_id = await agent.new_session(tmp_path / "work")
        assert await agent.run(session_id, "hi") == "end_turn"
        assert agent.text() == "Hello."
        prompt = agent.prompt(session_id, "stall")
        await agent.until(lambda: agent.text() == "Hello.Hel")
        await agent.channel.close()
        with pytest.raises(EOFError):
            await prompt
        async with asyncio.timeout(10):
            assert await agent.process.wait() == 0


async def test_a_killed_agent_loses_nothing_that_was_seen(tmp_path: Path, environ: dict[str, str]) -> None:
    async with child(tmp_path, "-m", "scripted/scenario", environ=environ) as agent:
        await agent.initialize()
        session_id = await agent.new_session(tmp_path / "work")
        await agent.run(session_id, "echo first")
        agent.prompt(session_id, "stall").add_done_callback(lambda done: done.exception())
        await agent.until(lambda: agent.text() == "echo firstHel")
        os.kill(agent.process.pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            await agent.process.wait()
    async with child(tmp_path, "-m", "scripted/scenario", environ=environ) as agent:
        await agent.initialize()
        await agent.ask("session/load", {"sessionId": session_id, "cwd": str(tmp_path / "work"), "mcpServers": []})
        assert agent.text().startswith("echo firstHel")
        assert agent.text(kind="user_message_chunk") == "echo firststall"


async def test_editors_in_two_processes_share_a_session(tmp_path: Path, environ: dict[str, str]) -> None:
    """The first owns the session. When it is killed, the second takes it over."""
    opening = {"cwd": str(tmp_path / "work"), "mcpServers": []}
    async with (
        child(tmp_path, "-m", "scripted/scenario", environ=environ) as owner,
        child(tmp_path, "-m", "scripted/scenario", environ=environ) as other,
    ):
        await owner.initialize()
        await other.initialize()
        session_id = await owner.new_session(tmp_path / "work")
        await other.ask("session/load", {"sessionId": session_id, **opening})
        prompt = owner.prompt(session_id, "write")
        question = await owner.until_asked("session/request_permission")
        there = await other.until_asked("session/request_permission")
        await other.answer(there, {"outcome": {"outcome": "cancelled"}})
        assert await prompt == {"stopReason": "cancelled"}
        assert owner.notifications("$/cancel_request") == [{"requestId": question["id"]}]
        os.kill(owner.process.pid, signal.SIGKILL)
        assert await other.run(session_id, "echo still here") == "end_turn"
        assert other.text() == "echo still here"


async def test_without_a_login_there_is_no_session(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    async with child(tmp_path) as agent:
        methods = (await agent.initialize())["authMethods"]
        with pytest.raises(RpcFailed) as caught:
            await agent.new_session(tmp_path / "work")
        assert (caught.value.code, caught.value.data["authMethods"]) == (-32000, methods)


async def test_a_login_in_a_terminal_asks_for_the_provider(tmp_path: Path) -> None:
    finished = await Cli(tmp_path)("acp", "--login", stdin=b"test-fixture\nok\n", environ={"MAKAI_TEST_LOGIN": "1"})
    assert finished.code == 0
    assert "Logged in to test-fixture." in finished.out


async def test_the_printed_settings_start_this_agent_in_another_environment(tmp_path: Path) -> None:
    finished = await Cli(tmp_path)("acp", "--print-config", "zed")
    printed = json.loads(finished.out)["agent_servers"]["makai"]
    assert printed["env"] == {"MAKAI_HOME": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        printed["command"],
        *printed["args"],
        env={"PATH": "/usr/bin:/bin", **printed["env"]},
        cwd="/",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    async with asyncio.timeout(60):
        said, _ = await process.communicate(json.dumps(request).encode() + b"\n")
    assert json.loads(said)["result"]["agentInfo"]["name"] == "makai"
    assert process.returncode == 0


async def test_a_home_that_is_open_to_others_is_no_fault_of_the_parameters(tmp_path: Path) -> None:
    home = tmp_path / "makai-home"
    home.mkdir(mode=0o755)
    async with child(tmp_path, "-m", "scripted/echo") as agent:
        await agent.initialize()
        with pytest.raises(RpcFailed) as caught:
            await agent.new_session(tmp_path)
    message = f"{home} is open to other users. Make it yours alone, with mode 700."
    assert (caught.value.code, caught.value.message) == (-32603, message)
