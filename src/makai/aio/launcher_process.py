"""The launcher: a process that forks one supervisor for every child, and reads nothing from disk once it has begun.

The next supervisor always waits, so that a child need not wait for a fork. Programs that need many modules are forks
of a second process, which this one starts: the time of a fork grows with the memory of the process.

A command may write the session's folder, and makai itself may be installed there. Code that runs outside of every
sandbox is therefore loaded once, before the first session, and only forked afterwards. It ends when makai closes the
channel or dies; the supervisors notice that by their own control pipes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from makai.aio.supervisor import CHANNEL, IN_CONTROL_GROUP, Functions, Job, enter_group, prepare, rehearse, supervise

MIN_DESCRIPTORS, MAX_DESCRIPTORS = 6, 8
_HEADER_BYTES: Final = 64
_MAX_SAID: Final = 4096
_STARTED, _CLOSED = b"started ", b"closed"
"""What a fork says to this process: its child began, in this control group; the channel is closed."""


class Descriptors(NamedTuple):
    """What comes with a message, in this order. The payload says which of the last two there are."""

    payload: int
    """A file with the argument vector and the environment, as JSON: a message itself could be too long."""
    cwd: int
    control: int
    status: int
    stdout: int
    stderr: int
    stdin: int | None = None
    channel: int | None = None


def main() -> None:
    """Arguments: the descriptor of the channel for commands, then `kind:name=module:function` for each function in
    memory. The first message brings the channel for workers."""
    commands = socket.socket(fileno=int(sys.argv[1]))
    commands.set_inheritable(False)
    os.closerange(commands.fileno() + 1, os.sysconf("SC_OPEN_MAX"))  # what others let us inherit
    workers = socket.socket(fileno=_received(commands, 1)[0])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the supervisors
    functions = Functions(programs=_loaded("program"), wrappers=_loaded("wrapper"))
    loaded, loading = os.pipe()
    if os.fork() == 0:
        commands.close()
        os.close(loaded)
        functions = functions._replace(programs={**functions.programs, **_loaded("worker")})
        os.write(loading, b".")
        os.close(loading)
        _serve(workers, functions)
        os._exit(0)
    workers.close()
    os.close(loading)
    if os.read(loaded, 1):  # a command could change what is still to be loaded
        os.close(loaded)
        _serve(commands, functions)


def _serve(channel: socket.socket, functions: Functions) -> None:
    """Keep one fork that waits for the next message, until there is no further one.

    It is in the control group of the last child, as this process is: to change the group takes 10 ms of waiting in the
    kernel, a fork in it nothing.
    """
    _rehearse(functions)  # what Python imports only when it is used is in memory before the first child
    gc.freeze()  # a collection would write to every page that the forks share
    group, said = "", b""
    while said != _CLOSED:
        waiting, taken = os.pipe()
        try:
            fork = os.fork()
        except BlockingIOError:  # the children that run have used up the group
            enter_group(group, "")
            group, fork = "", os.fork()
        if fork == 0:
            os.close(waiting)
            _take(channel, taken, functions, group)
        os.close(taken)
        said = os.read(waiting, _MAX_SAID)
        os.close(waiting)
        if said.startswith(_STARTED) and (last := os.fsdecode(said.removeprefix(_STARTED))) != group:
            with contextlib.suppress(OSError):
                enter_group(group, last)
                group = last


def _take(channel: socket.socket, taken: int, functions: Functions, group: str) -> NoReturn:
    """The fork: it becomes the supervisor of the next child."""
    descriptors: Sequence[int] = ()
    try:
        with contextlib.suppress(OSError):  # that there can be none ends the launcher
            prepare()
            _rehearse(functions)
            descriptors = _received(channel)
        channel.close()
        if descriptors:
            _supervise(descriptors, taken, functions, group)
        else:
            _say(taken, _CLOSED)
    finally:
        os._exit(0)


def _rehearse(functions: Functions) -> None:
    """All that is done with a message, with one that starts nothing (see `rehearse`)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    nothing, unused = os.open(os.devnull, os.O_RDWR), os.open(os.devnull, os.O_WRONLY)
    with ours, theirs:
        socket.send_fds(ours, [b"."], [nothing] * MIN_DESCRIPTORS)
        for descriptor in (nothing, *_received(theirs)):
            os.close(descriptor)
    wanted = json.loads('{"argv": ["/"], "env": {"PATH": "/"}, "given": []}')
    rehearse(
        Job(wanted["argv"], wanted["env"], functions, None, (), functools.partial(_say_child, unused, unused, b""))
    )


def _say(taken: int, said: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # the launcher was killed
        os.write(taken, said)
    os.close(taken)


def _say_child(status: int, taken: int, said: bytes, child: int) -> None:
    with contextlib.suppress(OSError):  # makai was killed: the child must be ended all the same
        os.write(status, f"running {child}\n".encode())
    _say(taken, said)


def _loaded(kind: str) -> dict[str, Callable[..., Any]]:
    found = {}
    for given, _, where in (argument.partition("=") for argument in sys.argv[2:]):
        if given.startswith(f"{kind}:"):
            module, _, function = where.partition(":")
            found[given.removeprefix(f"{kind}:")] = getattr(importlib.import_module(module), function)
    return found


def _received(channel: socket.socket, least: int = MIN_DESCRIPTORS) -> Sequence[int]:
    while True:
        # Python's own `recv_fds` would let every child inherit them.
        space = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
        data, ancillary, _, _ = channel.recvmsg(_HEADER_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return ()
        raw = b"".join(part for _, kind, part in ancillary if kind == socket.SCM_RIGHTS)
        descriptors = [int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw), 4)]
        if len(descriptors) >= least:
            return descriptors
        for descriptor in descriptors:  # the kernel had no room for all of them: makai sees that `status` is closed
            os.close(descriptor)


def _supervise(received: Sequence[int], taken: int, functions: Functions, group: str) -> None:
    """Lines on `status`: when it begins, the child's process id, and its exit code when nothing of it is left."""
    said, status = "failed 5", received[3]
    try:
        given = Descriptors(*received[:MIN_DESCRIPTORS])
        wanted = json.loads(os.pread(given.payload, os.fstat(given.payload).st_size, 0))
        given = given._replace(**dict(zip(wanted["given"], received[MIN_DESCRIPTORS:], strict=True)))
        os.fchdir(given.cwd)
        for descriptor, number in ((given.control, 0), (given.stdout, 1), (given.stderr, 2)):
            os.dup2(descriptor, number)
        for descriptor in {given.payload, given.cwd, given.control, given.stdout, given.stderr}:
            os.close(descriptor)
        os.write(status, f"started {os.getpid()}\n".encode())
        argv, wanted_group = wanted["argv"], ""
        if argv[0] == IN_CONTROL_GROUP:
            _, wanted_group, *argv = argv
        if wanted_group != group:
            enter_group(group, wanted_group)
        if given.channel is not None:
            argv[argv.index(CHANNEL)] = str(given.channel)
        # Not earlier: the next fork would take time from this child.
        on_start = functools.partial(_say_child, status, taken, _STARTED + os.fsencode(wanted_group))
        code = supervise(Job(argv, wanted["env"], functions, given.stdin, (status, taken), on_start, given.channel))
        said = f"ended {code}"
    except OSError as error:
        said = f"failed {error.errno}"
    finally:
        os.write(status, f"{said}\n".encode())
        os._exit(0)
