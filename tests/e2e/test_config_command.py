"""`makai config`, a question without a command, and what still works with a broken config.toml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cli import Cli, Finished

CTRL_D = "\x04"


@pytest.fixture
def makai(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "scenario.txt").write_text("say: Hello to you.")
    return Cli(home, {"MAKAI_SCENARIO": str(tmp_path / "scenario.txt")})


async def test_settings_are_changed_and_shown_with_where_they_are_from(makai: Cli) -> None:
    path = makai.home / "config.toml"
    path.write_text("# mine\n")
    (makai.home / "config.toml").chmod(0o640)
    for key, value in (("model", "scripted/echo"), ("mode", "acceptEdits"), ("aliases.fast", "haiku")):
        assert (await makai("config", "set", key, value)).code == 0

    assert path.read_text() == '# mine\nmodel = "scripted/echo"\nmode = "accept_edits"\n\n[aliases]\nfast = "haiku"\n'
    assert path.stat().st_mode & 0o777 == 0o640
    shown = (await makai("config", "show", "--json", environ={"MAKAI_MODEL": "fast"})).json()
    assert {name: shown[name] for name in ("model", "mode", "effort", "theme", "sandbox", "aliases")} == {
        **{"model": "fast", "mode": "accept_edits", "effort": None, "theme": "auto", "sandbox": "workspace-write"},
        "aliases": {"fast": "haiku"},
    }
    assert (shown["sources"]["model"], shown["sources"]["mode"], shown["sources"]["theme"]) == (
        *("environment", "user", "default"),
    )
    assert await makai("config", "get", "model") == Finished(0, "scripted/echo\n", "")
    assert (await makai("config", "unset", "model")).code == 0
    assert await makai("config", "get", "model") == Finished(1, "", "makai: model is not set.\n")
    assert (await makai("config", "set", "retries.max_seconds", "0")).code == 0
    assert await makai("config", "get", "retries.max_seconds") == Finished(0, "0\n", "")


async def test_every_key_of_the_file_is_shown_but_no_secret(makai: Cli) -> None:
    (makai.home / "config.toml").write_text(
        'notify = "none"\n[retries]\nmax_seconds = 5\n[providers.corp]\nbase_url = "http://corp.test"\n'
        '[providers.corp.login]\nclient_id = "a"\nclient_secret = "c4n4ry"\n'
    )
    lines = (await makai("config", "show")).out.splitlines()
    missing = await makai("config", "get", "nosuch")

    assert [line.split() for line in lines[6:]] == [
        ["providers.corp.base_url", "http://corp.test", "user"],
        ["providers.corp.login.client_id", "a", "user"],
        ["providers.corp.login.client_secret", "(hidden)", "user"],
        ["retries.max_seconds", "5", "user"],
        ["notify", "none", "user"],
    ]
    assert (missing.code, missing.err.splitlines()[0]) == (2, "makai: there is no setting 'nosuch'.")
    assert await makai("config", "get", "status_line") == Finished(1, "", "makai: status_line is not set.\n")


async def test_a_wrong_status_line_in_the_file_does_not_keep_the_chat_from_starting(makai: Cli) -> None:
    (makai.home / "config.toml").write_text('model = "scripted/echo"\nstatus_line = "{nosuch}"\n')
    async with makai.on_terminal() as terminal:
        await terminal.shows("status_line has no field {nosuch}. The usual one is shown.", "scripted/echo", ">")
        terminal.press("\x04")
        assert await terminal.ended() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model", "sonet"), "model not found: 'sonet'. Did you mean sonnet?"),
        (("aliases.loop", "loop"), "model not found: the alias 'loop' leads back to itself."),
        (("effort", "hihg"), "effort cannot be 'hihg'. Did you mean high?"),
        (("modle", "sonnet"), "modle cannot be 'sonnet': Object contains unknown field `modle`"),
        (("retries.max_seconds", "soon"), "retries.max_seconds cannot be 'soon': Expected `int | null`, got `str`"),
        (("retries.max_seconds", "90000"), "retries.max_seconds cannot be '90000'"),
        (("providers.x.base_url", "host:80/v1"), "providers.x.base_url cannot be 'host:80/v1': the base URL is not"),
    ],
)
async def test_a_wrong_setting_is_refused_and_nothing_is_written(
    makai: Cli, words: tuple[str, str], message: str
) -> None:
    finished = await makai("config", "set", *words)

    assert (finished.code, finished.out) == (2, "")
    assert message in finished.err
    assert not (makai.home / "config.toml").exists()


async def test_a_projects_file_is_written_and_counts_when_the_folder_is_trusted(makai: Cli, tmp_path: Path) -> None:
    written = await makai("config", "set", "--project", "mode", "plan")
    before = await makai("config", "get", "mode")
    await makai("sessions", "trust", "--yes")
    after = await makai("config", "get", "mode")

    assert (tmp_path / "work/.makai/config.toml").read_text() == 'mode = "plan"\n'
    assert "makai sessions trust --yes" in written.err
    assert (before.out, after.out) == ("ask\n", "plan\n")
    refused = await makai("config", "set", "--project", "providers.x.base_url", "http://x.example")
    assert (refused.code, "unknown field `providers`" in refused.err) == (2, True)


async def test_an_editor_opens_the_file_and_a_mistake_is_named(makai: Cli, tmp_path: Path) -> None:
    path = (await makai("config", "path")).out.strip()
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "mode = ask" >> "$1"\n')
    editor.chmod(0o755)
    finished = await makai("config", "edit", environ={"EDITOR": str(editor)})

    assert path == str(makai.home / "config.toml")
    assert (finished.code, finished.out) == (2, "")
    assert f"{path} is not valid TOML: Invalid value (at line 15" in finished.err
    assert "makai config edit" in finished.err


async def test_an_editor_in_the_current_folder_is_not_started(makai: Cli, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "own-editor").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (work / "own-editor").chmod(0o755)
    finished = await makai("config", "edit", environ={"EDITOR": "own-editor", "PATH": f"{work}:{os.environ['PATH']}"})

    assert (finished.code, (tmp_path / "ran").exists()) == (2, False)
    assert "the editor own-editor failed: it is not on your PATH" in finished.err


async def test_a_broken_file_stops_only_what_needs_it(makai: Cli) -> None:
    await makai("run", "-m", "scripted/scenario", "Hi")
    (makai.home / "config.toml").write_text("model = sonnet\n")
    named = f"{makai.home}/config.toml is not valid TOML: Invalid value (at line 1, column 9)"
    listed, asked = await makai("sessions", "list"), await makai("run", "Hi")

    assert (listed.code, "scripted/scenario" in listed.out, named in listed.err) == (0, True, True)
    assert (asked.code, named in asked.err) == (2, True)
    assert [(await makai(*words)).code for words in (("--help",), ("config", "path"), ("completion", "bash"))] == [
        0
    ] * 3


async def test_a_question_is_answered_and_printed_where_there_is_no_terminal(makai: Cli) -> None:
    model = {"MAKAI_MODEL": "scripted/scenario"}
    assert await makai("Why is the sky blue?", environ=model) == Finished(0, "Hello to you.\n", "")
    assert (await makai("Why?", "--output-format", "json", environ=model)).json()["text"] == "Hello to you."
    assert (await makai("-m", "scripted/echo", "Review this", stdin=b"a diff")).out == "Review this\n\na diff\n"
    assert await makai(stdin=b"Why?\n", environ=model) == Finished(0, "Hello to you.\n", "")
    assert (await makai(environ=model)).code == 2  # nothing was asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("seshions", "list"), "Did you mean `makai sessions`?"),
        (("modles",), "Did you mean `makai models`?"),
        (("sesions",), "Did you mean `makai sessions`?"),
        (("login",), "Did you mean `makai auth login`?"),
        (("hello", "world"), 'Put a question in quotes: makai "your question".'),
        (("",), "the question is empty"),
        (("--bogus",), "No such option '--bogus'"),
    ],
)
async def test_what_may_be_a_typing_error_is_not_sent_to_a_model(
    makai: Cli, words: tuple[str, ...], message: str
) -> None:
    finished = await makai(*words, environ={"MAKAI_MODEL": "scripted/scenario"})

    assert (finished.code, finished.out) == (2, "")
    assert message in finished.err
    assert (await makai("sessions", "list", "--json")).json()["sessions"] == []


async def test_a_status_line_with_an_unknown_field_is_refused_before_it_stops_the_chat(makai: Cli) -> None:
    refused = await makai("config", "set", "status_line", "{model} {nosuch}")

    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("makai: status_line has no field {nosuch}.")
    assert (await makai("config", "set", "status_line", "{model} · {cost}")).code == 0


@pytest.mark.parametrize("word", ["test", "docs", "question", "stats"])
async def test_a_word_that_only_resembles_a_command_is_a_question(makai: Cli, word: str) -> None:
    answer = await makai(word, environ={"MAKAI_MODEL": "scripted/echo"})

    assert answer == Finished(0, f"{word}\n", "")


async def test_a_question_begins_a_chat_on_a_terminal(makai: Cli) -> None:
    environ = {"MAKAI_MODEL": "scripted/scenario"}
    words = ("Why is the sky blue?", "--mode", "plan", "--max-usd", "5", "--effort", "low")
    async with makai.on_terminal(*words, environ=environ) as terminal:
        await terminal.shows("scripted/scenario", "> Why is the sky blue?", "Hello to you.", "plan")
        await terminal.types("/budget\r", "of 5 USD")
        terminal.press(CTRL_D)
        assert await terminal.ended() == 0
