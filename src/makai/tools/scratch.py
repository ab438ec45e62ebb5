"""Where the tools of a session keep long output and the temporary files of commands.

The folders can be entered by this user only and lie outside `MAKAI_HOME`, which no tool may see. They outlive a run,
since the log names what is in them; they go with the session, or when the next session finds them old.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from makai.core.errors import InvalidRequest
from makai.tools.openat2 import open_without_links

KEPT_S: Final = 7 * 24 * 3600.0
"""So long after a session last used its folders they are kept."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class Scratch(msgspec.Struct, frozen=True, kw_only=True):
    output: Path
    temporary: Path
    """Stands in for /tmp."""


def open_scratch(session_id: str, environ: Mapping[str, str], makai_home: Path) -> Scratch:
    """Make the folders where they are missing. `InvalidRequest` when they cannot be made, or belong to another user."""
    top = _top(environ, makai_home)
    folder = top / _name(session_id)
    scratch = Scratch(output=folder / "output", temporary=folder / "tmp")
    try:
        top.parents[1].mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            above = opened.enter_context(_directory(top.parents[1]))
            for each in (top.parent, top, folder):
                above = opened.enter_context(_private(above, each))
            for each in (scratch.output, scratch.temporary):
                opened.enter_context(_private(above, each))
            os.utime(above)
    except OSError as error:
        raise InvalidRequest(f"{folder} cannot be made: {error.strerror}.") from None
    return scratch


def remove_scratch(session_id: str, environ: Mapping[str, str], makai_home: Path) -> None:
    with contextlib.suppress(OSError), _directory(_top(environ, makai_home)) as top:
        shutil.rmtree(_name(session_id), ignore_errors=True, dir_fd=top)


def remove_old_scratch(environ: Mapping[str, str], makai_home: Path, *, kept_s: float = KEPT_S) -> None:
    """Forget what sessions left that were not used for long. What cannot be removed stays."""
    oldest = time.time() - kept_s
    with contextlib.suppress(OSError), _directory(_top(environ, makai_home)) as top, os.scandir(top) as folders:
        for folder in folders:
            with contextlib.suppress(OSError):
                if folder.is_dir(follow_symlinks=False) and _used_at(folder.name, top) < oldest:
                    shutil.rmtree(folder.name, ignore_errors=True, dir_fd=top)


def _top(environ: Mapping[str, str], makai_home: Path) -> Path:
    """The user's cache; where that is a part of `MAKAI_HOME`, the machine's folder for temporary files."""
    stated = environ.get("XDG_CACHE_HOME", "")
    cache = Path(stated) if stated.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
    folder = Path(os.path.realpath(cache)) / "makai" / "sessions"
    if folder.is_relative_to(os.path.realpath(makai_home)):
        return Path(os.path.realpath(tempfile.gettempdir())) / f"makai-{os.getuid()}" / "sessions"
    return folder


def _name(session_id: str) -> str:
    """The id, where it can be the name of a folder and of no other one."""
    if _PLAIN_NAME.fullmatch(session_id):
        return session_id
    return f"-{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()}"


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[int]:
    """A descriptor of a folder on the way to which there is no link. A session in the home folder may have commands
    that write in the cache: by path, they could have us write or remove elsewhere."""
    descriptor = open_without_links(str(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _private(above: int, folder: Path) -> Iterator[int]:
    """Make `folder` in the open folder `above` where it is missing, and open it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder.name, 0o700, dir_fd=above)
    try:
        descriptor = os.open(folder.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except (NotADirectoryError, FileNotFoundError):
        raise InvalidRequest(f"{folder} is not a folder of this user.") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise InvalidRequest(f"{folder} is not a folder of this user.") from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():  # in a folder that others can write, they may have been there first
            raise InvalidRequest(f"{folder} is not a folder of this user.")
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.fchmod(descriptor, 0o700)
        yield descriptor
    finally:
        os.close(descriptor)


def _used_at(folder: str, top: int) -> float:
    """When a session began to use it, or wrote to it last."""
    times = []
    for name in ("", "output", "tmp"):
        with contextlib.suppress(OSError):  # another process removes it at this moment
            times.append(os.stat(os.path.join(folder, name), dir_fd=top, follow_symlinks=False).st_mtime)
    return max(times, default=float("inf"))


KEPT_BYTES = 256 * 1024
MAX_SPILLED_BYTES = 4 * 1024**3


class CappedOutput:
    """Head and tail in memory, everything in `spill_path` once they are not enough. `close` it."""

    def __init__(self, spill_directory: Path, *, kept: int = KEPT_BYTES) -> None:
        self.total = 0
        self.spill_path: Path | None = None
        self._directory = spill_directory
        self._half = kept // 2
        self._head = b""
        self._tail = bytearray()
        self._spill: BinaryIO | None = None
        self._spill_failure = ""

    async def add(self, chunk: bytes) -> None:
        """Take the next output. Long output goes to its file in a thread: a slow disk must not stop the event loop."""
        begins = self.total <= 2 * self._half < self.total + len(chunk)
        # Until now head and tail held everything; the chunk may be longer than what they keep of it.
        unsaved = self._head + bytes(self._tail) if begins else b""
        self._keep(chunk)
        if self.total <= 2 * self._half or self._spill_failure:
            return
        try:
            await asyncio.to_thread(self._write, (unsaved, chunk), begin=begins)
        except OSError as error:
            # A full disk is no reason to lose what the command does; what memory holds is still told.
            self._spill_failure = error.strerror or "an I/O error"

    @property
    def too_long(self) -> bool:
        """Whether it has outgrown even its file: a command that writes without end must not fill the disk."""
        return self.total > MAX_SPILLED_BYTES

    @property
    def omitted(self) -> int:
        return max(0, self.total - 2 * self._half)

    def text(self) -> str:
        if not self.omitted:
            return (self._head + bytes(self._tail)).decode("utf-8", "replace")
        # The cuts may fall into a character: its halves are left out on both sides.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)
        tail = bytes(self._tail[-self._half :])
        start = next((index for index, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        kept = f"it could not be kept: {self._spill_failure}" if self._spill_failure else f"all is in {self.spill_path}"
        return f"{head}\n[{self.omitted:,} bytes left out here; {kept}]\n" + tail[start:].decode("utf-8", "replace")

    def close(self) -> None:
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def _keep(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 4 * self._half:
            del self._tail[: -2 * self._half]

    def _write(self, chunks: Sequence[bytes], *, begin: bool) -> None:
        if begin:
            self._spill = self._opened()
        for chunk in chunks:
            rest = memoryview(chunk)
            while self._spill is not None and rest:
                rest = rest[self._spill.write(rest) :]

    def _opened(self) -> BinaryIO:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        name, flags = f"output-{secrets.token_hex(8)}.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with _directory(self._directory) as folder:
            descriptor = os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=folder)
        self.spill_path = self._directory / name
        return open(descriptor, "wb", buffering=0)
