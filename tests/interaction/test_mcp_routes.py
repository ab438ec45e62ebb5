"""The MCP servers of the user over REST: real programs, started as a session would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.plain_mcp import PYTHON, SERVER
from support.serving import serving

TALKS = "import os, sys; print('I use', os.environ['API_KEY'], file=sys.stderr, flush=True)\n"


@pytest.fixture(autouse=True)
def server_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)


async def test_a_server_is_added_tested_and_removed(tmp_path: Path) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        new = {"name": "plain", "command": [PYTHON, "-c", TALKS + SERVER], "env": {"API_KEY": "sk-very-secret"}}
        status, said = await site.ask("POST", "/api/mcp", new)
        assert (status, [one["state"] for one in said["servers"]]) == (201, [""])
        assert "sk-very-secret" not in json.dumps(said)
        assert (await site.ask("POST", "/api/mcp", new))[0] == 400  # the name is taken

        status, said = await site.ask("POST", "/api/mcp/test", {"name": "plain"})
        [tested] = said["servers"]
        assert (status, tested["state"], tested["problem"]) == (200, "ready", "")
        assert len(tested["tools"]) == 5
        assert tested["log"] == "I use (hidden)"
        assert tested["tested_ms"] is not None

        _, said = await site.ask("POST", "/api/mcp/remove", {"name": "plain"})
        assert said["servers"] == []


async def test_a_server_that_fails_says_why_without_its_secrets(tmp_path: Path) -> None:
    program = "import os, sys; print('the key', os.environ['API_KEY'], 'is wrong', file=sys.stderr); sys.exit(3)"
    async with serving(tmp_path, "say: Hi.") as site:
        new = {"name": "broken", "command": [PYTHON, "-c", program], "env": {"API_KEY": "sk-very-secret"}}
        await site.ask("POST", "/api/mcp", new)
        _, said = await site.ask("POST", "/api/mcp/test", {"name": "broken"})

    [tested] = said["servers"]
    assert tested["state"] == "failed"
    assert "the key (hidden) is wrong" in tested["problem"]
    assert "sk-very-secret" not in json.dumps(said)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"name": "x"}, "Give a command, or the URL of a server that runs elsewhere."),
        ({"name": " ", "url": "https://mcp.example/mcp"}, "Give the server a name."),
        ({"name": "x", "url": "https://mcp.example/mcp", "network": True}, "Variables, network and git are for"),
    ],
)
async def test_a_server_that_cannot_be_meant_is_refused(tmp_path: Path, new: object, message: str) -> None:
    async with serving(tmp_path, "say: Hi.") as site:
        status, said = await site.ask("POST", "/api/mcp", new)

    assert status == 400
    assert said["error"]["message"].startswith(message)
