"""Where the server of a MAKAI_HOME listens, for other programs of the same user: the file `serve.json`, locked. The
kernel releases the lock when the process dies, so an address is only believed while its server holds it: a stranger
that listens on the port of a dead server never gets the token."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from makai.core.errors import StorageUnavailable

FILE_NAME: Final = "serve.json"
_LARGEST: Final = 4096
_TRIES: Final = 10
_TRY_AGAIN_S: Final = 0.01


class Listening(msgspec.Struct, frozen=True):
    address: str
    pid: int


@contextlib.contextmanager
def announced(home: Path, address: str) -> Iterator[None]:
    """Write the address for other programs of this user. A second server of the same home is not announced."""
    path = home / FILE_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageUnavailable(f"{path} cannot be written ({error.strerror}).", hint="Remove it.") from None
    try:
        if _locked(descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(Listening(address, os.getpid())), 0)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Whether no other server is announced. A process that only looks holds the lock for a moment only."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TRY_AGAIN_S)
        else:
            return True
    return False


def place_of(home: Path) -> str:
    """The server of a home among those of all machines that share a token."""
    return f"{socket.gethostname()}:{home.resolve()}"


def listening(home: Path) -> Listening | None:
    """The server that runs now, if there is one."""
    try:
        descriptor = os.open(home / FILE_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None  # not locked: its server is gone
    except BlockingIOError:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(os.pread(descriptor, _LARGEST, 0), type=Listening)
        return None
    except OSError:
        return None
    finally:
        os.close(descriptor)
