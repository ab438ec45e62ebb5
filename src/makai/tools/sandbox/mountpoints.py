"""Places to mount on where there is nothing yet, such as a `.makai` that must not come into being.

Each is an empty folder for as long as a command runs, which bubblewrap covers with something that cannot be written.
Several processes may need the same place; the last one removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final

_MODE: Final = 0o555
"""Marks an empty folder as one that makai made."""


@contextlib.contextmanager
def held(paths: Iterable[str]) -> Iterator[None]:
    """Keep an empty folder at each of `paths` until the block ends."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.callback(_release, path, _hold(path))
        yield


def is_ours(path: str) -> bool:
    """Whether `path` is a folder that `held` made and may remove at any time."""
    try:
        found = os.lstat(path)
        return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == _MODE and not os.listdir(path)
    except OSError:
        return False


def _hold(path: str) -> int:
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            os.chmod(path, _MODE)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another holder has just removed it
        fcntl.flock(fd, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.lstat(path)):
                return fd
        os.close(fd)


def _release(path: str, fd: int) -> None:
    with contextlib.suppress(OSError):  # others still hold it, or it is no longer empty
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_ours(path):
            os.rmdir(path)
    os.close(fd)
