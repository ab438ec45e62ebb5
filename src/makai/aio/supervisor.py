"""The process between makai and a child: it leaves none of the child's processes alive.

It is a fork of the launcher, so nothing is read from disk to start it. As a child subreaper it becomes the parent of
every process that the child leaves behind, however often that forked or changed its session. When the child ends, or
makai closes the control pipe, or makai itself dies, all of them are asked to stop, then killed. A child that can kill
this process escapes it; a sandbox with its own process ids prevents that.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn, TypeAlias

PR_SET_CHILD_SUBREAPER: Final = 36
GRACE_S: Final = 0.3
"""How long processes may tidy up after SIGTERM; the whole end must fit into one second."""
KILLING_S: Final = 5.0
CANNOT_EXECUTE, COULD_NOT_START = 126, 127
CHANNEL: Final = "makai:channel"
_POLL_S: Final = 0.005
_REAP_EVERY_MS: Final = 1000
_RESET_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
"""Python ignores the first two and the launcher the third, and ignoring is inherited."""

Program: TypeAlias = Callable[[Sequence[str]], int]
"""A program that is a function in memory: it gets its arguments, and what it returns is its exit code."""

libc = ctypes.CDLL(None, use_errno=True)


class Job(NamedTuple):
    argv: Sequence[str]
    env: Mapping[str, str]
    programs: Mapping[str, Program]
    """What is called, and not looked for on disk, when it is the first of `argv`."""
    stdin: int | None
    """A descriptor for the child; None is /dev/null."""
    unshared: Sequence[int]
    """Descriptors of this process that the child must not have."""
    channel: int | None = None
    """A descriptor for one of `programs`, which knows its number by its arguments."""


def supervise(job: Job) -> int:
    """Run the job in the current folder, with our standard output and error; standard input is the control pipe.

    Its exit code, 128 + n when signal n killed it, as shells say it.
    """
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        os.write(2, b"this kernel has no child subreapers\n")
        return COULD_NOT_START
    child = _started(job)
    _release_output()
    code = _watch(child)
    last = _end_everything(child)
    return last if code is None else code


def _started(job: Job) -> int:
    child = os.fork()
    if child == 0:
        _become(job)
    for descriptor in (job.stdin, job.channel):
        if descriptor is not None:
            os.close(descriptor)  # or the other end would not notice that the child closed it
    return child


def _become(job: Job) -> NoReturn:
    """The child: it leads its own session and has the signal handling of a fresh program."""
    code = COULD_NOT_START
    try:
        os.setsid()
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        stdin = os.open(os.devnull, os.O_RDONLY) if job.stdin is None else job.stdin
        os.dup2(stdin, 0)
        os.close(stdin)
        for descriptor in job.unshared:
            os.close(descriptor)
        code = run(job.argv, job.env, job.programs)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except OSError as error:
        os.write(2, f"{job.argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        code = COULD_NOT_START if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE
    except BaseException:
        code = 1
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(code)


def run(argv: Sequence[str], env: Mapping[str, str], programs: Mapping[str, Program]) -> int:
    """Become another program; returns only when it is one of `programs`."""
    if (program := programs.get(argv[0])) is None:
        os.execvpe(argv[0], list(argv), env)
    os.environ.clear()
    os.environ.update(env)
    code = program(argv[1:])
    sys.stdout.flush()
    return code


def _release_output() -> None:
    """Close our copies, so that the output ends when the last of the command's processes is gone."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.close(nothing)


def _watch(child: int) -> int | None:
    """Wait for the command; its exit code, or None when makai wants its end."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(os.pidfd_open(child), select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(_REAP_EVERY_MS)}
        code, _ = _reap(child)
        if code is not None or 0 in ready:
            return code


def _end_everything(child: int) -> int:
    """Stop, then kill, until nothing is left; the command's exit code when it ended only now."""
    code = 128 + signal.SIGKILL
    begun = time.monotonic()
    is_asked = False
    while (elapsed := time.monotonic() - begun) < KILLING_S:
        ended, left = _reap(child)
        code = code if ended is None else ended
        if not left:
            break
        if not is_asked:  # only now: to look through /proc costs more than most commands
            _signal_all(signal.SIGTERM)
            is_asked = True
        elif elapsed >= GRACE_S:
            _signal_all(signal.SIGKILL)
        time.sleep(_POLL_S)
    return code


def _reap(child: int) -> tuple[int | None, bool]:
    """Reap every child that ended: the exit code of `child` if it was among them, and whether any child is left."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, False
        if pid == 0:
            return code, True
        if pid == child:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended


def _signal_all(number: int) -> None:
    for pid in _descendants():
        try:
            os.kill(pid, number)
        except OSError:
            continue


def _descendants() -> list[int]:
    """Every process below this one. Orphans are among them: they became children of this process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found[1:]


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may itself hold anything; state and parent follow the last one.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None
