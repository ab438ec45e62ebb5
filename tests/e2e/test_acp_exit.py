"""`makai acp` exits within a second of the end of its input, whatever it is doing, and leaves no process behind."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
from support.acp_peer import (
    WAIT_S,
    AcpPeer,
    AcpProcess,
    acp_command,
    acp_environment,
    acp_process,
    choosing,
)
from support.machine import slack
from support.orphan_trials import processes_with, unique_mark
from support.plain_mcp import PYTHON, SERVER

WITHIN_S = 1.0
START_S = 1.0
"""Until the process reads its input."""
STUBBORN_SERVER = f"""
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{SERVER}
while True:
    signal.pause()
"""
"""It ends neither with its input nor when it is asked to."""
SCENARIO = """
when: stall
say: Hel
stall
---
when: write
tool: write {"path": "a.txt", "content": "A"}
---
when: command
tool: shell {"command": "trap '' TERM; echo begun; while :; do sleep 1; done; : MARK"}
---
say: Good day.
"""


async def seconds_to_exit(process: AcpProcess) -> float:
    began = time.monotonic()
    process.end_input()
    assert await process.ended() == 0
    return time.monotonic() - began


async def reach(state: str, peer: AcpPeer, session_id: str) -> None:
    """Bring the agent into a state. The MCP server of the session is up in all of them: its prompt is a command."""
    await peer.until(lambda frame: "stubborn" in json.dumps(frame))
    if state == "idle":
        return
    await peer.ask("session/prompt", peer.prompt_params(session_id, state))
    if state == "write":
        await peer.until(lambda frame: frame.get("method") == "session/request_permission")
    elif state == "command":
        await peer.until(lambda frame: "begun" in json.dumps(frame))
    else:
        await peer.until(lambda frame: "Hel" in json.dumps(frame))


@pytest.mark.req("ACP-INIT-001")
@pytest.mark.parametrize("state", ["idle", "stall", "write", "command"])
async def test_it_exits_within_a_second_of_the_end_of_its_input(tmp_path: Path, project: Path, state: str) -> None:
    mark = unique_mark()
    (project / "server.py").write_text(STUBBORN_SERVER, encoding="utf-8")
    server = {"name": "stubborn", "command": PYTHON, "args": [str(project / "server.py"), mark], "env": []}
    async with (
        acp_process(tmp_path, SCENARIO.replace("MARK", mark)) as process,
        AcpPeer(process) as peer,
    ):
        if state == "command":
            peer.answers["session/request_permission"] = choosing("allow_once")
        await peer.initialize()
        session_id = (await peer.new_session(project, mcpServers=[server]))["sessionId"]
        await reach(state, peer, session_id)
        assert processes_with(mark) != []

        seconds = await seconds_to_exit(process)
        left = processes_with(mark)

    assert (left, seconds < WITHIN_S * slack()) == ([], True), seconds


@pytest.mark.req("ACP-INIT-001")
async def test_it_exits_although_the_editor_reads_nothing_any_more(tmp_path: Path) -> None:
    """More answers wait than the pipe and the buffers of the connection take, so it waits for the editor to read."""
    unread, output = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *acp_command(), env=acp_environment(tmp_path), stdin=asyncio.subprocess.PIPE, stdout=output
    )
    os.close(output)
    try:
        assert process.stdin is not None
        for number in range(1_500):
            line = json.dumps({"jsonrpc": "2.0", "id": f"{number:1000}", "method": "no/such"})
            process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(WAIT_S):
            await process.stdin.drain()
            process.stdin.close()
            await process.stdin.wait_closed()  # all of it is in the pipe
            began = time.monotonic()
            assert await process.wait() == 0
        assert time.monotonic() - began < (WITHIN_S + START_S) * slack()
    finally:
        os.close(unread)
        if process.returncode is None:
            process.kill()
            await process.wait()
