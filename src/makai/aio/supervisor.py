"""The process between makai and a child: it leaves none of the child's processes alive.

It is a fork of the launcher, so nothing is read from disk to start it. As a child subreaper it becomes the parent of
every process that the child leaves behind, however often that forked or changed its session. When the child ends, or
makai closes the control pipe, or makai itself dies, all of them are asked to stop, then killed. A child that can kill
this process escapes it; a sandbox with its own process ids prevents that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
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
SETTLE_S: Final = 0.02
"""How long what a child left may take to end by itself, as the processes of a namespace do when its first one ended."""
CANNOT_EXECUTE, COULD_NOT_START = 126, 127
CHANNEL: Final = "makai:channel"
_KILL_EVERY_S: Final = 0.005
_REAP_EVERY_MS: Final = 1000
_RESET_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
"""Python ignores the first two and the launcher the third, and ignoring is inherited."""

Program: TypeAlias = Callable[[Sequence[str]], int]
"""A program that is a function in memory: it gets its arguments, and what it returns is its exit code."""

IN_CONTROL_GROUP: Final = "makai:in-control-group"
"""Before an argument vector, with the folder of a control group: the child is in that group."""

libc = ctypes.CDLL(None, use_errno=True)


class Wrapped(NamedTuple):
    """A program to start, and descriptors that it alone inherits: they are closed here once it was started."""

    argv: Sequence[str]
    env: Mapping[str, str]
    descriptors: Sequence[int] = ()


Wrapper: TypeAlias = Callable[[Sequence[str], Mapping[str, str]], Wrapped]
"""Gets the arguments and the environment of a job. It changes the process that calls it, such as its limits, and says
which program to start."""


class Functions(NamedTuple):
    """What is called, and not looked for on disk, when its name is the first word of an argument vector."""

    programs: Mapping[str, Program]
    wrappers: Mapping[str, Wrapper]


class Job(NamedTuple):
    argv: Sequence[str]
    env: Mapping[str, str]
    functions: Functions
    stdin: int | None
    """A descriptor for the child; None is /dev/null."""
    unshared: Sequence[int]
    """Descriptors of this process that the child must not have. They are not inherited by a program from disk."""
    on_start: Callable[[int], object]
    """Called with the id of the child's process once it was started, with 0 when it could not be."""
    channel: int | None = None
    """A descriptor for one of `functions`, which knows its number by its arguments."""


def prepare() -> None:
    """What can be done before there is a job; an `OSError` on a kernel without child subreapers."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # `_end_everything` waits for it
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def supervise(job: Job) -> int:
    """Run the job in the current folder, with our standard output and error; standard input is the control pipe.

    Its exit code, 128 + n when signal n killed it, as shells say it.
    """
    child = 0
    try:
        child = _started(job)
    except OSError as error:
        os.write(2, f"{job.argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        return _exit_code(error)
    finally:
        job.on_start(child)
    _release_output()
    code = _watch(child)
    last = _end_everything(child, settle=code is not None)
    return last if code is None else code


def rehearse(job: Job) -> None:
    """Fail to start a job. What is used for it is then no longer shared with the launcher: to copy a shared page when
    it is written takes longer than the work itself."""
    with contextlib.suppress(OSError):
        _started(job)


def _started(job: Job) -> int:
    program = job.functions.programs.get(job.argv[0])
    child = _spawned(job) if program is None else os.fork()
    if child == 0:
        assert program is not None
        _become(job, program)
    for descriptor in (job.stdin, job.channel):
        if descriptor is not None:
            os.close(descriptor)  # or the other end would not notice that the child closed it
    return child


def _spawned(job: Job) -> int:
    """Start a program from disk. Unlike a fork, this does not copy the page tables of this process."""
    wrapper = job.functions.wrappers.get(job.argv[0])
    argv, env, inherited = Wrapped(job.argv, job.env) if wrapper is None else wrapper(job.argv[1:], job.env)
    stdin = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    refused: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    try:
        for path in _paths_of(argv[0], env):
            try:
                return os.posix_spawn(
                    path,
                    list(argv),
                    env,
                    file_actions=[stdin if job.stdin is None else (os.POSIX_SPAWN_DUP2, job.stdin, 0)],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=_RESET_SIGNALS,
                )
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                refused = error
        raise refused
    finally:
        for descriptor in inherited:
            os.close(descriptor)


def _paths_of(program: str, env: Mapping[str, str]) -> list[str]:
    """Where it may be. To let the kernel find out that it is not there takes a process each."""
    if "/" in program:
        return [program]
    return list(filter(os.path.exists, (os.path.join(folder, program) for folder in os.get_exec_path(env))))


def _exit_code(error: OSError) -> int:
    return COULD_NOT_START if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE


def _become(job: Job, program: Program) -> NoReturn:
    """The fork: it leads its own session and has the signal handling of a fresh program."""
    code = COULD_NOT_START
    try:
        os.setsid()
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        stdin = os.open(os.devnull, os.O_RDONLY) if job.stdin is None else job.stdin
        os.dup2(stdin, 0)
        os.close(stdin)
        for descriptor in job.unshared:
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(job.env)
        code = program(job.argv[1:])
        sys.stdout.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except OSError as error:
        os.write(2, f"{job.argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        code = _exit_code(error)
    except BaseException:
        code = 1
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(code)


def enter_group(current: str, wanted: str) -> None:
    """Move this process to a control group; "" is the one that `current` was made in."""
    with open(f"{wanted or os.path.dirname(current)}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))


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


def _end_everything(child: int, *, settle: bool) -> int:
    """Stop, then kill, until nothing is left; the command's exit code when it ended only now."""
    code = 128 + signal.SIGKILL
    begun = time.monotonic()
    term_at = begun + (SETTLE_S if settle else 0.0)
    kill_at = term_at + GRACE_S
    is_asked = False
    while (now := time.monotonic()) < begun + KILLING_S:
        ended, left = _reap(child)
        code = code if ended is None else ended
        if not left:
            break
        if now < term_at:
            pause = term_at - now
        elif now < kill_at:
            if not is_asked:  # only now: to look through /proc costs more than most commands
                _signal_all(signal.SIGTERM)
                is_asked = True
            pause = kill_at - now
        else:
            _signal_all(signal.SIGKILL)
            pause = _KILL_EVERY_S
        signal.sigtimedwait({signal.SIGCHLD}, pause)
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
