"""A child process with its pipes, as one value that is started whole, read, written and always ended.

The child leads its own session: Ctrl-C at our terminal does not reach it, and a signal to its process group reaches all
of its own children that stayed in the group. A supervised child (Linux) is started by the launcher and runs below
`makai.aio.supervisor`, so that nothing it ever started outlives it, and it does not outlive us even when we are killed.
Other children learn of our death by the end of their standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

import msgspec

from makai.aio.cancellation import wait_uncancelled
from makai.aio.launcher import LaunchedProcess, Launcher, LaunchRequest
from makai.aio.pipes import BOUND_BYTES, PipeReader, PipeWriter
from makai.core.errors import TransportError

STDERR_KEPT_BYTES: Final = 8 * 1024
KILL_DEADLINE_S: Final = 6.0
"""How long a killed child may take to be gone. Longer than the supervisor takes in the worst case."""
_ENDS_KEPT: Final = 512


class OversizedLine(msgspec.Struct, frozen=True):
    """A line that was dropped because of its length: how it began and ended."""

    size: int
    head: bytes
    tail: bytes


class LineSplitter:
    """Cuts a stream into lines; of a line longer than `max_bytes` only its ends are kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._oversized: OversizedLine | None = None

    def feed(self, chunk: bytes) -> list[bytes | OversizedLine]:
        """The lines that are complete now, without their ends and without empty ones."""
        lines: list[bytes | OversizedLine] = []
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._add(piece)
            if line := self._oversized or bytes(self._line).strip(b"\r"):
                lines.append(line)
            self._line, self._oversized = bytearray(), None
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        if (known := self._oversized) is not None:
            tail = (known.tail + piece[-_ENDS_KEPT:])[-_ENDS_KEPT:]
            self._oversized = OversizedLine(known.size + len(piece), known.head, tail)
            return
        self._line += piece
        if len(self._line) > self._max_bytes:
            head, tail = bytes(self._line[:_ENDS_KEPT]), bytes(self._line[-_ENDS_KEPT:])
            self._oversized = OversizedLine(len(self._line), head, tail)
            self._line = bytearray()


class ChildProcess:
    """A running child. Its owner calls `stop` on every path."""

    def __init__(
        self,
        process: asyncio.subprocess.Process | LaunchedProcess,
        *,
        stdin: int | None,
        stdout: int,
        stderr: int | None,
        control: int | None,
    ) -> None:
        """The descriptors are our ends of its pipes. `control` leads to its supervisor, if it has one."""
        self._process = process
        self._is_supervised = control is not None
        self._control, self._stdin_fd, self._stdout_fd = control, stdin, stdout
        self._stdin: PipeWriter | None = None
        self._stdout: PipeReader | None = None
        self._stderr = PipeReader(stderr) if stderr is not None else None
        self._said = bytearray()
        self._listening = asyncio.create_task(self._listen(), name=f"stderr of process {process.pid}")
        self._stopping: asyncio.Task[None] | None = None
        _running.add(self)

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | int | None = None,
        launcher: Launcher | None = None,
        takes_input: bool = True,
        merge_stderr: bool = False,
        terminal: bool = False,
        channel: int | None = None,
    ) -> ChildProcess:
        """Start a child; an `OSError` when that is not possible. `env` is its whole environment, by default ours.

        With a `launcher` it is supervised: then `cwd` may be the descriptor of a folder, a missing program shows as
        exit code 127, and `channel` is that of `LaunchRequest`. `merge_stderr` puts errors into its output, in order.
        `terminal` gives it a terminal instead of pipes, for programs that say nothing without one; it gets no input.
        """
        starting = asyncio.create_task(
            _start(
                argv,
                env,
                cwd,
                launcher=launcher,
                takes_input=takes_input and not terminal,
                merge_stderr=merge_stderr or terminal,
                terminal=terminal,
                channel=channel,
            )
        )
        try:
            return await wait_uncancelled(starting)
        except asyncio.CancelledError:
            # asyncio would kill a supervisor in the middle, which may have started its command already.
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().stop()
            raise

    @property
    def pid(self) -> int:
        """Of the process that ends the child with all it started: its supervisor, or else the child itself."""
        return self._process.pid

    def when_started(self, callback: Callable[[int], object]) -> None:
        """Call back with the id of the child's own process as soon as it is known; never for one that did not start."""
        if isinstance(self._process, LaunchedProcess):
            self._process.program.add_done_callback(lambda found: callback(found.result()) if found.result() else None)
        else:
            callback(self.pid)

    @property
    def exit_code(self) -> int | None:
        """None while it runs, as far as the event loop knows; negative when a signal killed it."""
        return self._process.returncode

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone, asked of the kernel where possible: the event loop may learn it later."""
        if self._process.returncode is not None or self._is_supervised or not hasattr(os, "waitid"):
            return self._process.returncode is not None
        try:
            # WNOWAIT leaves the exit status for the event loop to collect.
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    async def read(self) -> bytes:
        """The next output, b"" after the last. Nothing is read ahead: a slow reader slows the child."""
        if self._stdout is None:
            self._stdout = PipeReader(self._stdout_fd)
        return await self._stdout.read()

    async def lines(self, max_bytes: int) -> AsyncIterator[bytes | OversizedLine]:
        """The lines of its output until all its processes have closed it. A last line without its end is dropped."""
        splitter = LineSplitter(max_bytes)
        while chunk := await self.read():
            for line in splitter.feed(chunk):
                yield line

    async def write(self, data: bytes) -> None:
        """Give it input, whole and in order; waits while the child does not read. `TransportError` when it is gone."""
        if self._stdin is None:
            if self._stdin_fd is None or self._stopping is not None:
                raise TransportError("Its input is closed.")
            self._stdin = PipeWriter(self._stdin_fd)
        await self._stdin.write(data)

    def take_pipes(self) -> tuple[int, int]:
        """The descriptors of its output and its input, for a channel that reads, writes and closes them."""
        assert self._stdin_fd is not None
        taken = self._stdout_fd, self._stdin_fd
        self._stdin_fd, self._stdout_fd = None, -1
        return taken

    @property
    def stderr_tail(self) -> str:
        """The last it said on standard error, at most `STDERR_KEPT_BYTES`."""
        return bytes(self._said[-STDERR_KEPT_BYTES:]).decode("utf-8", "replace")

    def note(self, line: bytes) -> None:
        """Keep the beginning of a line that it wrote elsewhere in `stderr_tail`."""
        self._keep(line[:_ENDS_KEPT] + b"\n")

    async def wait(self) -> int:
        """Its exit code once it has ended; of a supervised child, once nothing of it is left."""
        return await self._process.wait()

    async def wait_for_errors(self, seconds: float) -> None:
        """Wait until it has ended and all of its standard error was read, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
                await asyncio.wait({self._listening})

    def kill(self) -> None:
        """Let it be ended with all it started. Returns at once and may be repeated; `stop` waits for the end. A
        supervised child and what it started get SIGTERM and a third of a second, any other group SIGKILL."""
        if not self._is_supervised:
            self._signal_group(signal.SIGKILL)
        elif self._control is not None:
            os.close(self._control)
            self._control = None

    async def stop(self, *, grace_s: float = 0.0, term_grace_s: float = 0.0) -> int:
        """End it with all it started; its exit code. May be repeated.

        Its input is closed and it has `grace_s` to end by itself, then `term_grace_s` after SIGTERM. No one may read or
        write any more. A caller that is cancelled meanwhile is so when nothing is left.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace_s, term_grace_s), name=f"stop process {self.pid}")
        await wait_uncancelled(self._stopping)
        return self._process.returncode if self._process.returncode is not None else -signal.SIGKILL

    async def _stop(self, grace_s: float, term_grace_s: float) -> None:
        discarding = asyncio.create_task(self._discard_output())
        try:
            await self._close_input()
            ended = grace_s > 0 and await self._ended_within(grace_s)
            if not ended and term_grace_s > 0 and not self._is_supervised:
                self._signal_group(signal.SIGTERM)
                await self._ended_within(term_grace_s)
            # The leader may be gone while its own children are not, so the group is always ended.
            self.kill()
            if not await self._ended_within(KILL_DEADLINE_S):
                self._process.kill()
                await self._ended_within(KILL_DEADLINE_S)
            # A descendant that left the group may still hold standard error open.
            await asyncio.wait({self._listening}, timeout=max(grace_s, 0.1))
        finally:
            for task in (self._listening, discarding):
                task.cancel()
            await asyncio.gather(self._listening, discarding, return_exceptions=True)
            for reader in (self._stdout, self._stderr):
                if reader is not None:
                    reader.close()
            _running.discard(self)

    async def _close_input(self) -> None:
        if self._stdin is not None:
            await self._stdin.close(deadline_s=0)
        elif self._stdin_fd is not None:
            os.close(self._stdin_fd)
        self._stdin_fd = None

    async def _discard_output(self) -> None:
        """A child that cannot write does not come to read that its input has ended."""
        while self._stdout_fd >= 0 and await self.read():
            pass

    async def _ended_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        """The child leads its session, so its process id is also that of its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _listen(self) -> None:
        while self._stderr is not None and (chunk := await self._stderr.read()):
            self._keep(chunk[-STDERR_KEPT_BYTES:])

    def _keep(self, said: bytes) -> None:
        self._said += said
        if len(self._said) > 2 * STDERR_KEPT_BYTES:
            del self._said[:-STDERR_KEPT_BYTES]


_running: Final[weakref.WeakSet[ChildProcess]] = weakref.WeakSet()


def kill_children() -> None:
    """`kill` all children of this process, which has to exit: the grace that `stop` gives them is over."""
    for child in tuple(_running):
        child.kill()


async def _start(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: str | int | None,
    *,
    launcher: Launcher | None,
    takes_input: bool,
    merge_stderr: bool,
    terminal: bool,
    channel: int | None,
) -> ChildProcess:
    def pipe(*, to_child: bool) -> tuple[int, int]:
        reading, writing = os.pipe()
        our_end, their_end = (writing, reading) if to_child else (reading, writing)
        ours.callback(os.close, our_end)
        theirs.callback(os.close, their_end)
        return our_end, their_end

    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        stdout, child_stdout = _open_terminal(ours, theirs) if terminal else pipe(to_child=False)
        stderr, child_stderr = (None, child_stdout) if merge_stderr else pipe(to_child=False)
        stdin, child_stdin = pipe(to_child=True) if takes_input else (None, child_stdout if terminal else None)
        with contextlib.suppress(OSError, AttributeError):
            # A larger pipe means fewer turns of the event loop; the kernel may refuse, and nothing depends on it.
            fcntl.fcntl(stdout, fcntl.F_SETPIPE_SZ, BOUND_BYTES)
        control: int | None = None
        process: asyncio.subprocess.Process | LaunchedProcess
        if launcher is None:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=None if env is None else dict(env),
                cwd=None if isinstance(cwd, int) else cwd,
                stdin=asyncio.subprocess.DEVNULL if child_stdin is None else child_stdin,
                stdout=child_stdout,
                stderr=child_stderr,
                start_new_session=True,
            )
        else:
            control, child_control = pipe(to_child=True)
            if not isinstance(cwd, int):
                cwd = os.open(cwd or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                theirs.callback(os.close, cwd)
            request = LaunchRequest(
                argv=argv,
                env=os.environ if env is None else env,
                cwd=cwd,
                control=child_control,
                stdin=child_stdin,
                stdout=child_stdout,
                stderr=child_stderr,
                channel=channel,
            )
            process = await launcher.launch(request)
        ours.pop_all()
    return ChildProcess(process, stdin=stdin, stdout=stdout, stderr=stderr, control=control)


def _open_terminal(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    """Both ends of a terminal that changes nothing of what is written; ours, and the child's."""
    import tty  # few programs need one

    our_end, their_end = os.openpty()
    ours.callback(os.close, our_end)
    theirs.callback(os.close, their_end)
    tty.setraw(their_end)
    return our_end, their_end
