"""Keeps other processes of the same user out of the memory of a process that holds secrets.

Keys and tokens are in its environment and memory. Without this, any program of the user could read them from
`/proc/PID/environ` and `/proc/PID/mem`, trace the process, or find them in a core dump. Root still can. The programs
that it starts are not affected: the kernel resets the setting with `execve`.
"""

from __future__ import annotations

import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def hide_memory() -> None:
    """Make this process one that only root can look into. Elsewhere than on Linux nothing happens."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
