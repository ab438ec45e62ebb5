"""An editor as the ports of tools: unsaved buffers for files, its own terminals for commands.

It does what a client of the Agent Client Protocol offers: text by absolute path (fs/read_text_file, fs/write_text_file)
and terminals whose output is asked for as a whole (terminal/create, output, wait_for_exit, kill, release).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.session_events import Notice
from makai.tools.ports import CommandRequest, CommandRunner
from makai.tools.workspace import Entry, OpenedFile, Place, Workspace

ResultT = TypeVar("ResultT")


class Editor:
    """The other side: buffers by absolute path, and terminals that a script plays."""

    def __init__(self, buffers: dict[str, str] | None = None) -> None:
        self.buffers = buffers or {}
        self.saved: list[tuple[str, str]] = []
        self.terminals: list[Terminal] = []

    async def read_text_file(self, path: str) -> str | None:
        """The text of a buffer, None for a file that is not open."""
        await asyncio.sleep(0)
        return self.buffers.get(path)

    async def write_text_file(self, path: str, text: str) -> None:
        await asyncio.sleep(0)
        self.buffers[path] = text
        self.saved.append((path, text))


class EditorFiles:
    """A `FileSystem` whose content is the editor's; where a path leads is the local workspace's to say."""

    def __init__(self, workspace: Workspace, editor: Editor) -> None:
        self._workspace = workspace
        self._editor = editor

    def place(self, path: str) -> Place:
        return self._workspace.place(path)

    async def read(self, path: str, reader: Callable[[OpenedFile], ResultT]) -> ResultT:
        place = self._workspace.place(path)
        text = await self._editor.read_text_file(place.absolute)
        if text is None:
            return await self._workspace.read(path, reader)
        return await asyncio.to_thread(reader, OpenedFile.of_text(place, text))

    async def write(self, path: str, content: bytes, expected: Place) -> None:
        place = self._workspace.checked_for_writing(path, expected)
        await self._editor.write_text_file(place.absolute, content.decode("utf-8"))

    async def list_folder(self, path: str, limit: int, is_shown: Callable[[str], bool]) -> list[Entry]:
        return await self._workspace.list_folder(path, limit, is_shown)


class Terminal:
    """A terminal of the editor with a command that writes `output` and ends with `code`, or never ends by itself."""

    notice = ""

    def __init__(self, request: CommandRequest, output: str, code: int | None) -> None:
        self.request = request
        self.is_released = False
        self._output = output
        self._code = code
        self._ended = asyncio.Event()
        self._read = 0
        if code is not None:
            self._ended.set()

    async def read(self) -> bytes:
        """What came since the last time: an editor gives the whole output again and again."""
        new = self._output.encode()[self._read :]
        self._read += len(new)
        if not new:
            await self._ended.wait()
        return new

    async def wait(self) -> int:
        await self._ended.wait()
        return self._code if self._code is not None else 137

    def kill(self) -> None:
        self._ended.set()

    async def stop(self) -> int:
        self.kill()
        self.is_released = True
        return await self.wait()

    def take_notices(self) -> tuple[Notice, ...]:
        return ()


class EditorCommands:
    """A `CommandRunner` that makes terminals in the editor, outside of every sandbox."""

    is_confined = False

    def __init__(self, editor: Editor, output: str = "", code: int | None = 0) -> None:
        self._editor = editor
        self._script = output, code

    def instead_of(self, local: CommandRunner) -> CommandRunner:
        return self

    def opened(self, wanted: Confinement, directory: Place) -> Confinement:
        return SESSION_SANDBOX

    async def start(self, request: CommandRequest) -> Terminal:
        await asyncio.sleep(0)
        terminal = Terminal(request, *self._script)
        self._editor.terminals.append(terminal)
        return terminal
