"""The comparison with other agents and pages: every claim about makai names a test that exists, or says why not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/comparison.md"
AGENTS = ["Claude Code", "Codex", "opencode", "aider", "makai", "test"]
PAGES = ["Open WebUI", "opencode web", "Claude Code on the web", "Codex web", "makai", "test"]
MIN_REASON = 20
"""Characters of a reason; fewer are an excuse."""


def rows(compared: list[str]) -> list[list[str]]:
    """The cells of every row of the tables that have these columns."""
    found: list[list[str]] = []
    is_compared = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells or set(line) <= set("|- "):
            is_compared = is_compared and bool(cells)
        elif cells[1:] == compared:
            is_compared = True
        elif is_compared:
            found.append(cells)
    return found


@pytest.mark.parametrize(("compared", "least"), [(AGENTS, 50), (PAGES, 30)], ids=["agents", "pages"])
def test_every_row_says_something_about_every_column(compared: list[str], least: int) -> None:
    assert len(rows(compared)) > least
    assert [row for row in rows(compared) if len(row) != len(compared) + 1 or not all(row[:-1])] == []


@pytest.mark.parametrize("row", [*rows(AGENTS), *rows(PAGES)], ids=lambda row: row[0])
def test_a_claim_about_makai_names_its_test_or_its_reason(row: list[str]) -> None:
    verdict, _, why = row[5].partition(":")
    if verdict == "no":
        assert (len(why) >= MIN_REASON, row[6]) == (True, "")
    else:
        assert (verdict, _exists(row[6].strip("`"))) == ("yes", True)


def _exists(test: str) -> bool:
    """Whether there is such a test: `tests/folder/test_file.py::test_name`."""
    file, _, name = test.partition("::")
    path = ROOT / file
    if not path.is_file():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name for node in tree.body)
