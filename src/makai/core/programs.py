"""Finds the programs that makai starts outside of every sandbox, such as bubblewrap, git and those of the desktop.

PATH may name a folder that commands write, as `.venv/bin` of a project or the current folder. Nothing is started from
there, unless a person wrote its path.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import Final

_CODE_LISTS: Final = ("LD_LIBRARY_PATH", "PYTHONPATH", "NODE_PATH", "GEM_PATH")


def find_program(name: str, path: str, roots: Sequence[str]) -> str | None:
    """The first program of this name in the folders of `path` that no command in `roots` can write."""
    return shutil.which(name, path=folders_outside(path, roots))


def folders_outside(path: str, roots: Sequence[str]) -> str:
    """Those of the folders, separated by colons, that are absolute, not in `roots`, and not open to all users."""
    real_roots = [os.path.realpath(root) for root in roots]
    return ":".join(folder for folder in path.split(":") if _is_outside(folder, real_roots))


def trusted_environment(environ: Mapping[str, str], roots: Sequence[str]) -> dict[str, str]:
    """`environ` in which no list of folders leads to programs or code that a command in `roots` can write."""
    lists = {name: folders_outside(environ[name], roots) for name in ("PATH", *_CODE_LISTS) if name in environ}
    others = {name: value for name, value in environ.items() if name not in lists}
    return others | {name: value for name, value in lists.items() if value or name == "PATH"}


def _is_outside(folder: str, real_roots: Sequence[str]) -> bool:
    if not folder.startswith("/"):
        return False
    real = os.path.realpath(folder)
    try:
        if os.stat(real).st_mode & stat.S_IWOTH:
            return False
    except OSError:
        return False
    return not any(real == root or real.startswith(root.rstrip("/") + "/") for root in real_roots)
