"""The tools `glob` and `grep`.

The work is done by `search_worker` in a process of its own with a deadline: no pattern can hang makai, and what was
found by then is kept.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Annotated

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core.errors import InvalidRequest
from makai.tools import base
from makai.tools.base import Arguments, ArgumentsT, CallDescription, ToolContext, ToolOutcome, text_outcome
from makai.tools.file_errors import printable
from makai.tools.files import DescribedPlaces
from makai.tools.launching import SEARCH, launcher
from makai.tools.permissions.bounded_walk import Budget
from makai.tools.permissions.git_credentials import REASON, holds_credentials, search_shows_credentials
from makai.tools.permissions.path_patterns import NOTHING_DENIED, DeniedPaths, expanded_braces
from makai.tools.search_worker import Ended, FoundFile, FoundLine, Report, SearchRequest
from makai.tools.workspace import Workspace

DEADLINE_S = 20.0
MAX_PATHS = 1_000
MAX_LINES = 1_000
_MAX_SHOWN = 128 * 1024
_MAX_EXPRESSION = 2_000


class GlobArguments(Arguments, frozen=True, kw_only=True):
    pattern: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            description="Such as `src/**/*.py` or `*.{ts,tsx}`; without a slash it matches names at any depth.",
        ),
    ]
    path: Annotated[str, msgspec.Meta(description="The folder to look in.")] = "."

    def __post_init__(self) -> None:
        expanded_braces(self.pattern)  # only the worker compiles it


class GrepArguments(Arguments, frozen=True, kw_only=True):
    pattern: Annotated[
        str, msgspec.Meta(min_length=1, description="A Python regular expression, matched against each line.")
    ]
    path: Annotated[str, msgspec.Meta(description="The folder or file to look in.")] = "."
    glob: Annotated[str, msgspec.Meta(description="Only in files whose path matches this, such as `*.py`.")] = ""
    ignore_case: bool = False
    files_only: Annotated[bool, msgspec.Meta(description="Only tell which files match.")] = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LINES, description="How many matches to show.")] = 200

    def __post_init__(self) -> None:
        if len(self.pattern) > _MAX_EXPRESSION:
            raise InvalidRequest(f"The pattern is longer than {_MAX_EXPRESSION:,} characters.")
        if self.glob:
            expanded_braces(self.glob)


class _SearchTool(base.ArgumentsTool[ArgumentsT]):
    def __init__(
        self, workspace: Workspace, denied: DeniedPaths = NOTHING_DENIED, *, deadline_s: float = DEADLINE_S
    ) -> None:
        """`denied` is neither looked into nor shown."""
        self._workspace = workspace
        self._denied = denied
        self._places = DescribedPlaces()
        self._deadline_s = deadline_s

    def _described(self, path: str, what: str) -> CallDescription:
        place = self._workspace.place(path)
        self._places.keep(path, place)
        title = what if place.shown == "." else f"{what} in {place.shown}"
        return CallDescription(kind="search", title=title, subject=place.shown, locations=(place.location,))

    async def _search(self, request: SearchRequest) -> ToolOutcome:
        """Run the worker until it ends, has said enough, or its time is over."""
        request = msgspec.structs.replace(request, cpu_seconds=int(self._deadline_s) + 1)
        environ, directory = {"LC_ALL": "C.UTF-8"}, self._workspace.open_directory(".")
        try:
            argv = [SEARCH, msgspec.json.encode(request).decode()]
            worker = await ChildProcess.start(
                argv, env=environ, cwd=directory, launcher=launcher(), takes_input=False, merge_stderr=True
            )
        finally:
            os.close(directory)
        heard = bytearray()
        late = False
        try:
            async with asyncio.timeout(self._deadline_s):
                while len(heard) < 4 * _MAX_SHOWN and (chunk := await worker.read()):
                    heard += chunk
        except TimeoutError:
            late = True
        finally:
            await worker.stop()
        return _outcome(bytes(heard), late, self._deadline_s)


class GlobTool(_SearchTool[GlobArguments]):
    shape = GlobArguments
    definition = base.definition(
        "glob",
        "Find files by their path. What .gitignore and .ignore name and folders such as .git and node_modules are "
        "skipped unless `path` is inside one; links are not followed.",
        GlobArguments,
    )

    async def _describe(self, wanted: GlobArguments) -> CallDescription:
        return self._described(wanted.path, f"Find {printable(wanted.pattern)}")

    async def _run(self, wanted: GlobArguments, context: ToolContext) -> ToolOutcome:
        request = SearchRequest(
            folders=self._workspace.folders,
            denied=self._denied,
            path=wanted.path,
            names=wanted.pattern,
            most=MAX_PATHS,
        )
        return await self._search(request)


class GrepTool(_SearchTool[GrepArguments]):
    shape = GrepArguments
    definition = base.definition(
        "grep",
        "Search file contents with a regular expression; answers `path:line: text`. Binary files are skipped; so is "
        "what .gitignore and .ignore name and folders such as .git and node_modules, unless `path` is inside one. "
        "Links are not followed.",
        GrepArguments,
    )

    async def _describe(self, wanted: GrepArguments) -> CallDescription:
        described = self._described(wanted.path, f"Search for {printable(wanted.pattern)}")
        if not await asyncio.to_thread(_shows_credentials, self._workspace.place(wanted.path).absolute):
            return described
        return msgspec.structs.replace(described, asks=True, asks_because=REASON)

    async def _run(self, wanted: GrepArguments, context: ToolContext) -> ToolOutcome:
        request = SearchRequest(
            folders=self._workspace.folders,
            denied=self._denied.hiding(self._places.get(wanted.path)),
            path=wanted.path,
            names=wanted.glob,
            expression=wanted.pattern,
            ignore_case=wanted.ignore_case,
            files_only=wanted.files_only,
            most=wanted.limit,
        )
        return await self._search(request)


def _shows_credentials(path: str) -> bool:
    try:
        return holds_credentials(path) or search_shows_credentials(path, Budget(), skips_git=True)
    except OSError:
        return True


def _outcome(heard: bytes, late: bool, deadline_s: float) -> ToolOutcome:
    lines: list[str] = []
    ended: Ended | None = None
    for raw in heard.split(b"\n")[:-1]:
        try:
            report = msgspec.json.decode(raw, type=Report)
        except msgspec.MsgspecError:
            continue
        match report:
            case FoundFile(path=path):
                lines.append(path)
            case FoundLine(path=path, line=number, text=line):
                lines.append(f"{path}:{number}: {line}")
            case Ended():
                ended = report
    if ended and ended.error:
        return text_outcome(ended.error, is_error=True)
    sizes = itertools.accumulate(len(line) + 1 for line in lines)
    shown = lines[: sum(size <= _MAX_SHOWN for size in sizes)]
    notes = _notes(ended, late, len(shown) < len(lines), deadline_s)
    return text_outcome("\n".join([*shown, *notes]) or "[nothing found]", is_error=ended is None and not lines)


def _notes(ended: Ended | None, late: bool, shortened: bool, deadline_s: float) -> list[str]:
    notes = []
    if late:
        notes.append(f"[stopped after {deadline_s:g} s; use a simpler pattern or a narrower path]")
    elif ended is None and not shortened:
        notes.append("[stopped early: the search ran out of memory or time]")
    if shortened or (ended and ended.cut):
        notes.append("[there are more; use a narrower pattern or path]")
    if ended and ended.binary_files:
        notes.append(f"[{ended.binary_files:,} binary files not searched]")
    return notes
