"""Files of a session's folder as clients see them: found for completion, or named in a message with an `@`."""

from __future__ import annotations

import msgspec

from makai.core.content import Image, Resource


class FoundPaths(msgspec.Struct, frozen=True, kw_only=True):
    paths: tuple[str, ...] = ()
    """Relative to the folder, or as they were begun; folders end in a slash."""
    is_complete: bool = True


class Mentioned(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a message names with an `@`."""

    files: tuple[Resource, ...] = ()
    images: tuple[Image, ...] = ()
    notices: tuple[str, ...] = ()
    """What the user should know about them."""
