"""Glob patterns over paths: `*`, `?`, `[a-z]`, `{a,b}` and `**`.

In: a pattern and the parts of a relative path. Out: whether it matches, and whether anything below could. Pure. Each
name is looked at once, whatever the pattern: no pattern takes exponential time.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence

from makai.core.errors import InvalidRequest

_MOST_ALTERNATIVES = 64
_LONGEST_PATTERN = 1_000
_BRACES = re.compile(r"\{([^{}]*)\}")


class GlobPattern:
    """A pattern. Without a slash before its end it matches names at any depth, as in a .gitignore file."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _LONGEST_PATTERN:
            raise InvalidRequest(f"The pattern is longer than {_LONGEST_PATTERN:,} characters.")
        self._alternatives = [_compiled(text) for text in _expanded(pattern)]

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether the whole path matches."""
        return any(len(names) in _reached(names, parts) for names in self._alternatives)

    def may_match_below(self, parts: Sequence[str]) -> bool:
        """Whether a path inside this folder can match; if not, nobody needs to look there."""
        return any(any(index < len(names) for index in _reached(names, parts)) for names in self._alternatives)


def _expanded(pattern: str) -> list[str]:
    """The pattern once for every choice in its braces, innermost first."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        if not (braces := _BRACES.search(text)):
            done.append(text)
        else:
            waiting += [text[: braces.start()] + choice + text[braces.end() :] for choice in braces[1].split(",")]
        if len(done) + len(waiting) > _MOST_ALTERNATIVES:
            raise InvalidRequest(f"The braces of the pattern make more than {_MOST_ALTERNATIVES} patterns.")
    return done


def _compiled(pattern: str) -> list[re.Pattern[str] | None]:
    """One matcher for each name; None stands for `**`."""
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if "/" not in pattern.rstrip("/"):
        names.insert(0, "**")
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


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
