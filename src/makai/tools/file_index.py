"""The files of a session's folder, for completion after an `@`: found as `glob` finds them, so ignore files count.

The folder is walked in a thread, at most `MAX_WALK_S` and `MAX_FILES`. Answers do not wait for the end of the walk:
they name what is known so far and say that there is more to come. The list is kept and made again when it is `FRESH_S`
old.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from makai.core.errors import MakaiError
from makai.core.session_files import FoundPaths
from makai.tools.fuzzy import best_matches
from makai.tools.search_worker import files_below
from makai.tools.workspace import Workspace

MAX_FILES: Final = 200_000
MAX_WALK_S: Final = 20.0
MAX_ENTRIES: Final = 5_000
"""Of one folder elsewhere, whose path is typed."""
FRESH_S: Final = 15.0
PATIENCE_S: Final = 0.15
"""How long an answer waits for a walk to end."""
MAX_FOUND: Final = 50
_BATCH: Final = 500


class FileIndex:
    """The files of one folder. `close` ends a walk."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._paths: list[str] = []
        self._walked_at = float("-inf")
        self._walk: asyncio.Future[list[str]] | None = None
        self._growing: list[str] = []
        self._is_closed = False

    async def find(self, query: str) -> FoundPaths:
        """The files and folders that are probably meant."""
        if query.startswith(("/", "~", "../")) or query == "..":
            return FoundPaths(paths=tuple(await asyncio.to_thread(_entries_at, query, self.folder)))
        if self._walk is None and time.monotonic() - self._walked_at > FRESH_S:
            self._growing = []
            self._walk = asyncio.ensure_future(asyncio.to_thread(self._walk_folder, self._growing))
        if self._walk is not None:
            await asyncio.wait({self._walk}, timeout=PATIENCE_S)
            if self._walk.done():
                self._paths, self._walked_at, self._walk = self._walk.result(), time.monotonic(), None
        known = self._paths or self._growing[:]
        found = await asyncio.to_thread(best_matches, query.removeprefix("./"), known, MAX_FOUND)
        return FoundPaths(paths=tuple(found), is_complete=self._walk is None)

    def close(self) -> None:
        self._is_closed = True

    def _walk_folder(self, found: list[str]) -> list[str]:
        """Fills `found`, which others read meanwhile; files come in batches, each after the folders they are in."""
        until = time.monotonic() + MAX_WALK_S
        folders: set[str] = set()
        with suppress(MakaiError, OSError):
            files = files_below(Workspace([Path(self.folder)]))
            while (batch := list(islice(files, _BATCH))) and len(found) < MAX_FILES:
                found += [*_new_folders(batch, folders), *batch]
                if self._is_closed or time.monotonic() > until:
                    break
        return found


def _new_folders(files: Sequence[str], known: set[str]) -> Iterator[str]:
    """The folders that these files are in, each once, as paths that end in a slash."""
    for path in files:
        folder = path.rpartition("/")[0]
        while folder and folder not in known:
            known.add(folder)
            yield f"{folder}/"
            folder = folder.rpartition("/")[0]


def _entries_at(query: str, folder: str) -> list[str]:
    """What is in a folder that lies elsewhere, whose path is typed as it is on this machine."""
    head, slash, begun = query.rpartition("/")
    where = os.path.join(folder, os.path.expanduser(head + slash or query))
    try:
        with os.scandir(where) as scan:
            names = [entry.name + "/" * entry.is_dir() for entry in islice(scan, MAX_ENTRIES)]
    except (OSError, ValueError):
        return []
    shown = [name for name in names if begun.startswith(".") or not name.startswith(".")]
    return [f"{head}{slash}{name}" for name in best_matches(begun, shown, MAX_FOUND)]
