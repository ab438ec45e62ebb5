"""The files of a session as its editor has them: unsaved text is read, and changes land in the editor.

Where a path leads, and whether it may be read or written, is the local workspace's to say; the editor is asked only for
text below folders that the session may write, by absolute path. What is no UTF-8 text on disk, or too large, is read
and written locally, and so is everything while no editor is connected. A file is edited in the editor only where the
editor both reads and writes: otherwise unsaved text, or the text on disk, would be replaced unseen. The editor opens
files by name: a link that is turned between our check and its access is noticed afterwards, not prevented.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec

from makai.core.errors import InvalidRequest
from makai.tools.file_errors import FileMissing, FileRefused, missing, printable
from makai.tools.workspace import OpenedFile, Place, Workspace

ResultT = TypeVar("ResultT")

MAX_BYTES: Final = 2 * 1024 * 1024
NOT_SAVED: Final = "Your editor has not saved it: commands still see the file as it was."
_SAVING_PAUSES_S: Final = (0.02, 0.08, 0.2)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class EditorBuffers(Protocol):
    """The editor. What it refuses raises `InvalidRequest` with its message."""

    async def edits_text_files(self) -> bool:
        """Whether an editor is connected now that reads and writes files."""

    async def read_text_file(self, path: str) -> str | None:
        """The text by absolute path; None when no editor is connected or it does not read files."""

    async def write_text_file(self, path: str, text: str) -> bool:
        """Whether there is an editor that has written it."""


class _OnDisk(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file whose text the editor is asked for."""

    data: bytes | None = None
    """None when there is none: it may be a new one that is not saved yet."""
    identity: tuple[int, int] = (0, 0)
    links: int = 1


class EditorFiles:
    """`ports.FileSystem` over an editor."""

    def __init__(self, workspace: Workspace, editor: EditorBuffers, *, for_edits: bool = False) -> None:
        """`for_edits`: what is read is the base of a change, so it comes from where the change is written to."""
        self._for_edits = for_edits
        self._workspace = workspace
        self._editor = editor
        self.place = workspace.place
        self.list_folder = workspace.list_folder
        self.on_disk = workspace.on_disk

    async def read(self, path: str, reader: Callable[[OpenedFile], ResultT]) -> ResultT:
        if self._for_edits and not await self._editor.edits_text_files():
            return await self._workspace.read(path, reader)
        place = self._workspace.place(path)
        on_disk = await self._on_disk(path, place)
        text = None if on_disk is None else await self._text(path, place, on_disk)
        if on_disk is None or text is None:
            return await self._workspace.read(path, reader)
        if self._workspace.place(path) != place:
            raise FileRefused(f"{printable(path)} was moved while it was read.")
        file = msgspec.structs.replace(OpenedFile.of_text(place, text), identity=on_disk.identity, links=on_disk.links)
        return await asyncio.to_thread(reader, file)

    async def write(self, path: str, content: bytes, expected: Place) -> str:
        if not await self._editor.edits_text_files():
            return await self._workspace.write(path, content, expected)
        place = self._workspace.checked_for_writing(path, expected)
        on_disk = await self._on_disk(path, place)
        if on_disk is None or not _is_text(content):
            return await self._workspace.write(path, content, expected)
        await asyncio.to_thread(self._workspace.make_folders, path, expected)
        try:
            is_written = await self._editor.write_text_file(place.absolute, content.decode("utf-8"))
        except InvalidRequest as error:
            raise FileRefused(f"Your editor did not write {place.shown}: {error.message}") from None
        if not is_written:
            return await self._workspace.write(path, content, expected)
        return "" if await self._is_saved(path, place, on_disk.data, content) else NOT_SAVED

    async def _is_saved(self, path: str, place: Place, before: bytes | None, content: bytes) -> bool:
        """Whether the file on disk changed. An editor may answer a moment before it has saved."""
        for pause_s in (*_SAVING_PAUSES_S, None):
            after = await self._on_disk(path, place)
            if after is None or after.data != before or after.data == content:
                return True
            if pause_s is not None:
                await asyncio.sleep(pause_s)
        return False

    async def _text(self, path: str, place: Place, on_disk: _OnDisk) -> str | None:
        try:
            return await self._editor.read_text_file(place.absolute)
        except InvalidRequest as error:
            if on_disk.data is None:
                raise missing(path) from None
            raise FileRefused(f"Your editor did not read {place.shown}: {error.message}") from None

    async def _on_disk(self, path: str, place: Place) -> _OnDisk | None:
        """What is on disk; None when the file is not one for the editor."""
        try:
            place.absolute.encode("utf-8")
        except UnicodeEncodeError:
            return None
        if not place.root.writable:
            return None
        try:
            return await self._workspace.read(path, _looked_at)
        except FileMissing:
            return _OnDisk()


def _looked_at(file: OpenedFile) -> _OnDisk | None:
    data = file.stream.read(MAX_BYTES + 1)
    return _OnDisk(data=data, identity=file.identity, links=file.links) if _is_text(data) else None


def _is_text(data: bytes) -> bool:
    """Whether an editor keeps these bytes as they are. It may drop a byte order mark."""
    if len(data) > MAX_BYTES or b"\0" in data or data.startswith(_BYTE_ORDER_MARK):
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
