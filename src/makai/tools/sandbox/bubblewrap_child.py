"""What is left to do when bubblewrap is started: limits, the filter for system calls and the command's environment.

The launcher holds this module in memory, so it imports little.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from makai.aio.supervisor import Wrapped
from makai.tools.sandbox import limits, proxy_channel, seccomp

if os.uname().machine in seccomp.MACHINES:
    seccomp.filter_program(os.uname().machine, sockets=True)  # it is made once, and forks have it


def prepared(arguments: Sequence[str], env: Mapping[str, str]) -> Wrapped:
    """Limit this process, from which bubblewrap is started with a filter for system calls.

    bubblewrap itself is not confined, and variables such as LD_PRELOAD would make it run code: it is started with none.
    Those of the command are among the options that it reads from a file, because every user sees a command line.
    """
    most, channel, program, *rest = arguments
    variables = _options(env)
    limits.limit_processes(int(most))
    filtering = _file("makai-seccomp", seccomp.filter_program(os.uname().machine, sockets=True))
    setting = _file("makai-environment", variables)
    listening, inherited = proxy_channel.listening_options(int(channel)) if channel else ([], [])
    options = ["--seccomp", str(filtering), "--args", str(setting), *listening]
    return Wrapped([program, *options, *rest], {}, [filtering, setting, *inherited])


def _options(env: Mapping[str, str]) -> bytes:
    """`--setenv` for each variable; `OSError` for one that would become several options."""
    words = [os.fsencode(word) for name, value in env.items() for word in ("--setenv", name, value)]
    if any(b"\0" in word for word in words):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return b"".join(word + b"\0" for word in words)


def _file(name: str, data: bytes) -> int:
    """A file in memory, which the program that is started next inherits."""
    descriptor = os.memfd_create(name, 0)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
