"""What `makai harness list` and `check` find out about agents."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import msgspec
import pytest
from support import acp_agent

from makai.cli import agent_check
from makai.cli.agent_check import CheckPlace, HarnessCheck, check_harness, check_harnesses, check_lines, list_lines
from makai.core.errors import NoProvider
from makai.harness.acp import known_agents as table
from makai.harness.acp.driven_agent import DrivenAgent
from makai.harness.acp.known_agents import AgentSpec

AGENT = f"exec {shlex.join([sys.executable, '-P', acp_agent.__file__])}"
TESTED = ("1.0.0", "2.0.0")


@pytest.fixture
def place(tmp_path: Path) -> CheckPlace:
    (tmp_path / "bin").mkdir()
    path = f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    pythonpath = os.pathsep.join(word for word in sys.path if word)
    return CheckPlace(environ={"PATH": path, "PYTHONPATH": pythonpath, "HOME": str(tmp_path)}, home=tmp_path / "home")


@pytest.fixture(autouse=True)
def only_goose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with one agent whose versions are known."""
    goose = AgentSpec(
        name="goose", title="goose", command=("goose", "acp"), install="get goose", login="log in", tested=TESTED
    )
    rows = {**table.known_agents(), "goose": goose}
    monkeypatch.setattr(table, "known_agents", lambda: rows)
    monkeypatch.setattr(agent_check, "known_agents", lambda: rows)


def install(place: CheckPlace, name: str, version: str, run: str = AGENT) -> str:
    program = Path(place.environ["PATH"].split(os.pathsep)[0], name)
    program.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then {version}; exit; fi\n{run}\n', encoding="utf-8")
    program.chmod(0o755)
    return str(program)


GOOSE = HarnessCheck(name="goose", title="goose", tested=TESTED, login="log in")


async def test_a_missing_program_is_a_problem_with_the_way_to_install_it(place: CheckPlace) -> None:
    found = await check_harness(place, "goose", start=True)

    assert found == msgspec.structs.replace(
        GOOSE, problem="goose is not installed: `goose` is not on your PATH.", next_step="Install it: get goose"
    )
    assert not found.installed


async def test_an_installed_agent_says_its_version_and_starts(place: CheckPlace) -> None:
    program = install(place, "goose", "echo 1.5.0")
    good = msgspec.structs.replace(GOOSE, program=program, version="1.5.0")

    assert await check_harness(place, "goose", start=False) == good
    assert await check_harness(place, "goose", start=True) == msgspec.structs.replace(good, starts=True)


@pytest.mark.parametrize(
    ("version", "run", "notice", "problem"),
    [
        ("echo 2.1.0", AGENT, "goose 2.1.0 is newer than 2.0.0, the newest version that makai was tried with.", ""),
        ("echo 0.9.0", AGENT, "", "goose 0.9.0 is too old; makai needs 1.0.0 or newer."),
        ("echo what", AGENT, "", "goose did not say its version: what"),
        ("echo 1.5.0", "echo oops >&2; exit 3", "", "oops"),
        ("echo 1.5.0", "echo prose; sleep 60", "", "did not answer"),
    ],
)
async def test_versions_and_starts_that_fail_are_problems(
    place: CheckPlace, monkeypatch: pytest.MonkeyPatch, version: str, run: str, notice: str, problem: str
) -> None:
    monkeypatch.setattr(agent_check, "CHECK_S", 8.0)
    install(place, "goose", version, run)

    found = await check_harness(place, "goose", start=True)

    assert found.notice == notice
    assert problem in found.problem
    assert bool(found.problem) == bool(problem)
    assert found.starts is (not problem)


@pytest.mark.parametrize("run", ["echo boom >&2; exit 3", "echo I am prose"])
@pytest.mark.parametrize(
    ("name", "program", "version", "starts"),
    [
        ("claude-code", "claude", "2.1.325", False),
        ("codex", "codex", "0.166.0", False),
        ("opencode", "opencode", "1.18.33", False),
        ("amp", "amp", "0.0.1790142911", None),
        ("antigravity", "agy", "1.0.0", None),
    ],
)
async def test_no_program_that_dies_or_prints_prose_is_said_to_start(
    place: CheckPlace, name: str, program: str, version: str, starts: bool | None, run: str
) -> None:
    install(place, program, f"echo {version}", run)

    found = await check_harness(place, name, start=True)

    assert (found.version, found.starts, bool(found.problem)) == (version, starts, starts is False)


async def test_messages_that_makai_does_not_know_are_reported(
    place: CheckPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place, "goose", "echo 1.5.0")
    monkeypatch.setattr(DrivenAgent, "drift", {"system/new": 3, "other": 1})

    (line,) = check_lines([await check_harness(place, "goose", start=True)])

    assert line == "ok goose        1.5.0, starts, unknown messages: other (1), system/new (3)"


async def test_a_command_line_is_started_but_not_asked_for_a_version(place: CheckPlace) -> None:
    program = install(place, "mine", "touch /nowhere/asked")

    found = await check_harness(place, "acp:mine --serve", start=True)

    assert found == HarnessCheck(name="acp:mine --serve", title="mine", program=program, starts=True)


async def test_built_in_harnesses_need_no_program_and_unknown_names_are_refused(place: CheckPlace) -> None:
    native = await check_harness(place, "raw", start=True)

    assert (native.name, native.built_in, native.problem) == ("native", True, "")
    assert "resume" in native.can
    assert (await check_harness(place, "stub", start=True)).built_in
    with pytest.raises(NoProvider, match="There is no harness 'nope'") as refused:
        await check_harness(place, "nope", start=True)
    assert "claude-code" in str(refused.value.hint)


async def test_the_list_has_every_harness_once_and_installed_ones_first(place: CheckPlace) -> None:
    install(place, "goose", "echo 1.5.0")

    found = await check_harnesses(place, place.names(), start=False)

    names = [one.name for one in found]
    assert len(names) == len(set(names))
    assert {"native", "claude-code", "codex", "gemini", "opencode", "amp", "antigravity", "goose"} <= set(names)
    assert {"stub", "makai", "raw"}.isdisjoint(names)
    lines = list_lines(found)
    assert lines[:4] == [
        "NAME           VERSION        CAN",
        "native         built in       resume, steering, MCP, tool rules, effort, JSON schema",
        "goose          1.5.0          what it offers over ACP",
        "               Login: log in",
    ]


async def test_a_key_that_an_agent_may_bill_is_pointed_out_until_it_is_blocked(
    place: CheckPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_check, "_BILLING_KEYS", {"goose": ("GOOSE_KEY",)})
    install(place, "goose", "echo 1.5.0")

    async def notice(**more: str) -> str:
        other = msgspec.structs.replace(place, environ={**place.environ, **more})
        return (await check_harness(other, "goose", start=False)).notice

    assert await notice(GOOSE_KEY="k") == (
        "GOOSE_KEY is set, so it may bill that key; AGENT_ENV_BLOCKLIST=GOOSE_KEY keeps it away."
    )
    assert await notice(GOOSE_KEY="k", AGENT_ENV_BLOCKLIST="GOOSE_KEY") == ""
    assert await notice() == ""
