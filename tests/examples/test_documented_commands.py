"""Every `makai` command that the documentation prints is one that exists, with the options it is printed with."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from makai.cli.commands import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_SPAN = re.compile(r"`(makai(?: [^`\n]*)?)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ENDS = ("|", "&&", ";", ">", ">>")
_OTHERS = frozenset({"helm", "install", "kubectl"})
"""Programs to which makai is the name of a user, a package or a secret."""
_ANSWERED_BEFORE = frozenset({("--version",), ("--stdio",)})
"""What `main` answers before there is a command line."""


def printed_commands(page: Path) -> list[tuple[str, ...]]:
    """The arguments of every `makai …`: lines of console blocks that begin with `$`, and code in running text."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")  # a line that goes on
    lines = [line[2:] for block in _BLOCK.findall(text) for line in block.splitlines() if line.startswith("$ ")]
    spans = [span for span in _SPAN.findall(text) if "…" not in span]
    return list(dict.fromkeys(found for line in [*lines, *spans] for found in _calls(line)))


def _calls(line: str) -> list[tuple[str, ...]]:
    calls: list[list[str]] = []
    call: list[str] | None = None
    is_of_another = False
    for word in shlex.split(line, comments=True):
        if word in _ENDS:
            call, is_of_another = None, False
        elif call is None and word in _OTHERS:
            is_of_another = True
        elif word == "makai" and call is None and not is_of_another:
            call = []
            calls.append(call)
        elif call is not None:
            call.append(word)
    return [tuple(call) for call in calls]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_the_documentation_exists_with_its_options(page: Path) -> None:
    """`--help` is answered only where the command and every option before it are known."""
    printed = [call for call in printed_commands(page) if call not in _ANSWERED_BEFORE]
    outcomes = {call: CliRunner().invoke(cli, [*_before_dashes(call), "--help"]) for call in printed}

    assert {call: outcome.output for call, outcome in outcomes.items() if outcome.exit_code != 0} == {}


def _before_dashes(call: tuple[str, ...]) -> tuple[str, ...]:
    """What follows `--` belongs to another program, and `--help` there would let the command run."""
    return call[: call.index("--")] if "--" in call else call


def test_commands_are_found_in_the_documentation() -> None:
    printed = [call for page in PAGES for call in printed_commands(page)]

    assert len(set(printed)) > 40
    assert ("run", "-p", "Review this change") in printed
    assert () in printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_in_the_documentation_leads_somewhere(page: Path) -> None:
    targets = [target for target in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    anchors = {
        target: _anchors(page.parent / target.partition("#")[0] if target[0] != "#" else page)
        for target in targets
        if "#" in target
    }

    assert [target for target in targets if not (page.parent / target.partition("#")[0]).exists()] == []
    assert [target for target, found in anchors.items() if target.partition("#")[2] not in found] == []


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
