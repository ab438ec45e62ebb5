"""Patterns for paths in permission rules.

In: a pattern as in .gitignore, an absolute workspace and a path. Out: whether the path is meant. Only text is compared;
links and what exists are not known here.

`src/**` is src and everything in it; `*.py` without a slash is a name at any depth; a leading slash means the workspace
itself, two slashes the root of the file system. `*` and `?` do not cross a slash. What matches a folder matches what is
in it. Components are compared whole, so `/srv/app` says nothing about `/srv/app-secret`.
"""

from __future__ import annotations

import functools
import posixpath
import re
import unicodedata
from typing import Final

import msgspec

ANY_DEPTH: Final = "**"

_WILDCARDS: Final = re.compile(r"(\*|\?)")
_BELOW: Final = "(?:/.*)?"


class PathPattern(msgspec.Struct, frozen=True):
    """A parsed pattern: its components without a `**` at the end, which every pattern has in effect."""

    components: tuple[str, ...]
    is_absolute: bool

    def matches(self, path: str, workspace: str, *, any_case: bool = False) -> bool:
        """Whether `path`, absolute or relative to `workspace`, or a folder above it, is meant."""
        parts = _split(posixpath.join(workspace, path))
        if not self.is_absolute:
            root = _split(workspace)
            if parts[: len(root)] != root:
                return False
            parts = parts[len(root) :]
        pattern, text = "/".join(self.components), "/".join(parts)
        if any_case:
            pattern, text = _folded(pattern), _folded(text)
        return _compiled(pattern).fullmatch(text) is not None


class DeniedPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Files that nobody may see. Plain data, so that it can go to another process."""

    workspace: str = "/"
    patterns: tuple[PathPattern, ...] = ()

    def cover(self, path: str) -> bool:
        """Whether this path is meant, without regard to case: on some file systems `.ENV` opens `.env`."""
        return any(pattern.matches(path, self.workspace, any_case=True) for pattern in self.patterns)


NOTHING_DENIED: Final = DeniedPaths()


def parse_path_pattern(text: str) -> PathPattern | None:
    """Read a pattern; None when it cannot be meant."""
    if not text or text.startswith("!") or any(unicodedata.category(character) == "Cc" for character in text):
        return None
    components = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in components or any(ANY_DEPTH in part and part != ANY_DEPTH for part in components):
        return None
    if components and "/" not in text.removesuffix("/"):  # a bare name is meant at any depth
        components.insert(0, ANY_DEPTH)
    while components and components[-1] == ANY_DEPTH:
        components.pop()
    once = [
        part for index, part in enumerate(components) if part != ANY_DEPTH or components[index - 1 : index] != [part]
    ]
    return PathPattern(tuple(once), is_absolute=text.startswith("//"))


def is_plain_path(path: str) -> bool:
    """Whether text alone tells where it leads, links aside: after a link, `..` is not the folder before it."""
    return ".." not in path.split("/") and "\0" not in path


def _split(path: str) -> tuple[str, ...]:
    return tuple(part for part in posixpath.normpath(path).split("/") if part)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    if not pattern:
        return re.compile(r".*", re.DOTALL)
    names = [_name(part) for part in pattern.split("/")]
    return re.compile("".join(names).removesuffix("/") + _BELOW, re.DOTALL)


def _name(part: str) -> str:
    if part == ANY_DEPTH:
        return "(?:[^/]+/)*"
    pieces = {"*": "[^/]*", "?": "[^/]"}
    return "".join(pieces.get(piece, re.escape(piece)) for piece in _WILDCARDS.split(part)) + "/"
