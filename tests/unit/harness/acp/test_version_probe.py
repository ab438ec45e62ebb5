"""The version that an agent's program says, and what follows from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from makai.core.errors import AgentFailed, NotSupported
from makai.harness.acp import version_probe
from makai.harness.acp.connection import start_process
from makai.harness.acp.known_agents import AgentSpec
from makai.harness.acp.version_probe import ProbedVersion, probe_version

SPEC = AgentSpec(
    name="x", title="Agent X", command=("x",), protocol="acp", install="get x", tested=("1.2.3", "1.10.0")
)  # fmt: skip
NEWER = "Agent X 1.11.0-beta.1 is newer than 1.10.0, the newest version that makai was tried with."


async def probed(folder: Path, script: str) -> ProbedVersion:
    program = folder / "x"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    async with asyncio.timeout(30):
        return await probe_version(SPEC, str(program), {"PATH": "/usr/bin:/bin"}, str(folder), start_process)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo x-cli 1.2.3", ProbedVersion("1.2.3", "")),
        ("echo '1.10.0 (Agent X)'", ProbedVersion("1.10.0", "")),
        ("echo A new release is out; echo v1.11.0-beta.1 | tr -d v", ProbedVersion("1.11.0-beta.1", NEWER)),
        ("echo 1.2.3; sleep 600", ProbedVersion("1.2.3", "")),
    ],
)
async def test_a_version_is_found_in_what_the_program_says(
    tmp_path: Path, script: str, expected: ProbedVersion
) -> None:
    assert await probed(tmp_path, script) == expected


async def test_a_version_that_is_too_old_is_refused_with_the_way_to_another_one(tmp_path: Path) -> None:
    with pytest.raises(NotSupported) as refused:
        await probed(tmp_path, "echo 1.2.2")
    assert str(refused.value) == (
        "Agent X 1.2.2 is too old; makai needs 1.2.3 or newer. Install another version of it: get x"
    )


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo Usage: x FILE", "Agent X did not say its version: Usage: x FILE Install it again: get x"),
        ("echo broken >&2; exit 3", "Agent X did not say its version: broken Install it again: get x"),
        ("exit 0", "Agent X did not say its version. Install it again: get x"),
        ("yes | head -c 1000000", f"Agent X did not say its version: {' '.join('y' * 20)} Install it again: get x"),
    ],
)
async def test_a_program_without_a_version_is_no_agent(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(AgentFailed) as refused:
        await probed(tmp_path, script)
    assert str(refused.value) == words


async def test_a_program_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_probe, "PROBE_S", 0.2)
    with pytest.raises(AgentFailed, match=r"did not say its version within 0\.2 s"):
        await probed(tmp_path, "sleep 600")
