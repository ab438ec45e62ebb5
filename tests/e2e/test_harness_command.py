"""`makai harness` as people and scripts call it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from support.cli import Cli, interrupt
from support.fake_harness import git, make_repository

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    """makai with a Gemini CLI that has a version and nothing else."""
    program = tmp_path / "bin/gemini"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 0.61.0 || exit 3\n', encoding="utf-8")
    program.chmod(0o755)
    return Cli(tmp_path / "home", {"PATH": f"{program.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"})


async def test_the_list_shows_what_is_installed_and_how_to_get_the_rest(makai: Cli) -> None:
    text = await makai("harness", "list")
    rows = {row["name"]: row for row in (await makai("harness", "list", "--json")).json()}

    assert text.code == 0
    assert "gemini         0.61.0" in text.out
    assert "claude-code    not installed" in text.out
    assert "Install it: npm install -g" in text.out
    assert rows["native"]["built_in"] is True
    assert rows["gemini"]["version"] == "0.61.0"
    assert rows["gemini"]["login"].startswith("Run `gemini`")
    assert "program" not in rows["codex"]


async def test_a_check_fails_for_a_program_that_does_not_start_or_is_missing(makai: Cli) -> None:
    installed = await makai("harness", "check")
    named = await makai("harness", "check", "codex", "--json")
    built_in = await makai("harness", "check", "native", "stub")
    unknown = await makai("harness", "check", "nope")

    assert (installed.code, named.code, built_in.code, unknown.code) == (1, 1, 0, 2)
    assert "!! gemini" in installed.out
    assert "codex" not in installed.out
    assert named.json()[0]["problem"].startswith("Codex is not installed")
    assert built_in.out == "ok native       built in\nok stub         built in\n"
    assert "There is no harness 'nope'." in unknown.err


async def test_the_matrix_is_the_page_of_the_documentation(makai: Cli) -> None:
    page = await makai("harness", "matrix")
    data = await makai("harness", "matrix", "--json")

    assert page.out == (ROOT / "docs/harness-matrix.md").read_text(encoding="utf-8")
    assert data.json() == json.loads((ROOT / "docs/harness-matrix.json").read_text(encoding="utf-8"))


async def test_the_doctor_says_the_versions_of_agents(makai: Cli) -> None:
    found = await makai("doctor", "--offline")

    (row,) = [line.split() for line in found.out.splitlines() if line.startswith("ok gemini ")]
    assert row[:5] == ["ok", "gemini", "Gemini", "CLI", "0.61.0,"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "app")


def worktrees(repository: Path) -> list[Path]:
    return sorted((repository.parent / "app.worktrees").iterdir())


async def test_a_run_prints_events_as_json_lines_and_the_result_last(makai: Cli, tmp_path: Path) -> None:
    run = await makai("harness", "run", "stub", "--json", "--cwd", str(tmp_path), "do it")
    *events, result = run.json_lines()

    assert run.code == 0
    kinds = [event["kind"] for event in events]
    assert kinds == ["init", "system", "assistant_text", "tool_use", "tool_result", "assistant_text", "result"]
    assert (result["status"], result["workResult"], result["providerName"]) == ("completed", "passed", "stub")
    assert result["providerSessionId"] == events[0]["sessionId"]


@pytest.mark.req("DM-EVT-012")
async def test_a_run_in_a_worktree_that_fails_is_continued(makai: Cli, repository: Path) -> None:
    failed = await makai(
        *("harness", "run", "stub", "--worktree", "--cwd", str(repository), "--test", "true", "do it"),
        environ={"MAKAI_STUB_MODE": "mid-stream-error"},
    )
    (place,) = worktrees(repository)
    resumed = await makai("harness", "run", "--resume", str(place), "--json")
    again = await makai("harness", "run", "--resume", str(place))

    assert (failed.code, resumed.code, again.code) == (1, 0, 2)
    assert f"makai harness run --resume {place}" in failed.err
    events = [json.loads(line) for line in (place / ".agent/events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [event["kind"] for event in events[:3]] == ["init", "assistant_text", "error"]
    *seen, result = resumed.json_lines()
    assert seen == events[3:]
    assert seen[1]["subtype"] == "recovered"
    assert str(seen[1]["message"]).startswith("continued the session stub-session-")
    assert result["worktreePath"] == str(place)
    assert "This run has completed." in again.err
    assert git(repository, "status", "--porcelain") == ""


async def test_tasks_run_side_by_side_and_a_table_shows_their_results(makai: Cli, repository: Path) -> None:
    tasks = repository.parent / "tasks.toml"
    rows = "".join(f'[[task]]\nname = "t{number}"\nprompt = "x"\n' for number in range(3))
    tasks.write_text(f'harness = "stub"\n{rows}', encoding="utf-8")
    common = ("harness", "run", "--parallel", "2", "--cwd", str(repository))

    finished = await makai(*common, str(tasks))
    missing = await makai(*common, str(tasks.with_name("none.toml")))
    tasks.write_text("[[task]]\nprompt = 3\n", encoding="utf-8")
    wrong = await makai(*common, str(tasks))

    assert finished.code == 0
    table = [line.split()[:3] for line in finished.out.splitlines()]
    assert table == [
        ["TASK", "STATUS", "WORK"],
        *([f"t{number}", "completed", "passed"] for number in range(3)),
    ]
    assert [path.name[:3] for path in worktrees(repository)] == ["t0-", "t1-", "t2-"]
    assert (missing.code, wrong.code) == (2, 2)
    assert "cannot be read" in missing.err
    assert "prompt" in wrong.err


async def test_ctrl_c_stops_every_task_politely(makai: Cli, repository: Path) -> None:
    tasks = repository.parent / "tasks.toml"
    tasks.write_text('harness = "stub"\n[[task]]\nprompt = "x"\n[[task]]\nprompt = "y"\n', encoding="utf-8")
    hang = {"MAKAI_STUB_MODE": "hang-then-timeout"}
    command = ("harness", "run", "--parallel", "2", "--json", "--cwd", str(repository), str(tasks))
    async with makai.started(*command, environ=hang) as process:
        assert process.stdout is not None
        lines = list[bytes]()
        async with asyncio.timeout(60):
            while sum(b'"kind":"init"' in line for line in lines) < 2:
                lines.append(await process.stdout.readline())
                assert lines[-1]
            interrupt(process)
            lines += (await process.stdout.read()).splitlines()
            await process.wait()

    results = [json.loads(line)["result"] for line in lines if b'"result":{' in line]
    assert [result["failureMode"] for result in results] == ["operator-cancelled"] * 2
    assert process.returncode == 130


async def test_a_limit_in_dollars_needs_an_agent_that_says_its_cost(makai: Cli, tmp_path: Path) -> None:
    command = ("harness", "run", "stub", "--json", "--cwd", str(tmp_path), "--max-usd", "1")
    costly = {"MAKAI_STUB_MODE": "cost-overrun"}

    refused = await makai(*command, "x", environ=costly)
    stopped = (await makai(*command, "--allow-unknown-price", "x", environ=costly)).json_lines()[-1]

    assert (refused.code, "the limit of 1 USD cannot be kept" in refused.err) == (2, True)
    assert (stopped["status"], stopped["failureMode"]) == ("failed", "budget-exceeded")


async def test_a_limit_that_cannot_be_kept_leaves_no_worktree_and_no_branch(makai: Cli, repository: Path) -> None:
    refused = await makai(
        *("harness", "run", "gemini", "--worktree", "--autonomous", "--max-usd", "1", "--cwd", str(repository), "x")
    )

    assert refused.code == 2
    assert "Gemini CLI does not say what it costs: the limit of 1 USD cannot be kept." in refused.err
    assert not (repository.parent / "app.worktrees").exists()
    assert len(git(repository, "branch", "--list").splitlines()) == 1


async def test_mistakes_on_the_command_line_are_explained(makai: Cli, repository: Path, tmp_path: Path) -> None:
    async def said(*words: str) -> str:
        finished = await makai("harness", "run", *words)
        assert finished.code in (1, 2), finished
        return finished.err

    (tmp_path / "plain").mkdir()
    where = ("--cwd", str(repository), "--worktree")
    assert "name a harness and a task" in await said()
    assert "the task is missing" in await said("stub")
    assert "There is no harness 'nope'" in await said("nope", "x")
    assert "Install it: npm install" in await said("codex", "x")
    assert "add --worktree" in await said("stub", "--push", "--backstop", "x")
    assert "--pr needs --push" in await said("stub", "--worktree", "--pr", "x")
    assert "is not in a git repository" in await said("stub", "--worktree", "--cwd", str(tmp_path / "plain"), "x")
    assert "do not work on main" in await said("stub", *where, "--branch", "main", "x")
    assert "has no run to resume" in await said("--resume", str(repository))
    (repository / "a.txt").write_text("changed", encoding="utf-8")
    assert "--allow-dirty" in await said("stub", *where, "x")
