"""A file has one reason to exist; past 500 lines it usually has two."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 500
SOURCES = ("src/makai/**/*.py", "web/src/**/*", "sdk/**/*.ts")
NOT_OURS = frozenset({"node_modules", "dist"})
GENERATED: frozenset[str] = frozenset()
"""Paths of generated files, which may be as long as they need."""


def source_files() -> list[Path]:
    found = [path for pattern in SOURCES for path in ROOT.glob(pattern) if path.is_file()]
    return [path for path in found if NOT_OURS.isdisjoint(path.relative_to(ROOT).parts)]


def test_no_source_file_is_longer_than_500_lines() -> None:
    sizes = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in source_files()}

    assert {path: lines for path, lines in sizes.items() if lines > MOST_LINES and path not in GENERATED} == {}


def test_every_generated_file_on_the_list_exists() -> None:
    assert [path for path in GENERATED if not (ROOT / path).is_file()] == []
