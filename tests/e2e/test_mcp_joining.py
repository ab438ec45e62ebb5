"""Slow MCP servers of `makai run`: their tools join when they are up, text and JSON say so, and nothing else waits."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cli import DEADLINE_S, Cli
from support.plain_mcp import GATED_SERVER, PYTHON, SERVER

RUN = ("run", "-m", "scripted/scenario", "--permission-mode", "never_ask", "--sandbox", "full-access")
STARTING = "The MCP server {} is still starting; its tools join the next turn when it is up."
JOINED = "The MCP server {} is up: 1 tool joined."


class Place:
    """A home with MCP servers that start when the test says so, and a folder to work in."""

    def __init__(self, path: Path) -> None:
        self.home, self.folder = path / "home", path / "folder"
        self.home.mkdir(mode=0o700)
        self.folder.mkdir()
        self.makai = Cli(self.home)
        self._entries: dict[str, Any] = {}

    def gated(self, name: str) -> None:
        program = self.folder / "gated.py"
        program.write_text(GATED_SERVER)
        pipes = [str(self.folder / f"{name}.{kind}") for kind in ("gate", "up")]
        for pipe in pipes:
            os.mkfifo(pipe)
        self.server(name, PYTHON, "-I", str(program), *pipes)

    def server(self, name: str, command: str, *args: str) -> None:
        self._entries[name] = {"command": command, "args": args}
        (self.home / "mcp.json").write_text(json.dumps({"mcpServers": self._entries}))

    async def open(self, name: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            (await asyncio.to_thread((self.folder / f"{name}.gate").open, "w")).close()

    def environ(self, script: str) -> dict[str, str]:
        path = self.home / "scenario.txt"
        path.write_text(script)
        return {"MAKAI_SCENARIO": str(path)}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def says(stream: asyncio.StreamReader | None, wanted: Sequence[str]) -> list[str]:
    """The lines of a stream until each of these texts was in one."""
    assert stream is not None
    lines: list[str] = []
    async with asyncio.timeout(DEADLINE_S):
        while not all(any(text in line for line in lines) for text in wanted):
            line = await stream.readline()
            assert line, lines
            lines.append(line.decode())
    return lines


def calls(*servers: str) -> str:
    return "\n".join(f'tool: mcp__{name}__echo {{"text": "{name} answers"}}' for name in servers)


async def test_a_server_that_starts_during_a_run_joins_its_next_turn(place: Place) -> None:
    place.gated("slow")
    wait = f'tool: shell {{"command": "cat {place.folder}/slow.up"}}'
    environ = place.environ(f"{wait}\n---\n{calls('slow')}\n---\nsay: Done")
    command = (*RUN, "--cwd", str(place.folder), "--output-format", "stream-json", "Go")
    async with place.makai.started(*command, environ=environ) as process:
        assert process.stdin is not None
        process.stdin.close()
        await says(process.stdout, [STARTING.format("slow"), "tool_started"])
        await place.open("slow")
        rest = [json.loads(line) for line in await says(process.stdout, ['"type":"result"'])]

    [joined] = [event for event in rest if event["type"] == "notice"]
    assert (joined["level"], joined["code"], joined["message"]) == ("info", "mcp_server_joined", JOINED.format("slow"))
    second = next(event for event in rest if event["type"] == "turn_started")
    assert joined["event_id"] < second["event_id"], "said before the turn that has the tools"
    finished = [event for event in rest if event["type"] == "tool_finished"]
    assert finished[-1]["content"] == [{"type": "text", "text": "slow answers"}]


@pytest.mark.parametrize("output", ["text", "json"])
async def test_a_run_that_waits_gets_the_tools_of_all_servers_and_says_what_it_waits_for(
    place: Place, output: str
) -> None:
    """Six at once: one that is up at once, one that cannot start, and four that take their time."""
    (place.folder / "server.py").write_text(SERVER)
    place.server("quick", PYTHON, "-I", str(place.folder / "server.py"))
    place.server("dead", "/bin/false")
    slow = ["a", "b", "c", "d"]
    for name in slow:
        place.gated(name)
    environ = place.environ(f"{calls('quick', *slow)}\n---\nsay: Done")
    command = (*RUN, "--cwd", str(place.folder), "--mcp-wait", "120", "--output-format", output, "Go")
    async with place.makai.started(*command, environ=environ) as process:
        assert process.stdin is not None
        process.stdin.close()
        waiting = "Waiting up to 120 s for MCP servers that are starting: quick, dead, a, b, c, d."
        shown = await says(process.stderr, [waiting]) if output == "text" else []
        for name in slow:
            await place.open(name)
            shown += await says(process.stderr, [JOINED.format(name)]) if output == "text" else []
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()

    if output == "text":
        assert out == b"Done\n"
        assert "no tool" not in err.decode() + "".join(shown)
    else:
        answer = json.loads(out)
        codes = [warning["code"] for warning in answer["warnings"]]
        assert sorted(codes) == ["mcp_server_failed", *["mcp_server_joined"] * 5, "mcp_server_waiting"]
    [session] = (await place.makai("sessions", "list", "--all", "--json")).json()["sessions"]
    events = (await place.makai("sessions", "export", session["session_id"], "--format", "jsonl")).json_lines()
    results = [line["event"]["content"] for line in events if line["event"]["type"] == "tool_finished"]  # type: ignore[index]
    assert sorted(result[0]["text"] for result in results) == [f"{name} answers" for name in [*slow, "quick"]]


async def test_waiting_ends_at_its_limit_and_a_server_that_hangs_costs_the_others_nothing(place: Place) -> None:
    (place.folder / "server.py").write_text(SERVER)
    place.server("quick", PYTHON, "-I", str(place.folder / "server.py"))
    place.gated("hangs")
    environ = place.environ(f"{calls('quick')}\n---\nsay: Done")
    command = (*RUN, "--cwd", str(place.folder), "--mcp-wait", "2", "Go")
    finished = await place.makai(*command, environ=environ)

    assert (finished.code, finished.out) == (0, "Done\n")
    assert STARTING.format("hangs") in finished.err
    assert "no tool" not in finished.err


@pytest.mark.parametrize("seconds", ["-1", "601", "nan", "soon"])
async def test_a_wait_without_bounds_is_refused(place: Place, seconds: str) -> None:
    assert (await place.makai(*RUN, "--mcp-wait", seconds, "Go")).code == 2
