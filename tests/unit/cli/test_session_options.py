"""An option that `makai run` and `makai chat` do not have: what is suggested instead."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from makai.cli.commands import cli


def last_line(*arguments: str) -> tuple[int, str]:
    refused = CliRunner().invoke(cli, arguments)
    return refused.exit_code, refused.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--json", "makai run --output-format json"),
        ("--stream-json", "makai run --output-format stream-json"),
        ("--timeout", "makai run --max-seconds SECONDS"),
        ("--image", "makai run @FILE PROMPT"),
        ("--full-auto", "--permission-mode accept_edits"),
        ("--yolo", "--permission-mode never_ask"),
        ("--dangerously-skip-permissions", "--permission-mode never_ask"),
        ("--dangerously-bypass-approvals-and-sandbox", "--permission-mode never_ask --sandbox full-access"),
    ],
)
@pytest.mark.parametrize("command", [("run",), ("chat",), ()])
def test_an_option_of_another_agent_is_refused_with_the_one_of_makai(
    command: tuple[str, ...], option: str, instead: str
) -> None:
    said = f"Error: there is no option {option}. Did you mean `{instead}`?"

    assert last_line(*command, option, "Why is that?") == (2, said)


def test_an_option_that_is_nearly_right_is_refused_with_the_one_that_looks_alike() -> None:
    assert last_line("run", "--max-turn", "3", "Hi")[1].startswith("Error: No such option '--max-turn'. (Did you mean")
