"""makai's end of the launcher, the one process that starts children outside of every sandbox (`launcher_process`)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from makai.aio.pipes import PipeReader

START_DEADLINE_S: Final = 30.0
"""How long a child may take to begin; the launcher itself may still be loading."""
_MAX_STATUS_BYTES: Final = 64
_STATUS_LINES: Final = 3
"""Its supervisor says when it begins, the child's process id, and when the child has ended; nothing follows."""
_IMPORTED_FROM: Final = (Path(__file__).resolve().parents[2], Path(msgspec.__file__).resolve().parents[1])
_CHANNEL: Final = 3
_CLOSE_S: Final = 1.0
_BOOT: Final = (
    f"import os, sys; os.chdir('/'); sys.path += {[str(path) for path in _IMPORTED_FROM]!r}; "
    "from makai.aio.launcher_process import main; main()"
)


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A child: what it is, and the descriptors that it gets. The sender keeps and closes its own copies."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: int
    control: int
    """The child is ended when no one holds the other end any more."""
    stdout: int
    stderr: int
    stdin: int | None = None
    channel: int | None = None
    """For a function in memory: it gets the number of its copy in place of the first word `CHANNEL`."""


class LaunchedProcess:
    """A child of the launcher, as its supervisor reports about it."""

    def __init__(self, pid: int, status: PipeReader, rest: bytes) -> None:
        self.pid = pid
        """Of the supervisor."""
        self.returncode: int | None = None
        self.program: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The process id of the child itself; 0 when it could not be started."""
        self._reading = asyncio.create_task(self._read(status, rest), name=f"status of process {pid}")

    async def wait(self) -> int:
        """Its exit code, once nothing of it is left."""
        await asyncio.wait({self._reading})
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:  # else the number may belong to another process by now
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def _read(self, status: PipeReader, heard: bytes) -> None:
        code: int | None = None
        try:
            while code is None:
                line, end, heard = heard.partition(b"\n")
                if end:
                    code = self._take(line)
                    continue
                if not (chunk := await status.read(_MAX_STATUS_BYTES)):
                    break
                heard = line + chunk
        finally:
            self.returncode = -signal.SIGKILL if code is None else code
            if not self.program.done():
                self.program.set_result(0)
            status.close()

    def _take(self, line: bytes) -> int | None:
        """The exit code, if the line tells it."""
        match line.split():
            case [b"running", pid] if not self.program.done():
                self.program.set_result(int(pid))
            case [b"ended", number]:
                return int(number)
            case [b"failed", _]:
                return 127
        return None


class Launcher:
    """The launcher of this process. Start it before anything that it must not load can be written by a command.

    Its functions are loaded when it starts, as `module:function`, and called when the first word of an argument vector
    is their name: `programs` in a process of their own, `workers` too (those that need many modules), and `wrappers`
    in the supervisor of the program whose argument vector they return.
    """

    def __init__(
        self,
        programs: Mapping[str, str] | None = None,
        *,
        workers: Mapping[str, str] | None = None,
        wrappers: Mapping[str, str] | None = None,
    ) -> None:
        kinds = {"program": programs or {}, "worker": workers or {}, "wrapper": wrappers or {}}
        self._functions = [f"{kind}:{name}={where}" for kind, of in kinds.items() for name, where in of.items()]
        self._workers = frozenset(workers or ())
        self._turn = threading.Lock()
        self._channels: tuple[socket.socket, socket.socket] | None = None
        self._owner = 0
        self._pid = 0

    def start(self) -> None:
        """Start it unless it runs; returns before it has loaded."""
        with self._turn:
            self._started()

    def close(self) -> None:
        """End it. Children that run are not affected; a further child would get a new launcher."""
        with self._turn:
            self._forget()

    async def launch(self, request: LaunchRequest) -> LaunchedProcess:
        """Start a child; an `OSError` when that is not possible."""
        for _ in range(2):
            reader = PipeReader(self._send(request))
            heard = b""
            try:
                async with asyncio.timeout(START_DEADLINE_S):
                    while b"\n" not in heard and (chunk := await reader.read(_MAX_STATUS_BYTES)):
                        heard += chunk
                if heard:
                    pid, rest = _first_answer(heard)
                    return LaunchedProcess(pid, reader, rest)
            except BaseException:
                reader.close()
                raise
            reader.close()
            self.close()
        raise _ended_twice()

    def run(
        self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: str | Path = "."
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a child to its end, for callers without an event loop; `subprocess.TimeoutExpired` after `timeout_s`.

        Its output and errors come together, as its output.
        """
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                control, ours = os.pipe()
                stack.callback(os.close, ours)
                output = os.memfd_create("makai-output", os.MFD_CLOEXEC)
                stack.callback(os.close, output)
                with contextlib.ExitStack() as theirs:
                    theirs.callback(os.close, control)
                    folder = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    theirs.callback(os.close, folder)
                    environ = os.environ if env is None else env
                    status = self._send(
                        LaunchRequest(argv=argv, env=environ, cwd=folder, control=control, stdout=output, stderr=output)
                    )
                stack.callback(os.close, status)
                if heard := _read_until_end(status, timeout_s, argv):
                    _, rest = _first_answer(heard)
                    match rest.split():
                        case [*_, b"ended", number]:
                            code = int(number)
                        case _:
                            code = -signal.SIGKILL
                    said = os.pread(output, os.fstat(output).st_size, 0)
                    return subprocess.CompletedProcess(list(argv), code, said)
            self.close()
        raise _ended_twice()

    def _send(self, request: LaunchRequest) -> int:
        """Where its status can be read."""
        payload = os.memfd_create("makai-launch", os.MFD_CLOEXEC)
        status, child_status = os.pipe()
        try:
            further = {"stdin": request.stdin, "channel": request.channel}
            given = [name for name, descriptor in further.items() if descriptor is not None]
            wanted = {"argv": list(request.argv), "env": dict(request.env), "given": given}
            with open(payload, "wb", buffering=0, closefd=False) as file:
                file.write(json.dumps(wanted).encode("ascii"))
            descriptors = [payload, request.cwd, request.control, child_status, request.stdout, request.stderr]
            descriptors += [descriptor for descriptor in further.values() if descriptor is not None]
            which = int(request.argv[0] in self._workers)
            with self._turn:
                try:
                    socket.send_fds(self._started()[which], [b"."], descriptors)
                except (BrokenPipeError, ConnectionResetError):
                    self._forget()
                    socket.send_fds(self._started()[which], [b"."], descriptors)
        except BaseException:
            os.close(status)
            raise
        finally:
            os.close(payload)
            os.close(child_status)
        return status

    def _started(self) -> tuple[socket.socket, socket.socket]:
        """The channels for programs and for workers."""
        if self._channels is not None and self._owner == os.getpid():
            return self._channels
        commands, their_commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        workers, their_workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The interpreter behind a virtual environment: `pyvenv.cfg` would decide which library it loads.
        interpreter = os.path.realpath(sys.executable)
        with their_commands, their_workers:
            self._pid = os.posix_spawn(
                interpreter,
                [interpreter, "-I", "-S", "-c", _BOOT, str(_CHANNEL), *self._functions],
                {"LC_ALL": "C.UTF-8"},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, their_commands.fileno(), _CHANNEL),
                ],
                setsid=True,
            )
            socket.send_fds(commands, [b"."], [their_workers.fileno()])
        for channel in (commands, workers):
            channel.settimeout(START_DEADLINE_S)  # it takes a message in a millisecond; this only ends a hang
        self._channels, self._owner = (commands, workers), os.getpid()
        return self._channels

    def _forget(self) -> None:
        channels, self._channels = self._channels, None
        if self._pid and self._owner == os.getpid():
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
            for channel in channels or ():
                with contextlib.suppress(OSError):
                    channel.shutdown(socket.SHUT_WR)
                    channel.settimeout(_CLOSE_S)
                    channel.recv(1)  # returns when the last fork that waits for a message is gone
        for channel in channels or ():
            channel.close()


def _ended_twice() -> OSError:
    return OSError(errno.ECHILD, "The process that starts others ended twice")


def _first_answer(heard: bytes) -> tuple[int, bytes]:
    first, _, rest = heard.partition(b"\n")
    match first.split():
        case [b"started", pid]:
            return int(pid), rest
        case [b"failed", number]:
            raise OSError(int(number), os.strerror(int(number)))
        case _:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))


def _read_until_end(descriptor: int, timeout_s: float, argv: Sequence[str]) -> bytes:
    heard, deadline = b"", time.monotonic() + timeout_s
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        chunk = os.read(descriptor, _MAX_STATUS_BYTES)
        heard += chunk
        if not chunk or heard.count(b"\n") == _STATUS_LINES:
            return heard
    raise subprocess.TimeoutExpired(list(argv), timeout_s)
