"""The ports through which tools use files and run commands.

The local, confined implementations are `workspace.Workspace` and `commands.LocalCommands`. An editor is another one: it
answers reads from unsaved buffers, takes writes, and shows commands in its own terminals (`editor_files`,
`editor_terminals`). Where a path leads is always decided by the local workspace, so rules, hidden folders and protected
files hold for every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import msgspec

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.session_events import Notice
from makai.tools.workspace import Entry, OnDisk, OpenedFile, Place

ResultT = TypeVar("ResultT")


class FileSystem(Protocol):
    """The files of a session. Paths are as a model writes them; what cannot be done raises `FileRefused`."""

    def place(self, path: str) -> Place:
        """Where `path` really leads, whether or not it exists."""

    async def read(self, path: str, reader: Callable[[OpenedFile], ResultT]) -> ResultT:
        """What `reader` makes of a regular file. It runs in a thread and may block; the file is closed afterwards."""

    async def write(self, path: str, content: bytes, expected: Place) -> str:
        """Make a file or replace all of it, in one step. Refused when `path` does not lead to `expected` any more. The
        result is what the model must know beside the success, mostly empty."""

    async def on_disk(self, place: Place) -> OnDisk:
        """The mode of a file, and which folders around it are missing."""

    async def list_folder(self, path: str, limit: int, is_shown: Callable[[str], bool]) -> list[Entry]:
        """At most `limit` entries of a folder, unsorted, of those whose absolute path `is_shown`."""


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str = ""
    """Of the tool call that runs it."""
    argv: tuple[str, ...]
    directory: Place
    environ: Mapping[str, str]
    """The whole environment."""
    read_only: bool = False
    """It may write nothing but temporary files: a command that runs unasked because it only looks."""
    confinement: Confinement = SESSION_SANDBOX
    """What it is given beyond the session's sandbox, as `CommandRunner.opened` resolved it."""


class RunningCommand(Protocol):
    """A started command. Its owner calls `stop` on every path."""

    @property
    def notice(self) -> str:
        """Once it is stopped: what its sandbox refused, for the model. Mostly empty."""

    async def read(self) -> bytes:
        """The next output and errors in one stream, b"" after the last."""

    async def wait(self) -> int:
        """Its exit code, once it has ended."""

    def kill(self) -> None:
        """Let it be ended with all it started. Returns at once and may be repeated."""

    async def stop(self) -> int:
        """End it if it still runs, release what it holds, and return its exit code. May be repeated."""

    def take_notices(self) -> tuple[Notice, ...]:
        """After `stop`: what people and the model must know about what it left behind. Given out once."""


class CommandRunner(Protocol):
    @property
    def is_confined(self) -> bool:
        """Whether commands run in the session's sandbox. If not, a person is asked about every one of them."""

    def opened(self, wanted: Confinement, directory: Place) -> Confinement:
        """What `wanted` opens for a command in `directory`, with real paths, without what the session's sandbox gives
        already. `InvalidRequest` when it cannot be opened. A person is asked about what is left."""

    async def start(self, request: CommandRequest) -> RunningCommand:
        """Start a command; `InvalidRequest` when that is not possible. A cancelled start leaves nothing running."""
