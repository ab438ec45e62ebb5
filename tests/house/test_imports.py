"""Data flows one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "aiohttp", "click", "grpc", "http.client", "httpx", "mcp", "prompt_toolkit", "requests", "rich", "urllib.request",
    "xllamacpp",
}  # fmt: skip
SHOW_MODULES = "\nimport sys; print('LOADED', *sys.modules)"
PRINT_VERSION = """
import sys
sys.argv = ["makai", "--version"]
from makai.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50
    )


def loaded_after(program: str) -> set[str]:
    finished = run_python("-c", program + SHOW_MODULES)
    assert finished.returncode == 0, finished.stderr
    return set(finished.stdout.rpartition("LOADED ")[2].split())


def test_imports_keep_the_contracts_of_pyproject() -> None:
    finished = run_python("-c", "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])")

    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_importing_makai_loads_no_http_library_and_nothing_heavy() -> None:
    assert loaded_after("import makai") & HEAVY == set()


def test_printing_the_version_loads_no_http_library_and_nothing_heavy() -> None:
    assert loaded_after(PRINT_VERSION) & HEAVY == set()
