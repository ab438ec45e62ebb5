"""`makai chat` as a person at a terminal uses it, and as a script does."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.cli import Cli, Terminal
from support.places import mode
from support.terminal_screen import screen_text
from support.upstream import Upstream, answers, chat_stream, starts_then_hangs, upstream

ENTER = "\r"
ESCAPE = "\x1b"
CTRL_C = "\x03"
CTRL_D = "\x04"
WIDE = (24, 300)
"""A terminal that breaks no line, however long the path of the test's folder is."""
SHIFT_TAB = "\x1b[Z"
KEYS = "allow once"
"""Shown when keys count as answers."""
WRITES = """\
say: I write **it** down.
tool: write {"path": "new.txt", "content": "hello\\n"}
usage: input=100 output=10
---
say: All done.
usage: input=120 output=5
"""


MODEL = "openai/openai-completions@gpt-test"


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (tmp_path / "work").mkdir()
    return Cli(home)


@asynccontextmanager
async def chatting(makai: Cli, scenario: str, *arguments: str, **environ: str) -> AsyncIterator[Terminal]:
    """A chat with a scripted model, on a terminal; it is ready, and ends well if the test does not end it."""
    async with makai.on_terminal(*_chat(makai, scenario, *arguments), environ=_with(makai, environ)) as terminal:
        await terminal.shows("scripted/", ">")
        yield terminal
        if terminal.is_running:
            assert await left(terminal) == 0


def _chat(makai: Cli, scenario: str, *arguments: str) -> tuple[str, ...]:
    (makai.home / "scenario.txt").write_text(scenario)
    folder = makai.home.parent / "work"
    return ("chat", "-m", "scripted/scenario", "--cwd", str(folder), *arguments)


def _with(makai: Cli, environ: dict[str, str]) -> dict[str, str]:
    return {"MAKAI_SCENARIO": str(makai.home / "scenario.txt")} | environ


async def left(terminal: Terminal) -> int:
    terminal.press(CTRL_D)
    return await terminal.ended()


async def test_an_approved_edit_is_made_and_the_session_can_be_resumed(makai: Cli, tmp_path: Path) -> None:
    async with chatting(makai, WRITES) as terminal:
        await terminal.types("Write it" + ENTER, "> Write it", "I write \x1b[1mit\x1b[0m down.", "new file", "+ hello")
        await terminal.shows("\a", KEYS)
        assert not (tmp_path / "work" / "new.txt").exists()
        await terminal.types("y", "allowed", "All done.", "[220 in, 15 out")
        await terminal.types(CTRL_D, "To continue: makai -r ")
        session_id = terminal.screen[:36]

        assert await terminal.ended() == 0
    assert (tmp_path / "work" / "new.txt").read_text() == "hello\n"

    async with makai.on_terminal("-r", session_id[:8], environ=_with(makai, {})) as terminal:
        await terminal.shows(f"Session {session_id}", "> Write it", "All done.", "scripted/scenario")
        assert await left(terminal) == 0


async def test_a_denied_call_is_not_made_and_the_model_is_told_why(makai: Cli, tmp_path: Path) -> None:
    async with chatting(makai, WRITES) as terminal:
        await terminal.types("Write it" + ENTER, KEYS)
        await terminal.types("e", "Type a reason")
        await terminal.types("not today" + ENTER, "denied: not today", "All done.")
    assert not (tmp_path / "work" / "new.txt").exists()


async def test_a_sentence_that_begins_with_a_key_of_the_question_is_no_answer(makai: Cli, tmp_path: Path) -> None:
    async with chatting(makai, WRITES) as terminal:
        await terminal.types("Write it" + ENTER, KEYS)
        await terminal.types("also this" + ENTER, "queued: also this", KEYS)
        assert not (tmp_path / "work" / "new.txt").exists()
        await terminal.types("n", "denied", "> also this")


@pytest.mark.parametrize(("key", "scope"), [("y", "once"), ("s", "session"), ("a", "always")])
async def test_each_key_allows_as_far_as_it_says(makai: Cli, key: str, scope: str) -> None:
    async with chatting(makai, WRITES) as terminal:
        await terminal.types("Write it" + ENTER, KEYS, "allow always: Edit(./new.txt)")
        await terminal.types(key, "allowed", "All done.")
        await terminal.types(CTRL_D, "To continue: makai -r ")
        exported = await makai("sessions", "export", terminal.screen[:36], "--format", "jsonl")
    events = [msgspec.convert(line["event"], dict[str, object]) for line in exported.json_lines()]
    decided = [event for event in events if event["type"] == "approval_decided"]
    assert [event.get("scope", "once") for event in decided] == [scope]


async def test_keys_that_a_question_does_not_offer_are_typing(makai: Cli) -> None:
    scenario = 'tool: shell {"command": "echo $(date)"}\n---\nsay: Fine.'
    async with chatting(makai, scenario) as terminal:
        await terminal.types("go" + ENTER, KEYS)
        await terminal.types("a", "press Tab to answer it")
        assert "allow always" not in terminal.screen
        terminal.press("\x7f\t")
        await terminal.shows(KEYS)
        await terminal.types("n", "denied", "Fine.")


async def test_escape_stops_a_run_and_the_chat_goes_on(makai: Cli) -> None:
    scenario = "when: again\nsay: Here I am.\n---\nwhen: hang\nsay: Let me think\nstall"
    async with chatting(makai, scenario) as terminal:
        await terminal.types("hang" + ENTER, "Let me think")
        await terminal.types(ESCAPE, "Stopped.")
        await terminal.types("again" + ENTER, "Here I am.")


async def test_escape_at_a_question_stops_the_run(makai: Cli, tmp_path: Path) -> None:
    async with chatting(makai, WRITES) as terminal:
        await terminal.types("Write it" + ENTER, KEYS)
        await terminal.types(ESCAPE, "denied because the run was stopped", "[100 in, 10 out")
    assert not (tmp_path / "work" / "new.txt").exists()


async def test_ctrl_c_clears_the_line_and_twice_leaves(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("not this", "s")
        terminal.press(CTRL_C)
        await terminal.types("but that" + ENTER, "> but that", "out")
        await terminal.types(CTRL_C, "(press Ctrl+C again, or Ctrl+D, to leave)")
        terminal.press(CTRL_C)

        assert await terminal.ended() == 130
    assert "To continue: makai -r " in terminal.screen


async def test_what_is_typed_while_a_run_is_active_waits_its_turn(makai: Cli) -> None:
    scenario = "when: first\nsay: One\nwait: 1s\n---\necho"
    async with chatting(makai, scenario) as terminal:
        await terminal.types("first" + ENTER, "One")
        await terminal.types("second" + ENTER, "queued: second", "> second", "second")


async def test_slash_commands_and_keys_change_the_session(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("/nonsens" + ENTER, "Unknown command /nonsens.")
        await terminal.types("Hello" + ENTER, "out")
        await terminal.types(SHIFT_TAB, "The permission mode is now accept_edits.")
        await terminal.types("/sandbox" + ENTER, "workspace-write", "full-access", "no sandbox: a command")
        await terminal.types("/sandbox none" + ENTER, "there is no sandbox 'none'")
        await terminal.types("/sandbox full-access" + ENTER, "The sandbox is now full-access: no sandbox")
        await terminal.types("/sandbox read-only" + ENTER, "The sandbox is now read-only")
        await terminal.types("/mode plan" + ENTER, "The permission mode is now plan.")
        await terminal.types("/model scripted/echo" + ENTER, "The model is now scripted/scripted@echo.")
        await terminal.types("/model unknown/x" + ENTER, "there is no provider 'unknown'")
        await terminal.types("/title A test" + ENTER, "The title is now: A test")
        await terminal.types("/cost" + ENTER, "output")
        await terminal.types("/fork" + ENTER, "a copy of")
        await terminal.types("/he\t" + ENTER, "next permission mode")
        terminal.press("/quit" + ENTER)

        assert await terminal.ended() == 0


async def test_several_lines_are_one_message_and_history_is_private(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("one\ntwo\\" + ENTER + "three" + ESCAPE + ENTER + "four" + ENTER, "> one", "  four", "out")
        await terminal.types("\x1b[200~pasted\nlines\x1b[201~" + ENTER, "> pasted", "  lines", "out")
    history = makai.home / "chat-history"
    assert mode(history) == 0o600
    assert "+one\n+two\n+three\n+four\n" in history.read_text()


async def test_a_command_is_shown_with_its_control_characters_written_out(makai: Cli) -> None:
    scenario = 'tool: shell {"command": "echo \\u001b[2Khi \\u202e; true"}\n---\nsay: Fine.'
    async with chatting(makai, scenario) as terminal:
        await terminal.types("go" + ENTER, "Run this command?", "echo \\x1b[2Khi \\u202e; true", KEYS)
        await terminal.types("n", "denied", "Fine.")


async def test_two_terminals_share_a_session_and_either_may_answer(makai: Cli, tmp_path: Path) -> None:
    async with chatting(makai, WRITES) as one:
        await one.types("Write it" + ENTER, KEYS)
        async with makai.on_terminal("-c", "--cwd", str(tmp_path / "work"), environ=_with(makai, {})) as two:
            await two.shows("> Write it", KEYS)
            two.press("y")
            await one.shows("allowed by terminal-", "All done.")
            await two.shows("All done.")
            assert await left(two) == 0


async def test_project_files_count_only_after_a_person_trusts_the_folder(makai: Cli, tmp_path: Path) -> None:
    (tmp_path / "work" / "AGENTS.md").write_text("Be kind.")
    arguments = _chat(makai, "echo")
    async with makai.on_terminal(*arguments, environ=_with(makai, {}), size=WIDE) as terminal:
        await terminal.shows("This folder has project files: AGENTS.md.", "[y/N] ")
        await terminal.types("y\n", "> ")
        await terminal.types("/trust" + ENTER, "trusted.", "AGENTS.md.")  # wrapped anywhere: the path is long
        assert await left(terminal) == 0
    async with chatting(makai, "echo") as terminal:
        assert await left(terminal) == 0
        assert "project files" not in terminal.screen


async def test_a_narrow_terminal_shows_every_key_and_the_whole_rule(makai: Cli) -> None:
    path = "a/very/long/path/that/goes/deep/into/the/tree/of/folders/file-name.txt"
    asks = f'tool: write {{"path": "{path}", "content": "x"}}\n---\nsay: Fine.'
    async with makai.on_terminal(*_chat(makai, asks), environ=_with(makai, {}), size=(40, 40)) as terminal:
        await terminal.types("go" + ENTER, KEYS)

        def seen() -> str:
            return "".join(screen_text(terminal.display.rows).split())

        await terminal.until(lambda: f"aallowalways:Edit(./{path})" in seen())
        assert "Escstops" in seen().partition("Waitingforyourapproval")[2]
        assert "Escdenyandstopedenywithareason" in seen()
        await terminal.types("n", "denied", "Fine.")
        assert await left(terminal) == 0


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_leaves_the_chat_as_ctrl_d_does(makai: Cli, way: signal.Signals) -> None:
    async with chatting(makai, "say: Let me think\nstall") as terminal:
        await terminal.types("hang" + ENTER, "Let me think")
        terminal.send_signal(way)
        await terminal.shows("The run was not finished.", "To continue: makai -r ")
        assert (await terminal.ended(), terminal.is_restored, terminal.modes) == (128 + way, True, set())
    assert "never_ask" not in screen_text(terminal.display.rows)
    assert "Esc stops" not in screen_text(terminal.display.rows[3:])  # the welcome names it


async def test_without_colours_nothing_is_coloured(makai: Cli) -> None:
    async with chatting(makai, "say: Some **bold** words.", NO_COLOR="1") as terminal:
        await terminal.types("Hi" + ENTER, "Some bold words.")
        assert await left(terminal) == 0
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.screen)


async def test_a_dumb_terminal_is_asked_with_lines(makai: Cli, tmp_path: Path) -> None:
    async with makai.on_terminal(*_chat(makai, WRITES), environ=_with(makai, {"TERM": "dumb"})) as terminal:
        await terminal.shows("> ")
        await terminal.types("Write it\n", "I write **it** down.", "Your answer, or a reason to deny, then Enter: ")
        await terminal.types("y\n", "All done.", "> ")
        assert await left(terminal) == 0
        assert "\x1b" not in terminal.screen
    assert terminal.output.count("Write it") == 1
    assert (tmp_path / "work" / "new.txt").exists()


async def test_a_script_is_answered_line_by_line_and_nothing_waits_for_it(makai: Cli, tmp_path: Path) -> None:
    lines = b"write it\n/mode\n/nonsense\n/quit\nunread\n"
    finished = await makai(*_chat(makai, WRITES), stdin=lines, environ=_with(makai, {}))

    assert finished.code == 0
    assert "> write it" in finished.out
    assert "denied: this needs an approval, and standard input is not a terminal to ask on" in finished.out
    assert "\nask\n" in finished.out
    assert "Unknown command /nonsense." in finished.out
    assert "unread" not in finished.out
    assert "\x1b" not in finished.out
    assert not (tmp_path / "work" / "new.txt").exists()


async def test_a_script_learns_of_a_failure_by_the_exit_code(makai: Cli) -> None:
    failing = await makai(*_chat(makai, "fail: provider_error It broke."), stdin=b"Hi\n", environ=_with(makai, {}))

    assert failing.code == 1
    assert "It broke." in failing.err
    unknown = await makai("chat", "-r", "ffff", stdin=b"Hi\n")
    assert (unknown.code, unknown.out) == (2, "")
    assert "there is no session 'ffff'" in unknown.err


def _at(server: Upstream) -> dict[str, str]:
    return {"OPENAI_API_KEY": "sk-test-0123456789", "OPENAI_BASE_URL": f"{server.url}/v1"}


def _asked(server: Upstream) -> list[list[str]]:
    """The words of every request, without our own instructions."""
    requests = [request.json()["messages"] for request in server.requests]
    return [
        [message["content"] for message in messages if message["role"] in ("user", "assistant")]
        for messages in requests
    ]


async def test_a_stopped_answer_is_over_for_the_provider_at_once(makai: Cli, tmp_path: Path) -> None:
    partial = chat_stream("Hello", " there", finish=None, done=False)
    chat = ("chat", "-m", MODEL, "--cwd", str(tmp_path / "work"))
    async with (
        upstream(starts_then_hangs(partial), answers(chat_stream("Again"))) as server,
        makai.on_terminal(*chat, environ=_at(server)) as terminal,
    ):
        await terminal.shows(">")
        await terminal.types("Hi" + ENTER, "Hello there")
        await terminal.types(CTRL_C, "Stopped.")
        async with asyncio.timeout(1):
            await server.closed_by_client.wait()
        await terminal.types("Hi again" + ENTER, "Again")

        assert await left(terminal) == 0
    assert [words[-1] for words in _asked(server)] == ["Hi", "Hi again"]


async def test_a_budget_that_cannot_be_kept_is_refused_until_it_is_confirmed(makai: Cli, tmp_path: Path) -> None:
    run = ("run", "-m", MODEL, "--cwd", str(tmp_path / "work"), "--max-budget-usd", "1")
    async with upstream(answers(chat_stream("Hello"))) as server:
        refused = await makai(*run, "Hi", environ=_at(server))
        asked_before = len(server.requests)
        text = await makai(*run, "--allow-unknown-price", "Hi", environ=_at(server))
        whole = await makai(*run, "--allow-unknown-price", "--output-format", "json", "Hi", environ=_at(server))

    problem = "The price of gpt-test is unknown: the limit of 1 USD cannot be kept."
    assert (refused.code, refused.out, asked_before) == (2, "", 0)
    assert problem in refused.err
    assert "--allow-unknown-price" in refused.err
    assert (text.code, text.out, text.err) == (0, "Hello\n", f"makai: {problem}\n")
    assert (whole.code, whole.json()["warnings"]) == (0, [{"code": "price_unknown", "message": problem}])


async def test_a_chat_remembers_and_a_new_session_does_not(makai: Cli, tmp_path: Path) -> None:
    chat = ("chat", "-m", MODEL, "--cwd", str(tmp_path / "work"))
    lines = b"first\n/model\n/model unknown/x\nsecond\n/clear\nthird\n"
    async with upstream(answers(chat_stream("ok"))) as server:
        finished = await makai(*chat, stdin=lines, environ=_at(server))

    assert finished.code == 0
    assert _asked(server) == [["first"], ["first", "ok", "second"], ["third"]]
    assert "openai/gpt-test" in finished.out
    assert "there is no provider 'unknown'" in finished.err


async def test_a_key_confirms_an_undo_and_any_other_leaves_the_files(makai: Cli, tmp_path: Path) -> None:
    written = tmp_path / "work" / "new.txt"
    command = _chat(makai, WRITES, "--permission-mode", "accept_edits")
    async with makai.on_terminal(*command, environ=_with(makai, {}), size=WIDE) as terminal:
        await terminal.shows("scripted/", ">")
        await terminal.types("Write it" + ENTER, "All done.")
        await terminal.types("/undo" + ENTER, "remove", "+0", "-1", "Undo this?", "any other key")
        await terminal.types("n", "Nothing was changed.")
        assert written.read_text() == "hello\n"
        await terminal.types("/undo" + ENTER, "Undo this?")
        await terminal.types("y", "Undid the changes of")
        assert not written.exists()
        await terminal.types("/redo yes" + ENTER, "Redid the changes of")
        await terminal.types("/diff" + ENTER, "new file ", "+ hello")
        assert written.read_text() == "hello\n"
        assert await left(terminal) == 0


async def test_a_script_undoes_with_a_word(makai: Cli, tmp_path: Path) -> None:
    lines = b"Write it\n/undo\n/undo other.txt\n/undo new.txt yes\n/undo 0\n"
    command = _chat(makai, WRITES, "--permission-mode", "accept_edits")
    finished = await makai(*command, stdin=lines, environ=_with(makai, {}))

    assert "Nothing was changed. Add the word yes to the command to confirm it." in finished.out
    assert "Undid the changes of" in finished.out
    assert "/undo 0 is unclear." in finished.err
    assert "There is nothing to undo in" in finished.err
    assert not (tmp_path / "work" / "new.txt").exists()
