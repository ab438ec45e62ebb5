"""Completes and reads the files of sessions' folders for their clients. It runs where the folder is: in the process
that owns the session, on a node that has the folder."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.session_files import FoundPaths, Mentioned
from makai.sessions import requests as req
from makai.sessions.live import LiveSession
from makai.sessions.placement import check_folder
from makai.sessions.readable_files import ReadableFiles
from makai.tools.file_index import FileIndex

MAX_INDEXES: Final = 8
MAX_PREFIX: Final = 1_000


class FileIndexes:
    """The files of the folders that were asked about last."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[str, FileIndex] = OrderedDict()
        """By folder, the one that was asked last at the end."""

    async def find(self, folder: str, readable: ReadableFiles, prefix: str) -> FoundPaths:
        """The paths in the folder that are probably meant, and may be read unasked."""
        if len(prefix) > MAX_PREFIX:
            raise InvalidRequest(f"A prefix has at most {MAX_PREFIX} characters.")
        if prefix.startswith(("/", "~")) or ".." in prefix.split("/"):
            return FoundPaths()  # only what is in the folder is offered
        found = await self._index(folder).find(prefix)
        named = [path for path in found.paths if _is_utf8(path)]  # no message could name the others
        paths = await asyncio.to_thread(lambda: tuple(filter(readable.may_read, named)))
        return msgspec.structs.replace(found, paths=paths)

    def close(self) -> None:
        for index in self._indexes.values():
            index.close()

    def _index(self, folder: str) -> FileIndex:
        index = self._indexes.pop(folder, None) or FileIndex(folder)
        self._indexes[folder] = index
        while len(self._indexes) > MAX_INDEXES:
            self._indexes.popitem(last=False)[1].close()
        return index


class FolderFiles:
    def __init__(self, home: Path, session: Callable[[str], Awaitable[LiveSession]]) -> None:
        """`session` finds a session by its id."""
        self._home = home
        self._session = session
        self._indexes = FileIndexes()

    async def is_at(self, asked: req.HasFolder) -> bool:
        session = await self._session(asked.session_id)
        place = session.claim.place
        return session.state.cwd is None or not place or place in asked.labels

    async def find(self, wanted: req.FindFiles) -> FoundPaths:
        session = await self._session(wanted.session_id)
        check_folder(session)
        return await self._indexes.find(session.state.cwd or "", await self._readable(session), wanted.prefix)

    async def mentioned(self, wanted: req.ReadMentioned) -> Mentioned:
        session = await self._session(wanted.session_id)
        if session.state.cwd is None:
            return Mentioned()
        check_folder(session)
        return await asyncio.to_thread((await self._readable(session)).mentioned, wanted.text)

    def close(self) -> None:
        self._indexes.close()

    async def _readable(self, session: LiveSession) -> ReadableFiles:
        return await asyncio.to_thread(ReadableFiles.of_session, session.state, self._home, os.environ)


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
