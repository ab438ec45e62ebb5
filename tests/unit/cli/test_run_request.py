"""What `makai run` reads from its options."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from makai.cli.console import ModeType
from makai.cli.run import command
from makai.cli.run_request import folder_from, options_from, rules_from, split_rules
from makai.cli.session_options import Seconds
from makai.core.errors import InvalidRequest
from makai.core.request import StreamOptions


@pytest.mark.parametrize(("word", "seconds"), [("4s", 4), ("2m", 120), ("1.5h", 5400), ("0", 0), ("90", 90)])
def test_a_duration_may_have_a_unit(word: str, seconds: float) -> None:
    assert Seconds(0, 86_400).convert(word, None, None) == seconds


@pytest.mark.parametrize(
    ("words", "rules"),
    [
        ("Read", ["Read"]),
        ("Read,Bash(git log:*)", ["Read", "Bash(git log:*)"]),
        (" Read  Edit(src/**) ,", ["Read", "Edit(src/**)"]),
        ("Bash(echo (a, b):*) mcp__x__*", ["Bash(echo (a, b):*)", "mcp__x__*"]),
        ("Read) Edit", ["Read)", "Edit"]),
        ("", []),
    ],
)
def test_rules_are_split_outside_of_parentheses(words: str, rules: list[str]) -> None:
    assert split_rules(words) == rules


def test_rules_of_several_options_are_taken_together() -> None:
    assert rules_from(["Read,Edit", "Bash(git log:*)"], "--allowed-tools") == ("Read", "Edit", "Bash(git log:*)")


@pytest.mark.parametrize("rule", ["Read)", "Bash(git log:*", "WebFetch(example.com)", "Plan(x)"])
def test_a_rule_that_cannot_be_read_names_its_option(rule: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        rules_from([rule], "--disallowed-tools")

    assert refused.value.message.startswith("--disallowed-tools: permission rule")
    assert refused.value.hint


def test_a_folder_is_known_by_its_real_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "link")

    assert folder_from(str(tmp_path / "link")) == folder_from(None) == str((tmp_path / "real").resolve())


def test_a_folder_that_is_gone_or_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(InvalidRequest, match="the current folder no longer exists"):
        folder_from(None)
    with pytest.raises(InvalidRequest, match="nowhere is not a folder"):
        folder_from(str(tmp_path / "nowhere"))


def test_options_that_were_not_given_keep_their_defaults() -> None:
    given = {"effort": "high", "stall_timeout": 2.5, "max_tokens": None, "account": None}

    assert options_from(None, given) == StreamOptions(reasoning_effort="high", stall_timeout_s=2.5)


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        ("ask", "ask"), ("default", "ask"), ("acceptEdits", "accept_edits"), ("accept_edits", "accept_edits"),
        ("plan", "plan"), ("bypassPermissions", "never_ask"), ("full-access", "never_ask"),
        ("full_access", "never_ask"), ("never-ask", "never_ask"), ("never_ask", "never_ask"),
    ],
)  # fmt: skip
def test_modes_are_known_by_the_words_of_other_agents_too(word: str, mode: str) -> None:
    assert ModeType().convert(word, None, None) == mode


def test_an_unknown_mode_names_those_there_are() -> None:
    with pytest.raises(click.BadParameter, match="'ask', 'accept_edits', 'plan', 'never_ask'"):
        ModeType().convert("yolo", None, None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-c", "-r", "x"), "-c and -r name different sessions"),
        (("-c", "--no-session"), "-c and --no-session name different sessions"),
        (("-r", "x", "--cwd", "/"), "a session keeps its folder"),
        (("-c", "--add-dir", "/"), "a session keeps its folders"),
        (("--max-turns", "0"), "Invalid value for '--max-turns'"),
        (("--max-budget-usd", "0"), "Invalid value for '--max-budget-usd'"),
        (("--max-seconds", "nan"), "Invalid value for '--max-seconds'"),
        (("--permission-mode", "yolo"), "Invalid value for '--permission-mode'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(command, [*arguments, "Hi"])

    assert result.exit_code == 2
    assert says in result.output
