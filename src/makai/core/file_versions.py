"""What the log keeps of a file so that a change of it can be undone and redone."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

RestoreDirection: TypeAlias = Literal["undo", "redo"]


class FileVersions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool knows of a file before and after it changed it: with this, a change can be undone. A digest is the
    SHA-256 of the content in hexadecimal, empty where there is no file. The text of a diff is the whole content when it
    has this digest; what is too large or not UTF-8 is not kept, and cannot be restored."""

    path: str
    """Absolute, exactly as the file is named."""
    old_digest: str = ""
    new_digest: str = ""
    old_mode: int = 0
    new_mode: int = 0
    made_folders: tuple[str, ...] = ()
    """Folders that were made for it, the outermost first."""


class RestoredFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that an undo or a redo concerns. Digests and modes are as in `FileVersions`."""

    path: str
    kind: Literal["create", "change", "remove", "keep"]
    """What is done to it; `keep`: the changes together changed nothing."""
    from_digest: str = ""
    from_mode: int = 0
    to_digest: str = ""
    to_mode: int = 0
    outcome: Literal["pending", "restored", "unchanged", "unknown"] = "pending"
    """`unknown`: the file is neither as it was nor as it should be, because something else changed it."""
