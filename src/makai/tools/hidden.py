"""What no session may see: makai's own state (`MAKAI_HOME`: token, socket, credentials, database), and procfs.

A file counts as hidden by whatever name, mount or hard link it was reached.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence

from makai.tools.permissions.path_patterns import DeniedPaths

_MAX_FILES_COMPARED = 10_000


class Hidden:
    def __init__(self, folders: Sequence[str]) -> None:
        """The paths are absolute and free of links."""
        self.folders = tuple(folders)

    def covers_path(self, real: str) -> bool:
        """Whether a path free of links is a hidden folder or lies in one; it need not exist."""
        return any(real == hidden or real.startswith(f"{hidden}/") for hidden in self.folders)

    def covers(self, descriptor: int) -> bool:
        """Whether an open file is hidden, however it was reached."""
        found = os.fstat(descriptor)
        if found.st_dev == os.stat("/proc").st_dev:
            # procfs holds the environment, memory and open files of this very process
            return True
        return bool(self.folders) and (self.covers_path(path_of(descriptor)) or self._covers_file(descriptor, found))

    def _covers_file(self, descriptor: int, found: os.stat_result) -> bool:
        """The same by identity: a bind mount of a hidden folder, or a second hard link of a file in one."""
        identities = {_identity(known) for known in map(_stat_or_none, self.folders) if known}
        if not identities:
            return False
        real = path_of(descriptor)
        ancestors = [real[:end] for end, sign in enumerate(real) if sign == "/" and end] + [real]
        if any(_identity(known) in identities for known in map(_stat_or_none, ancestors) if known):
            return True
        return (
            stat.S_ISREG(found.st_mode)
            and found.st_nlink > 1
            and any(_identity(known) == _identity(found) for known in _files_in(self.folders))
        )


def path_of(descriptor: int) -> str:
    """Where the kernel says this file is now; free of links by construction."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _stat_or_none(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except OSError:
        return None


def _files_in(folders: Sequence[str]) -> Iterator[os.stat_result]:
    """The files of the hidden folders: credentials, token and database lie at their top and are met first."""
    for path in itertools.islice(_paths_below(folders), _MAX_FILES_COMPARED):
        if found := _stat_or_none(path):
            yield found


def has_denied_name(denied: DeniedPaths, identity: tuple[int, int]) -> bool:
    """Whether a file has a name that a rule denies, wherever the rule says; also when there are too many to look at."""
    folders = dict.fromkeys(pattern.fixed_part(denied.workspace) for pattern in denied.patterns)
    for count, path in enumerate(_paths_below(tuple(folders))):
        if count == _MAX_FILES_COMPARED:
            return True
        if denied.cover(path) and (found := _stat_or_none(path)) and _identity(found) == identity:
            return True
    return False


def _paths_below(paths: Sequence[str]) -> Iterator[str]:
    """These files and folders and everything in them, the outermost first; links are not followed."""
    waiting = deque(paths)
    while waiting:
        path = waiting.popleft()
        yield path
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry.path
