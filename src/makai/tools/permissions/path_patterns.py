"""Patterns for paths: in permission rules, in the arguments of glob and grep, and in `.gitignore` files.

Only text is compared; links and the file system are not known here. Paths are matched name by name and without going
back, so that the time is at most that of the pattern's length times the path's.

In permission rules `src/**` is src and everything in it; `*.py` without a slash is a name at any depth; a leading slash
means the workspace itself, two slashes the root of the file system. `*` and `?` do not cross a slash. What matches a
folder matches what is in it. Components are compared whole, so `/srv/app` says nothing about `/srv/app-secret`.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from makai.core.errors import InvalidRequest

ANY_DEPTH: Final = "**"

MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4_096
"""Longer names and paths than these the kernel refuses."""
_MAX_SHOWN: Final = 10 * MAX_PATH_BYTES
"""No file's path is longer, with every sign of it shown as an escape."""


class PathPattern(msgspec.Struct, frozen=True):
    """A parsed pattern: its components without a `**` at the end, which every pattern has in effect."""

    components: tuple[str, ...]
    is_absolute: bool

    def matches(self, path: str, workspace: str, *, any_case: bool = False) -> bool:
        """Whether `path`, absolute or relative to `workspace`, or a folder above it, is meant. `any_case` is for what
        is forbidden: one longer than any file's path is then meant, and else it is not."""
        if len(path) > _MAX_SHOWN:
            return any_case
        parts = _split(posixpath.join(workspace, path))
        if not self.is_absolute:
            root = _split(workspace)
            if parts[: len(root)] != root:
                return False
            parts = parts[len(root) :]
        components = self.components
        if any_case:
            components, parts = _folded(components), _folded(parts)
        return _begins_with(parts, components)

    def may_match_below(self, folder: str, workspace: str) -> bool:
        """Whether `folder`, one above it, or a path inside it can be meant; without regard to case."""
        if len(folder) > _MAX_SHOWN:
            return True
        parts = _split(posixpath.join(workspace, folder))
        components = self.components if self.is_absolute else (*_split(workspace), *self.components)
        for component, part in zip(_folded(components), _folded(parts), strict=False):
            matcher = _matcher(component)
            if matcher is None:
                return True
            if not matcher.match(part):
                return False
        return True

    def fixed_part(self, workspace: str) -> str:
        """The file or folder that holds everything that is meant."""
        if not self.is_absolute:
            return workspace
        fixed = itertools.takewhile(lambda component: not _WILDCARDS.intersection(component), self.components)
        return "/" + "/".join(fixed)


class DeniedPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Files that no tool may show. Plain data, so that it can go to another process."""

    workspace: str = "/"
    patterns: tuple[PathPattern, ...] = ()
    asked: tuple[PathPattern, ...] = ()
    """Files whose content is shown only to a call that names them: then a person was asked."""

    def cover(self, path: str) -> bool:
        """Whether this path is meant, without regard to case: on some file systems `.ENV` opens `.env`."""
        return self._are_meant(self.patterns, path)

    def asks_about(self, path: str) -> bool:
        return self._are_meant(self.asked, path)

    def hiding(self, named: str) -> DeniedPaths:
        """The files whose content a call must not show that names this path ("" when it names none)."""
        asked = tuple(pattern for pattern in self.asked if not (named and self._are_meant((pattern,), named)))
        return DeniedPaths(workspace=self.workspace, patterns=self.patterns + asked)

    def _are_meant(self, patterns: Sequence[PathPattern], path: str) -> bool:
        return any(pattern.matches(path, self.workspace, any_case=True) for pattern in patterns)

    def may_be_below(self, folder: str) -> bool:
        """Whether this folder may hold, at any depth, something that is meant."""
        return any(pattern.may_match_below(folder, self.workspace) for pattern in self.patterns)


NOTHING_DENIED: Final = DeniedPaths()


def parse_path_pattern(text: str) -> PathPattern | None:
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


@functools.lru_cache(maxsize=16)
def _split(path: str) -> tuple[str, ...]:
    return tuple(part for part in posixpath.normpath(path).split("/") if part)


@functools.lru_cache(maxsize=16)
def _folded(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name if name.isascii() and name.islower() else _folded_name(name) for name in names)


def _folded_name(name: str) -> str:
    if len(name.encode("utf-8", "surrogatepass")) - len(name) > MAX_NAME_BYTES:
        return name.casefold()  # no file has such a name, and to normalize many marks in a row takes long
    return unicodedata.normalize("NFC", name).casefold()


_WILDCARDS: Final = frozenset("*?")


@functools.lru_cache(maxsize=1024)
def _matcher(component: str) -> re.Pattern[str] | None:
    """None stands for `**`. A bracket in a permission rule is a bracket."""
    return None if component == ANY_DEPTH else re.compile(fnmatch.translate(component.replace("[", "[[]")))


def _begins_with(parts: Sequence[str], components: Iterable[str]) -> bool:
    """What is between two `**` is looked for as early as possible: what is left then is the most that can be."""
    position, at_any_depth = 0, False
    for is_any_depth, group in itertools.groupby(map(_matcher, components), lambda matcher: matcher is None):
        if is_any_depth:
            at_any_depth = True
            continue
        matches = [matcher.match for matcher in group if matcher is not None]
        first, last = matches[0], len(parts) - len(matches)
        for start in range(position, last + 1 if at_any_depth else min(position, last) + 1):
            if first(parts[start]) and all(match(parts[start + offset]) for offset, match in enumerate(matches)):
                position = start + len(matches)
                break
        else:
            return False
    return True


_MAX_ALTERNATIVES = 64
_MAX_PATTERN = 1_000
_BRACES = re.compile(r"\{([^{}]*)\}")


class GlobPattern:
    """A pattern. Without a slash before its end it matches names at any depth, as in a .gitignore file."""

    def __init__(self, pattern: str) -> None:
        self._alternatives = [_matchers(text) for text in expanded_braces(pattern)]
        self._names = [_last_name(matchers) for matchers in self._alternatives]

    def matches(self, parts: Sequence[str]) -> bool:
        if parts and None not in self._names:  # most rules of ignore files are plain names, and this is much faster
            return any(name is not None and name.match(parts[-1]) for name in self._names)
        return any(len(names) in _reached(names, parts) for names in self._alternatives)

    def may_match_below(self, parts: Sequence[str]) -> bool:
        """Whether a path inside this folder can match; if not, a search can skip it."""
        return any(any(index < len(names) for index in _reached(names, parts)) for names in self._alternatives)


def expanded_braces(pattern: str) -> list[str]:
    """The pattern once for every choice in its braces, innermost first; `InvalidRequest` when it is too long or has too
    many choices."""
    if len(pattern) > _MAX_PATTERN:
        raise InvalidRequest(f"The pattern is longer than {_MAX_PATTERN:,} characters.")
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        if not (braces := _BRACES.search(text)):
            done.append(text)
        else:
            waiting += [text[: braces.start()] + choice + text[braces.end() :] for choice in braces[1].split(",")]
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise InvalidRequest(f"The braces of the pattern make more than {_MAX_ALTERNATIVES} patterns.")
    return done


def _matchers(pattern: str) -> list[re.Pattern[str] | None]:
    """One matcher for each name; None stands for `**`."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if "/" not in pattern.rstrip("/"):
        names.insert(0, "**")
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _last_name(names: Sequence[re.Pattern[str] | None]) -> re.Pattern[str] | None:
    """The matcher of a pattern that says nothing but the name of the file; None when it says more."""
    return names[1] if len(names) == 2 and names[0] is None else None


def _reached(names: Sequence[re.Pattern[str] | None], parts: Iterable[str]) -> set[int]:
    """How many of the pattern's names the path can have used up: all possibilities at once."""
    reached = set(_with_skips(names, [0]))
    for part in parts:
        used = [
            index if (matcher := names[index]) is None else index + 1
            for index in reached
            if index < len(names) and ((matcher := names[index]) is None or matcher.match(part))
        ]
        reached = set(_with_skips(names, used))
    return reached


def _with_skips(names: Sequence[re.Pattern[str] | None], reached: Iterable[int]) -> Iterator[int]:
    """`**` may also stand for nothing."""
    for index in reached:
        yield index
        while index < len(names) and names[index] is None:
            index += 1
            yield index


_MAX_RULES = 1_000


class _Rule(msgspec.Struct, frozen=True):
    pattern: GlobPattern
    folder: tuple[str, ...]
    """Where the file that holds the rule lies; the pattern is relative to it."""
    negated: bool
    only_folders: bool

    def matches(self, parts: Sequence[str], *, is_folder: bool) -> bool:
        if self.only_folders and not is_folder:
            return False
        depth = len(self.folder)
        return tuple(parts[:depth]) == self.folder and self.pattern.matches(parts[depth:])


class IgnoreRules:
    """The rules that hold in one folder: its parents' and its own."""

    def __init__(self, rules: tuple[_Rule, ...] = ()) -> None:
        self._rules = rules

    def with_file(self, text: str, folder: tuple[str, ...]) -> IgnoreRules:
        added = [rule for line in text.splitlines()[:_MAX_RULES] if (rule := _rule(line, folder))]
        return IgnoreRules(self._rules + tuple(added))

    def ignores(self, parts: Sequence[str], *, is_folder: bool) -> bool:
        """Whether git would leave this path alone. gitignore(5): "the last matching pattern decides the outcome"."""
        last = next((rule for rule in reversed(self._rules) if rule.matches(parts, is_folder=is_folder)), None)
        return last is not None and not last.negated


def _rule(line: str, folder: tuple[str, ...]) -> _Rule | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    pattern = text.removeprefix("!")
    if pattern.startswith("/"):
        # A leading slash ties the pattern to this folder, a single name too.
        pattern = f"./{pattern.lstrip('/')}"
    try:
        return _Rule(GlobPattern(pattern), folder, negated, text.endswith("/"))
    except InvalidRequest:
        return None
