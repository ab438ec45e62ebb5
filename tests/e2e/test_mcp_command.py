"""`makai mcp`: servers are added, listed, checked and removed; the files are those of Claude and Cursor."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from support.cli import DEADLINE_S, Cli, Finished
from support.places import mode
from support.plain_mcp import PYTHON, SERVER

PLAIN = (PYTHON, "-I", "-c", SERVER)
TOOLS = [f"mcp__plain__{name}" for name in ("connect", "cwd", "echo", "plant", "write")]


@pytest.fixture
def makai(home: Path) -> Cli:
    return Cli(home)


async def test_a_server_is_added_listed_tested_and_removed(makai: Cli, home: Path) -> None:
    added = await makai("mcp", "add", "plain", "--", *PLAIN)
    again = await makai("mcp", "add", "plain", "--", "true")
    checked = await makai("mcp", "list", "--check", "--json")
    tested = await makai("mcp", "test", "plain", "--json")
    written, access = json.loads((home / "mcp.json").read_text()), mode(home / "mcp.json")
    removed = [await makai("mcp", "remove", "plain") for _ in range(2)]
    left = await makai("mcp", "list")

    assert (added.code, again.code) == (0, 2)
    assert written == {"mcpServers": {"plain": {"command": PYTHON, "args": list(PLAIN[1:])}}}
    assert access == 0o600
    server = {"name": "plain", "scope": "user", "address": PYTHON, "state": "ready", "tools": TOOLS}
    assert (checked.code, checked.json()) == (0, {"servers": [server]})
    assert (tested.code, tested.json()) == (0, server)
    assert [one.code for one in removed] == [0, 1]
    assert left == Finished(0, "No MCP server is configured. Add one: makai mcp add NAME -- COMMAND\n", "")


async def test_an_enabled_server_that_is_down_fails_the_check_and_no_secret_is_shown(makai: Cli, home: Path) -> None:
    header = ("--header", "Authorization=Bearer ${TOKEN}")
    await makai("mcp", "add", "web", "http://127.0.0.1:1/mcp?key=c4n4ry", *header)
    file = home / "mcp.json"
    servers = json.loads(file.read_text())["mcpServers"]
    file.write_text(json.dumps({"$schema": "kept", "mcpServers": {**servers, "off": {"disabled": True}}}))
    plain = await makai("mcp", "list", environ={"TOKEN": "c4n4ry"})
    without = await makai("mcp", "list", "--check")
    removed = await makai("mcp", "remove", "web")
    only_disabled = await makai("mcp", "list", "--check", "--json")

    assert (plain.code, "c4n4ry" in plain.out) == (0, False)
    assert without.code == 1
    assert "needs the environment variable TOKEN" in without.out
    assert removed.code == 0
    assert (only_disabled.code, only_disabled.json()["servers"][0]["enabled"]) == (0, False)
    assert json.loads(file.read_text())["$schema"] == "kept"


async def test_a_projects_server_is_started_only_in_a_trusted_folder(
    makai: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    added = await makai("mcp", "add", "--scope", "project", "plain", "--", *PLAIN)
    untrusted = await makai("mcp", "test", "plain")
    await makai("sessions", "trust", "--yes", str(project))
    trusted = await makai("mcp", "test", "plain", "--json")

    assert "makai sessions trust" in added.out
    assert (untrusted.code, "not trusted" in untrusted.out) == (1, True)
    assert (trusted.code, trusted.json()["tools"]) == (0, TOOLS)


async def test_the_last_server_of_a_project_leaves_no_file_that_asks_for_trust(
    makai: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    added = await makai("mcp", "add", "--scope", "project", "a b", "--", "npx", "-y", "one")
    listed = await makai("mcp", "list")
    await makai("mcp", "remove", "a b")

    assert "makai mcp test 'a b'" in added.out
    assert listed.out == "a b (project) npx one\n"
    assert not (project / ".mcp.json").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "a", "--header", "X=1", "--", "true"), "--header is for a URL"),
        (("add", "a", "--env", "X", "--", "true"), "--env looks like NAME=VALUE"),
        (("add", "a", "--transport", "http", "nowhere"), "no http or https URL"),
        (("add", "a"), "Missing argument"),
        (("add", "a", "npx", "-y", "foo"), "write `--` before it: makai mcp add NAME -- COMMAND -y"),
        (("list",), "mcp.json is not JSON: Expecting property name enclosed in double quotes (line 1)."),
        (("add", "a", "--", "true"), "is not JSON"),
    ],
)
async def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    makai: Cli, home: Path, arguments: tuple[str, ...], why: str
) -> None:
    os.mkdir(home, 0o700)
    before = "{" if "JSON" in why else "{}"
    (home / "mcp.json").write_text(before)
    async with asyncio.timeout(DEADLINE_S):
        refused = await makai("mcp", *arguments)

    assert (refused.code, why in refused.err) == (2, True), refused
    assert (home / "mcp.json").read_text() == before
