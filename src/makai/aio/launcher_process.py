"""The launcher: a process that forks one supervisor for every child, and reads nothing from disk once it has begun.

A command may write the session's folder, and makai itself may be installed there. Code that runs outside of every
sandbox is therefore loaded once, before the first session, and only forked afterwards. It ends when makai closes the
channel or dies; the supervisors notice that by their own control pipes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from makai.aio.supervisor import CHANNEL, Job, Program, supervise

MIN_DESCRIPTORS, MAX_DESCRIPTORS = 6, 8
_HEADER_BYTES: Final = 64


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
    """Arguments: the descriptor of the channel, then `name=module:function` for each program in memory."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.closerange(channel.fileno() + 1, os.sysconf("SC_OPEN_MAX"))  # what others let us inherit
    programs = {name: _loaded(where) for name, _, where in (given.partition("=") for given in sys.argv[2:])}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the supervisors
    gc.freeze()  # a collection would write to every page that the forks share
    while descriptors := _received(channel):
        if os.fork() == 0:
            channel.close()
            _supervise(descriptors, programs)
        for descriptor in descriptors:
            os.close(descriptor)


def _loaded(where: str) -> Program:
    module, _, name = where.partition(":")
    program: Program = getattr(importlib.import_module(module), name)
    return program


def _received(channel: socket.socket) -> Sequence[int]:
    while True:
        # Python's own `recv_fds` would let every child inherit them.
        space = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
        data, ancillary, _, _ = channel.recvmsg(_HEADER_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return ()
        raw = b"".join(part for _, kind, part in ancillary if kind == socket.SCM_RIGHTS)
        descriptors = [int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw), 4)]
        if len(descriptors) >= MIN_DESCRIPTORS:
            return descriptors
        for descriptor in descriptors:  # the kernel had no room for all of them: makai sees that `status` is closed
            os.close(descriptor)


def _supervise(received: Sequence[int], programs: Mapping[str, Program]) -> None:
    """The fork: one line on `status` when it begins, one with the exit code when nothing of the child is left."""
    said, status = "failed 5", received[3]
    try:
        given = Descriptors(*received[:MIN_DESCRIPTORS])
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with open(given.payload, encoding="ascii") as file:
            wanted = json.load(file)
        given = given._replace(**dict(zip(wanted["given"], received[MIN_DESCRIPTORS:], strict=True)))
        os.fchdir(given.cwd)
        for descriptor, number in ((given.control, 0), (given.stdout, 1), (given.stderr, 2)):
            os.dup2(descriptor, number)
        for descriptor in {given.cwd, given.control, given.stdout, given.stderr}:
            os.close(descriptor)
        os.write(status, f"started {os.getpid()}\n".encode())
        argv = wanted["argv"]
        if given.channel is not None:
            argv[argv.index(CHANNEL)] = str(given.channel)
        code = supervise(Job(argv, wanted["env"], programs, given.stdin, (status,), given.channel))
        said = f"ended {code}"
    except OSError as error:
        said = f"failed {error.errno}"
    finally:
        os.write(status, f"{said}\n".encode())
        os._exit(0)
