"""Which folders a word about one folder concerns.

In: absolute paths, resolved by whoever asks: no file system is known here. Out: the path in the one form that is
stored, and the folders whose trust covers it.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from makai.core.errors import InvalidRequest

LONGEST: Final = 4096
"""PATH_MAX of Linux; nothing longer can be opened."""


def checked(folder: str) -> str:
    """A folder in the form that is stored. Refuses what does not name one place by itself."""
    if not _is_plain(folder):
        raise InvalidRequest(f"A folder is an absolute path of at most {LONGEST} characters, without '..'.")
    return str(PurePosixPath("/" + folder.lstrip("/")))


def itself_and_above(folder: str) -> list[str]:
    """The folder and those that contain it, the nearest first; none when the text does not name a folder.

    With `/a/b/../c` the text would be beneath `/a/b` and the folder would not.
    """
    if not _is_plain(folder):
        return []
    path = PurePosixPath(checked(folder))
    return [str(path), *map(str, path.parents)]


def _is_plain(folder: str) -> bool:
    if not folder.startswith("/") or len(folder) > LONGEST or "\x00" in folder or ".." in PurePosixPath(folder).parts:
        return False
    try:
        folder.encode()
    except UnicodeEncodeError:  # bytes that are no text, which no store holds
        return False
    return True
