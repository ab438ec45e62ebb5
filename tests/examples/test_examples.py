"""The programs in `examples/` run as they stand."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.llama import installed_weights

import makai

ROOT = Path(__file__).resolve().parents[2]
SHOWN_IN = {
    "examples/stream.py": "README.md",
    "examples/agent.py": "docs/sdks.md",
    "examples/tool_server.py": "docs/sdks.md",
    "sdk/typescript/README.md": "docs/sdks.md",
}
STREAM = ROOT / "examples" / "stream.py"
AGENT = ROOT / "examples" / "agent.py"
TOOL_SERVER = ROOT / "examples" / "tool_server.py"
LOCAL = "local/openai-completions@smollm2-135m"


SCRIPT = """
tool: clock {}
---
say: Noon.
---
say: One o'clock.
"""


def run(*arguments: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "VIRTUAL_ENV") if name in os.environ}
    own = {"HOME": str(home), "MAKAI_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    environment = {**inherited, **own, **variables}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], env=environment, capture_output=True, text=True, timeout=150
    )


@pytest.mark.timeout(180)
def test_the_program_streams_from_the_local_model() -> None:
    weights = installed_weights()
    # So small a model sometimes repeats itself until its context is full.
    question = 'messages="Why is the sky blue?"'
    program = STREAM.read_text(encoding="utf-8")
    assert question in program

    bounded = program.replace(question, f'{question}, options={{"max_tokens": 60, "temperature": 0}}')
    finished = run("-c", bounded, home=weights.parents[1])

    assert (finished.returncode, finished.stderr) == (0, "")
    assert len(finished.stdout.split()) > 3


def test_the_program_streams_from_a_scripted_model(tmp_path: Path) -> None:
    program = STREAM.read_text(encoding="utf-8")
    assert LOCAL in program

    finished = run("-c", program.replace(LOCAL, "scripted/scripted@echo"), home=tmp_path)

    assert (finished.returncode, finished.stdout) == (0, "Why is the sky blue?")


def test_the_program_with_an_agent_uses_its_tool_and_goes_on_with_its_session(tmp_path: Path) -> None:
    program = AGENT.read_text(encoding="utf-8")
    assert LOCAL in program
    (tmp_path / "script.txt").write_text(SCRIPT)

    finished = run(
        "-c",
        program.replace(LOCAL, "scripted/scripted@scenario"),
        home=tmp_path,
        MAKAI_SCENARIO=str(tmp_path / "script.txt"),
    )

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "Noon.\nOne o'clock.\n", "")


def test_the_program_that_serves_a_tool_is_used_by_the_agent_of_another_client(tmp_path: Path) -> None:
    program = TOOL_SERVER.read_text(encoding="utf-8")
    assert LOCAL in program
    (tmp_path / "script.txt").write_text("tool: desk__look {}\n---\nsay: Calm.")

    finished = run(
        "-c",
        program.replace(LOCAL, "scripted/scripted@scenario"),
        home=tmp_path,
        MAKAI_SCENARIO=str(tmp_path / "script.txt"),
    )

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "Models see desk__look\nCalm.\n", "")


@pytest.mark.req("MK-SDK-039")
@pytest.mark.parametrize("program", [STREAM, AGENT, TOOL_SERVER], ids=lambda path: path.name)
def test_the_programs_use_nothing_but_the_client(program: Path) -> None:
    """No file, no network, no vendor: everything they import is `makai`, everything they take of it is public."""
    tree = ast.parse(program.read_text(encoding="utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "makai"
    }

    assert imported == {"asyncio", "makai"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
    assert called <= {"main", "print", "SystemExit"}
    assert used <= set(makai.__all__)


@pytest.mark.parametrize("program", [STREAM, AGENT, TOOL_SERVER], ids=lambda path: path.name)
def test_the_programs_fit_on_a_slide(program: Path) -> None:
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 15


@pytest.mark.parametrize(("source", "page"), SHOWN_IN.items())
def test_the_documentation_shows_the_programs_that_are_tested(source: str, page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(rf"<!-- example: {source} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert shown
    for program in shown:
        assert program in (ROOT / source).read_text(encoding="utf-8")
        assert len(program.splitlines()) <= 15
