"""The process between makai and a child: it leaves none of the child's processes alive.

Arguments: the descriptor of a folder, the descriptor of the child's standard input ("-" for none), then the child's
argument vector. Standard input is a pipe whose other end makai holds. The exit code is the child's, 128 + n when signal
n killed it, as shells say it. Every child waits for this program to start, so it imports nothing of makai and little of
the standard library (`signal` alone costs 5 ms).

As a child subreaper it becomes the parent of every process that the child leaves behind, however often that forked or
changed its session. When the child ends, or makai closes the pipe, or makai itself dies, all of them are asked to stop,
then killed. A child that can kill this process escapes it; a sandbox with its own process ids prevents that.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_SIGKILL, _SIGPIPE, _SIGTERM, _SIGXFSZ = 9, 13, 15, 25
_GRACE_S = 0.3
"""How long processes may tidy up after SIGTERM; the whole end must fit into one second."""
_KILLING_S = 5.0
_COULD_NOT_START = 127
_POLL_S = 0.005
_REAP_EVERY_MS = 1000


def main() -> int:
    directory, given_input, *command = sys.argv[1:]
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        os.write(2, b"this kernel has no child subreapers\n")
        return _COULD_NOT_START
    os.fchdir(int(directory))
    os.close(int(directory))
    try:
        child = _started(command, None if given_input == "-" else int(given_input))
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        return _COULD_NOT_START
    _release_output()
    code = _watch(child)
    last = _end_everything(child)
    return last if code is None else code


def _started(command: list[str], given_input: int | None) -> int:
    """The command, leading its own session, with the signal handling of a fresh program."""
    if given_input is None:
        actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, given_input, 0), (os.POSIX_SPAWN_CLOSE, given_input)]
    child = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=[_SIGPIPE, _SIGXFSZ],  # Python ignores these two, and ignoring is inherited
    )
    if given_input is not None:
        os.close(given_input)  # or the other end would not notice that the child closed its input
    return child


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
    code = 128 + _SIGKILL
    begun = time.monotonic()
    _signal_all(_SIGTERM)
    while (elapsed := time.monotonic() - begun) < _KILLING_S:
        ended, left = _reap(child)
        code = code if ended is None else ended
        if not left:
            break
        if elapsed >= _GRACE_S:
            _signal_all(_SIGKILL)
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
