"""The mounts that bubblewrap gets."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from makai.core.errors import InvalidRequest
from makai.tools.sandbox.bubblewrap import Bubblewrap
from makai.tools.sandbox.policy import SandboxPolicy


@pytest.fixture
def bubblewrap(tmp_path: Path) -> Bubblewrap:
    """A program that only says what it is: nothing is confined here."""
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo bubblewrap 9.1; else echo --disable-userns; fi\n')
    program.chmod(0o755)
    return Bubblewrap(str(program))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work/.git/hooks").mkdir(parents=True)
    (tmp_path / "work/.git/config").write_text("")
    return tmp_path / "work"


def mounts_below(root: Path, command: list[str]) -> list[tuple[str, str]]:
    """Option and path (below `root`) of each mount there, in order."""
    found = []
    for at, word in enumerate(command):
        path = command[at + 2] if word in ("--bind", "--ro-bind") else command[at + 1] if word == "--tmpfs" else ""
        if path and Path(path).is_relative_to(root):
            found.append((word, os.path.relpath(path, root)))
    return found


def policy_of(root: Path, *protected: str, hidden: tuple[str, ...] = ()) -> SandboxPolicy:
    return SandboxPolicy(
        level="workspace-write",
        roots=(str(root),),
        protected=tuple(str(root / name) for name in protected),
        hidden=tuple(str(root / name) for name in hidden),
    )


def test_its_version_is_what_it_says(bubblewrap: Bubblewrap) -> None:
    assert (bubblewrap.name, bubblewrap.version) == ("bubblewrap", "9.1")


def test_parents_are_mounted_before_what_is_in_them(bubblewrap: Bubblewrap, root: Path) -> None:
    (root / "secret").mkdir()

    command = bubblewrap.wrap(policy_of(root, ".git/hooks", ".git/config", ".makai", hidden=("secret",)), ["true"])

    assert mounts_below(root, command) == [
        ("--bind", "."),
        ("--bind", ".git"),  # pinned: it could be renamed otherwise
        ("--tmpfs", "secret"),
        ("--ro-bind", ".git/config"),
        ("--ro-bind", ".git/hooks"),
    ]
    assert command[-2:] == ["--", "true"]


def test_every_namespace_is_new_and_the_network_is_one_of_them(bubblewrap: Bubblewrap, root: Path) -> None:
    command = bubblewrap.wrap(policy_of(root), ["true"])

    for option in ("user", "pid", "ipc", "uts", "net"):
        assert f"--unshare-{option}" in command
    for option in ("--die-with-parent", "--new-session", "--disable-userns"):
        assert option in command
    assert command[command.index("--cap-drop") + 1] == "ALL"
    assert ("--remount-ro", "/proc") in itertools.pairwise(command)


def test_a_repository_elsewhere_is_named_by_a_file_that_cannot_change(bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: /elsewhere")

    command = bubblewrap.wrap(policy_of(worktree, ".git/hooks", ".git/config"), ["true"])

    assert mounts_below(worktree, command) == [("--bind", "."), ("--ro-bind", ".git")]


def test_a_link_in_a_protected_place_closes_the_folder_it_is_in(bubblewrap: Bubblewrap, root: Path) -> None:
    (root / "shared-hooks").mkdir()
    (root / ".git/hooks").rmdir()
    (root / ".git/hooks").symlink_to("../shared-hooks")

    command = bubblewrap.wrap(policy_of(root, ".git/hooks", ".git/config"), ["true"])

    closed = [("--ro-bind", name) for name in (".git", "shared-hooks", ".git/config")]
    assert mounts_below(root, command) == [("--bind", "."), *closed]


def test_a_link_that_cannot_be_protected_is_refused(bubblewrap: Bubblewrap, root: Path) -> None:
    (root / ".makai").symlink_to("src")

    with pytest.raises(InvalidRequest, match="symbolic link"):
        bubblewrap.wrap(policy_of(root, ".makai"), ["true"])


def test_a_hidden_file_is_covered_and_nothing_is_mounted_where_nothing_is(bubblewrap: Bubblewrap, root: Path) -> None:
    (root / "token").write_text("")

    command = bubblewrap.wrap(policy_of(root, hidden=("token", "missing")), ["true"])

    assert mounts_below(root, command) == [("--bind", "."), ("--ro-bind", "token")]
    assert command[command.index(str(root / "token")) - 1] == "/dev/null"
