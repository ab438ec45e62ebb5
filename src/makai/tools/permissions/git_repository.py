"""Finds the repository that git would use, by git's own rules, and reads what decides where else git looks.

Whatever is not an ordinary repository is an error here, never passed by: a folder that git ignores, or takes for a
repository when makai does not, would make git use another repository than the one that was checked.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

MAX_TEXT_BYTES: Final = 256 * 1024
MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
MAX_ENTRIES: Final = 100_000
GITLINK: Final = 0o160000
_MODES: Final = frozenset({0o100644, 0o100755, 0o120000, GITLINK})
_SLASH: Final = ord("/")
_UNUSUAL_NAME: Final = re.compile(rb"\0|(?<![^/])\.\.(?![^/])")
_HEAD: Final = re.compile(r"(?:ref: refs/[^\s\x00]+|[0-9a-f]{40})\n?")
_FOLDERS: Final = frozenset({"objects", "refs", "reftable", "logs", "info", "worktrees", "remotes", "branches"}) | {
    *("rebase-merge", "rebase-apply", "sequencer")
}
"""What git reads below its folder. Others may be worktrees, when that is the folder of a bare repository."""
_NOT_READ: Final = frozenset({"hooks", "modules"})
"""Hooks are switched off, and the repositories of submodules are checked when the index names them."""
_ENTRY: Final = struct.Struct(">24xI32xH")
"""Mode and flags of an entry of the index, with object names of 20 bytes; the name follows."""
_LENGTH, _EXTENDED = 0x0FFF, 0x4000
_HEADER_BYTES, _HASH_BYTES = 12, 20
_ELSEWHERE: Final = frozenset({b"link", b"sdir"})
"""Extensions by which entries are in another file, or in a tree."""


class UnusualRepository(ValueError):
    """git may use other files than those that can be checked."""


class Repository(msgspec.Struct, frozen=True):
    top: Path
    """The folder of the working tree."""
    folder: Path
    """Its `.git`, or the folder that the file `.git` names."""
    common: Path
    """What a worktree shares with others; else the same as `folder`."""


def find_repository(folder: str) -> Repository | None:
    """The repository that git uses from here; None when there is none. `UnusualRepository` or `OSError` when that
    cannot be told."""
    start = Path(os.path.realpath(folder))
    for path in (start, *start.parents):
        if os.path.lexists(path / ".git"):
            return repository_at(path)
        if os.path.lexists(path / "HEAD"):
            raise UnusualRepository("it may be a repository without working tree")
    return None


def repository_at(top: Path) -> Repository:
    """The repository whose `.git` is in this folder. The same errors as `find_repository`."""
    git = folder = top / ".git"
    mode = os.lstat(git).st_mode
    if stat.S_ISREG(mode):
        text = read_text(git)
        if not text.startswith("gitdir: "):
            raise UnusualRepository("`.git` names no folder")
        folder = top / _as_git_strips(text.removeprefix("gitdir: "))
    elif not stat.S_ISDIR(mode):
        raise UnusualRepository("`.git` is neither a folder nor a file")
    common = folder
    if os.path.lexists(folder / "commondir"):
        common = folder / _as_git_strips(read_text(folder / "commondir"))
    found = Repository(top, Path(os.path.realpath(folder)), Path(os.path.realpath(common)))
    is_valid = _HEAD.fullmatch(read_text(found.folder / "HEAD")) is not None
    if not is_valid or not all(_can_enter(found.common / name) for name in ("objects", "refs")):
        raise UnusualRepository("git passes it by and looks further up")
    return found


def has_links(folder: Path) -> bool:
    """Whether any of the files that git reads in its folder is a link, which may lead to another repository."""
    waiting, left = [folder], MAX_ENTRIES
    while waiting:
        at = waiting.pop()
        with os.scandir(at) as entries:
            for entry in entries:
                left -= 1
                if at == folder and entry.name in _NOT_READ:
                    continue
                if entry.is_symlink() or left < 0:
                    return True
                if (at != folder or entry.name in _FOLDERS) and entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
    return False


def tracked_paths(repository: Repository) -> Iterator[tuple[int, str]]:
    """Mode and path of everything in the index. `UnusualRepository` when git would find more than that, or files
    outside of the working tree."""
    try:
        index = read_bytes(repository.folder / "index", MAX_INDEX_BYTES)
    except FileNotFoundError:
        return
    try:
        yield from _index_entries(index)
    except (LookupError, struct.error):
        raise UnusualRepository("its index ends early") from None


def _index_entries(index: bytes) -> Iterator[tuple[int, str]]:
    version, count = int.from_bytes(index[4:8]), int.from_bytes(index[8:12])
    if index[:4] != b"DIRC" or version not in (2, 3, 4) or len(index) < _HEADER_BYTES + _HASH_BYTES:
        raise UnusualRepository("its index cannot be read")
    at, name = _HEADER_BYTES, b""
    for _ in range(count):
        mode, flags = _ENTRY.unpack_from(index, at)
        start, kept = at + _ENTRY.size + (2 if flags & _EXTENDED else 0), 0
        if version == 4:
            removed, start = _varint(index, start)
            kept = len(name) - removed if name else 0
        length = flags & _LENGTH
        end = start + length - kept if length < _LENGTH else index.find(b"\0", start)
        if kept < 0 or end < start or index[end] != 0:
            raise UnusualRepository("its index cannot be read")
        name = name[:kept] + index[start:end]
        at = end + 1 if version == 4 else at + ((end - at + 8) & ~7)
        if mode not in _MODES or not name or name[0] == _SLASH or _UNUSUAL_NAME.search(name):
            raise UnusualRepository("its index has an entry that git itself does not make")
        yield mode, os.fsdecode(name)
    while at + 8 <= len(index) - _HASH_BYTES:
        if index[at : at + 4] in _ELSEWHERE:
            raise UnusualRepository("its index continues elsewhere")
        at += 8 + int.from_bytes(index[at + 4 : at + 8])


def read_text(path: Path) -> str:
    return read_bytes(path, MAX_TEXT_BYTES).decode("utf-8")


def read_bytes(path: Path, most: int) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnusualRepository("not a file")
        if found.st_size > most:
            raise UnusualRepository("too large to be read")
        return file.read(found.st_size)  # as much memory as it needs: the process that judges has little


def _as_git_strips(text: str) -> str:
    """A blank at the end belongs to the path."""
    return text.rstrip("\r\n")


def _can_enter(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.X_OK)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of the index, as git writes offsets; and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
