"""The real `makai` command as a child process, through pipes or on a pseudo-terminal.

The child gets a home of its own and nothing of the developer's environment.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from support.terminal_screen import TerminalScreen

SOURCES = Path(__file__).resolve().parents[2] / "src"
DEADLINE_S = 60.0

Environ: TypeAlias = Mapping[str, str]
NOTHING: Environ = MappingProxyType({})


class Finished(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    def json_lines(self) -> list[dict[str, object]]:
        return [msgspec.json.decode(line, type=dict[str, object]) for line in self.out.splitlines()]


_TAKE_TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)  # the first terminal a session leader opens becomes its own: Ctrl-C works
for stream in (0, 1, 2):
    os.dup2(terminal, stream)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Terminal:
    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self._process = process
        self._master = master
        self._changed = asyncio.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.screen = ""
        self.output = ""
        """Everything that was written to it, with its control sequences."""
        self.display = TerminalScreen()
        """What a person sees."""
        asyncio.get_running_loop().add_reader(master, self._read)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def narrow(self, columns: int) -> None:
        self.display.narrow(columns)
        termios.tcsetwinsize(self._master, (termios.tcgetwinsize(self._master)[0], columns))

    async def types(self, keys: str, *shown: str) -> None:
        self.press(keys)
        await self.shows(*shown)

    async def shows(self, *texts: str) -> None:
        """Wait until each text is on the screen, one after the other, and forget everything up to the last."""
        for text in texts:
            await self.until(partial(self._has, text))
            self.screen = self.screen.partition(text)[2]

    def _has(self, text: str) -> bool:
        return text in self.screen

    async def until(self, is_shown: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_shown():
                self._changed.clear()
                await self._changed.wait()

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def is_restored(self) -> bool:
        """Whether it echoes and is read line by line, as a shell leaves it to a program."""
        wanted = termios.ECHO | termios.ICANON | termios.ISIG
        flags: int = termios.tcgetattr(self._master)[3]
        return flags & wanted == wanted

    @property
    def modes(self) -> set[str]:
        """The private modes that are switched on and are off in a shell, such as 2004 for marked pastes."""
        switched = re.findall(r"\x1b\[\?(\d+)([hl])", self.output)
        return {number for number, way in dict(switched).items() if way == "h"} - {"7", "25"}

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            return await self._process.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            text = self._decoder.decode(os.read(self._master, 65536))
            self.output += text
            self.screen += text
            self.display.feed(text)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._master)
        self._changed.set()


class Cli:
    def __init__(self, home: Path, environ: Environ = NOTHING) -> None:
        self.home = home
        self._environ = environ

    async def __call__(self, *arguments: str, stdin: bytes = b"", environ: Environ = NOTHING) -> Finished:
        async with self.started(*arguments, environ=environ) as process:
            async with asyncio.timeout(DEADLINE_S):
                out, err = await process.communicate(stdin)
            assert process.returncode is not None
            return Finished(process.returncode, out.decode(), err.decode())

    @asynccontextmanager
    async def started(self, *arguments: str, environ: Environ = NOTHING) -> AsyncIterator[asyncio.subprocess.Process]:
        """A running command with pipes; killed if the test leaves it running."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "makai"),
            *(argument.encode() for argument in arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment(environ),
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    @asynccontextmanager
    async def serving(self, environ: Environ = NOTHING) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
        """A `makai serve` on a free port, and its address; stopped when the test is done with it."""
        async with self.started("serve", "--port", "0", environ=environ) as process:
            assert process.stdout is not None
            async with asyncio.timeout(DEADLINE_S):
                line = (await process.stdout.readline()).decode()
            address = re.search(r"http://\S+", line)
            assert address is not None, line
            yield process, address[0]
            process.terminate()
            async with asyncio.timeout(DEADLINE_S):
                await process.communicate()

    @asynccontextmanager
    async def on_terminal(
        self, *arguments: str, environ: Environ = NOTHING, cwd: Path | None = None, size: tuple[int, int] = (24, 80)
    ) -> AsyncIterator[Terminal]:
        """A running command whose three streams are one terminal of `size` rows and columns."""
        master, slave = os.openpty()
        termios.tcsetwinsize(slave, size)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", _TAKE_TERMINAL, os.ttyname(slave), sys.executable, "-m", "makai"),
            *arguments,
            env={"TERM": "xterm-256color"} | self.environment(environ),
            cwd=cwd,
            start_new_session=True,
        )
        terminal = Terminal(process, master)
        try:
            yield terminal
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            terminal.close()
            os.close(slave)

    def environment(self, environ: Environ) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
        own = {"PYTHONPATH": str(SOURCES), "HOME": str(self.home), "MAKAI_HOME": str(self.home), "LC_ALL": "C.UTF-8"}
        return inherited | own | dict(self._environ) | dict(environ)


def interrupt(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGINT)
