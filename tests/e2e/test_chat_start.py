"""How a chat starts on a terminal: the prompt comes first, and nothing that is typed meanwhile is lost."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.cli import DEADLINE_S, SOURCES, Cli
from support.terminal_screen import row_text, screen_html, screen_text

ENTER, ESCAPE, DOWN = "\r", "\x1b", "\x1b[B"
CTRL_C, CTRL_D = "\x03", "\x04"
MAX_MODULES = 40
"""Modules that are loaded before the prompt, in addition to those of Python itself; a chat loads some 700."""


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "work").mkdir()
    (tmp_path / "scenario.txt").write_text("echo")
    return Cli(
        tmp_path / "home", {"MAKAI_SCENARIO": str(tmp_path / "scenario.txt"), "MAKAI_MODEL": "scripted/scenario"}
    )


async def messages_of(makai: Cli, session_id: str) -> list[object]:
    exported = await makai("sessions", "export", session_id, "--format", "jsonl")
    events = [msgspec.convert(line["event"], dict[str, object]) for line in exported.json_lines()]
    return [event["content"] for event in events if event["type"] == "user_message"]


def modules_in(import_times: str) -> set[str]:
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +([\w.]+)\s*$", import_times, re.MULTILINE))


async def test_the_first_prompt_is_drawn_before_anything_heavy_is_loaded(makai: Cli) -> None:
    timed = {"PYTHONPROFILEIMPORTTIME": "1"}
    bare = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "pass", env=makai.environment(timed), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(DEADLINE_S):
        _, times = await bare.communicate()
    async with makai.on_terminal(environ=timed) as terminal:
        await terminal.shows("> ")
        loaded = modules_in(terminal.output.partition("> ")[0].replace("\r", ""))
        terminal.press(CTRL_D)
        assert await terminal.ended() == 0

    own = loaded - modules_in(times.decode())
    assert "makai.cli.early_prompt" in own
    assert own & {"aiohttp", "asyncio", "click", "msgspec", "prompt_toolkit", "sqlite3", "typing"} == set()
    assert len(own) <= MAX_MODULES, sorted(own)


async def test_keys_typed_from_the_first_moment_on_arrive_once_and_in_order(makai: Cli, tmp_path: Path) -> None:
    async with makai.on_terminal("--cwd", str(tmp_path / "work"), "asked") as terminal:
        terminal.press("first" + ENTER)
        await terminal.shows("> ")
        terminal.press("second" + ENTER + "thi")
        await terminal.shows("scripted/scenario")
        terminal.press("rd" + ENTER)
        await terminal.shows("> asked", "> first", "> second", "> third", "out")
        await terminal.types(CTRL_D, "To continue: makai -r ")
        assert (await terminal.ended(), terminal.is_restored) == (0, True)

    sent = ["asked", "first", "second", "third"]
    assert await messages_of(makai, terminal.screen[:36]) == sent
    assert [screen_html(terminal.output).count(f"&gt; {message}<") for message in sent] == [1, 1, 1, 1]


async def test_what_is_typed_ahead_does_not_answer_the_question_of_trust(makai: Cli, tmp_path: Path) -> None:
    (tmp_path / "work" / "AGENTS.md").write_text("Be kind.")
    async with makai.on_terminal("--cwd", str(tmp_path / "work")) as terminal:
        terminal.press("y" + ENTER)
        await terminal.shows("This folder has project files: AGENTS.md.", "[y/N] ")
        await terminal.types("n" + ENTER, "Not trusted", "> y", "out")
        terminal.press(CTRL_D)
        assert await terminal.ended() == 0


async def test_what_is_typed_ahead_does_not_choose_a_first_step(home: Path, tmp_path: Path) -> None:
    makai = Cli(home, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    async with makai.on_terminal() as terminal:
        terminal.press("quit it")
        await terminal.shows("There is no model to use yet.", "3. See the demo")
        await terminal.types(DOWN + DOWN + ENTER, "scripted/demo", "quit it")
        await terminal.types(ENTER, "> quit it", "allow once")
        await terminal.types(ESCAPE, "Stopped")
        terminal.press(CTRL_D)
        assert await terminal.ended() == 0


NEVER_LOADED = """
import sys, time
class Never:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            with open({reached!r}, "w") as file:
                file.write("x")
        while name == "click":
            time.sleep(0.01)
sys.meta_path.insert(0, Never())
"""
"""The first module after the prompt never ends. It waits in steps: a signal may arrive before any one wait. Python
loads this before makai leaves folders of PYTHONPATH out of its module path."""


@asynccontextmanager
async def never_loaded(tmp_path: Path) -> AsyncIterator[tuple[dict[str, str], asyncio.Event]]:
    """Variables with which the loading of a chat never ends, and an event that is set when it is at that point."""
    (tmp_path / "modules").mkdir()
    os.mkfifo(tmp_path / "reached")
    code = NEVER_LOADED.format(reached=str(tmp_path / "reached"))
    (tmp_path / "modules/sitecustomize.py").write_text(code)
    descriptor, is_reached = os.open(tmp_path / "reached", os.O_RDONLY | os.O_NONBLOCK), asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, is_reached.set)
    try:
        yield {"PYTHONPATH": os.pathsep.join((str(tmp_path / "modules"), str(SOURCES)))}, is_reached
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def test_ctrl_c_while_the_chat_is_loaded_ends_it_and_restores_the_terminal(makai: Cli, tmp_path: Path) -> None:
    async with never_loaded(tmp_path) as (environ, is_reached), makai.on_terminal(environ=environ) as terminal:
        await terminal.shows("> ")
        await asyncio.wait_for(is_reached.wait(), DEADLINE_S)
        await terminal.types("hello", "hello")
        assert not terminal.is_restored
        terminal.press(CTRL_C)
        assert (await terminal.ended(), terminal.is_restored) == (130, True)
    assert screen_html(terminal.output) == ""


@pytest.mark.parametrize("columns", [40, 80])
async def test_the_first_screen_keeps_one_line_per_option_when_it_is_drawn_again(
    home: Path, tmp_path: Path, columns: int
) -> None:
    makai = Cli(home, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    async with makai.on_terminal(size=(24, columns)) as terminal:
        await terminal.shows("Esc leaves.")
        terminal.press(DOWN)
        await terminal.until(lambda: "> 2. Log in" in screen_text(terminal.display.rows))
        rows = [row_text(row) for row in terminal.display.rows]
        await terminal.types(ESCAPE)
        assert await terminal.ended() == 3

    at = rows.index(next(row for row in rows if row.startswith("  1. Download")))
    assert [row[:11] for row in rows[at : at + 4]] == ["  1. Downlo", "> 2. Log in", "  3. See th", "Arrows, Ent"]
    assert max(map(len, rows)) <= columns


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_while_the_chat_is_loaded_ends_it_and_restores_the_terminal(
    makai: Cli, tmp_path: Path, way: signal.Signals
) -> None:
    async with never_loaded(tmp_path) as (environ, is_reached), makai.on_terminal(environ=environ) as terminal:
        await terminal.shows("> ")
        await asyncio.wait_for(is_reached.wait(), DEADLINE_S)
        terminal.send_signal(way)
        assert (await terminal.ended(), terminal.is_restored, terminal.modes) == (128 + way, True, set())
    assert screen_html(terminal.output) == ""


async def test_a_chat_that_cannot_start_says_why_in_place_of_the_prompt(makai: Cli) -> None:
    (makai.home / "config.toml").write_text("model =")
    async with makai.on_terminal() as terminal:
        await terminal.shows("> ", "makai: ")
        assert (await terminal.ended(), terminal.is_restored) == (2, True)
    shown = re.sub(r"<[^>]*>", "", screen_html(terminal.output))
    assert shown.startswith("makai: ")
    assert "&gt;" not in shown


async def test_what_was_typed_for_a_chat_that_cannot_start_is_printed_after_the_reason(makai: Cli) -> None:
    (makai.home / "config.toml").write_text("model =")
    async with makai.on_terminal() as terminal:
        terminal.press("fix the parser" + ENTER + "then th\x7fhe tests")
        await terminal.shows("makai: ")
        assert (await terminal.ended(), terminal.is_restored) == (2, True)
    lines = re.sub(r"<[^>]*>", "", screen_html(terminal.output)).splitlines()
    said = "makai: the chat did not start, so this was not sent:"
    assert lines[lines.index(said) :] == [said, "fix the parser", "then the tests"]
