"""Finds the programs that makai starts outside of every sandbox, such as bubblewrap, git and those of the desktop.

PATH may name a folder that commands write, as `.venv/bin` of a project or the current folder. Nothing is started from
there, unless a person wrote its path.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import Final

from makai.core.errors import InvalidRequest
from makai.core.module_path import is_replaceable
from makai.core.visible_text import one_line

_CODE_LISTS: Final = ("LD_LIBRARY_PATH", "PYTHONPATH", "NODE_PATH", "GEM_PATH")
_EDITORS: Final = ("sensible-editor", "vim", "nano", "vi")


def find_program(name: str, path: str, roots: Sequence[str]) -> str | None:
    """The first program of this name in the folders of `path` that no command in `roots` can write: it is in none of
    them, links included, or this user could not replace it."""
    real_roots = [os.path.realpath(root) for root in roots]
    for folder in filter(os.path.isabs, path.split(":")):
        found = shutil.which(name, path=folder)
        if found is None:
            continue
        real = os.path.realpath(found)
        if _is_outside(folder, real_roots) and not _is_in(real, real_roots):
            return found
        if not is_replaceable(os.path.realpath(folder)) and not is_replaceable(real):
            return found
    return None


def editor_command(environ: Mapping[str, str], roots: Sequence[str]) -> list[str]:
    """The words that start the user's editor: VISUAL, EDITOR, or a usual one. One that is named without its path is not
    taken from `roots`. `OSError` when there is none, `ValueError` when its command cannot be read."""
    path = environ.get("PATH", os.defpath)
    if command := environ.get("VISUAL") or environ.get("EDITOR"):
        name, *rest = shlex.split(command)
        program = name if os.sep in name else find_program(name, path, roots)
    else:
        rest = []
        program = next(filter(None, (find_program(name, path, roots) for name in _EDITORS)), None)
    if program is None:
        raise OSError("it is not on your PATH")
    return [program, *rest]


def failed_editor(environ: Mapping[str, str], error: Exception) -> InvalidRequest:
    """What to tell the user when `editor_command` raises, or the editor itself fails."""
    command = environ.get("VISUAL") or environ.get("EDITOR") or _EDITORS[-1]
    return InvalidRequest(
        f"the editor {one_line(command)} failed: {one_line(str(error))}",
        hint="Set VISUAL or EDITOR to the command of your editor.",
    )


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
    return not _is_in(real, real_roots)


def _is_in(real: str, real_roots: Sequence[str]) -> bool:
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in real_roots)
