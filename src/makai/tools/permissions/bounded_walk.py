"""Looks at the file system within a budget: what a pattern of the shell matches, and which files have several names.

A model chooses the folders and patterns, and the project how many files are there. Work beyond the budget ends with
`TooMuchWork`; the caller must then answer as if it had found what it looked for.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from makai.tools.permissions.path_patterns import DeniedPaths

MAX_ENTRIES: Final = 30_000
MAX_CPU_S: Final = 0.06


class TooMuchWork(OSError):
    """The budget is used up."""


class Budget:
    """How much may be done for one command: entries of folders, and processor time of this process."""

    def __init__(self, seconds: float | None = None) -> None:
        self._until = time.process_time() + (MAX_CPU_S if seconds is None else seconds)
        self._entries = MAX_ENTRIES

    def half(self) -> Budget:
        """For a walk that may fail, with time left for another one."""
        return Budget((self._until - time.process_time()) / 2)

    def spend(self) -> None:
        self._entries -= 1
        if self._entries < 0 or (self._entries % 16 == 0 and time.process_time() > self._until):
            raise TooMuchWork("too many files to look at")

    def entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        """What is in the folder; nothing when there is none."""
        self.spend()
        try:
            found = os.scandir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        with found:
            for entry in found:
                self.spend()
                yield entry


def may_match(name: str, part: str) -> bool:
    """Whether bash may take this name for one part of a pattern with `*` and `?`.

    How many characters a name has depends on the locale once one of them is not ASCII, so such a name always may.
    """
    if name[0] == "." and part[0] != ".":
        return False
    return not name.isascii() or fnmatch.fnmatchcase(name, part)


def real_matches(pattern: str, budget: Budget) -> list[str]:
    """Where the paths lead, links resolved, that bash may make of an absolute pattern."""
    paths = ["/"]
    for part in pattern.split("/")[1:]:
        if "*" in part or "?" in part:
            paths = [match for path in paths for match in _matches_in(path, part, budget)]
        else:
            paths = [real_path(f"{path}/{part}", budget) for path in paths]
    return paths


def real_path(path: str, budget: Budget) -> str:
    budget.spend()
    return os.path.realpath(path)


def _matches_in(folder: str, part: str, budget: Budget) -> Iterator[str]:
    for entry in budget.entries(folder):
        if may_match(entry.name, part):
            yield real_path(entry.path, budget) if entry.is_symlink() else entry.path
    for name in (".", ".."):  # bash before 5.2 takes `.*` for these too
        if may_match(name, part):
            yield real_path(f"{folder}/{name}", budget)


def may_show_denied(files: Sequence[str], trees: Sequence[str], unreadable: DeniedPaths, budget: Budget) -> bool:
    """Whether one of the files, or one below the trees, may be a hard link to a file that may not be read.

    That takes a denied file with several names, and one with several names among those that are shown. Both are looked
    for, since either place can be too large: denied may be `node_modules`, or shown a project beside `~/.ssh`.
    """
    if not unreadable.patterns:
        return False
    is_linked = any(_has_other_names(os.stat(file)) for file in files if os.path.exists(file))
    if not is_linked and not trees:
        return False
    tops = {"/" if pattern.is_absolute else unreadable.workspace for pattern in unreadable.patterns}
    denied = _files_with_other_names(tops, budget.half(), unreadable)
    shown = _files_with_other_names(trees, budget)
    return _may_have_one(denied) and (is_linked or _may_have_one(shown))


def _may_have_one(found: Iterator[str]) -> bool:
    try:
        return next(found, None) is not None
    except OSError:  # also a folder that cannot be listed
        return True


def _files_with_other_names(folders: Iterable[str], budget: Budget, only: DeniedPaths | None = None) -> Iterator[str]:
    """Regular files below the folders that have more than one name. With `only`, of those that it means, and links are
    followed: it means a file by any path."""
    waiting, follows = list(folders), only is not None
    while waiting:
        for entry in budget.entries(waiting.pop()):
            if only is not None and not only.may_be_below(entry.path):
                continue
            if entry.is_dir(follow_symlinks=follows):
                waiting.append(entry.path)
                continue
            is_linked = entry.is_file(follow_symlinks=follows) and _has_other_names(entry.stat(follow_symlinks=follows))
            if is_linked and (only is None or only.cover(entry.path)):
                yield entry.path


def _has_other_names(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1
