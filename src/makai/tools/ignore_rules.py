"""What git would ignore: the `.gitignore` files met on the way into a folder.

In: the text of such files and where they lie. Out: whether a path is ignored. Pure. Enough of git's rules to keep
builds and dependencies out of a search; it decides nothing but what is not worth looking at.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from makai.core.errors import InvalidRequest
from makai.tools.glob_pattern import GlobPattern

_MOST_RULES = 1_000


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
        """These rules and those of a `.gitignore` in `folder`."""
        added = [rule for line in text.splitlines()[:_MOST_RULES] if (rule := _rule(line, folder))]
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
