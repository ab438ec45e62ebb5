"""Data flows one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from graphlib import TopologicalSorter
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


def imports_of(path: Path, known: set[str]) -> set[str]:
    """The modules of makai that a file imports when it is loaded or later, but not for type checkers alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found & known


def test_no_modules_import_each_other_in_a_circle_not_even_lazily() -> None:
    source = ROOT / "src"
    files = {".".join(path.relative_to(source).with_suffix("").parts): path for path in source.rglob("makai/**/*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph = {name: imports_of(path, set(files)) - {name} for name, path in files.items() if name != "makai"}

    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_importing_makai_loads_no_http_library_and_nothing_heavy() -> None:
    assert loaded_after("import makai") & HEAVY == set()


def test_printing_the_version_loads_no_http_library_and_nothing_heavy() -> None:
    assert loaded_after(PRINT_VERSION) & HEAVY == set()
