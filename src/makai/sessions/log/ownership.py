"""One process owns the sessions of a MAKAI_HOME (DESIGN §6 "Who owns the log").

In: the folder. Out: a lock that lives as long as its holder, or `HomeInUse` with the pid of the owner. The kernel gives
the lock up when the process dies, however it dies; the pid in the file is for people.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from makai.core.errors import HomeInUse, StorageUnavailable

FILE_NAME: Final = "sessions.lock"


class HomeLock:
    """Held from creation until `release`."""

    def __init__(self, home: Path) -> None:
        path = home / FILE_NAME
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(path, error) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            pid = _pid_in(self._descriptor)
            os.close(self._descriptor)
            owner = f"process {pid}" if pid else "another process"
            raise HomeInUse(
                f"The sessions in {home} belong to {owner}.", pid=pid, hint="Attach to it, end it, or set MAKAI_HOME."
            ) from None
        except OSError as error:
            os.close(self._descriptor)
            raise _unusable(path, error) from None

    def release(self) -> None:
        """Let the next one in."""
        os.close(self._descriptor)


def _pid_in(descriptor: int) -> int | None:
    # The owner writes its pid just after it has the lock: for a moment the file may hold none, or a former owner's.
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else None


def _unusable(path: Path, error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        f"{path} cannot be locked ({error.strerror}).",
        hint="makai needs to write there, and a file system that has locks.",
    )
