"""The words of the project: names from the field, plain sentences, and no document outside the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The words are written with a gap, so that this file does not break its own rule.
BANNED = {
    r"\b(who|what)soever\b|\bwho" r"ever\b": "name the subject: the caller, the client, the owner",
    r"\b(no|some)" r"body('s)?\b": "name the subject, or use the passive",
    r"\bfor " r"ever\b": "say until when, or use `always`",
    r"\bane" r"w\b": "again, or regenerate",
    r"\b_?MO" r"ST_[A-Z]|\b_?LONG" r"EST_[A-Z]": "MAX_",
    r"\bDESI" r"GN §|\bdocument 0" r"0\d": "cite a requirement id",
}
TEXTS = ("*.md", "Makefile", "*.toml")
FOLDERS = ("src", "tests", "docs", "tools", "benchmarks", "examples", "web/src", "web/test", "sdk/typescript")
SUFFIXES = frozenset({".py", ".md", ".toml", ".ts", ".svelte", ".mjs"})
NOT_OURS = frozenset({"node_modules", "dist", "build", "page", "fixtures", "results"})
SPECIFICATION = frozenset({"requirements.toml", "tests/house/test_words.py"})


def project_texts() -> dict[str, str]:
    found = [path for pattern in TEXTS for path in ROOT.glob(pattern)]
    found += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    names = {path.relative_to(ROOT): path for path in found}
    return {
        str(name): path.read_text(encoding="utf-8")
        for name, path in names.items()
        if NOT_OURS.isdisjoint(name.parts) and str(name) not in SPECIFICATION
    }


@pytest.mark.parametrize("pattern", BANNED)
def test_a_word_that_hides_its_subject_is_not_used(pattern: str) -> None:
    banned = re.compile(pattern, re.IGNORECASE if "_[A-Z]" not in pattern else 0)
    found = {
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}": match[0]
        for name, text in project_texts().items()
        for match in banned.finditer(text)
    }

    assert found == {}, BANNED[pattern]


def test_test_files_are_named_after_behaviour() -> None:
    assert [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_review_*")] == []
