"""What is left to do when bubblewrap is started: limits and the filter for system calls.

The launcher holds this module in memory, so it imports little.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from makai.aio.supervisor import Wrapped
from makai.tools.sandbox import limits, proxy_channel, seccomp

if os.uname().machine in seccomp.MACHINES:
    seccomp.filter_program(os.uname().machine, sockets=True)  # it is made once, and forks have it


def prepared(arguments: Sequence[str]) -> Wrapped:
    """Limit this process, from which bubblewrap is started with a filter for system calls."""
    most, channel, program, *rest = arguments
    limits.limit_processes(int(most))
    descriptor = os.memfd_create("makai-seccomp", 0)
    os.write(descriptor, seccomp.filter_program(os.uname().machine, sockets=True))
    os.lseek(descriptor, 0, os.SEEK_SET)
    listening, inherited = proxy_channel.listening_options(int(channel)) if channel else ([], [])
    return Wrapped([program, "--seccomp", str(descriptor), *listening, *rest], [descriptor, *inherited])
