"""The process of a stdio server: lines in, lines out, and nothing left of it afterwards.

In: an argument vector, a folder, an environment. Out: what it writes, line by line and never more than a bound at once;
the last it said on standard error. It must not know MCP.

The server runs below `makai.tools.supervisor`: everything it ever starts ends with it, and it ends with us, also when
we are killed, because the kernel then closes the pipe that the supervisor waits on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec

from makai.aio.cancellation import wait_uncancelled
from makai.core.errors import TransportError
from makai.tools import supervisor
from makai.tools.file_errors import printable

_READ_AT_ONCE: Final = 256 * 1024
_ENDS_KEPT: Final = 512
_STDERR_KEPT: Final = 8 * 1024
_LEAVING_S: Final = 1.0
"""How long a server may take to end by itself when its input has ended, as the MCP specification asks it to."""
_GONE_S: Final = 6.0
"""Longer than the supervisor takes in the worst case."""
_SUPERVISE: Final = f"""
import os, sys
sys.path.append({os.path.dirname(supervisor.__file__)!r})
import supervisor
os._exit(supervisor.main())
"""
_WITH_INPUT: Final = 'input=$1; shift; exec "$@" <"/dev/fd/$input"'
"""The supervisor needs its own standard input; the server's comes as another descriptor. (dash knows only one-digit
descriptors in `<&n`.)"""


class TooLong(msgspec.Struct, frozen=True):
    """A line that was dropped because of its length: how it began and ended."""

    size: int
    head: bytes
    tail: bytes


class LineSplitter:
    """Cuts a stream into lines; of a line longer than `most` bytes only its ends are kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line = bytearray()
        self._dropped: TooLong | None = None

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """The lines that are complete now, without their ends and without empty ones."""
        lines: list[bytes | TooLong] = []
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._add(piece)
            if line := self._taken():
                lines.append(line)
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        if (dropped := self._dropped) is not None:
            tail = (dropped.tail + piece[-_ENDS_KEPT:])[-_ENDS_KEPT:]
            self._dropped = TooLong(dropped.size + len(piece), dropped.head, tail)
            return
        self._line += piece
        if len(self._line) > self._most:
            head, tail = bytes(self._line[:_ENDS_KEPT]), bytes(self._line[-_ENDS_KEPT:])
            self._dropped = TooLong(len(self._line), head, tail)
            self._line = bytearray()

    def _taken(self) -> bytes | TooLong:
        line: bytes | TooLong = self._dropped or bytes(self._line).strip(b"\r")
        self._line, self._dropped = bytearray(), None
        return line


class Child:
    """A running server. Whoever starts one calls `stop` on every path."""

    def __init__(self, process: asyncio.subprocess.Process, control: int, stdin: int) -> None:
        self._process = process
        self._control: int | None = control
        self._stdin: int | None = stdin
        self._said = bytearray()
        self._listening = asyncio.create_task(self._listen())
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, argv: Sequence[str], *, directory: str, environ: Mapping[str, str]) -> Child:
        """Start it. `TransportError` when the folder is missing; that a program is missing shows as its end."""
        starting = asyncio.create_task(cls._start(argv, directory, environ))
        try:
            return await wait_uncancelled(starting)
        except asyncio.CancelledError:
            # asyncio would kill the supervisor in the middle, which may have started the server already.
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().stop()
            raise

    @classmethod
    async def _start(cls, argv: Sequence[str], directory: str, environ: Mapping[str, str]) -> Child:
        descriptors: list[int] = []
        ours: list[int] = []
        try:
            descriptors.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            for _ in range(2):
                readable, writable = os.pipe()
                descriptors.append(readable)
                ours.append(writable)
            folder, control, stdin = descriptors
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _SUPERVISE, str(folder)),
                *("/bin/sh", "-c", _WITH_INPUT, "sh", str(stdin), *argv),
                stdin=control,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_READ_AT_ONCE,
                env=dict(environ),
                pass_fds=(folder, stdin),
                # Out of the terminal's process group: Ctrl-C is for us, not for the servers.
                start_new_session=True,
            )
        except BaseException as error:
            for descriptor in ours:
                os.close(descriptor)
            if isinstance(error, OSError):
                raise TransportError(f"It could not be started in {printable(directory)}: {error.strerror}.") from None
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        os.set_blocking(ours[1], False)
        return cls(process, *ours)

    async def chunks(self) -> AsyncIterator[bytes]:
        """What it writes, as it comes, until all its processes have closed their output."""
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(_READ_AT_ONCE):
            yield chunk

    async def write(self, data: bytes) -> None:
        """Give it input; waits as long as it does not read. `TransportError` when it cannot take any more."""
        rest = memoryview(data)
        while rest:
            if self._stdin is None:
                raise TransportError("Its input is closed.")
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                await _writable(self._stdin)
            except OSError as error:
                raise TransportError(f"It takes no more input: {error.strerror}.") from None

    async def stop(self) -> None:
        """End its input, give it a moment, then end it with all it started. May be called again.

        Nobody may be reading or writing any more. Who is cancelled meanwhile learns of it when nothing is left.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await wait_uncancelled(self._stopping)

    async def how_it_ended(self) -> str:
        """For a message about a server that went away: its exit code and its last words."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING_S):
                await self._process.wait()
                await asyncio.wait({self._listening})
        code = self._process.returncode
        what = "closed its output" if code is None else f"ended with exit code {code}"
        return what + self.last_words()

    def last_words(self) -> str:
        """The end of its standard error, as the end of a sentence."""
        lines = bytes(self._said[-_STDERR_KEPT:]).decode("utf-8", "replace").splitlines()
        said = "\n".join(printable(line) for line in lines if line.strip())
        return f". Its last words:\n{said}" if said else "."

    def note(self, line: bytes) -> None:
        """Keep something it wrote elsewhere among its last words."""
        self._said += line[:_ENDS_KEPT] + b"\n"
        if len(self._said) > 2 * _STDERR_KEPT:
            del self._said[:-_STDERR_KEPT]

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_READ_AT_ONCE):
            self._said += chunk[-_STDERR_KEPT:]
            if len(self._said) > 2 * _STDERR_KEPT:
                del self._said[:-_STDERR_KEPT]

    async def _stop(self) -> None:
        stdin, self._stdin = self._stdin, None
        if stdin is not None:
            os.close(stdin)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING_S):
                    await self._drained()
        finally:
            if self._control is not None:
                os.close(self._control)
                self._control = None
        try:
            async with asyncio.timeout(_GONE_S):
                await self._drained()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _drained(self) -> None:
        """Its end. Output is thrown away: a server that cannot write does not come to read that its input has ended."""
        assert self._process.stdout is not None
        while await self._process.stdout.read(_READ_AT_ONCE):
            pass
        await self._process.wait()


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(descriptor)
