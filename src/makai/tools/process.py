"""A command with everything it starts, as one thing that can be read and ended.

In: an argument vector, a directory's descriptor, an environment. Out: its output as it comes and its exit code; after
`end` none of its processes is left within a second, whatever they do (see `supervisor`). It must not know tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from makai.aio.cancellation import wait_uncancelled

_SUPERVISE = f"""
import os, sys
sys.path.append({str(Path(__file__).parent)!r})
import supervisor
os._exit(supervisor.main())
"""
"""Imported, not run as a file: an imported module is compiled once, not for every command."""
_READ_AT_ONCE = 256 * 1024
_GONE_WITHIN_S = 6.0
"""Longer than the supervisor itself takes in the worst case."""


class SupervisedProcess:
    """A running command. Whoever starts one calls `end` on every path."""

    def __init__(self, process: asyncio.subprocess.Process, control: int, output: int) -> None:
        self._process = process
        self._control: int | None = control
        self._output: int | None = output

    @classmethod
    async def start(cls, argv: Sequence[str], *, directory: int, environ: Mapping[str, str]) -> SupervisedProcess:
        """Start it in the directory behind the descriptor; output and errors come in one stream, in order."""
        starting = asyncio.create_task(cls._start(argv, directory, environ))
        try:
            return await wait_uncancelled(starting)
        except asyncio.CancelledError:
            # asyncio would kill the supervisor in the middle, which may have started the command already.
            if not starting.cancelled() and starting.exception() is None:
                await wait_uncancelled(asyncio.create_task(starting.result().ended()))
            raise

    @classmethod
    async def _start(cls, argv: Sequence[str], directory: int, environ: Mapping[str, str]) -> SupervisedProcess:
        control_read, control_write = os.pipe()
        output_read, output_write = os.pipe()
        with contextlib.suppress(OSError):
            # A larger pipe means fewer turns of the event loop; the kernel may refuse, and nothing depends on it.
            fcntl.fcntl(output_read, fcntl.F_SETPIPE_SZ, _READ_AT_ONCE)
        os.set_blocking(output_read, False)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-c", _SUPERVISE, str(directory), *argv),
                stdin=control_read,
                stdout=output_write,
                stderr=output_write,
                env=dict(environ),
                pass_fds=(directory,),
                # Out of the terminal's process group: Ctrl-C is for us, and we decide what it means for the command.
                start_new_session=True,
            )
        except BaseException:
            os.close(control_write)
            os.close(output_read)
            raise
        finally:
            os.close(control_read)
            os.close(output_write)
        return cls(process, control_write, output_read)

    async def read(self) -> bytes:
        """The next output, b"" after the last. Nothing is read ahead: a slow reader slows the command."""
        while self._output is not None:
            try:
                return os.read(self._output, _READ_AT_ONCE)
            except BlockingIOError:
                await _readable(self._output)
        return b""

    async def wait(self) -> int:
        """Its exit code, once nothing of it is left."""
        return await self._process.wait()

    def end(self) -> None:
        """Let everything it started be stopped and killed. Returns at once and may be called again."""
        if self._control is not None:
            os.close(self._control)
            self._control = None

    async def ended(self) -> int:
        """Let it be ended and wait until it is; its exit code."""
        self.end()
        try:
            async with asyncio.timeout(_GONE_WITHIN_S):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()
        finally:
            self._close_output()

    def _close_output(self) -> None:
        if self._output is not None:
            os.close(self._output)
            self._output = None


async def _readable(descriptor: int) -> None:
    """Wait until there is something to read, or the end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
