"""Puts files back as they were: looks at them, replaces or removes them, and takes everything back when a step fails.

The same confined access as that of the file tools, and stricter: no link is followed, not even one that stays beneath a
root. A person asked for it, so protected files need no further consent. All files are looked at before the first is
changed, and each again just before its own change.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from typing import Final

import msgspec

from makai.tools.edit import MAX_BYTES, content_digest
from makai.tools.file_errors import FileMissing, FileRefused, OutsideWorkspace, printable, translated
from makai.tools.workspace import Place, Workspace

SPECIAL_BITS: Final = 0o7000
"""A file that had one of these bits is not restored: no tool may make such a file."""


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    content: bytes
    mode: int | None
    """None when it is not known: an existing file keeps its own."""

    @property
    def digest(self) -> str:
        return content_digest(self.content)


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """One file to be put back; a state of None is no file."""

    path: str
    before: FileState | None
    after: FileState | None
    removed_folders: tuple[str, ...] = ()
    """Folders that are removed afterwards when they are empty, the outermost first."""
    made_folders: tuple[str, ...] = ()
    """Folders that are made first."""


class RestorableFiles(Workspace):
    """The folders of a session, for undo. Every method blocks."""

    def look(self, path: str) -> FileState | None:
        """The file as it is; None when there is none. `FileRefused` when it is a link, a folder, outside the session's
        folders or larger than the file tools write."""
        root, relative = self._mapped(path)
        if not root.writable:
            raise OutsideWorkspace(f"{printable(path)} is outside the session's folders.")
        with self._root_opened(root) as top:
            try:
                found = self._opened(top, relative or ".", path, links=False)
            except FileMissing:
                return None
        try:
            about = os.fstat(found)
            if not stat.S_ISREG(about.st_mode):
                raise FileRefused(f"{printable(path)} is not an ordinary file.")
            if about.st_size > MAX_BYTES:
                raise FileRefused(f"{printable(path)} is larger than {MAX_BYTES:,} bytes.")
            with open(self._reopened(found, os.O_RDONLY | os.O_NOCTTY, path), "rb") as file:
                return FileState(content=file.read(MAX_BYTES + 1), mode=stat.S_IMODE(about.st_mode))
        finally:
            os.close(found)

    def check(self, path: str) -> None:
        """Raise `FileRefused` for a path that leads through a link, to something hidden or to a folder's own name."""
        place = self.place(path)
        if (place.root, place.relative) != self._mapped(path) or not place.relative:
            raise OutsideWorkspace(f"{printable(path)} leads through a link.")

    def restore(self, replacements: Sequence[Replacement]) -> None:
        """Put all files back, or none: when one cannot be, those before it are taken back and the error is raised."""
        done: list[tuple[Replacement, tuple[str, ...]]] = []
        try:
            for one in replacements:
                if self.look(one.path) != one.before:
                    raise FileRefused(f"{printable(one.path)} was changed in this moment.")
                done.append((one, self._missing_folders(one.path)))
                for folder in one.made_folders:
                    self.make_folders(f"{folder}/file", self._own_place(f"{folder}/file"))
                self._put(one.path, one.after)
                self._remove_folders(one.removed_folders)
        except BaseException:
            for one, made in reversed(done):
                with contextlib.suppress(FileRefused, OSError):
                    for folder in one.removed_folders:
                        self.make_folders(f"{folder}/file", self._own_place(f"{folder}/file"))
                    if self.look(one.path) != one.before:
                        self._put(one.path, one.before)
                    self._remove_folders(made)
            raise

    def _put(self, path: str, state: FileState | None) -> None:
        place = self._own_place(path)
        if state is not None:
            with self.open_write(path, place, state.mode) as file:
                file.write(state.content)
            return
        above, _, name = place.relative.rpartition("/")
        with self._root_opened(place.root) as top:
            try:
                directory = self._opened(top, above or ".", path, links=False)
            except FileMissing:
                return
        try:
            with translated(path), contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)

    def _remove_folders(self, folders: Sequence[str]) -> None:
        """Remove those that are empty, the innermost first."""
        for folder in reversed(folders):
            place = self._own_place(folder)
            above, _, name = place.relative.rpartition("/")
            try:
                with self._root_opened(place.root) as top:
                    directory = self._opened(top, above or ".", folder, links=False)
            except FileMissing:
                continue
            try:
                os.rmdir(name, dir_fd=directory)
            except OSError:
                return  # it is gone, or something else is in it
            finally:
                os.close(directory)

    def _missing_folders(self, path: str) -> tuple[str, ...]:
        return self.look_at(self._own_place(path)).missing_folders

    def _own_place(self, path: str) -> Place:
        self.check(path)
        return self.checked_for_writing(path)
