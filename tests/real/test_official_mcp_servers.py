"""The official MCP servers in a run of `makai`: all of them join before the first turn, and each carries out a call.

Servers that are installed are tried in every run of the tests. `make test-real` installs all of them, and also starts
one by `npx -y`, which downloads it when it is started.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.cli import Cli
from support.machine import RecordMeasure

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / "build" / "mcp-servers"
VENV = INSTALLED / "venv"
PATHS = [str(INSTALLED / "node_modules" / ".bin"), str(VENV / "bin"), os.environ["PATH"]]
RUN = ("run", "-m", "scripted/scenario", "--permission-mode", "never_ask", "--sandbox", "full-access")


class Official(msgspec.Struct, frozen=True):
    program: str
    tool: str
    arguments: Callable[[Path], Mapping[str, Any]]
    answer: str
    """A part of what the tool answers."""
    options: Callable[[Path], tuple[str, ...]] = lambda folder: ()


SERVERS = {
    "everything": Official(
        "mcp-server-everything",
        "echo",
        lambda folder: {"message": "Grüße\u2028hier"},
        "Grüße\u2028hier",
    ),
    "filesystem": Official(
        "mcp-server-filesystem",
        "read_text_file",
        lambda folder: {"path": str(folder / "note.txt")},
        "Remember the milk.",
        lambda folder: (str(folder),),
    ),
    "memory": Official(
        "mcp-server-memory",
        "create_entities",
        lambda folder: {"entities": [{"name": "milk", "entityType": "food", "observations": ["white"]}]},
        "milk",
    ),
    "thinking": Official(
        "mcp-server-sequential-thinking",
        "sequentialthinking",
        lambda folder: {"thought": "Hm.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        "thoughtHistoryLength",
    ),
    "time": Official(
        "mcp-server-time",
        "convert_time",
        lambda folder: {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        "21:00",
        lambda folder: ("--local-timezone", "UTC"),
    ),
    "git": Official(
        "mcp-server-git",
        "git_status",
        lambda folder: {"repo_path": str(folder)},
        "note.txt",
        lambda folder: ("--repository", str(folder)),
    ),
}


def install_servers_in_python() -> None:
    """Into an environment of their own: they need another version of the MCP SDK than makai."""
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True, timeout=600)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"], check=True, timeout=600)


def program_of(name: str) -> str | None:
    return shutil.which(SERVERS[name].program, path=os.pathsep.join(PATHS))


class Place:
    def __init__(self, path: Path) -> None:
        self.home, self.folder = path / "home", path / "folder"
        self.home.mkdir(mode=0o700)
        self.folder.mkdir()
        (self.folder / "note.txt").write_text("Remember the milk.")
        subprocess.run(["git", "init", "-q", str(self.folder)], check=True)

    async def answers(self, commands: Mapping[str, tuple[str, ...]], *, wait_s: int) -> dict[str, str]:
        """What one call of each server's tool answers, in one run that waits for all of them."""
        own = {"MEMORY_FILE_PATH": str(self.home / "memory.json"), "npm_config_cache": str(self.home / "npm")}
        env = npm_settings() | own
        entries = {
            name: {"command": command[0], "args": [*command[1:], *SERVERS[name].options(self.folder)], "env": env}
            for name, command in commands.items()
        }
        (self.home / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        calls = [
            f"tool: mcp__{name}__{SERVERS[name].tool} {json.dumps(SERVERS[name].arguments(self.folder))}"
            for name in commands
        ]
        scenario = self.home / "scenario.txt"
        scenario.write_text("\n".join(calls) + "\n---\nsay: Done.")
        command = (*RUN, "--cwd", str(self.folder), "--mcp-wait", str(wait_s), "--output-format", "stream-json", "Go")
        async with Cli(self.home).started(*command, environ={"MAKAI_SCENARIO": str(scenario)}) as process:
            async with asyncio.timeout(wait_s + 60.0):
                out, err = await process.communicate(b"")
        assert process.returncode == 0, err.decode()
        called: dict[Any, str] = {}
        found: dict[str, str] = {}
        for event in map(json.loads, out.splitlines()):
            if event["type"] == "tool_call":
                called[event["call_id"]] = event["name"].split("__")[1]
            elif event["type"] == "tool_finished":
                text = "".join(part.get("text", "") for part in event["content"])
                found[called[event["call_id"]]] = f"ERROR {text}" if event.get("is_error") else text
        return found


def npm_settings() -> dict[str, str]:
    """Where packages come from, as this machine has it set."""
    settings = {name: value for name, value in os.environ.items() if name.lower().startswith("npm_config_")}
    return {"npm_config_userconfig": str(Path.home() / ".npmrc")} | settings


async def check_servers(path: Path, programs: Mapping[str, str], record_measure: RecordMeasure) -> None:
    answers = await Place(path).answers({name: (program,) for name, program in programs.items()}, wait_s=120)
    right = [name for name in programs if SERVERS[name].answer in answers.get(name, "")]
    record_measure("official MCP servers that joined and worked", f"{len(programs)}", f"{len(right)}")
    assert right == list(programs), answers


@pytest.mark.timeout(300)
async def test_the_official_servers_that_are_installed_join_a_run_together_and_work(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    installed = {name: program for name in SERVERS if (program := program_of(name))}
    if not installed:
        pytest.skip("no official MCP server is installed: none was tried (`make test-real` installs them)")
    await check_servers(tmp_path, installed, record_measure)


@pytest.mark.agents
@pytest.mark.timeout(900)
async def test_all_official_servers_join_a_run_together_and_work(tmp_path: Path, record_measure: RecordMeasure) -> None:
    if program_of("time") is None:
        await asyncio.to_thread(install_servers_in_python)
    programs = {name: program_of(name) or f"{name} is not installed" for name in SERVERS}
    await check_servers(tmp_path, programs, record_measure)


@pytest.mark.agents
@pytest.mark.timeout(900)
async def test_a_server_that_npx_downloads_first_joins_a_run_that_waits(tmp_path: Path) -> None:
    package = f"@modelcontextprotocol/server-everything@{npm_version('@modelcontextprotocol/server-everything')}"
    answers = await Place(tmp_path).answers({"everything": ("npx", "-y", package)}, wait_s=300)
    assert SERVERS["everything"].answer in answers["everything"], answers


def npm_version(package: str) -> str:
    wanted = json.loads((ROOT / "tests" / "mcp_servers" / "package.json").read_text())
    return str(wanted["dependencies"][package])
