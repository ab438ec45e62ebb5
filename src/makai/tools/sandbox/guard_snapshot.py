"""Looks below the folders that commands of a session may write: which files of `tools.protected` are there.

Only folders that changed since the last look are read. Changes are found by the change time of folders, which a program
cannot set. Everything here blocks.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from makai.tools.protected import BARE_REPOSITORY_MARK, NOT_LOOKED_INTO, is_guarded, is_holder
from makai.tools.sandbox.policy import is_beneath

MAX_READ_ONLY: Final = 32
"""So many files are read-only, the outermost ones, which each costs the start of a command about 0.3 ms; the others are
put back."""
MAX_READ_ONLY_FOLDERS: Final = 256
"""The same for folders, which are not put back."""
MAX_FOLDERS: Final = 20_000
MAX_SECONDS: Final = 1.0
"""What one look may cost; there are two per command. About 5 us per folder that did not change."""
MAX_LINKS: Final = 1_000
MAX_LINKED_FOLDERS: Final = 2_000
"""Links that are followed, and folders that are looked into for them alone."""
_MAX_SAVED_BYTES: Final = 1024 * 1024
_RECENT_NS: Final = 50_000_000
"""A folder that changed so shortly before it was read may change again without a later change time."""
_OF_A_BARE_REPOSITORY: Final = frozenset({BARE_REPOSITORY_MARK, "objects", "refs"})
_RUN_CODE_IN_IT: Final = ("config", "config.worktree", "hooks", "commondir")

_Identity: TypeAlias = tuple[int, int, int, int]


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """One guarded file or folder as it was found."""

    kind: Literal["file", "folder", "link"]
    identity: _Identity
    """Device, inode, change time (ns) and size."""
    mode: int
    names: int
    """How many hard links lead to it."""
    saved: bytes | None = None
    """The content, or the target of a link; only of what a mount cannot keep as it is."""


class FolderContent(NamedTuple):
    """What was read of one folder."""

    version: tuple[int, int, int] | None
    """Device, inode and change time; None when it has to be read again."""
    folders: tuple[str, ...]
    guarded: tuple[str, ...]
    links: tuple[str, ...]


class GuardSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is guarded below the session's folders at one moment."""

    folders: dict[str, FolderContent] = {}
    found: dict[str, Guarded] = {}
    read_only: frozenset[str] = frozenset()
    is_complete: bool = True
    taken_at: float = 0.0


def _is_inside(path: str, folder: str) -> bool:
    return path != folder and is_beneath(path, folder)


def snapshot_of(
    roots: Sequence[str],
    previous: GuardSnapshot,
    also: Collection[str] = frozenset(),
    scratch: Sequence[str] = (),
) -> GuardSnapshot:
    """Look below `roots`, outermost folders first, within `MAX_FOLDERS` and `MAX_SECONDS`; then where links lead that
    are in `roots` or `scratch`."""
    taken_at, look = time.time(), _Look(previous, also)
    look.walk(roots, MAX_FOLDERS)
    own = frozenset(look.folders)
    look.follow_links((*roots, *scratch))
    guarded = [path for folder in look.folders.values() for path in folder.guarded]
    found = {path: entry for path in guarded if (entry := _entry(path))}
    held = {path: entry for path, entry in found.items() if os.path.dirname(path) in own}
    # What was read-only stays so, however many a command adds.
    order = sorted(held, key=lambda path: (path not in previous.read_only, path.count("/"), path))
    held_folders = [path for path in order if held[path].kind == "folder"]
    files = [path for path in order if held[path].kind == "file"][:MAX_READ_ONLY]
    links = (path for path in order if held[path].kind == "link" and not is_holder(os.path.basename(path)))
    targets = (os.path.realpath(path) for path in links)
    files += [path for path in targets if os.path.exists(path) and any(_is_inside(path, root) for root in roots)]
    read_only = frozenset([*held_folders[:MAX_READ_ONLY_FOLDERS], *files])
    return GuardSnapshot(
        folders=look.folders,
        found=found | {path: _with_content(path, entry, previous, read_only) for path, entry in held.items()},
        read_only=read_only,
        is_complete=look.is_complete and len(held_folders) <= MAX_READ_ONLY_FOLDERS,
        taken_at=taken_at,
    )


class _Look:
    def __init__(self, previous: GuardSnapshot, also: Collection[str]) -> None:
        self.folders: dict[str, FolderContent] = {}
        self.is_complete = True
        self._links: deque[str] = deque()
        self._previous = previous
        self._also = also
        self._until = time.monotonic() + MAX_SECONDS

    def walk(self, starts: Iterable[str], most: int) -> None:
        """Add the folders at and below `starts`, until there are `most`."""
        waiting = deque(starts)
        while waiting and len(self.folders) < most and time.monotonic() < self._until:
            path = waiting.popleft()
            if path in self.folders:
                continue
            try:
                found = os.stat(path, follow_symlinks=False)
                known, version = self._previous.folders.get(path), (found.st_dev, found.st_ino, found.st_ctime_ns)
                folder = known if known and known.version == version else _read(path, version, self._also)
            except OSError:
                continue  # it has just been removed, or is not for this user
            self.folders[path] = folder
            self._links.extend(folder.links)
            waiting.extend(folder.folders)
        self.is_complete = self.is_complete and not waiting

    def follow_links(self, writable: Sequence[str]) -> None:
        """Add the folders to which links lead, where a command may write."""
        most = len(self.folders) + MAX_LINKED_FOLDERS
        for _ in range(MAX_LINKS):
            if not self._links:
                return
            link = self._links.popleft()
            if os.path.isdir(link):
                target = os.path.realpath(link)
                self.walk([target] if any(is_beneath(target, folder) for folder in writable) else [], most)
        self.is_complete = self.is_complete and not self._links


def _read(path: str, version: tuple[int, int, int], also: Collection[str]) -> FolderContent:
    folders, guarded, links, names = [], [], [], set()
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            names.add(name)
            is_folder = entry.is_dir(follow_symlinks=False)
            is_link = entry.is_symlink()
            is_head_folder = is_folder and name == BARE_REPOSITORY_MARK
            is_known = is_guarded(path, name) or (is_link and is_holder(name))
            if (is_known and not is_head_folder) or entry.path in also:
                guarded.append(entry.path)
            elif name not in NOT_LOOKED_INTO:
                folders += [entry.path] if is_folder else []
                links += [entry.path] if is_link else []
    if names >= _OF_A_BARE_REPOSITORY:
        guarded += [f"{path}/{name}" for name in _RUN_CODE_IN_IT if name in names]
    is_recent = time.time_ns() - version[2] < _RECENT_NS
    return FolderContent(None if is_recent else version, tuple(folders), tuple(guarded), tuple(links))


def _entry(path: str) -> Guarded | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    identity = (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size)
    match stat.S_IFMT(found.st_mode):
        case stat.S_IFDIR:
            return Guarded(kind="folder", identity=identity, mode=found.st_mode, names=1)
        case stat.S_IFLNK:
            return Guarded(kind="link", identity=identity, mode=found.st_mode, names=1)
        case _:
            return Guarded(kind="file", identity=identity, mode=found.st_mode, names=found.st_nlink)


def _with_content(path: str, entry: Guarded, previous: GuardSnapshot, read_only: Collection[str]) -> Guarded:
    if entry.kind == "folder" or (path in read_only and entry.names == 1):
        return entry
    known = previous.found.get(path)
    if known is not None and known.saved is not None and known.identity == entry.identity:
        return known
    return msgspec.structs.replace(entry, saved=_content(path, entry))


def _content(path: str, entry: Guarded) -> bytes | None:
    if entry.kind == "folder" or entry.identity[3] > _MAX_SAVED_BYTES or not stat.S_IFMT(entry.mode):
        return None
    try:
        if entry.kind == "link":
            return os.readlink(os.fsencode(path))
        if not stat.S_ISREG(entry.mode):
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with open(os.open(path, flags), "rb") as file:
            return file.read(_MAX_SAVED_BYTES)
    except OSError:
        return None


def is_unchanged(path: str, known: Guarded, now: Guarded | None) -> bool:
    if now is None or now.kind != known.kind:
        return False
    return now.identity == known.identity or _content(path, now) == known.saved
