"""What the file system is asked before a command runs unasked takes a bounded amount of work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from makai.tools.permissions import bounded_walk
from makai.tools.permissions.looking import leads_inside, looked_at
from makai.tools.permissions.rules import parse_rules, unreadable_paths

LIMIT = 40


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With more files in `large` than are looked at, and few in `small`."""
    monkeypatch.setattr(bounded_walk, "MAX_ENTRIES", LIMIT)
    monkeypatch.setattr(bounded_walk, "MAX_CPU_S", 60.0)
    folder = Path(os.path.realpath(tmp_path))
    for name, count in (("large", LIMIT + 1), ("large2", LIMIT + 1), ("small", 3), ("small2", 3)):
        (folder / name).mkdir()
        for number in range(count):
            (folder / name / f"f{number}").touch()
    return folder


def inside(text: str, root: Path, *deny: str) -> bool:
    looks = looked_at(text, str(root))
    assert looks is not None
    return leads_inside(looks, [str(root)], unreadable_paths(parse_rules(workspace=str(root), deny=deny)))


def test_what_is_walked_without_need_is_not_walked(root: Path) -> None:
    """Without a rule no file below a folder can be a denied one, and names are no content."""
    assert [inside(text, root) for text in ("grep -r x .", "rg x", "find . -name x", "ls -R", "du .")] == [True] * 5
    assert [inside(text, root, "Read(/small/f1)") for text in ("find large", "ls -R large")] == [True] * 2


@pytest.mark.parametrize(
    ("text", "is_inside"),
    [
        ("ls small/*", True),
        ("ls large/*", False),
        ("ls */*", False),
        ("ls small/* small/** small/f* small/f?", False),
        ("ls small/*/a/a/a/a/a/a/a/a/a/a/a/a", False),
        ("ls -L small", True),
        ("ls -L large", False),
        ("diff small large", False),
    ],
)
def test_one_budget_covers_all_patterns_and_folders_of_a_command(root: Path, text: str, is_inside: bool) -> None:
    assert inside(text, root) == is_inside


def test_the_budget_has_an_end_in_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_walk, "MAX_ENTRIES", 1_000)
    assert inside("ls large/*", root)
    monkeypatch.setattr(bounded_walk, "MAX_CPU_S", 0.0)
    assert not inside("ls large/*", root)


@pytest.mark.parametrize(
    ("text", "deny", "is_inside"),
    [
        ("grep -r x small", "Read(/small2/**)", True),
        ("grep -r x small", "Read(/large/**)", True),
        ("grep -r x large", "Read(/small/**)", True),
        ("grep -r x large", "Read(/large2/**)", False),
    ],
)
def test_either_what_is_shown_or_what_is_denied_may_be_too_large_to_walk(
    root: Path, text: str, deny: str, is_inside: bool
) -> None:
    assert inside(text, root, deny) == is_inside


@pytest.mark.parametrize("text", ["grep -r x small2", "rg x small2", "cat small2/other", "cat small2/*"])
def test_a_file_with_two_names_is_shown_unless_it_may_be_a_denied_one(root: Path, text: str) -> None:
    """Package managers link files of their cache into a project."""
    os.link(root / "large/f0", root / "small2/other")
    assert inside(text, root, "Read(/small/**)")
    os.link(root / "small/f0", root / "small/F0")
    assert not inside(text, root, "Read(/small/**)")


def test_a_denied_file_behind_a_link_is_found(root: Path) -> None:
    (root / "link").symlink_to("small")
    os.link(root / "small/f0", root / "small2/other")

    assert [inside("grep -r x small2", root, deny) for deny in ("Read(/link/f0)", "Read(/link/f1)")] == [False, True]


def test_a_denied_folder_that_cannot_be_listed_may_hold_anything(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.link(root / "large/f0", root / "small2/other")
    scandir = os.scandir

    def refused(path: str) -> object:
        if path == str(root / "small"):
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert [inside(f"cat small2/{name}", root, "Read(/small/**)") for name in ("other", "f1")] == [False, True]


def test_names_that_a_program_takes_for_something_else_are_asked_about(root: Path) -> None:
    """A response file of binutils, an assignment of awk; only where the pattern can become such a word."""
    for name in ("@names", "FS=x", "+1"):
        (root / name).touch()
    texts = ("strings *", "strings ?names", "awk 1 *x", "sort ?1", "strings small/*", "ls s*", "cat *.py")

    assert [inside(text, root) for text in texts] == [False, False, False, False, True, True, True]


def test_a_pattern_for_hidden_names_may_mean_the_folder_above(root: Path) -> None:
    """bash before 5.2 takes `.*` for `..` too."""
    assert [inside(text, root) for text in ("ls -d .*", "ls small/.*", "ls .g*")] == [False, True, True]
