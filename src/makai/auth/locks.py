"""Exclusive locks between processes, which the kernel releases when their holder ends, by `kill -9` too.

A `flock` belongs to one opening of the file, so two tasks or threads of one process exclude each other as well. It
exists on Linux, macOS and the BSDs; Windows is not supported. Lock files are never deleted.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from makai.core.errors import MakaiError

_FIRST_PAUSE_S = 0.002
_MAX_PAUSE_S = 0.05


class FileLock:
    """One opening of a lock file; leaving the `with` block gives the lock up."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(path, error) from None
        self._path = path

    def try_acquire(self) -> bool:
        """Take the lock if it is free; never waits."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise _unusable(self._path, error) from None
        return True

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)


def pauses() -> Iterator[float]:
    """Seconds between attempts, without end: growing, and uneven so that many waiters do not march in step."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause * random.uniform(0.5, 1)
        pause = min(pause * 2, _MAX_PAUSE_S)


@contextmanager
def exclusive(path: Path, deadline_s: float) -> Iterator[None]:
    """Hold the lock for the length of the block. Waits by sleeping: call it in a thread where that matters."""
    give_up = time.monotonic() + deadline_s
    with FileLock(path) as lock:
        for pause in pauses():
            if lock.try_acquire():
                break
            if time.monotonic() >= give_up:
                raise MakaiError(
                    f"Another makai process has held {path} for more than {deadline_s:g} seconds.",
                    hint="Try again; if it stays so, end the process that hangs.",
                )
            time.sleep(pause)
        yield


def _unusable(path: Path, error: OSError) -> MakaiError:
    return MakaiError(
        f"{path} cannot be locked ({error.strerror}).",
        hint="makai needs to write there, and a file system that has locks.",
    )
