"""What a person types in `makai chat`: menus, pickers, files, commands and keys."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli, Terminal
from support.terminal_screen import screen_text

ENTER = "\r"
ESCAPE = "\x1b"
UP, DOWN = "\x1b[A", "\x1b[B"
CTRL_C, CTRL_D, CTRL_G, CTRL_V = "\x03", "\x04", "\x07", "\x16"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
COUNTS = "when: second\nsay: Two.\n---\necho"
MENU = "type to filter"
STALLS = "when: first\nsay: One\nstall\n---\necho"
"""A run that does not end by itself, and others that do."""


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (tmp_path / "work").mkdir()
    return Cli(home)


@asynccontextmanager
async def chatting(makai: Cli, scenario: str, *arguments: str, **environ: str) -> AsyncIterator[Terminal]:
    (makai.home / "scenario.txt").write_text(scenario)
    folder = makai.home.parent / "work"
    chat = ("chat", "-m", "scripted/scenario", "--cwd", str(folder), *arguments)
    given = {"MAKAI_SCENARIO": str(makai.home / "scenario.txt"), "SHELL": "/bin/sh"} | environ
    async with makai.on_terminal(*chat, environ=given) as terminal:
        await terminal.shows("scripted/", ">")
        yield terminal
        if terminal.is_running:
            terminal.press(CTRL_C + CTRL_D)
            assert await terminal.ended() in (0, 130)


async def test_the_menu_of_commands_opens_with_a_slash_and_is_filtered(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("/", "/model [MODEL]", "show or change the model", "/compact [HINTS]", "1 of ")
        await terminal.types("cont", "/context", "what fills the context window")
        await terminal.types(ENTER, "tokens in context")
        await terminal.types("/hepl" + ENTER, "Unknown command /hepl. Did you mean /help?")


async def test_a_command_is_chosen_with_the_arrows(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("/mod", "/mode [MODE]")
        await terminal.types(DOWN + ENTER, "asks before it changes files")


async def test_a_file_is_completed_and_its_content_goes_along(makai: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "work" / "my dir"
    folder.mkdir()
    (folder / "notes.txt").write_text("The code is 4711.")
    (tmp_path / "work" / "ignored.txt").write_text("x")
    (tmp_path / "work" / ".gitignore").write_text("ignored*\n")
    async with chatting(makai, "echo") as terminal:
        await terminal.types("read @", "my dir/notes.txt")
        assert "ignored.txt" not in terminal.output
        await terminal.types("not", "❯ ", "notes.txt")
        await terminal.types("\t", '@"my dir/notes.txt"')
        await terminal.types("now" + ENTER, "[notes.txt, 1 line]", "The code is 4711.")


async def test_hostile_names_of_files_are_written_out(makai: Cli, tmp_path: Path) -> None:
    (tmp_path / "work" / "a\n\x1b]0;pwned\x07b").write_text("harmless")
    async with chatting(makai, "echo") as terminal:
        await terminal.types("@pwn", "a\\n\\x1b]0;pwned\\x07b")
        await terminal.types("\t", '@"a\\n\\x1b]0;pwned\\x07b"')
        await terminal.types(ENTER, "1 line]", "harmless")
        assert "\x1b]0;pwned" not in terminal.output


async def test_a_file_outside_of_the_folder_goes_along_with_a_warning(makai: Cli, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("outside")
    async with chatting(makai, "echo") as terminal:
        await terminal.types("see @../secret.txt and tell" + ENTER, "Outside of this session's folders", "outside")


async def test_a_command_of_the_user_runs_and_the_agent_reads_its_output(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("!pwd; exit 4", "outside of the sandbox")
        await terminal.types(ENTER, "! pwd; exit 4", "exit code 4")
        await terminal.types(
            "what was that?" + ENTER,
            "> what was that?",
            "[command:pwd; exit 4, 3 lines]",
            "$ pwd; exit 4",
            "</resource>",
        )


async def test_a_message_of_the_command_line_never_runs_a_command(makai: Cli, tmp_path: Path) -> None:
    async with chatting(makai, "echo", "!touch ran") as terminal:
        await terminal.shows("!touch ran", "> ")
        await terminal.types("next" + ENTER, "next")

    assert list((tmp_path / "work").iterdir()) == []


async def test_an_exclamation_mark_alone_is_neither_run_nor_sent(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("!" + ENTER, "Write a command after the !")
        await terminal.types("hello" + ENTER, "> hello", "out")
    assert "> !" not in screen_text(terminal.display.rows)


async def test_escape_stops_a_command_of_the_user(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("!echo begun; sleep 600" + ENTER, "running", "Esc stops: ", "echo begun; sleep 600")
        await terminal.types(ESCAPE, "stopped by the user")


async def test_ctrl_c_stops_a_command_of_the_user_and_the_chat_stays(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("!echo begun; sleep 600" + ENTER, "Esc stops: ", "echo begun; sleep 600")
        await terminal.types(CTRL_C, "stopped by the user")
        await terminal.types("hello" + ENTER, "> hello", "out")
        assert "to leave)" not in screen_text(terminal.display.rows)


async def test_ctrl_c_answers_an_open_question_with_no(makai: Cli) -> None:
    written = 'tool: write {"path": "new.txt", "content": "a"}\n---\nsay: All done.'
    async with chatting(makai, written, "--permission-mode", "accept_edits") as terminal:
        await terminal.types("Write it" + ENTER, "All done.")
        await terminal.types("/undo" + ENTER, "Undo this?")
        await terminal.types(CTRL_C, "Nothing was changed.")
        await terminal.types("yes" + ENTER, "> yes")
    assert (makai.home.parent / "work" / "new.txt").read_text() == "a"


async def test_pickers_filter_choose_and_close(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("/model" + ENTER, MENU, "scripted/scenario")
        await terminal.types("local/", "local/")
        await terminal.types(ENTER, "The model is now local/")
        await terminal.types("/agent" + ENTER, MENU, "makai's own agent")
        await terminal.types(ESCAPE, "> ")
        await terminal.types("/resume" + ENTER, "there is no session yet")


async def test_a_session_is_picked_to_continue(makai: Cli) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("the first one" + ENTER, "out")
        await terminal.types("/new" + ENTER, "begins a new session")
        await terminal.types("another one" + ENTER, "out")
        await terminal.types("/resume" + ENTER, MENU, "another one", "the first one")
        await terminal.types("first" + ENTER, "Session ", "> the first one")


async def test_escape_twice_goes_back_to_before_a_message_in_a_copy(makai: Cli) -> None:
    async with chatting(makai, COUNTS) as terminal:
        await terminal.types("first" + ENTER, "out")
        await terminal.types("second" + ENTER, "Two.", "out")
        terminal.press(ESCAPE)
        await terminal.types(ESCAPE, "Go back to before a message", "second", "first")
        await terminal.types(ENTER, "> first", "You are in a copy of the session")
        await terminal.types(" edited" + ENTER, "> second edited", "Two.")


async def test_own_commands_of_the_user_are_offered_and_filled_in(makai: Cli, tmp_path: Path) -> None:
    commands = makai.home / "commands"
    commands.mkdir()
    (commands / "explain.md").write_text("---\ndescription: Explain a file\n---\nExplain $1 in $ARGUMENTS.")
    (commands / "binary.md").write_bytes(b"\xff")
    (commands / "help.md").write_text("Help me.")
    async with chatting(makai, "echo") as terminal:
        await terminal.shows("it is not UTF-8 text", "/help is a command of makai.")
        await terminal.types("/expl", "/explain", "Explain a file")
        await terminal.types("ain 'a b' c" + ENTER, "> Explain a b in 'a b' c.")
        await terminal.types("/help" + ENTER, "/explain")


async def test_long_pasted_text_is_folded_and_sent_whole(makai: Cli) -> None:
    pasted = "\n".join(f"line {number}" for number in range(120))
    async with chatting(makai, "echo") as terminal:
        await terminal.types(f"\x1b[200~{pasted}\x1b[201~", "[pasted 120 lines]")
        await terminal.types(f"\x1b[200~{pasted}\x1b[201~", "[pasted 120 lines #2]")
        await terminal.types(ENTER, "> line 0", "line 119", "line 0", "line 119")


async def test_a_dragged_picture_and_one_from_the_clipboard_go_along(makai: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "work" / "pic one.png"
    picture.write_bytes(PNG)
    program = tmp_path / "bin" / "xclip"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n/bin/cat '{picture}'\n")
    program.chmod(0o700)
    async with chatting(makai, "say: Nice.", DISPLAY=":0", PATH=f"{program.parent}:/usr/bin:/bin") as terminal:
        await terminal.types("\x1b[200~'pic one.png'\x1b[201~", '@"pic one.png"')
        await terminal.types(CTRL_V, "[image]")
        await terminal.types(ENTER, "[image]", "[image]", "Nice.")


async def test_without_a_clipboard_a_paste_says_what_to_do(makai: Cli) -> None:
    async with chatting(makai, "echo", PATH="/nonexistent") as terminal:
        await terminal.types(CTRL_V, "pictures cannot be pasted", "name it with @path")


async def test_a_message_is_written_in_the_editor(makai: Cli, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nread -r line < "$1"\nprintf "%s, edited\\n" "$line" > "$1"\n')
    editor.chmod(0o700)
    async with chatting(makai, "echo", EDITOR=str(editor)) as terminal:
        await terminal.types("draft" + CTRL_G, "draft", ", edited")
        await terminal.types(ENTER, "> draft, edited", "out")
    async with chatting(makai, "echo", VISUAL="/nonexistent/editor") as terminal:
        await terminal.types("kept" + CTRL_G, "the editor /nonexistent/editor failed")
        await terminal.types(ENTER, "> kept", "out")


async def test_no_editor_of_the_sessions_folder_is_started(makai: Cli, tmp_path: Path) -> None:
    editor = tmp_path / "work/scribe"
    editor.write_text("#!/bin/sh\necho planted > $1\n")
    editor.chmod(0o700)
    async with chatting(makai, "echo", EDITOR="scribe", PATH=f"{editor.parent}:.:/usr/bin:/bin") as terminal:
        await terminal.types("draft" + CTRL_G, "the editor scribe failed: it is not on your PATH")


async def test_earlier_messages_of_the_folder_come_back_with_up(makai: Cli, tmp_path: Path) -> None:
    async with chatting(makai, "echo") as terminal:
        await terminal.types("said here" + ENTER, "out")
    other = tmp_path / "other"
    other.mkdir()
    async with chatting(makai, "echo", "--cwd", str(other)) as terminal:
        await terminal.types("said there" + ENTER, "out")
    async with chatting(makai, "echo") as terminal:
        await terminal.types("newest" + ENTER, "out")
        await terminal.types(UP, "newest")
        await terminal.types(UP, "said here")
        await terminal.types(ENTER, "> said here", "out")


async def test_up_takes_the_newest_queued_message_back_to_be_edited(makai: Cli, tmp_path: Path) -> None:
    (tmp_path / "work" / "notes.txt").write_text("The code is 4711.")
    async with chatting(makai, STALLS) as terminal:
        await terminal.types("first" + ENTER, "One")
        await terminal.types("second @notes.txt" + ENTER, "queued: second @notes.txt", "edit")
        await terminal.types(UP, "second @notes.txt")
        await terminal.types(" edited" + ENTER, "queued:")
        await terminal.types(
            ESCAPE, "Stopped.", "> second @notes.txt edited", "[notes.txt, 1 line]", "The code is 4711."
        )
        await terminal.types(UP, "second @notes.txt edited")  # the queue is empty: earlier messages again
    assert await said_in_the_session(makai) == ["first", "second @notes.txt edited"]


async def test_up_edits_a_queued_message_while_a_question_is_open(makai: Cli) -> None:
    async with chatting(makai, 'tool: shell {"command": "make"}\n---\nsay: Fine.\n---\nsay: Next.') as terminal:
        await terminal.types("first" + ENTER, "Run this command?")
        await terminal.types("later" + ENTER, "queued: later", "edit")
        await terminal.types(UP, "later")
        await terminal.types(ESCAPE, "The message was dropped.")
        await terminal.types(ESCAPE, "Stopped.")
    assert await said_in_the_session(makai) == ["first"]


async def test_escape_drops_a_message_that_was_taken_back_and_leaves_the_run(makai: Cli) -> None:
    async with chatting(makai, STALLS) as terminal:
        await terminal.types("first" + ENTER, "One")
        await terminal.types("second" + ENTER, "queued: second", "edit")
        await terminal.types(UP, "second")
        await terminal.types(ESCAPE, "The message was dropped.")
        await terminal.types(ESCAPE, "Stopped.")
        await terminal.types("third" + ENTER, "> third", "out")
    assert await said_in_the_session(makai) == ["first", "third"]


async def test_the_output_of_a_command_survives_the_message_that_was_taken_back(makai: Cli) -> None:
    async with chatting(makai, STALLS) as terminal:
        await terminal.types("first" + ENTER, "One")
        await terminal.types("!echo 47$((10 + 1))" + ENTER, "! echo 47", "4711", "steers after this step: I", "edit")
        await terminal.types(UP, "I ran a command")
        await terminal.types(ESCAPE, "The message was dropped.")
        await terminal.types(ESCAPE, "Stopped.")
        await terminal.types("what was that?" + ENTER, "> what was that?", "[command:echo 47", "2 lines]", "4711")


async def test_a_queued_message_that_looks_like_a_command_stays_a_message(makai: Cli, tmp_path: Path) -> None:
    async with chatting(makai, STALLS) as terminal:
        await terminal.types("first" + ENTER, "One")
        await terminal.types("/steer !touch ran" + ENTER, "steers after this step: !touch ran", "edit")
        await terminal.types(UP, "!touch ran")
        await terminal.types(ENTER, "queued: !touch ran")
        await terminal.types(ESCAPE, "Stopped.", "> !touch ran", "out")
    assert await said_in_the_session(makai) == ["first", "!touch ran"]
    assert list((tmp_path / "work").iterdir()) == []


async def said_in_the_session(makai: Cli) -> list[str]:
    """What the user said in the only session, by its log."""
    [session] = (await makai("sessions", "list", "--all", "--json")).json()["sessions"]
    exported = await makai("sessions", "export", session["session_id"], "--format", "jsonl")
    events: list[Any] = [logged["event"] for logged in exported.json_lines()]
    said = [event["content"] for event in events if event["type"] == "user_message"]
    return [content if isinstance(content, str) else content[0]["text"] for content in said]


async def test_an_answer_is_copied_through_the_terminal_and_a_command_goes_back(makai: Cli) -> None:
    async with chatting(makai, "say: Grüße, **Ada**.") as terminal:
        await terminal.types("first" + ENTER, "out")
        copied = base64.b64encode("Grüße, **Ada**.".encode()).decode()
        await terminal.types(
            "/copy" + ENTER, f"\x1b]52;c;{copied}\x07", "Copied the last answer to the clipboard (15 ch"
        )
        await terminal.types("/rewind" + ENTER, "Go back to before a message", "first")
        await terminal.types(ENTER, "You are in a copy of the session")


async def test_a_terminal_that_becomes_narrower_shows_a_long_line_once(makai: Cli) -> None:
    typed = ["> " + "a" * 48, "  " + "a" * 22 + "b" * 26, "  " + "b" * 44]
    end = "\n".join(["", *typed, "  ask · scripted/scenario"])
    async with chatting(makai, "echo") as terminal:
        await terminal.types("a" * 70 + "b" * 70, "b" * 62)
        terminal.narrow(50)
        await terminal.until(lambda: screen_text(terminal.display.rows).endswith(end))
        rows = screen_text(terminal.display.rows).removesuffix(end).split("\n")

    assert rows[-2:] == ["agent, Ctrl+D leaves.", ""]
    erased = re.findall(r"\x1b\[\w(?=\x1b\[J)", terminal.output.partition("Ctrl+D leaves")[2])
    assert set(erased) == {"\x1b[C"}, "tmux keeps what is erased from the first column of the first row on"
