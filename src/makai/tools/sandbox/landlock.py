"""Confinement by Landlock and seccomp, where bubblewrap does not work (containers, kernels without user namespaces).

It needs no privilege and no namespace, and can do less: `not_confined` says what.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import Final

from makai.aio.supervisor import CHANNEL
from makai.tools.launching import LANDLOCK
from makai.tools.sandbox import landlock_child, limits, seccomp
from makai.tools.sandbox.policy import SHARED_SCRATCH, SandboxPolicy, is_beneath, temporary_environment

OLDEST_ABI: Final = 3
"""Before version 3 (Linux 6.2) any file could be emptied by truncate(2)."""


class Landlock:
    """The backend, for a kernel that speaks version `abi`."""

    name = "landlock"

    def __init__(self, abi: int) -> None:
        self.version = f"ABI {abi}"
        self._abi = abi

    @property
    def not_confined(self) -> tuple[str, ...]:
        """What a command can do all the same, and what it cannot do though it should."""
        return (
            *("memory, processor time and disk space", "modes, owners and times of the user's files (chmod, touch)"),
            "seeing other processes and their command lines",
            *(("signals to the user's other processes (needs ABI 6)",) if self._abi < 6 else ()),
            *("System V shared memory", *limits.not_counted()),
            "nothing new can be made directly in the session's folder or in one with protected files, only below",
            "hooks and configuration of a repository that was opened for a command (they are restored when it ends)",
            "/tmp and /dev/shm are closed, TMPDIR is not",
        )

    def wrap(self, policy: SandboxPolicy, argv: Sequence[str]) -> list[str]:
        """The command line. Start it from a thread that outlives it: it dies with the thread that started it."""
        # A protected link stays because nothing can be removed beside it; what it leads to is protected as well.
        protected = {*policy.protected, *map(os.path.realpath, policy.protected)}
        # In an opened repository git makes files beside what is protected there; `kept_settings` restores that.
        protected = {path for path in protected if not any(is_beneath(path, top) for top in policy.git_folders)}
        environ = temporary_environment(policy.private_tmp) if policy.private_tmp else {}
        options = {
            "root": policy.roots,
            "readable": policy.kept_of_run,
            "writable": (*policy.writable, *((policy.private_tmp,) if policy.private_tmp else ())),
            "hidden": policy.hidden,
            "unseen": ("/dev", "/run", *SHARED_SCRATCH),
            "protected": sorted(protected),
            "network": ("on" if policy.network else "proxy" if policy.is_proxied else "off",),
            "channel": (CHANNEL,) if policy.is_proxied else (),
            "process-limit": (str(limits.user_limit(policy.max_processes)),),
            "environ": tuple(f"{name}={value}" for name, value in environ.items()),
        }
        arguments = [part for name, values in options.items() for value in values for part in (f"--{name}", value)]
        return limits.in_group(policy.max_processes, [LANDLOCK, *arguments, "--", *argv])


def supported_abi() -> int:
    if sys.platform != "linux" or platform.machine() not in seccomp.MACHINES:
        return 0
    return landlock_child.landlock_abi()
