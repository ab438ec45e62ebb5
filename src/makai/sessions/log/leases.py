"""Who may append: a lease with a generation, and the lock by which one process of a machine holds it.

The generation decides who writes: each new owner gets a higher one, it is stored beside the events, and every commit
compares it with its own in the transaction that it writes. So a process that lost its lease (its lock file was removed,
its file system lost the lock) cannot store anything after its successor started. The lock decides only when the next
owner may start. The kernel gives it up when the process dies; the pid in the file is for people.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Final
from uuid import uuid4

from makai.core.errors import HomeInUse, OwnershipLost, StorageUnavailable
from makai.sessions.log.base import Lease

FILE_NAME: Final = "sessions.lock"


def next_lease(connection: sqlite3.Connection) -> Lease:
    """A lease above the newest; it counts once `take` is committed."""
    (generation,) = connection.execute("SELECT generation FROM lease").fetchone()
    return Lease(f"{os.getpid()}-{uuid4()}", generation + 1)


def take(connection: sqlite3.Connection, lease: Lease) -> None:
    """Become the owner with the current transaction: after it, the appends of all former holders are refused."""
    new = (lease.holder, lease.generation, lease.generation)
    taken = connection.execute("UPDATE lease SET holder = ?, generation = ? WHERE generation < ?", new)
    if not taken.rowcount:
        check_held(connection, lease)


def copy_generation(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Let a rewritten store refuse the holders that the old one refuses."""
    new.execute("UPDATE lease SET generation = ?", old.execute("SELECT generation FROM lease").fetchone())


def check_held(connection: sqlite3.Connection, lease: Lease) -> None:
    """Raise `OwnershipLost` when another holder took over; for use in the transaction that writes."""
    (generation,) = connection.execute("SELECT generation FROM lease").fetchone()
    check_generation(lease, generation)


def check_generation(lease: Lease, generation: int) -> None:
    if generation != lease.generation:
        raise taken_over()


def taken_over() -> OwnershipLost:
    return OwnershipLost(
        "Another process has taken over these sessions.",
        hint="Nothing was stored. Start this command again to continue with the other process.",
    )


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
        os.close(self._descriptor)


def _pid_in(descriptor: int) -> int | None:
    # The owner writes its pid just after it has the lock: for a moment the file may hold none, or a former owner's.
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else None


def _unusable(path: Path, error: OSError) -> StorageUnavailable:
    hint = "makai needs to write there, and a file system that has locks."
    return StorageUnavailable(f"{path} cannot be locked ({error.strerror}).", hint=hint)
