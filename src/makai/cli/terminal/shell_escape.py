"""`!command`: a shell command that the user runs, in the folder of the session, and its output as the model reads it.

The command runs as the user, outside of the sandbox and without a question: the user typed it. It has no terminal and
no input. Its output goes to the agent with the next message, or at once to one that works.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final
from urllib.parse import quote

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core.content import Resource
from makai.core.visible_text import one_line

DEADLINE_S: Final = 600.0
MAX_OUTPUT_BYTES: Final = 48 * 1024
"""Of a longer output the beginning and the end are kept, so much together."""
MAX_TITLE: Final = 60
_TERM_S: Final = 0.5


class ShellOutcome(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    output: str = ""
    exit_code: int | None = None
    """None when it was stopped."""

    @property
    def ending(self) -> str:
        """How it ended, or "" when it went well."""
        if self.exit_code is None:
            return "stopped by the user"
        return f"exit code {self.exit_code}" if self.exit_code else ""

    def for_model(self) -> Resource:
        told = f"$ {self.command}\n{self.output}" + (f"\n[{self.ending}]" if self.ending else "")
        uri = f"command:{quote(one_line(self.command, MAX_TITLE), safe='')}"
        return Resource(uri=uri, text=told, mime_type="text/plain")


class KeptOutput:
    """The beginning and the end of an output of any length."""

    def __init__(self, max_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self._half = max_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        room = self._half - len(self._head)
        self._head += chunk[:room] if room > 0 else b""
        self._tail += chunk[max(0, room) :]
        extra = len(self._tail) - self._half
        if extra > 0:
            self._dropped += extra
            del self._tail[:extra]

    def text(self) -> str:
        gap = f"\n[… {self._dropped:,} bytes left out …]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", "replace")


class ShellRun:
    """One command. `stop` ends it with all it started."""

    def __init__(self, command: str, folder: str | None) -> None:
        self.command = command
        self._folder = folder
        self._stopped = asyncio.Event()
        self.kept = KeptOutput()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> ShellOutcome:
        """Raises `OSError` when it cannot be started. Ends it at a deadline, and when the caller is cancelled."""
        shell = os.environ.get("SHELL") or "/bin/sh"
        environ = {**os.environ, "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}
        child = await ChildProcess.start(
            [shell, "-c", self.command], env=environ, cwd=self._folder, takes_input=False, merge_stderr=True
        )
        reading = asyncio.create_task(self._read(child))
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({reading, stopping}, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            ended = reading.done()
        finally:
            stopping.cancel()
            reading.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)
            code = await child.stop(term_grace_s=_TERM_S)
        output = self.kept.text().strip("\n")
        return ShellOutcome(command=self.command, output=output, exit_code=code if ended else None)

    async def _read(self, child: ChildProcess) -> None:
        while chunk := await child.read():
            self.kept.add(chunk)
        await child.wait()
