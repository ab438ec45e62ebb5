"""Options of `makai run` and `makai chat` that users know from other agents: files, quiet output, titles and copies."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from support.cli import Cli, Finished
from support.places import mode
from support.upstream import answers, chat_stream, upstream

ECHO = ("-m", "scripted/echo", "--no-tools")
MODEL = "openai/openai-completions@gpt-test"
DOWN, ENTER, ESCAPE, CTRL_D = "\x1b[B", "\r", "\x1b", "\x04"


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Cli(home)


async def begin(makai: Cli, *words: str) -> str:
    """A session in which this was said and answered."""
    finished = await makai("run", *ECHO, "--output-format", "json", *words)
    return str(finished.json()["session_id"])


async def titles(makai: Cli) -> dict[str, str]:
    """The titles of all sessions by id."""
    listed = (await makai("sessions", "list", "--all", "--json")).json()["sessions"]
    return {one["session_id"]: one["title"] for one in listed}


@pytest.mark.parametrize(
    ("arguments", "stdin", "out"),
    [
        (("run", *ECHO, "-"), b"from a pipe\n", "from a pipe\n"),
        (("-p", *ECHO), b"from a pipe\n", "from a pipe\n"),
        (("-p", *ECHO, "an argument"), b"", "an argument\n"),
        (("--print", "a text", *ECHO), b"", "a text\n"),
        ((*ECHO, "-q", "an argument"), b"", "an argument\n"),
    ],
)
async def test_the_forms_of_other_agents_name_the_prompt_too(
    makai: Cli, arguments: tuple[str, ...], stdin: bytes, out: str
) -> None:
    assert await makai(*arguments, stdin=stdin) == Finished(0, out, "")


async def test_the_last_message_is_written_to_a_file_of_the_user_alone(makai: Cli, tmp_path: Path) -> None:
    answer = tmp_path / "answer.md"
    answered = await makai("-o", str(answer), *ECHO, "Hello")

    assert (answered, answer.read_text(), mode(answer)) == (Finished(0, "Hello\n", ""), "Hello", 0o600)


async def test_links_and_pipes_that_are_named_for_the_last_message_stay_what_they_are(
    makai: Cli, tmp_path: Path
) -> None:
    target, link, pipe = (tmp_path / name for name in ("answer.md", "link", "pipe"))
    target.write_text("before")
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (link, pipe):
            assert await makai("-o", str(path), *ECHO, "Hello") == Finished(0, "Hello\n", "")
        assert os.read(reader, 100) == b"Hello"
    finally:
        os.close(reader)
    assert (link.is_symlink(), target.read_text(), pipe.is_fifo()) == (True, "Hello", True)


async def test_a_run_that_fails_leaves_the_file_as_it_was(makai: Cli, tmp_path: Path) -> None:
    answer, scenario = tmp_path / "answer.md", tmp_path / "scenario.txt"
    answer.write_text("before")
    scenario.write_text("say: Half\nfail: provider_error It broke.")
    environ = {"MAKAI_SCENARIO": str(scenario)}
    failed = await makai("run", "-m", "scripted/scenario", "-o", str(answer), "Hello", environ=environ)
    absent = await makai("run", "-m", "scripted/scenario", "-o", str(tmp_path / "new.md"), "Hello", environ=environ)

    assert (failed.code, absent.code, answer.read_text()) == (1, 1, "before")
    assert sorted(os.listdir(tmp_path)) == ["answer.md", "home", "scenario.txt"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none/answer.md", "No such file or directory"),
        ("note.txt/answer.md", "Not a directory"),
        ("a" * 300, "File name too long"),
    ],
)
async def test_a_file_that_cannot_be_written_is_refused_before_the_model_is_asked(
    makai: Cli, tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "note.txt").write_text("a file")
    answer = tmp_path / name
    refused = await makai("run", *ECHO, "-o", str(answer), "Hello")

    assert refused == Finished(2, "", f"makai: {answer} cannot be written ({why}).\n       Name another file.\n")
    assert await titles(makai) == {}


async def test_an_output_file_without_a_name_is_a_wrong_argument(makai: Cli) -> None:
    session_id = await begin(makai, "Hello")
    ran = await makai("run", *ECHO, "-o", "", "Hello")
    exported = await makai("sessions", "export", session_id, "-o", "")

    expected = Finished(2, "", "makai: the name of the file to write is empty.\n       Name another file.\n")
    assert (ran, exported) == (expected, expected)


@pytest.mark.parametrize("name", ["note.txt/out.md", "a" * 300])
async def test_an_export_that_cannot_be_written_says_why(makai: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "note.txt").write_text("a file")
    session_id = await begin(makai, "Hello")
    exported = await makai("sessions", "export", session_id, "-o", str(tmp_path / name))

    assert (exported.code, exported.out) == (1, "")
    assert exported.err.startswith(f"makai: {tmp_path / name} cannot be written (")


async def test_a_quiet_run_prints_nothing_but_the_answer_on_a_terminal(makai: Cli) -> None:
    async with makai.on_terminal("run", *ECHO, "Hello") as terminal:
        assert await terminal.ended() == 0
        await terminal.shows("Hello", "makai: continue with")
    async with makai.on_terminal("run", "-q", *ECHO, "Hello") as terminal:
        assert await terminal.ended() == 0
        await terminal.until(lambda: terminal.output.endswith("\n"))
        assert terminal.output == "Hello\r\n"


async def test_files_that_are_arguments_go_along_with_the_prompt(makai: Cli, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("Buy milk.\n")
    session_id = await begin(makai, f"@{note}", "What do I need? Not @this.")
    exported = await makai("sessions", "export", session_id, "--format", "jsonl")

    events = [msgspec.convert(line["event"], dict[str, object]) for line in exported.json_lines()]
    [said] = [event for event in events if event["type"] == "user_message"]
    assert said["content"] == [
        {"type": "text", "text": "What do I need? Not @this."},
        {"type": "resource", "uri": note.as_uri(), "text": "Buy milk.\n"},
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("@no-such-file", "Hi"), "no-such-file; a word with @ that is none belongs into the prompt"),
        (("Why", "is", "that?"), 'put the prompt in quotes: makai run "your question"'),
        (("@.",), "the prompt is missing"),
        (("--fork", "Hi"), "--fork copies a session"),
        (("-r", "-p", "Hi"), "there is no terminal to choose a session on."),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    makai: Cli, words: tuple[str, ...], problem: str
) -> None:
    refused = await makai("run", *ECHO, *words)

    assert (refused.code, refused.out, problem in refused.err) == (2, "", True), refused.err


async def test_appended_instructions_come_after_those_of_makai(makai: Cli, tmp_path: Path) -> None:
    (makai.home / "AGENTS.md").write_text("Speak plainly.\n")
    (tmp_path / "work").mkdir()
    async with upstream(answers(chat_stream("Oui"))) as server:
        environ = {"OPENAI_API_KEY": "sk-test-0123456789", "OPENAI_BASE_URL": f"{server.url}/v1"}
        for more in ((), ("--system-prompt", "Be brief."), ("-c",)):
            where = ("--cwd", str(tmp_path / "work"), "--append-system-prompt", "Answer in French.")
            run = ("run", "-m", MODEL, *where, *more, "Yes?")
            assert (await makai(*run, environ=environ)).out == "Oui\n"

    prompts = [request.json()["messages"][0]["content"] for request in server.requests]
    assert prompts[0].startswith("You are makai, ")
    assert "These are the user's own instructions, for every project:\n\nSpeak plainly.\n\n" in prompts[0]
    assert prompts[0].endswith("\n\nAnswer in French.")
    assert prompts[1:] == ["Be brief.\n\nAnswer in French."] * 2


async def test_a_session_has_the_title_it_is_given_and_another_one_later(makai: Cli) -> None:
    session_id = await begin(makai, "-n", "First", "Hello")
    assert await titles(makai) == {session_id: "First"}
    await begin(makai, "-c", "-n", "Second", "Hello")
    assert await titles(makai) == {session_id: "Second"}
    renamed = await makai("sessions", "rename", session_id[:8], "Third")

    assert renamed == Finished(0, "The title is now: Third\n", "")
    assert await titles(makai) == {session_id: "Third"}


async def test_a_copy_is_continued_and_the_session_stays_as_it_is(makai: Cli) -> None:
    first = await begin(makai, "-n", "First", "Hello")
    before = (await makai("sessions", "export", first)).out
    copy = await begin(makai, "-r", first[:8], "--fork", "-n", "Copy", "Hello again")

    assert await titles(makai) == {first: "First", copy: "Copy"}
    assert (await makai("sessions", "export", first)).out == before
    assert "Hello again" in (await makai("sessions", "show", copy)).out


async def test_without_an_id_a_person_chooses_the_session(makai: Cli) -> None:
    older = await begin(makai, "-n", "Older", "Hello")
    await begin(makai, "-n", "Newer", "Hi")
    async with makai.on_terminal("-r") as terminal:
        await terminal.shows("Which session do you want to continue?", "1. Newer", "2. Older", "Esc leaves")
        await terminal.types(DOWN + ENTER, f"Session {older} (Older)", "> Hello", "scripted/echo")
        terminal.press(CTRL_D)
        assert await terminal.ended() == 0
    async with makai.on_terminal("-r") as terminal:
        await terminal.shows("Which session", "Esc leaves")
        await terminal.types(ESCAPE, "no session was chosen")
        assert await terminal.ended() == 2
