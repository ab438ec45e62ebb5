"""Slash commands: what is one, and what may have been meant."""

from __future__ import annotations

import pytest

from makai.agent.custom_commands import CustomCommand
from makai.cli.terminal.menu import Choice
from makai.cli.terminal.slash_commands import COMMANDS, completions, custom_message, help_text, parse, unknown


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/mode plan", ("mode", "plan")), ("/MODEL  a/b ", ("model", "a/b")), ("/clear", ("new", "")),
        ("/exit", ("quit", "")), ("/nonsense", ("", "")), ("/usr/bin/ls is a path", None), ("/etc\nand more", None),
        ("what about /help?", None), ("/hotkeys", ("help", "")), ("/usage", ("cost", "")), ("/agents", ("agent", "")),
        ("/rename x", ("title", "x")),
    ],
)  # fmt: skip
def test_a_line_is_a_command_only_when_it_begins_as_one(line: str, command: tuple[str, str] | None) -> None:
    assert parse(line) == command


def test_a_typo_is_answered_with_what_was_meant() -> None:
    assert unknown("/resmue x") == "Unknown command /resmue. Did you mean /resume?"
    assert unknown("/modle") == "Unknown command /modle. Did you mean /mode or /model?"
    assert unknown("/xyzzy") == "Unknown command /xyzzy. /help lists them."


def test_what_is_begun_can_be_completed() -> None:
    assert [choice.value for choice in completions("/mod")] == ["model", "mode"]
    assert [choice.value for choice in completions("/ex")][:2] == ["export", "quit"]
    assert next(choice.value for choice in completions("/exit")) == "quit"
    assert completions("/mode ") == completions("words") == []


def test_a_command_of_a_subfolder_is_completed_and_sent() -> None:
    custom = {"git:commit": CustomCommand(name="git:commit", text="Commit $1.", description="Commit")}

    assert completions("/git", custom)[0] == Choice(value="git:commit", label="/git:commit", detail="Commit")
    assert (parse("/git:commit all"), custom_message("/Git:commit all", custom)) == (("", "all"), "Commit all.")


def test_help_names_every_command() -> None:
    assert [command.name for command in COMMANDS if f"/{command.name}" not in help_text()] == []
