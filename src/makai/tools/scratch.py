"""Where the tools of a session keep what is nobody's work: long output, and the temporary files of commands.

In: a session's id and the user's environment. Out: two folders that only this user can enter, outside `MAKAI_HOME`,
which no tool may see. They outlive a run, since the log names what is in them; whoever deletes a session removes them,
and the next session removes those that were left behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from makai.core.errors import InvalidRequest

KEPT_S: Final = 7 * 24 * 3600.0
"""So long after a session last used its folders they are kept."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class Scratch(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of one session."""

    output: Path
    """What a tool said and nobody was shown."""
    temporary: Path
    """Stands in for /tmp."""


def open_scratch(session_id: str, environ: Mapping[str, str], makai_home: Path) -> Scratch:
    """Make the folders where they are missing. `InvalidRequest` when they cannot be made, or are somebody else's."""
    top = _top(environ, makai_home)
    folder = top / _name(session_id)
    scratch = Scratch(output=folder / "output", temporary=folder / "tmp")
    for each in (top.parent, top, folder, scratch.output, scratch.temporary):
        _make_private(each)
    os.utime(folder)
    return scratch


def remove_scratch(session_id: str, environ: Mapping[str, str], makai_home: Path) -> None:
    """Forget what a session left."""
    shutil.rmtree(_top(environ, makai_home) / _name(session_id), ignore_errors=True)


def remove_old_scratch(environ: Mapping[str, str], makai_home: Path, *, kept_s: float = KEPT_S) -> None:
    """Forget what sessions left that were not used for long. What cannot be removed stays."""
    oldest = time.time() - kept_s
    with contextlib.suppress(OSError), os.scandir(_top(environ, makai_home)) as folders:
        for folder in folders:
            with contextlib.suppress(OSError):
                if folder.is_dir(follow_symlinks=False) and _used_at(folder.path) < oldest:
                    shutil.rmtree(folder.path, ignore_errors=True)


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


def _make_private(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise InvalidRequest(f"{folder} cannot be made: {error.strerror}.") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        # In a folder that others can write, they may have been there first.
        raise InvalidRequest(f"{folder} is not a folder of this user.")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


def _used_at(folder: str) -> float:
    """When a session began to use it, or wrote to it last."""
    times = []
    for name in ("", "output", "tmp"):
        with contextlib.suppress(OSError):  # another process removes it at this moment
            times.append(os.stat(os.path.join(folder, name), follow_symlinks=False).st_mtime)
    return max(times, default=float("inf"))
