"""The process that looks through files for `glob` and `grep`.

Its argument is a `SearchRequest` as JSON; it writes one JSON object per line: what was found, then how it ended. It
runs apart because a regular expression can take any time and cannot be interrupted: `search` ends it at a deadline and
keeps the lines it got. Every file is opened through the workspace.
"""

from __future__ import annotations

import os
import re
import resource
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from makai.core.errors import InvalidRequest, MakaiError
from makai.tools.file_errors import FileRefused, missing, printable, unescape_bytes
from makai.tools.hidden import has_denied_name, path_of
from makai.tools.permissions.path_patterns import NOTHING_DENIED, DeniedPaths, GlobPattern, IgnoreRules
from makai.tools.workspace import Entry, Folders, Place, Workspace

SKIPPED_FOLDERS = frozenset(
    {
        *(".git", ".hg", ".mypy_cache", ".next", ".nox", ".pytest_cache", ".ruff_cache", ".svn", ".tox", ".venv"),
        *("__pycache__", "node_modules"),
    }
)
"""Not looked into unless the search starts inside one."""
IGNORE_FILES = (".gitignore", ".ignore")
"""What they name is skipped; the later file counts more."""
MAX_LINE = 500
MAX_MEMORY = 1024**3
_READ_AT_ONCE = 1024 * 1024
_SNIFFED = 8 * 1024


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for. Without `expression`, names are what is found."""

    folders: Folders
    denied: DeniedPaths = NOTHING_DENIED
    path: str
    names: str = ""
    """A glob pattern for the files' paths below `path`; "" is every file."""
    expression: str | None = None
    ignore_case: bool = False
    files_only: bool = False
    most: int
    cpu_seconds: int = 60


class FoundFile(msgspec.Struct, frozen=True, tag="file"):
    path: str


class FoundLine(msgspec.Struct, frozen=True, tag="line"):
    path: str
    line: int
    text: str


class Ended(msgspec.Struct, frozen=True, tag="ended", kw_only=True):
    """The last line, when there was time for it."""

    files: int = 0
    binary_files: int = 0
    cut: bool = False
    """There was more than `most`."""
    error: str = ""


Report: TypeAlias = FoundFile | FoundLine | Ended


def main(arguments: Sequence[str]) -> int:
    request = msgspec.json.decode(arguments[0], type=SearchRequest)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_seconds, request.cpu_seconds))
    for report in search(request):
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()
    return 0


def search(request: SearchRequest) -> Iterator[Report]:
    seeker = _Seeker(request)
    try:
        for count, report in enumerate(seeker.reports()):
            if count == request.most:
                yield seeker.ended(cut=True)
                return
            yield report
    except MakaiError as error:
        yield Ended(error=str(error))
        return
    yield seeker.ended(cut=False)


def files_below(workspace: Workspace) -> Iterator[str]:
    """Every file below the first root that `glob` would find, relative to it, with its name as it is."""
    start = workspace.place(".")
    for path, _ in _Seeker(SearchRequest(folders=workspace.folders, path=".", most=0)).walk(start, None):
        yield path[len(start.absolute) :].lstrip("/")


class _Seeker:
    def __init__(self, request: SearchRequest) -> None:
        self._request = request
        self._workspace = Workspace.of(request.folders)
        self._files = 0
        self._binary_files = 0

    def ended(self, *, cut: bool) -> Ended:
        return Ended(files=self._files, binary_files=self._binary_files, cut=cut)

    def reports(self) -> Iterator[FoundFile | FoundLine]:
        start = self._workspace.place(self._request.path)
        if self._request.denied.cover(start.absolute):
            raise missing(self._request.path)
        names = GlobPattern(unescape_bytes(self._request.names)) if self._request.names else None
        flags = re.IGNORECASE if self._request.ignore_case else 0
        try:
            expression = re.compile(self._request.expression, flags) if self._request.expression is not None else None
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidRequest(f"The pattern is not a regular expression: {error}.") from None
        for path, shown in self.walk(start, names):
            self._files += 1
            if expression is None:
                yield FoundFile(shown)
            else:
                yield from self._matches(path, shown, expression)

    def walk(self, start: Place, names: GlobPattern | None) -> Iterator[tuple[str, str]]:
        """Every file below, in order of their names, as a path to open and a path to show."""
        if not stat.S_ISDIR(self._workspace.stat(start.absolute).st_mode):
            yield start.absolute, start.shown
            return
        prefix = () if start.shown == "." else (start.shown,)
        waiting: list[tuple[tuple[str, ...], IgnoreRules]] = [((), IgnoreRules())]
        while waiting:
            parts, rules = waiting.pop()
            folder = "/".join((start.absolute, *parts))
            try:
                entries = sorted(self._workspace.entries(folder), key=lambda entry: entry.name)
            except FileRefused:
                continue
            entries = [entry for entry in entries if not self._request.denied.cover(f"{folder}/{entry.name}")]
            for name in IGNORE_FILES:
                if any(entry.name == name for entry in entries):
                    rules = rules.with_file(self._text(f"{folder}/{name}"), parts)
            files, folders = _worth_looking(entries, parts, rules, names)
            for inner in files:
                yield "/".join((start.absolute, *inner)), printable("/".join((*prefix, *inner)))
            waiting += [(inner, rules) for inner in reversed(folders)]

    def _text(self, path: str) -> str:
        """The text of a file with patterns, which may name files whose names are not UTF-8."""
        try:
            with self._workspace.open_read(path) as file:
                return os.fsdecode(file.read(_READ_AT_ONCE))
        except FileRefused:
            return ""

    def _is_denied(self, descriptor: int) -> bool:
        denied = self._request.denied
        if not denied.patterns or denied.cover(path_of(descriptor)):
            return bool(denied.patterns)
        found = os.fstat(descriptor)
        return found.st_nlink > 1 and has_denied_name(denied, (found.st_dev, found.st_ino))

    def _matches(self, path: str, shown: str, expression: re.Pattern[str]) -> Iterator[FoundFile | FoundLine]:
        try:
            file = self._workspace.open_read(path)
        except FileRefused:
            return
        with file:
            if self._is_denied(file.fileno()):
                return  # a folder on the way became a link since, or it is another name of a denied file
            if b"\0" in file.peek(_SNIFFED)[:_SNIFFED]:
                self._binary_files += 1
                return
            number = 1
            while raw := file.readline(_READ_AT_ONCE):
                text = raw.decode("utf-8", "replace").rstrip("\r\n")
                if match := expression.search(text):
                    if self._request.files_only:
                        yield FoundFile(shown)
                        return
                    yield FoundLine(shown, number, _cut(text, match.start()))
                number += raw.endswith(b"\n")


def _worth_looking(
    entries: Sequence[Entry], parts: tuple[str, ...], rules: IgnoreRules, names: GlobPattern | None
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The files of a folder that are wanted, and the folders in it that may hold some."""
    files: list[tuple[str, ...]] = []
    folders: list[tuple[str, ...]] = []
    for entry in entries:
        inner = (*parts, entry.name)
        if entry.kind == "directory":
            wanted = entry.name not in SKIPPED_FOLDERS and (names is None or names.may_match_below(inner))
            if wanted and not rules.ignores(inner, is_folder=True):
                folders.append(inner)
        elif entry.kind == "file":
            wanted = names is None or names.matches(inner)
            if wanted and not rules.ignores(inner, is_folder=False):
                files.append(inner)
    return files, folders


def _cut(text: str, position: int) -> str:
    if len(text) <= MAX_LINE:
        return text
    begin = max(0, min(position - MAX_LINE // 4, len(text) - MAX_LINE))
    end = begin + MAX_LINE
    return f"{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}"
