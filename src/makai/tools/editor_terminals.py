"""Commands in terminals of the editor, outside of every sandbox.

Only a command that a person approved for the editor's terminal runs there; all others, and all commands while no editor
is connected, run locally as before. An editor gives the whole output with every question, or the end of it when there
is much, so what is new is found by comparison. Every terminal is released (ACP-TERM-008).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from makai.aio.cancellation import consume_exception
from makai.core.confinement import Confinement
from makai.core.errors import InvalidRequest
from makai.core.session_events import Notice
from makai.tools.commands import TERMINAL_ENVIRONMENT
from makai.tools.file_errors import FileRefused
from makai.tools.ports import CommandRequest, CommandRunner, RunningCommand
from makai.tools.workspace import Place, Workspace
from makai.wire.acp.client_calls import CreateTerminalRequest, TerminalExit, TerminalOutput
from makai.wire.acp.common import NameValue

OUTPUT_BYTES: Final = 512 * 1024
"""Of its output, the editor keeps the last so many bytes."""
LEFT_OUT: Final = "\n[output is missing here: it came faster than the editor was asked]\n"
UNKNOWN_END: Final = "[The editor did not say how the command ended.]"
_FIRST_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 1.0
_STEP_S: Final = 1.0
"""How long each step of ending a terminal may take; how it ended is worth less. A cancelled call has 5 s."""
_EXIT_S: Final = 0.3
_KILLED: Final = 128 + signal.SIGKILL
_MIN_OVERLAP: Final = 16
_MAX_TRIES: Final = 1_000


class EditorTerminals(Protocol):
    """The editor. What it refuses raises `InvalidRequest` with its message; None: no editor is connected."""

    def takes_terminal(self, call_id: str) -> bool:
        """Whether a person approved that this call runs in a terminal of the editor. True once."""

    async def create_terminal(self, call_id: str, wanted: CreateTerminalRequest) -> str | None: ...
    async def terminal_output(self, terminal: str) -> TerminalOutput | None: ...
    async def wait_for_terminal(self, terminal: str) -> TerminalExit | None: ...
    async def kill_terminal(self, terminal: str) -> None: ...
    async def release_terminal(self, terminal: str) -> None: ...


class EditorCommands:
    """`ports.CommandRunner` over an editor and the local commands."""

    def __init__(self, local: CommandRunner, workspace: Workspace, editor: EditorTerminals) -> None:
        self._local = local
        self._workspace = workspace
        self._editor = editor

    @property
    def is_confined(self) -> bool:
        return self._local.is_confined

    def opened(self, wanted: Confinement, directory: Place) -> Confinement:
        return self._local.opened(wanted, directory)

    async def start(self, request: CommandRequest) -> RunningCommand:
        if not self._editor.takes_terminal(request.call_id):
            return await self._local.start(request)
        directory = request.directory
        if self._workspace.place(directory.absolute).absolute != directory.absolute:
            raise FileRefused(f"{directory.shown} was moved while the command was started. Nothing was done.")
        command, *args = request.argv
        wanted = CreateTerminalRequest(
            session_id="",
            command=command,
            args=tuple(args),
            env=tuple(NameValue(name=name, value=value) for name, value in TERMINAL_ENVIRONMENT.items()),
            cwd=directory.absolute,
            output_byte_limit=OUTPUT_BYTES,
        )
        try:
            terminal = await self._editor.create_terminal(request.call_id, wanted)
        except InvalidRequest as error:
            raise InvalidRequest(f"Your editor could not start a terminal: {error.message}") from None
        return await self._local.start(request) if terminal is None else _EditorTerminal(self._editor, terminal)


class _EditorTerminal:
    def __init__(self, editor: EditorTerminals, terminal: str) -> None:
        self.notice = ""
        self._editor = editor
        self._terminal = terminal
        self._exit: TerminalExit | None = None
        self._seen = ""
        """The whole output when it was last asked for."""
        self._pause_s = 0.0
        self._waiting = asyncio.create_task(self._wait(), name="makai-editor-terminal")
        self._waiting.add_done_callback(consume_exception)
        self._killing: asyncio.Task[None] | None = None
        self._is_released = False

    async def read(self) -> bytes:
        while True:
            if self._pause_s and not self._waiting.done():
                await asyncio.wait({self._waiting}, timeout=self._pause_s)
            is_over = self._waiting.done() or self._exit is not None
            output = await self._editor.terminal_output(self._terminal)
            if output is None:
                raise InvalidRequest("Your editor is gone. What became of the command is not known.")
            self._exit = self._exit or output.exit_status
            if news := self._news(output):
                self._pause_s = _FIRST_PAUSE_S
                return news.encode("utf-8", "replace")
            if is_over:
                return b""
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _MAX_PAUSE_S)

    async def wait(self) -> int:
        if self._exit is None:
            self._exit = await asyncio.shield(self._waiting)
        return self._code(self._exit)

    def kill(self) -> None:
        if self._killing is None and not self._is_released:
            self._killing = asyncio.create_task(self._kill(), name="makai-editor-terminal-kill")

    async def stop(self) -> int:
        if not self._is_released:
            self._is_released = True
            try:
                await self._end()
            finally:
                self._waiting.cancel()
                await _within(_STEP_S, self._editor.release_terminal(self._terminal))
        return _KILLED if self._exit is None else self._code(self._exit)

    def take_notices(self) -> tuple[Notice, ...]:
        return ()

    async def _end(self) -> None:
        """Have the command ended, and learn how it ended."""
        if self._exit is None and not self._waiting.done():
            if self._killing is None:
                await _within(_STEP_S, self._kill())
            await asyncio.wait({self._waiting}, timeout=_EXIT_S)
        if self._killing is not None:
            await asyncio.wait({self._killing}, timeout=_STEP_S)
            self._killing.cancel()
        is_known = self._waiting.done() and not self._waiting.cancelled() and self._waiting.exception() is None
        if self._exit is None and is_known:
            self._exit = self._waiting.result()

    async def _wait(self) -> TerminalExit:
        ended = await self._editor.wait_for_terminal(self._terminal)
        if ended is None:
            raise InvalidRequest("Your editor is gone. What became of the command is not known.")
        return ended

    async def _kill(self) -> None:
        with contextlib.suppress(InvalidRequest):
            await self._editor.kill_terminal(self._terminal)

    def _code(self, ended: TerminalExit) -> int:
        if ended.exit_code is not None:
            return ended.exit_code
        if ended.signal is None:
            self.notice = UNKNOWN_END
            return 0
        number = signal.Signals.__members__.get(ended.signal.upper(), signal.SIGKILL)
        return 128 + number

    def _news(self, output: TerminalOutput) -> str:
        before, self._seen = self._seen, output.output
        if self._seen.startswith(before):
            return self._seen[len(before) :]
        if output.truncated:
            kept = _overlap(before, self._seen)
            return self._seen[kept:] if kept else LEFT_OUT + self._seen
        return self._seen[_common(before, self._seen) :]  # a line was drawn again, as for progress


async def _within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """Do it for so long, and let failures be: the terminal is given up in any case."""
    with contextlib.suppress(TimeoutError, InvalidRequest):
        async with asyncio.timeout(seconds):
            await work


def _overlap(before: str, now: str) -> int:
    """How much of the beginning of `now` is the end of `before`; 0 when it is next to nothing."""
    start = before.find(now[:_MIN_OVERLAP])
    for _ in range(_MAX_TRIES):
        if start < 0:
            break
        if now.startswith(before[start:]):
            return len(before) - start
        start = before.find(now[:_MIN_OVERLAP], start + 1)
    return 0


def _common(one: str, other: str) -> int:
    """The length of the beginning that both have."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
