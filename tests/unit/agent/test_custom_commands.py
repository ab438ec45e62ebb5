"""Slash commands that users write as files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from makai.agent.custom_commands import MAX_BYTES, CustomCommand, find_commands, parse_command

TEXTS = st.text(st.sampled_from("$ARGUMENTS 012\n'\"\\ab"), max_size=30)
WORDS = st.lists(st.text(st.sampled_from("$ARGUMENTS12 '\"\\é"), min_size=1, max_size=8), max_size=12)


def command(text: str) -> CustomCommand:
    return CustomCommand(name="x", text=text)


@given(TEXTS)
def test_a_text_without_placeholders_is_sent_as_it_is(text: str) -> None:
    plain = text.replace("$", "")
    assert command(plain).message("") == plain


@given(WORDS)
def test_each_word_fills_its_place_and_is_not_read_again(words: list[str]) -> None:
    text = "".join(f"<${number}>" for number in range(1, 13))
    filled = [*words, *[""] * (12 - len(words))]

    assert command(text).message(shlex.join(words)) == "".join(f"<{word}>" for word in filled)


@given(st.text(max_size=20), st.integers(1, 3))
def test_all_words_fill_every_place_as_they_were_typed(argument: str, times: int) -> None:
    assert command("[$ARGUMENTS]" * times).message(argument) == f"[{argument}]" * times


@given(TEXTS, st.text(max_size=20))
def test_nothing_of_an_argument_is_lost_or_invented(text: str, argument: str) -> None:
    message = command(text).message(argument)

    if not re.search(r"\$(ARGUMENTS\b|[1-9])", text):
        assert message == (f"{text}\n\n{argument}" if argument else text)
    elif "$ARGUMENTS " in f"{text} ":
        assert argument in message


def test_names_that_only_begin_like_a_placeholder_are_text() -> None:
    assert command("$ARGUMENTSX $0 $x $100 $12 $1").message("a b") == "$ARGUMENTSX $0 $x $100  a"


def test_a_missing_quotation_mark_is_no_error() -> None:
    assert command("$2 of $ARGUMENTS").message("I don't know") == "don't of I don't know"


def test_the_head_of_a_file_is_for_the_menu() -> None:
    text = '---\ndescription: "Fix an  issue"\nargument-hint: [NUMBER]\nmodel: any\n---\n\nFix issue $1.\n'

    assert parse_command("fix", text, "p") == CustomCommand(
        name="fix", text="Fix issue $1.", description="Fix an issue", argument_hint="[NUMBER]", path="p"
    )
    assert parse_command("a", "Just\x1b text") == CustomCommand(
        name="a", text="Just\x1b text", description="Just\\x1b text"
    )
    assert parse_command("a", "---\ndescription: none\n---\n") is None
    assert parse_command("a", "---\nno end") == CustomCommand(name="a", text="---\nno end", description="--- no end")


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text)


def test_a_project_adds_commands_only_when_its_folder_is_trusted(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    _write(home / "commands", both="of the user", mine="mine")
    _write(project / ".makai" / "commands", both="of the project", theirs="theirs")
    _write(project / "deep" / ".makai" / "commands", theirs="nearer")

    untrusted = find_commands(home, str(project / "deep"), trusted=False)
    trusted = find_commands(home, str(project / "deep"), trusted=True)

    assert {name: each.text for name, each in untrusted.items()} == {"both": "of the user", "mine": "mine"}
    assert {name: each.text for name, each in trusted.items()} == {
        "both": "of the project",
        "mine": "mine",
        "theirs": "nearer",
    }


def test_a_subfolder_is_a_part_of_the_name(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "project" / ".makai" / "commands", tmp_path / "elsewhere"
    _write(folder, commit="of all", **{"z-last": "last"})
    _write(folder / "git", commit="of git", push="Push")
    _write(folder / "Git2" / "deep" / "er", Commit="deep")
    _write(folder / "a" / "b" / "c" / "d", e="too deep")
    _write(folder / "no name", x="x")
    _write(elsewhere, stolen="of another folder")
    (folder / "link").symlink_to(elsewhere)
    found = find_commands(tmp_path / "none", str(tmp_path / "project"), trusted=True)

    assert {name: each.text for name, each in found.items()} == {
        "commit": "of all",
        "git2:deep:er:commit": "deep",
        "git:commit": "of git",
        "git:push": "Push",
        "z-last": "last",
    }


def test_what_is_no_command_is_left_out_with_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".makai" / "commands"
    _write(folder, good="Good", **{"bad name": "x", "large": "x" * (MAX_BYTES + 1), "empty": " "})
    (folder / "binary.md").write_bytes(b"\xff\xfe")
    (folder / "folder.md").mkdir()
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    (folder / "link.md").symlink_to(secret)

    problems: list[str] = []
    found = find_commands(tmp_path / "none", str(tmp_path / "project"), trusted=True, problem=problems.append)

    assert list(found) == ["good"]
    reasons = dict(problem.removeprefix(f"{folder}/").split(".md is no command: ") for problem in problems)
    assert list(reasons) == ["bad name", "binary", "empty", "folder", "large", "link"]
    assert [reasons[name] for name in ("bad name", "binary", "empty", "large")] == [
        'its name may have letters, digits, "_" and "-" only',
        "it is not UTF-8 text",
        "it has no text to send",
        "it is longer than 65,536 bytes",
    ]
