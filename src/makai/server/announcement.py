"""Where the server of a MAKAI_HOME listens, for other programs of the same user.

In: an address. Out: the file `serve.json`, and a lock on it for as long as the server lives. The kernel gives the lock
up when the process dies, so an address is only believed while its server holds it: a stranger that listens on the port
of a server that is gone is never shown the token.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

FILE_NAME: Final = "serve.json"
_LARGEST: Final = 4096


class Listening(msgspec.Struct, frozen=True):
    """What the file says."""

    address: str
    pid: int


@contextlib.contextmanager
def announced(home: Path, address: str) -> Iterator[None]:
    """Tell others of this user where we are. A second server of the same home is not announced."""
    descriptor = os.open(home / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(Listening(address, os.getpid())), 0)
        yield
    finally:
        os.close(descriptor)


def listening(home: Path) -> Listening | None:
    """The server that runs now, if there is one."""
    try:
        descriptor = os.open(home / FILE_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None  # nobody holds it: what it says is about a server that is gone
    except BlockingIOError:
        return _parsed(os.pread(descriptor, _LARGEST, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _parsed(data: bytes) -> Listening | None:
    try:
        return msgspec.json.decode(data, type=Listening)
    except msgspec.DecodeError:
        return None
