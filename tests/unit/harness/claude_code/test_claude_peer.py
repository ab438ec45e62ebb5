"""Claude Code behind the port of ACP, without a session around it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.claude_lab import MemoryClaude, SilentClient
from support.scripted_claude import ClaudeSettings

from makai.harness.acp.known_agents import agent_of
from makai.harness.acp.peer import AgentLaunch
from makai.harness.claude_code.launching import mcp_config
from makai.harness.claude_code.peer import ClaudePeer
from makai.wire.acp import sessions
from makai.wire.acp.common import TextBlock
from makai.wire.json_rpc_errors import RpcError

PLAIN: dict[str, Any] = {"name": "docs", "command": "docs", "args": ["-x"], "env": []}
SECRET: dict[str, Any] = {**PLAIN, "env": [{"name": "KEY", "value": "s3cret"}]}
WEB: dict[str, Any] = {"type": "http", "name": "web", "url": "https://example.com/mcp", "headers": []}


def raw(*servers: dict[str, Any]) -> tuple[msgspec.Raw, ...]:
    return tuple(msgspec.Raw(json.dumps(server).encode()) for server in servers)


class _Started:
    """Every process that a peer started, with the MCP servers that it could read."""

    def __init__(self) -> None:
        self.processes: list[MemoryClaude] = []
        self.files: list[tuple[str, str, int]] = []

    async def start(self, argv: Sequence[str], env: dict[str, str], cwd: str) -> MemoryClaude:
        for option in argv:
            name, _, value = option.partition("=")
            if name == "--mcp-config" and not value.startswith("{"):
                self.files.append((value, _text(value), os.stat(value).st_mode & 0o777))
        process = MemoryClaude(argv, env, ClaudeSettings())
        self.processes += [] if "--version" in argv else [process]
        return process


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def peer(started: _Started, cwd: Path) -> ClaudePeer:
    launch = AgentLaunch(cwd=str(cwd))
    return ClaudePeer(agent_of("claude-code", {}), launch, ["/bin/claude"], {}, SilentClient(), started.start)


async def test_servers_without_a_secret_are_on_the_command_line(tmp_path: Path) -> None:
    started = _Started()
    claude = peer(started, tmp_path)
    new = sessions.NewSessionRequest(cwd=str(tmp_path), mcp_servers=raw(PLAIN, WEB), additional_directories=("/more",))
    await claude.request("session/new", new)
    (text,) = [word for word in started.processes[0].program.argv if word.startswith("--mcp-config=")]
    assert json.loads(text.partition("=")[2]) == {
        "mcpServers": {
            "docs": {"type": "stdio", "command": "docs", "args": ["-x"], "env": {}},
            "web": {"type": "http", "url": "https://example.com/mcp", "headers": {}},
        }
    }
    assert started.processes[0].program.argv[-1] == "--add-dir=/more"
    assert started.processes[0].program.env["ENABLE_TOOL_SEARCH"] == "false"
    await claude.close()


async def test_a_secret_is_in_a_file_of_the_owner_that_is_removed(tmp_path: Path) -> None:
    started = _Started()
    claude = peer(started, tmp_path)
    await claude.request("session/new", sessions.NewSessionRequest(cwd=str(tmp_path), mcp_servers=raw(SECRET)))
    ((path, text, mode),) = started.files
    assert json.loads(text)["mcpServers"]["docs"]["env"] == {"KEY": "s3cret"}
    assert mode == 0o600
    with pytest.raises(FileNotFoundError):
        os.stat(path)
    assert "s3cret" not in json.dumps([started.processes[0].program.argv, started.processes[0].program.env])
    await claude.close()
    with pytest.raises(FileNotFoundError):
        os.stat(os.path.dirname(path))


@pytest.mark.parametrize(
    ("server", "has_secret"),
    [
        (PLAIN, False),
        (SECRET, True),
        (WEB, False),
        ({**WEB, "headers": [{"name": "Authorization", "value": "x"}]}, True),
        ({**WEB, "url": "https://me:pw@example.com/mcp"}, True),
        ({**WEB, "url": "https://example.com/mcp?key=x"}, True),
    ],
)
def test_values_headers_and_parts_of_addresses_are_secrets(server: dict[str, Any], has_secret: bool) -> None:
    config = mcp_config(raw(server))
    assert config is not None
    assert config.has_secret is has_secret


async def test_model_and_mode_are_set_by_control_requests_and_refusals_are_errors(tmp_path: Path) -> None:
    started = _Started()
    claude = peer(started, tmp_path)
    new = sessions.NewSessionRequest(cwd=str(tmp_path), mcp_servers=())
    session_id = (await claude.request("session/new", new))["sessionId"]
    await claude.request("session/set_model", sessions.SetModelRequest(session_id=session_id, model_id="haiku"))
    await claude.request("session/set_mode", sessions.SetModeRequest(session_id=session_id, mode_id="plan"))
    with pytest.raises(RpcError, match="no such mode"):
        await claude.request("session/set_mode", sessions.SetModeRequest(session_id=session_id, mode_id="bad"))
    with pytest.raises(RpcError, match="does not offer session/fork"):
        await claude.request("session/fork", None)
    assert [line["request"] for line in started.processes[0].program.heard][1:3] == [
        {"subtype": "set_model", "model": "haiku"}, {"subtype": "set_permission_mode", "mode": "plan"},
    ]  # fmt: skip
    await claude.close()


async def test_input_between_two_prompts_is_not_taken(tmp_path: Path) -> None:
    claude = peer(_Started(), tmp_path)
    new = sessions.NewSessionRequest(cwd=str(tmp_path), mcp_servers=())
    session_id = (await claude.request("session/new", new))["sessionId"]
    steer = sessions.SteeringRequest(session_id=session_id, prompt=(TextBlock(text="say Hi"),))
    assert await claude.request("_session/steering", steer) == {"outcome": "failed"}
    await claude.close()
    assert claude.ended.is_set()


async def test_unknown_lines_can_be_counted_from_outside(tmp_path: Path) -> None:
    claude = peer(_Started(), tmp_path)
    assert claude.drift == {}
    new = sessions.NewSessionRequest(cwd=str(tmp_path), mcp_servers=())
    session_id = (await claude.request("session/new", new))["sessionId"]
    words = TextBlock(text='raw {"type":"hologram"}')
    answer = await claude.request("session/prompt", sessions.PromptRequest(session_id=session_id, prompt=(words,)))
    assert answer["stopReason"] == "end_turn"
    assert claude.drift == {"hologram": 1}
    await claude.close()
