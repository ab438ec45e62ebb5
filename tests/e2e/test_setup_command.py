"""The first steps of a user without a model: in the terminal, in scripts, and by `makai setup` and `/login`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli import Cli

DOWN, ENTER, ESCAPE, CTRL_C, CTRL_D = "\x1b[B", "\r", "\x1b", "\x03", "\x04"
QUESTION = "There is no model to use yet."


@pytest.mark.parametrize("command", [("run", "Hi"), ("chat",), (), ("setup",)], ids=" ".join)
async def test_a_script_without_a_model_fails_with_the_three_next_steps(home: Path, command: tuple[str, ...]) -> None:
    failed = await Cli(home)(*command, stdin=b"" if command else b"Hi")

    assert (failed.code, failed.out) == (3, "")
    assert failed.err.startswith("makai: No model can be used yet")
    steps = ("makai models pull", "makai auth login", "makai setup --demo")
    assert [step in failed.err for step in steps] == [True] * 3


async def test_a_script_with_a_provider_of_its_own_is_told_to_name_a_model(home: Path) -> None:
    makai = Cli(home)
    await makai("config", "set", "providers.mine.base_url", "http://127.0.0.1:9/v1")
    failed = await makai("run", "Hi")

    told = "mine has no default model. Use `-m mine/MODEL`, or set providers.mine.default_model."
    assert told in " ".join(failed.err.split())


@pytest.mark.parametrize("command", [("run", "Hi"), (), ("setup",)], ids=" ".join)
async def test_a_person_without_a_model_is_offered_the_demo_which_works_at_once(
    home: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    makai = Cli(home, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    async with makai.on_terminal(*command) as terminal:
        await terminal.shows(QUESTION, "1. Download the small local model (93 MB)", "2. Log in", "3. See the demo")
        await terminal.types(DOWN + DOWN + ENTER, "scripted/demo", ">")
        await terminal.types(f"Hello{ENTER}", "There is a typo in the greeting", "allow once")
        await terminal.types(ESCAPE, "Stopped")
        terminal.press(CTRL_D)
        assert await terminal.ended() == 0


async def test_leaving_the_offer_changes_nothing(home: Path) -> None:
    async with Cli(home).on_terminal("run", "Hi") as terminal:
        await terminal.shows(QUESTION, "Esc leaves")
        terminal.press(ESCAPE)
        assert await terminal.ended() == 3


async def test_a_login_from_the_offer_and_in_the_chat_reads_its_answers_from_the_terminal(
    home: Path, tmp_path: Path
) -> None:
    makai = Cli(home, {"MAKAI_TEST_LOGIN": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    async with makai.on_terminal("setup") as terminal:
        await terminal.shows(QUESTION)
        await terminal.types("2", "Which provider?", "9. Another one")
        await terminal.types("9", "Its name (")
        await terminal.types(f"nosuch{ENTER}", "There is no provider 'nosuch'.", "Its name (")
        await terminal.types(f"test-fixture{ENTER}", 'Type "ok" to log in')
        await terminal.types(f"ok{ENTER}", "Logged in to test-fixture.", "Done.")
        assert await terminal.ended() == 0
    async with makai.on_terminal("setup", "--demo") as terminal:
        await terminal.shows("scripted/demo", ">")
        await terminal.types(f"/login test-fixture{ENTER}", 'Type "ok" to log in')
        await terminal.types(f"ok{ENTER}", "Logged in to test-fixture.", "/model PROVIDER/MODEL", ">")
        await terminal.types(f"/login nowhere{ENTER}", "there is no provider")
        terminal.press(CTRL_D)
        assert await terminal.ended() == 0


async def test_ctrl_c_ends_a_login_of_the_chat_and_not_the_chat(home: Path, tmp_path: Path) -> None:
    makai = Cli(home, {"MAKAI_TEST_LOGIN": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    async with makai.on_terminal("setup", "--demo") as terminal:
        await terminal.shows("scripted/demo", ">")
        await terminal.types(f"/login test-fixture{ENTER}", 'Type "ok" to log in')
        await terminal.types(CTRL_C, "The login was cancelled.", ">")
        await terminal.types(f"/mode{ENTER}", "> /mode", "accept_edits")
        assert "press Ctrl+C again" not in terminal.output
        await terminal.types(CTRL_C, "press Ctrl+C again")
        terminal.press(CTRL_D)
        assert await terminal.ended() == 0
