"""The documentation site: generated pages are up to date, the cookbook shows programs that tests run, and the site
builds without a warning and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from makai.server.route_scopes import ROUTES
from tools.reference import FOLDER, pages
from tools.reference_routes import MEANINGS

ROOT = Path(__file__).resolve().parents[2]
MKDOCS = ROOT / ".venv-docs/bin/mkdocs"
PROGRAMS = sorted((ROOT / "examples/cookbook").glob("*.py"))
_ELSEWHERE = re.compile(r"<(?:link|script|img|iframe)\b[^>]*?(?:href|src)=\"?(?:https?:)?//[^\s\">]+[^>]*>")


def test_the_reference_is_what_the_code_says() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == pages()


def test_every_route_has_a_sentence_in_the_reference() -> None:
    assert set(MEANINGS) == set(ROUTES)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_the_cookbook_shows_the_program_that_is_tested(program: Path) -> None:
    text = (ROOT / "docs/cookbook.md").read_text(encoding="utf-8")
    marker = f"<!-- example: examples/cookbook/{program.name} -->\n```python\n"

    assert text.partition(marker)[2].partition("```")[0] == program.read_text(encoding="utf-8")


@pytest.mark.skipif(not MKDOCS.exists(), reason="NOT tested: .venv-docs is missing; run `make test` or `make docs`")
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [str(MKDOCS), "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # about the end of its theme, which CONTRIBUTING.md mentions
    built = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=150, check=False)
    html = {path.relative_to(tmp_path / "site").as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    loaded = {name: _ELSEWHERE.findall(text) for name, text in html.items()}

    assert (built.returncode, [line for line in built.stderr.splitlines() if "WARNING" in line]) == (0, [])
    assert {name: tags for name, tags in loaded.items() if tags} == {}
    assert {"index.html", "tour.html", "concepts.html", "deploy.html", "reference/commands.html"} <= set(html)
    assert (tmp_path / "site/search/search_index.json").exists()
