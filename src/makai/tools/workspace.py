"""The files a session may touch: everything beneath its roots, nothing else, and never makai's own state.

Every access is by descriptor through openat2, so a link swapped between check and use leads nowhere. A path that names
something hidden (`MAKAI_HOME`) is answered as if nothing were there. Links that stay beneath a root are followed; a
protected file (`protected.is_protected`) can be written only by its own name, so that a person who approves a write
sees what it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, TypeVar

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.session_events import FilePlace
from makai.tools.file_errors import (
    FileMissing,
    FileRefused,
    OutsideWorkspace,
    missing,
    printable,
    translated,
    unescape_bytes,
)
from makai.tools.hidden import Hidden, path_of
from makai.tools.openat2 import open_beneath, open_without_links
from makai.tools.own_code import own_code_around
from makai.tools.permissions.path_patterns import MAX_NAME_BYTES, MAX_PATH_BYTES
from makai.tools.protected import is_protected, note_approved, settling_folder

ResultT = TypeVar("ResultT")
EntryKind: TypeAlias = Literal["file", "directory", "link", "other"]
_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


class Root(msgspec.Struct, frozen=True, kw_only=True):
    given: str
    """Absolute, as the user named it; links in it not resolved."""
    real: str
    """Where that was when the session began; followed by no link since."""
    writable: bool = True


class Folders(msgspec.Struct, frozen=True, kw_only=True):
    roots: tuple[Root, ...]
    hidden: tuple[str, ...]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path leads: a root and the way from it, free of links as far as it exists."""

    root: Root
    relative: str
    """"" is the root itself."""
    shown: str
    """What rules match and people read: relative to the first root, absolute in any other."""

    @property
    def absolute(self) -> str:
        """The path on this machine, for clients that open files themselves. Never open it here."""
        return f"{self.root.real.rstrip('/')}/{self.relative}" if self.relative else self.root.real

    @property
    def location(self) -> FilePlace:
        return FilePlace(path=printable(self.absolute))

    @property
    def protected(self) -> bool:
        """Whether a write here needs consent in every mode but `never_ask`."""
        if is_protected(self.relative) or settling_folder(self.root.real) is not None:
            return True
        return own_code_around(self.absolute) is not None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: EntryKind
    size: int = 0


class OnDisk(msgspec.Struct, frozen=True, kw_only=True):
    """What is at a place on disk, whatever an editor shows."""

    mode: int | None
    """Of the file; None when there is none."""
    missing_folders: tuple[str, ...] = ()
    """Absolute paths of folders around the file that do not exist, the outermost first."""


class OpenedFile(msgspec.Struct, frozen=True, kw_only=True):
    stream: io.BufferedReader
    path: str
    """Absolute and free of links: the file that is really read."""
    size: int
    version: str
    """Differs when the file was written or replaced."""
    identity: tuple[int, int] = (0, 0)
    """Device and inode: the same for every hard link."""
    links: int = 1

    @classmethod
    def of_text(cls, place: Place, text: str) -> OpenedFile:
        """The unsaved text that an editor has for a file."""
        data = text.encode("utf-8", "replace")
        version = hashlib.sha256(data).hexdigest()
        return cls(stream=io.BufferedReader(io.BytesIO(data)), path=place.absolute, size=len(data), version=version)


class Workspace:
    """Confined access to files on this machine, the local `ports.FileSystem`. It holds no descriptor between calls and
    may be used from several threads."""

    def __init__(self, roots: Sequence[Path], hidden: Sequence[Path] = (), readable: Sequence[Path] = ()) -> None:
        """`readable` are further roots that may only be read, such as where long tool output is kept."""
        if not roots:
            raise InvalidRequest("A session needs at least one folder to work in.")
        self._hidden = Hidden([os.path.realpath(path) for path in hidden])
        given = [(path, True) for path in roots] + [(path, False) for path in readable]
        self.roots = tuple(self._root(path, writable=writable) for path, writable in given)

    @classmethod
    def of(cls, folders: Folders) -> Workspace:
        """The same workspace in another process; nothing is resolved again, for it could lead elsewhere by now."""
        workspace = cls.__new__(cls)
        workspace._hidden = Hidden(folders.hidden)
        workspace.roots = folders.roots
        return workspace

    @property
    def folders(self) -> Folders:
        return Folders(roots=self.roots, hidden=self._hidden.folders)

    def open_read(self, path: str) -> io.BufferedReader:
        """A regular file, open for reading. Devices, pipes and sockets are never opened: that alone can block."""
        with self._found(path) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _not_a_file(path, os.fstat(descriptor).st_mode)
            return open(self._reopened(descriptor, os.O_RDONLY | os.O_NOCTTY, path), "rb")

    def stat(self, path: str) -> os.stat_result:
        with self._found(path) as descriptor:
            return os.fstat(descriptor)

    def open_directory(self, path: str) -> int:
        """A descriptor of a directory that can be listed or entered; the caller closes it."""
        with self._found(path) as descriptor:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise FileRefused(f"{path} is not a directory.")
            return self._reopened(descriptor, _READ_DIRECTORY, path)

    def entries(self, path: str) -> Iterator[Entry]:
        """The names in a directory, unsorted, as they are read. Hidden ones are not there; links are not followed."""
        with _closing(self.open_directory(path)) as descriptor, os.scandir(descriptor) as scan:
            here = path_of(descriptor).rstrip("/")
            for item in scan:
                if not self._hidden.covers_path(f"{here}/{item.name}"):
                    yield _entry(item)

    async def read(self, path: str, reader: Callable[[OpenedFile], ResultT]) -> ResultT:
        return await asyncio.to_thread(self.read_now, path, reader)

    async def list_folder(self, path: str, limit: int, is_shown: Callable[[str], bool]) -> list[Entry]:
        return await asyncio.to_thread(self._list_folder, path, limit, is_shown)

    def place(self, path: str) -> Place:
        """Where `path` leads, whether or not it exists yet; links are resolved, so rules see the real file."""
        root, relative = self._mapped(path)
        with self._root_opened(root) as top:
            real = self._real(top, root, relative, path)
        if self._hidden.covers_path(f"{root.real.rstrip('/')}/{real}"):
            raise missing(path)
        shown = real or "." if root is self.roots[0] else f"{root.real.rstrip('/')}/{real}".rstrip("/") or "/"
        return Place(root=root, relative=real, shown=printable(shown))

    @contextlib.contextmanager
    def open_write(self, path: str, expected: Place | None = None, mode: int | None = None) -> Iterator[BinaryIO]:
        """A file that takes the place of `path` in one step when the block ends, and leaves no trace when it fails.

        Missing directories are made. An existing file keeps its owner and, without `mode`, its mode; other hard links
        keep the old text.
        `expected` is where the path led when a person or a rule looked: refused when it leads elsewhere by now.
        """
        place = self.checked_for_writing(path, expected)
        directory_path, _, name = place.relative.rpartition("/")
        with self._root_opened(place.root) as top:
            made = self._made_directory(top, directory_path, path)
        with _closing(made) as directory, translated(path), _replacement(directory, name, path, mode) as file:
            yield file

    async def write(self, path: str, content: bytes, expected: Place) -> str:
        await asyncio.to_thread(self._write, path, content, expected)
        return ""

    async def on_disk(self, place: Place) -> OnDisk:
        return await asyncio.to_thread(self.look_at, place)

    def look_at(self, place: Place) -> OnDisk:
        parts = place.relative.split("/")
        with self._root_opened(place.root) as top:
            for known in range(len(parts), -1, -1):
                try:
                    found = self._opened(top, "/".join(parts[:known]) or ".", place.shown, links=False)
                except FileMissing:
                    continue
                with _closing(found) as descriptor:
                    mode = stat.S_IMODE(os.fstat(descriptor).st_mode) if known == len(parts) else None
                base = place.root.real.rstrip("/")
                made = tuple(f"{base}/{'/'.join(parts[:count])}" for count in range(known + 1, len(parts)))
                return OnDisk(mode=mode, missing_folders=made)
        raise missing(place.shown)

    def make_folders(self, path: str, expected: Place) -> None:
        """Make the missing folders around a file that another program is about to write."""
        place = self.checked_for_writing(path, expected)
        with self._root_opened(place.root) as top:
            os.close(self._made_directory(top, place.relative.rpartition("/")[0], path))

    def checked_for_writing(self, path: str, expected: Place | None = None) -> Place:
        root, relative = self._mapped(path)
        if not root.writable:
            raise FileRefused(f"{printable(path)} can be read, not written.")
        place = self.place(path)
        if not place.relative or path.endswith("/"):
            raise FileRefused(f"{printable(path)} names a directory, not a file.")
        if place.protected and not msgspec.structs.replace(place, root=root, relative=relative).protected:
            leads = f"{printable(path)} leads to the protected file {place.shown}."
            raise FileRefused(leads, hint="Write to it by its own name.")
        if expected is not None and place != expected:
            raise FileRefused(f"{printable(path)} leads to {place.shown} now, no longer to {expected.shown}.")
        if place.protected:
            note_approved(place.absolute)
        return place

    def read_now(self, path: str, reader: Callable[[OpenedFile], ResultT]) -> ResultT:
        with self.open_read(path) as file:
            found = os.fstat(file.fileno())
            version = f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}"
            real = path_of(file.fileno())
            identity = (found.st_dev, found.st_ino)
            return reader(
                OpenedFile(
                    stream=file,
                    path=real,
                    size=found.st_size,
                    version=version,
                    identity=identity,
                    links=found.st_nlink,
                )
            )

    def _write(self, path: str, content: bytes, expected: Place) -> None:
        with self.open_write(path, expected) as file:
            file.write(content)

    def _list_folder(self, path: str, limit: int, is_shown: Callable[[str], bool]) -> list[Entry]:
        folder = self.place(path).absolute
        seen = (entry for entry in self.entries(path) if is_shown(f"{folder}/{entry.name}"))
        return list(itertools.islice(seen, limit))

    def _root(self, path: Path, *, writable: bool) -> Root:
        given = os.path.abspath(path)
        real = os.path.realpath(given)
        if not os.path.isdir(real):
            raise InvalidRequest(f"The folder {printable(given)} does not exist.", hint="Name one that does.")
        if self._hidden.covers_path(real):
            raise InvalidRequest(f"The folder {printable(given)} holds makai's own state; no session works in it.")
        return Root(given=given, real=real, writable=writable)

    def _mapped(self, path: str) -> tuple[Root, str]:
        """The root a path lies in, and the rest; `..` is left to the kernel. Escapes of bytes that are not UTF-8 stand
        for these bytes, unless a file really has the escape in its name."""
        held = unescape_bytes(path)
        _check_spelling(held)
        return self._mapped_as_spelled(path if held != path and self._exists(path) else held)

    def _exists(self, path: str) -> bool:
        try:
            root, relative = self._mapped_as_spelled(path)
            with self._root_opened(root) as top:
                os.close(self._opened(top, relative or ".", path))
        except FileRefused:
            return False
        return True

    def _mapped_as_spelled(self, path: str) -> tuple[Root, str]:
        if not path.startswith("/"):
            return self.roots[0], _tidy(path)
        parts = _tidy(path).split("/")
        for root in sorted(self.roots, key=lambda root: -len(root.real)):
            for base in (root.real, root.given):
                prefix = [part for part in base.split("/") if part]
                if parts[: len(prefix)] == prefix:
                    return root, "/".join(parts[len(prefix) :])
        raise self._outside(path)

    @contextlib.contextmanager
    def _root_opened(self, root: Root) -> Iterator[int]:
        try:
            descriptor = open_without_links(root.real, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            gone = f"The session's folder {printable(root.given)} is no longer there ({error.strerror})."
            raise FileRefused(gone) from None
        with _closing(descriptor):
            yield descriptor

    @contextlib.contextmanager
    def _found(self, path: str) -> Iterator[int]:
        """An O_PATH descriptor of what is at `path`: it can be examined, not read."""
        root, relative = self._mapped(path)
        with self._root_opened(root) as top:
            descriptor = self._opened(top, relative or ".", path)
        with _closing(descriptor):
            yield descriptor

    def _opened(self, top: int, relative: str, path: str, *, links: bool = True) -> int:
        with translated(path, lambda: self._outside(path)):
            descriptor = open_beneath(top, relative, os.O_PATH, links=links)
        if self._hidden.covers(descriptor):
            os.close(descriptor)
            raise missing(path)
        return descriptor

    def _reopened(self, descriptor: int, flags: int, path: str) -> int:
        """The very file behind an O_PATH descriptor, opened for use; whatever its name points to by now."""
        with translated(path):
            return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)

    def _real(self, top: int, root: Root, relative: str, path: str) -> str:
        """`relative` without links, from the longest part of it that exists."""
        parts = relative.split("/") if relative else []
        found, known = self._longest_known(top, parts, path)
        rest = parts[known:]
        with _closing(found) as descriptor:
            if rest:
                self._refuse_dangling_link(descriptor, rest[0], path)
            real = path_of(descriptor)
            gone = os.fstat(descriptor).st_nlink == 0
        base = root.real.rstrip("/")
        if gone or (real != root.real and not real.startswith(f"{base}/")):
            raise FileMissing(f"{printable(path)} was moved or removed while it was looked at.")
        return "/".join([part for part in real[len(base) :].split("/") if part] + rest)

    def _longest_known(self, top: int, parts: Sequence[str], path: str) -> tuple[int, int]:
        """The longest beginning of a path that exists, and how many names it has. It is found by halving, for a path
        can have thousands of names."""
        try:
            return self._opened(top, "/".join(parts) or ".", path), len(parts)
        except FileMissing:
            if not parts:
                raise
        known, unknown = 0, len(parts)
        while unknown - known > 1:
            middle = (known + unknown) // 2
            try:
                os.close(self._opened(top, "/".join(parts[:middle]), path))
                known = middle
            except FileMissing:
                unknown = middle
        if ".." in parts[known:]:
            raise missing(path)
        return self._opened(top, "/".join(parts[:known]) or ".", path), known

    def _refuse_dangling_link(self, directory: int, name: str, path: str) -> None:
        """Nothing was found there, yet a link can be: writing through it, or over it, is never what was meant."""
        try:
            found = os.lstat(name, dir_fd=directory)
        except OSError:
            return
        if stat.S_ISLNK(found.st_mode):
            raise OutsideWorkspace(f"{printable(path)} is a link to something that is not there.")

    def _made_directory(self, top: int, relative: str, path: str) -> int:
        """The directory, made where it is missing, one step at a time and through no link."""
        known = ""
        for name in filter(None, relative.split("/")):
            known = f"{known}/{name}" if known else name
            try:
                os.close(self._opened(top, known, path, links=False))
            except FileMissing:
                with (
                    _closing(self._opened(top, known.rpartition("/")[0] or ".", path, links=False)) as above,
                    translated(path),
                    contextlib.suppress(FileExistsError),
                ):
                    os.mkdir(name, 0o777, dir_fd=above)
        with _closing(self._opened(top, relative or ".", path, links=False)) as descriptor:
            return self._reopened(descriptor, _READ_DIRECTORY, path)

    def _outside(self, path: str) -> OutsideWorkspace:
        folders = ", ".join(printable(root.given) for root in self.roots)
        outside = f"{printable(path)} is outside the session's folders."
        return OutsideWorkspace(outside, hint=f"Files can be used in: {folders}.")


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_spelling(path: str) -> None:
    if not path:
        raise FileRefused("The path is empty.", hint='Use "." for the session\'s folder.')
    if "\0" in path:
        raise FileRefused("The path contains a NUL character.")
    if path == "~" or path.startswith("~/"):
        raise OutsideWorkspace("`~` is not expanded.", hint="Write the path from the session's folder, or in full.")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise FileRefused("The path contains half of a surrogate pair, which no file name can.") from None
    if len(encoded) > MAX_PATH_BYTES or any(len(name) > MAX_NAME_BYTES for name in encoded.split(b"/")):
        raise FileRefused("The path, or one name in it, is too long.")


def _not_a_file(path: str, mode: int) -> FileRefused:
    if stat.S_ISDIR(mode):
        return FileRefused(f"{printable(path)} is a directory.", hint="Use the list tool for it.")
    return FileRefused(f"{printable(path)} is not an ordinary file, but a link, device, pipe or socket.")


def _tidy(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


@contextlib.contextmanager
def _replacement(directory: int, name: str, path: str, mode: int | None) -> Iterator[BinaryIO]:
    """A new file beside `name` that is renamed to it at the end. The rename replaces a link, it never follows one."""
    previous = _existing(directory, name, path)
    temporary = f".makai-{secrets.token_hex(8)}.tmp"
    create = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, create, 0o666, dir_fd=directory)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            if previous is not None:
                _inherit(descriptor, previous)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _existing(directory: int, name: str, path: str) -> os.stat_result | None:
    """What the new file replaces; refused when that is no ordinary file or must not be written."""
    try:
        with translated(path):
            found = os.lstat(name, dir_fd=directory)
    except FileMissing:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise _not_a_file(path, found.st_mode)
    if not os.access(name, os.W_OK, dir_fd=directory, follow_symlinks=False):
        raise FileRefused(f"{printable(path)} is read-only.")
    return found


def _inherit(descriptor: int, previous: os.stat_result) -> None:
    """Mode and owner of the replaced file; never its setuid or setgid bit."""
    os.fchmod(descriptor, previous.st_mode & 0o777)
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) != (previous.st_uid, previous.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, previous.st_uid, previous.st_gid)


def _entry(item: os.DirEntry[str]) -> Entry:
    if item.is_symlink():
        return Entry(name=item.name, kind="link")
    if not item.is_file(follow_symlinks=False):
        return Entry(name=item.name, kind="directory" if item.is_dir(follow_symlinks=False) else "other")
    try:
        return Entry(name=item.name, kind="file", size=item.stat(follow_symlinks=False).st_size)
    except OSError:
        return Entry(name=item.name, kind="file")
