"""Files of MAKAI_HOME that processes share: exclusive locks, and the token of the local server.

The kernel releases a lock when its holder ends, by `kill -9` too. A `flock` belongs to one opening of the file, so two
tasks or threads of one process exclude each other as well. It exists on Linux, macOS and the BSDs; Windows is not
supported. Lock files are never deleted.

The token gives full access to the server, so a file or directory that other users could have read or planted is
refused, never repaired: its content may already be known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from makai.core.errors import InvalidRequest, MakaiError
from makai.core.secret import Secret

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

    def __exit__(self, *_: object) -> None:
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
                message = f"Another makai process has held {path} for more than {deadline_s:g} seconds."
                raise MakaiError(message, hint="Try again; if it stays so, end the process that hangs.")
            time.sleep(pause)
        yield


def sync_directory(path: Path) -> None:
    """After a rename, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> MakaiError:
    hint = "makai needs to write there, and a file system that has locks."
    return MakaiError(f"{path} cannot be locked ({error.strerror}).", hint=hint)


FILE_NAME: Final = "server-token"

_TOKEN_BYTES: Final = 32
_MAX_FILE_BYTES: Final = 1024
# What fits into an HTTP header and into the name of a WebSocket subprotocol (RFC 9110 section 5.6.2), not guessable.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{32,512}")


def load_or_create_token(home: Path) -> Secret:
    """The token in `home`; both are created, for this user alone, if they do not exist."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner_and_mode(home, home.stat())
    path = home / FILE_NAME
    if not os.path.lexists(path):
        # Unlike a rename, a link never replaces a token that another process has made meanwhile.
        with contextlib.suppress(FileExistsError), _drafted(path, secrets.token_urlsafe(_TOKEN_BYTES)) as draft:
            os.link(draft, path)
    return _read(path)


def replace_token(home: Path, token: Secret) -> None:
    """Make `token` the one in `home`. Raises `InvalidRequest` for a file that is not this user's alone, or cannot be
    replaced."""
    if load_or_create_token(home).reveal() == token.reveal():
        return
    path = home / FILE_NAME
    try:
        with _drafted(path, token.reveal()) as draft:
            os.replace(draft, path)
    except OSError as error:
        why = f"does not hold the token of the cluster, and cannot be replaced ({error.strerror})"
        raise InvalidRequest(f"{path} {why}.", hint="Remove it: the token follows from the cluster's key.") from None


@contextmanager
def _drafted(path: Path, token: str) -> Iterator[Path]:
    """A file beside `path` with the token, so that the token's file is never seen half-written."""
    draft = path.with_name(f"{FILE_NAME}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _read(path: Path) -> Secret:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(path, f"cannot be opened safely ({error.strerror})") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(path, "is not a file")
        _check_owner_and_mode(path, status)
        token = os.read(descriptor, _MAX_FILE_BYTES).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if not _TOKEN.fullmatch(token):
        raise _refused(path, "holds no token")
    return Secret(token)


def _check_owner_and_mode(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _refused(path, "belongs to another user")
    if status.st_mode & 0o077:
        raise _refused(path, "is open to other users")


def _refused(path: Path, why: str) -> InvalidRequest:
    if path.name == FILE_NAME:
        return InvalidRequest(f"{path} {why}.", hint="Remove it to get a new token.")
    return InvalidRequest(f"{path} {why}.", hint="Make it yours alone, with mode 700.")
