"""Data flows one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import importlib
import importlib.util
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


def test_a_chat_loads_no_http_library_before_its_first_request() -> None:
    chat = "import makai.cli.chat, makai.cli.terminal.chat_setup, makai.cli.terminal.chat_ui"
    assert loaded_after(chat) & {"aiohttp", "httpx", "requests"} == set()


def test_programs_beside_the_package_import_names_that_exist() -> None:
    """Benchmarks are neither type-checked nor run by the tests: a renamed class made half of them fail."""
    files = [file for folder in ("benchmarks", "tools", "examples") for file in (ROOT / folder).rglob("*.py")]
    missing = [
        f"{file.relative_to(ROOT)}: {node.module}.{alias.name}"
        for file in sorted(files)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "makai"
        for alias in node.names
        if not _is_there(node.module or "", alias.name)
    ]

    assert len(files) > 20
    assert missing == []


def _is_there(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None
