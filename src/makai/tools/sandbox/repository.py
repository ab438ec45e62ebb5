"""A git repository that a person opened for a command: where it is, and what of it stays as it was.

Hooks and configuration run code later, outside of every sandbox, so they stay closed: bubblewrap mounts them read-only.
Landlock cannot allow new files in a folder and forbid them in a part of it, and nothing is mounted where nothing is, so
`kept_settings` also compares them when the command has ended, and restores what was changed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from makai.core.errors import InvalidRequest

log = logging.getLogger(__name__)

_SETTINGS: Final = ("hooks", "config", "config.worktree", "commondir", "gitdir")
_NESTED: Final = ("modules", "worktrees")
"""Repositories in a repository, each with settings of its own."""
_NOT_SETTINGS: Final = frozenset({"objects", "refs", "logs", "lfs"})
_GITDIR: Final = re.compile(r"gitdir: (?P<path>[^\n]+)\n?")
_WORKTREE: Final = re.compile(r"^\s*worktree\s*=\s*(?P<path>[^\n#;]+?)\s*$", re.MULTILINE)
_MAX_FILES: Final = 10_000
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024

_Saved: TypeAlias = tuple[str, int, bytes] | None
"""What is at a path: kind, mode, and the content of a file or the target of a link. None: nothing."""


def git_folders_of(directory: str) -> tuple[str, ...]:
    """The folders that git writes for a command in `directory`, absolute and free of links; `InvalidRequest` when there
    is no repository, or when it is elsewhere and does not name this folder as its own."""
    for folder in (Path(directory), *Path(directory).parents):
        found = folder / ".git"
        if found.is_symlink():
            raise InvalidRequest(f"{found} is a symbolic link, so the repository cannot be opened.")
        if found.is_dir():
            if found.stat().st_uid != os.getuid() and os.getuid() != 0:
                raise InvalidRequest(f"{found} belongs to another user, so it cannot be opened.")
            return (str(found),)
        if found.is_file():
            return _named_by(found)
    raise InvalidRequest(
        f"There is no git repository around {directory} to be opened.", hint="To make one, ask with no_sandbox."
    )


def _named_by(file: Path) -> tuple[str, ...]:
    """Of a linked worktree or a submodule, whose `.git` is a file. A file could name any repository of the user, so the
    repository must name the folder as well."""
    matched = _GITDIR.fullmatch(_text(file))
    folder = os.path.realpath(file.parent / matched["path"]) if matched else ""
    if common := _text(Path(folder, "commondir")).strip() if folder else "":
        shared = os.path.realpath(os.path.join(folder, common))
        named = os.path.join(folder, _text(Path(folder, "gitdir")).strip())
        if os.path.dirname(folder) == os.path.join(shared, "worktrees") and os.path.realpath(named) == str(file):
            return shared, folder
    elif worktree := _WORKTREE.search(_text(Path(folder, "config"))) if folder else None:
        named = os.path.join(folder, worktree["path"].strip('"'))
        if os.path.realpath(named) == str(file.parent):
            return (folder,)
    raise InvalidRequest(f"{file} names a repository that does not belong to this folder, so it cannot be opened.")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def closed_in(folders: Sequence[str]) -> Iterator[str]:
    """What stays read-only in opened repositories, as far as it is there."""
    for folder in folders:
        yield from (os.path.join(folder, name) for name in (*_SETTINGS, "modules"))
        linked = os.path.join(folder, "worktrees")
        if not any(os.path.dirname(other) == linked for other in folders):
            yield linked
        elif os.path.isdir(linked):
            yield from (entry.path for entry in os.scandir(linked) if entry.path not in folders)


@contextlib.contextmanager
def kept_settings(folders: Sequence[str]) -> Iterator[None]:
    """Hold hooks and configuration as they are: what was changed, made or removed meanwhile is undone at the end."""
    before = {folder: _saved_settings(folder) for folder in folders}
    try:
        yield
    finally:
        for folder, saved in before.items():
            _restore(folder, saved)


def _saved_settings(folder: str) -> dict[str, _Saved]:
    nested = (os.path.join(folder, name) for name in _NESTED)
    saved: dict[str, _Saved] = {path: None for path in nested if not os.path.lexists(path)}
    for path in _settings_in(folder):
        saved[path] = _saved(path)
        if len(saved) > _MAX_FILES:
            raise InvalidRequest(
                f"{folder} has too many hooks and submodules to be opened.", hint="Ask with no_sandbox."
            )
    return saved


def _settings_in(folder: str) -> Iterator[str]:
    """Parents come before what is in them."""
    yield from _settings_of(folder)
    for name in _NESTED:
        for top, folders, _ in os.walk(os.path.join(folder, name)):
            folders[:] = [each for each in folders if each not in _NOT_SETTINGS and each not in _SETTINGS]
            yield from _settings_of(top)


def _settings_of(folder: str) -> Iterator[str]:
    for name in _SETTINGS:
        path = os.path.join(folder, name)
        yield path
        for top, folders, files in os.walk(path):
            yield from (os.path.join(top, each) for each in (*folders, *files))


def _saved(path: str) -> _Saved:
    try:
        found = os.lstat(path)
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISLNK(found.st_mode):
            return "link", 0, os.fsencode(os.readlink(path))
        if stat.S_ISDIR(found.st_mode):
            return "folder", mode, b""
        if not stat.S_ISREG(found.st_mode):
            return "other", mode, b""
        with open(path, "rb") as file:
            return "file", mode, file.read(_MAX_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _restore(folder: str, saved: dict[str, _Saved]) -> None:
    for path in sorted({*saved, *_settings_in(folder)}):
        wanted = saved.get(path)
        if _saved(path) == wanted:
            continue
        log.warning("%s was changed by a command that may not change it; it is as it was before", path)
        try:
            _remove(path)
            if wanted is not None:
                _make(path, folder, wanted)
        except OSError as error:
            log.error("%s could not be restored: %s", path, error)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _make(path: str, top: str, wanted: tuple[str, int, bytes]) -> None:
    kind, mode, content = wanted
    step = top
    for name in os.path.relpath(os.path.dirname(path), top).split("/"):
        step = os.path.normpath(os.path.join(step, name))
        if os.path.islink(step) or not os.path.isdir(step):  # a link would lead the content elsewhere
            _remove(step)
            os.mkdir(step)
    match kind:
        case "link":
            os.symlink(os.fsdecode(content), path)
        case "folder":
            os.mkdir(path, mode)
        case "file":
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(content)
        case _:
            log.error("%s cannot be made again", path)
