"""The programs in `examples/` run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.llama import installed_weights

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
STREAM = ROOT / "examples" / "stream.py"
LOCAL = "local/openai-completions@smollm2-135m"


def run(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    inherited = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "VIRTUAL_ENV") if name in os.environ}
    environment = {**inherited, "HOME": str(home), "MAKAI_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], env=environment, capture_output=True, text=True, timeout=150
    )


@pytest.mark.timeout(180)
def test_the_program_streams_from_the_local_model() -> None:
    weights = installed_weights()

    finished = run(str(STREAM), home=weights.parents[1])

    assert (finished.returncode, finished.stderr) == (0, "")
    assert len(finished.stdout.split()) > 3


def test_the_program_streams_from_a_scripted_model(tmp_path: Path) -> None:
    program = STREAM.read_text(encoding="utf-8")
    assert LOCAL in program

    finished = run("-c", program.replace(LOCAL, "scripted/scripted@echo"), home=tmp_path)

    assert (finished.returncode, finished.stdout) == (0, "Why is the sky blue?")


def test_the_program_fits_on_a_slide() -> None:
    assert len(STREAM.read_text(encoding="utf-8").splitlines()) <= 15


@pytest.mark.parametrize("source", ["examples/stream.py", "sdk/typescript/README.md"])
def test_the_readme_shows_the_programs_that_are_tested(source: str) -> None:
    shown = re.search(rf"<!-- example: {source} -->\n```\w+\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] in (ROOT / source).read_text(encoding="utf-8")
    assert len(shown[1].splitlines()) <= 15
