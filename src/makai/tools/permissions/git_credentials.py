"""Configurations of git that hold credentials: a password or token in an address, or in a header that git sends.

Commands and tools that would show one ask first. Files are found by their names, since git reads no others; a clone
somewhere below a folder that is searched is not looked for, which would take a walk through all of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from makai.tools.permissions.bounded_walk import Budget
from makai.tools.permissions.git_repository import read_text

REASON: Final = "It shows a git configuration that holds a password or token."
_CONFIGURATIONS: Final = frozenset({"config", "config.worktree"})
_NO_CONFIGURATIONS: Final = frozenset({"objects", "refs", "logs", "hooks", "info", "lfs"})
"""Folders of a repository in which there is none."""
_IN_ADDRESS: Final = re.compile(r"https?://[^/\s]*@|://[^/\s@]*:[^/\s]*@|://[^\s?]*\?", re.IGNORECASE)
"""A user name of http may be a token, one of ssh is none."""
_IN_VALUE: Final = re.compile(
    r"^\s*(?:extraheader|\S*(?:pass|password|token|secret))[ \t]*=", re.IGNORECASE | re.MULTILINE
)


def address_has_credentials(text: str) -> bool:
    return _IN_ADDRESS.search(text) is not None


def holds_credentials(path: str) -> bool:
    """Whether a file, by its path free of links, is a configuration of git with credentials; also when it cannot be
    read. Reads the file."""
    folder, _, name = path.rpartition("/")
    if name.casefold() not in _CONFIGURATIONS or not _is_in_repository(folder):
        return False
    try:
        text = read_text(Path(path))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return address_has_credentials(text) or _IN_VALUE.search(text) is not None


def search_shows_credentials(folder: str, budget: Budget, *, skips_git: bool = False) -> bool:
    """Whether a search through a folder, by its path free of links, meets such a file: in the repository that it is in,
    or in its own `.git`, unless that is skipped. `OSError` when it takes too long to tell."""
    if _is_in_repository(folder):
        return any(map(holds_credentials, _configurations_below(folder, budget)))
    return not skips_git and any(map(holds_credentials, _configurations_below(f"{folder}/.git", budget)))


def _is_in_repository(folder: str) -> bool:
    return ".git" in folder.casefold().split("/") or os.path.lexists(f"{folder}/HEAD")


def _configurations_below(folder: str, budget: Budget) -> Iterable[str]:
    """Also those of submodules and worktrees."""
    waiting = [folder]
    while waiting:
        entries = list(budget.entries(waiting.pop()))
        is_repository = any(entry.name == "HEAD" for entry in entries)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path
            elif not (is_repository and entry.name in _NO_CONFIGURATIONS):
                waiting.append(entry.path)
