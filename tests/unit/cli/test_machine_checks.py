"""`makai doctor` with a home in which everything can be broken: each check reports by itself."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from support.plain_mcp import PYTHON, SERVER

from makai.cli.checkup import Checkup, examine, next_steps
from makai.cli.machine_checks import CheckedPlace, MachineCheck, machine_checks


async def states(home: Path, folder: Path, **environ: str) -> dict[str, MachineCheck]:
    inherited = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "MAKAI_HOME": str(home)} | environ
    return {
        one.name: one for one in await machine_checks(CheckedPlace(home=home, folder=str(folder), environ=inherited))
    }


async def examined(home: Path) -> Checkup:
    return await examine({"PATH": "/nowhere", "HOME": "/nowhere", "MAKAI_HOME": str(home)}, offline=True)


@pytest.mark.parametrize(
    ("file", "text", "check"),
    [
        ("config.toml", "[[[", "settings"),
        ("config.toml", "\0", "settings"),
        ("config.toml", '[permissions]\nallow = ["Bash("]', "settings"),
        ("sessions.db", "no database " * 50, "sessions"),
        ("mcp.json", "{", "MCP"),
        ("mcp.json", '{"mcpServers": {"a": {"command": ""}}}', "MCP"),
    ],
)
async def test_one_broken_file_is_one_bad_row_with_a_step_and_the_rest_is_still_checked(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, check: str
) -> None:
    monkeypatch.chdir(project)
    os.mkdir(home, 0o700)
    (home / file).write_text(text)
    found = await examined(home)

    bad = [one for one in found.checks if one.state == "bad" and one.name != "page"]
    assert [one.name for one in bad] == [check]
    assert any((bad[0].next_step or bad[0].text) in step for step in next_steps(found))
    assert [one.name for one in found.checks] == ["settings", "sessions", "MCP", "npm SDK", "page"]
    assert len(found.providers) > 10


async def test_a_home_that_is_a_file_is_said_and_everything_else_is_checked(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    os.close(os.open(home, os.O_CREAT))
    found = await examined(home)

    assert "not a directory" in found.home.problem
    assert {one.name for one in found.checks if one.state == "bad"} - {"page"} == {"settings", "MCP"}
    assert len(found.providers) > 10


async def test_a_folder_in_place_of_the_session_log_and_each_server_that_is_down_are_told(
    home: Path, project: Path
) -> None:
    os.mkdir(home, 0o700)
    os.mkdir(home / "sessions.db")
    servers = {"a": {"command": "/nowhere/a"}, "b": {"command": "${UNSET}"}}
    (home / "mcp.json").write_bytes(msgspec.json.encode({"mcpServers": servers}))
    found = await states(home, project)

    assert (found["sessions"].state, found["sessions"].text) == ("bad", f"{home / 'sessions.db'} is not a file")
    assert [line.partition(":")[0] for line in found["MCP"].text.splitlines()] == ["a", "b"]
    assert (found["MCP"].state, found["MCP"].next_step) == ("bad", "makai mcp list --check")


async def test_a_scripted_model_of_the_environment_is_the_default(home: Path) -> None:
    found = await examine({"PATH": "/nowhere", "MAKAI_HOME": str(home), "MAKAI_MODEL": "scripted/echo"}, offline=True)

    assert (found.default_model, found.default_reason) == ("scripted/echo", "MAKAI_MODEL is set")


async def test_servers_and_packages_are_found(home: Path, project: Path) -> None:
    os.mkdir(home, 0o700)
    plain = {"command": PYTHON, "args": ["-I", "-c", SERVER]}
    (home / "mcp.json").write_bytes(msgspec.json.encode({"mcpServers": {"plain": plain}}))
    bin_folder, package = home.parent / "bin", project / "node_modules" / "makai"
    os.makedirs(package / "dist")
    (package / "package.json").write_text('{"version": "9.9"}')
    os.mkdir(bin_folder)
    (bin_folder / "node").write_text("#!/bin/sh\necho v20.1.0\n")
    (bin_folder / "node").chmod(0o755)
    found = await states(home, project, PATH=f"{bin_folder}:/usr/bin:/bin")

    assert found["MCP"] == MachineCheck(name="MCP", state="good", text="plain: ready")
    assert found["npm SDK"] == MachineCheck(
        name="npm SDK", state="good", text=f"Node.js v20.1.0, makai 9.9 in {package}"
    )
