"""The programs of `examples/` that log in and run agents, against a real server with a scripted model."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.cli import NOTHING, Cli, Finished

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SDK = ROOT / "sdk" / "typescript"
DEADLINE_S = 60.0

WHOLE_FLOW = """\
N providers, test-fixture: login_required
Type "ok" to log in: Logged in.
1 models, the first: test-fixture/scripted@fixture
You are logged in.Why is the sky blue?
"""
SECOND_FLOW = """\
N providers, test-fixture: authenticated
1 models, the first: test-fixture/scripted@fixture
You are logged in.And now?
"""
AGENT_SHOWN = """\
Let me see.
[holidays {"day": "2026-07-01"}]

[write {"path": "holidays.txt", "content": "2026-12-25"}]

Write holidays.txt
  FOLDER/holidays.txt: '2026-12-25'
Allow it? [y/N] """
REFUSED = 'The answer was not "ok". Try again: `makai auth login test-fixture`\n'

SCENARIO = """\
say: Let me see.
tool: holidays {"day": "2026-07-01"}
---
tool: write {"path": "holidays.txt", "content": "2026-12-25"}
---
say: Done.
"""


@asynccontextmanager
async def serving(cli: Cli, environ: Mapping[str, str] = NOTHING) -> AsyncIterator[dict[str, str]]:
    """A `makai serve` of its own; the variables that lead a program to it."""
    async with cli.serving(environ) as (_, address):
        token = (cli.home / "server-token").read_text(encoding="utf-8").strip()
        yield {"MAKAI_URL": f"{address.replace('http', 'ws')}/v1/makai", "MAKAI_TOKEN": token}


async def run(command: Sequence[str], typed: str, environ: Mapping[str, str], folder: Path | None = None) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ),
        cwd=folder,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate(typed.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


def python(name: str) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / name)]


async def typescript(name: str, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """The command that runs a TypeScript example, compiled as in a project that has the package installed."""
    node, compiler = shutil.which("node"), SDK / "node_modules" / "typescript" / "bin" / "tsc"
    if node is None or not compiler.is_file() or not (SDK / "dist" / "esm" / "index.js").is_file():
        pytest.skip("NO TYPESCRIPT SDK: node is missing, or `npm ci && npm run build` was not run in sdk/typescript")
    (folder / "node_modules").mkdir(parents=True)
    (folder / "node_modules" / "makai").symlink_to(SDK)
    (folder / "node_modules" / "@types").symlink_to(SDK / "node_modules" / "@types")
    (folder / "package.json").write_text('{"type": "module"}')
    shutil.copy(EXAMPLES / name, folder / name)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]
    compiled = await run([node, str(compiler), *options, name], "", environ, folder)
    assert compiled == Finished(0, "", "")
    return [node, str((folder / name).with_suffix(".js"))]


async def end_user_flow(language: str, folder: Path, environ: Mapping[str, str]) -> list[str]:
    if language == "python":
        return python("end_user_flow.py")
    return await typescript("end_user_flow.ts", folder / "project", environ)


@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_the_end_user_flow_logs_in_once_and_runs_a_model(language: str, tmp_path: Path) -> None:
    """Every step from an empty home to an answer."""
    cli = Cli(tmp_path, {"MAKAI_TEST_LOGIN": "1"})
    async with serving(cli) as place:
        environ = cli.environment(place)
        program = [*await end_user_flow(language, tmp_path, environ), "test-fixture"]

        first = await run(program, "ok\n", environ)
        second = await run([*program, "And now?"], "", environ)
        sessions = await cli("sessions", "list", "--all", "--json")

    assert (first.code, first.err, continued(first)[0]) == (0, "", WHOLE_FLOW)
    assert (second.code, second.err, continued(second)[0]) == (0, "", SECOND_FLOW)
    assert continued(first)[1] in sessions.out
    assert continued(second)[1] in sessions.out


async def test_the_end_user_flow_starts_makai_itself_and_says_why_a_login_failed(tmp_path: Path) -> None:
    environ = Cli(tmp_path, {"MAKAI_TEST_LOGIN": "1"}).environment({})
    program = [*python("end_user_flow.py"), "test-fixture"]

    refused = await run(program, "no\n", environ)
    finished = await run(program, "ok\n", environ)

    assert (refused.code, refused.err) == (1, REFUSED)
    assert (finished.code, finished.err, continued(finished)[0]) == (0, "", WHOLE_FLOW)


@pytest.mark.parametrize(
    ("typed", "told", "files"),
    [("y\n", "Done.\n", {"holidays.txt": "2026-12-25"}), ("n\n", "[that failed]\nDone.\n", {})],
    ids=["allowed", "denied"],
)
async def test_the_agent_uses_a_tool_of_the_program_and_asks_before_it_writes(
    typed: str, told: str, files: dict[str, str], tmp_path: Path
) -> None:
    cli = Cli(tmp_path / "home")
    cli.home.mkdir(mode=0o700)
    folder = tmp_path / "project"
    folder.mkdir()
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(SCENARIO)
    async with serving(cli, {"MAKAI_SCENARIO": str(scenario)}) as place:
        program = [*python("agent_in_a_folder.py"), "scripted/scripted@scenario", str(folder), "When is it closed?"]
        finished = await run(program, typed, cli.environment(place))
        shown = await cli("sessions", "show", continued(finished)[1])

    assert (finished.code, finished.err) == (0, "")
    assert continued(finished)[0] == AGENT_SHOWN.replace("FOLDER", str(folder)) + told
    assert {path.name: path.read_text() for path in folder.iterdir()} == files
    assert '["2026-01-01","2026-12-25"]' in shown.out


def continued(finished: Finished) -> tuple[str, str]:
    """What a program printed, and the session it says can be continued."""
    said, found, session_id = finished.out.partition("Continue with: makai -r ")
    assert found, finished
    return re.sub(r"\A\d+ providers", "N providers", said), session_id.strip()
