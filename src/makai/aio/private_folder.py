"""Folders for temporary files that may hold secrets. What a killed process left is removed by the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Final

PREFIX: Final = "makai-private-"
_TRIES: Final = 10
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateFolder:
    """A new folder that only this user can read. Its process holds a lock on it for as long as it lives, so that
    another one can tell whether the folder is still used, also across containers that share /tmp."""

    def __init__(self) -> None:
        """Blocks. Raises `OSError` when no folder can be made."""
        _remove_abandoned()
        for _ in range(_TRIES):
            self.path = tempfile.mkdtemp(prefix=PREFIX)
            with contextlib.suppress(OSError):  # another process took it for abandoned before it was locked
                self._descriptor = _locked(self.path)
                if os.path.isdir(self.path):
                    return
                os.close(self._descriptor)
        raise OSError(f"no folder in {tempfile.gettempdir()} stays")

    def remove(self) -> None:
        """Blocks. The folder is not to be used afterwards; a second call does nothing."""
        if self._descriptor >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._descriptor)
            self._descriptor = -1


def _locked(path: str) -> int:
    """A descriptor that holds the lock. `OSError` when another process holds it, or the path is no folder of ours."""
    descriptor = os.open(path, _DIRECTORY)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(path)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned() -> None:
    for path in _earlier():
        with contextlib.suppress(OSError):
            descriptor = _locked(path)
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


def _earlier() -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                yield entry.path
