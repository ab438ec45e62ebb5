"""Which sandbox works on this machine. A command is never left unconfined in silence."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

import msgspec

from makai.core.errors import NotSupported
from makai.core.module_path import is_replaceable
from makai.core.programs import find_program
from makai.tools.launching import launcher
from makai.tools.sandbox.policy import SandboxPolicy
from makai.tools.sandbox.repository import kept_settings

_TRUSTED_FOLDERS: Final = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
_PROBE_SECONDS: Final = 10
_PROBED: Final = SandboxPolicy(level="read-only", roots=("/usr",))


class SandboxBackend(Protocol):
    name: str
    version: str

    @property
    def not_confined(self) -> tuple[str, ...]:
        """What it leaves open, in words."""

    def wrap(self, policy: SandboxPolicy, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` confined, in the current folder of the process that starts it."""


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: a backend, and why the better ones are not it."""

    backend: SandboxBackend | None
    problems: tuple[str, ...] = ()

    def describe(self) -> str:
        """For `makai doctor`: what confines commands, and what it does not confine."""
        why = f" ({'; '.join(self.problems)})" if self.problems else ""
        if self.backend is None:
            return f"none{why}: every command asks first, and then runs unconfined"
        version = f"{self.backend.name} {self.backend.version}"
        return f"{version}{why}. Not confined: {'; '.join(self.backend.not_confined)}"

    def wrap(self, policy: SandboxPolicy, argv: Sequence[str]) -> list[str]:
        """The command line for `argv`: as it is with `full-access`, else confined, else `NotSupported`."""
        return list(argv) if policy.level == "full-access" else self._needed(policy).wrap(policy, argv)

    def holding(self, policy: SandboxPolicy, *, keeps_settings: bool = True) -> AbstractContextManager[None]:
        """What must be held from before `wrap` until the command has ended. `keeps_settings`: what changed in the
        settings of opened repositories meanwhile is undone at the end. Not for a program that runs as long as a
        session: people change these settings themselves in that time."""
        if policy.level == "full-access":
            return nullcontext()
        self._needed(policy)
        return kept_settings(policy.git_folders if keeps_settings else ())

    def _needed(self, policy: SandboxPolicy) -> SandboxBackend:
        if self.backend is None:
            raise NotSupported(
                f"No sandbox works here, so nothing can run {policy.level}: {'; '.join(self.problems)}.",
                hint="Install bubblewrap (apt install bubblewrap, dnf install bubblewrap), or choose full-access.",
            )
        return self.backend


@functools.cache
def detect() -> Detection:
    """The best backend of this machine. It is tried once in the life of this process."""
    if sys.platform != "linux":
        return Detection(backend=None, problems=(f"there is no sandbox for {sys.platform} yet",))
    return first_that_works((try_bubblewrap, try_landlock))


def first_that_works(attempts: Sequence[Callable[[], SandboxBackend | str]]) -> Detection:
    """Go through the attempts; each gives a backend or says what is wrong with it."""
    problems: list[str] = []
    for attempt in attempts:
        found = attempt()
        if not isinstance(found, str):
            return Detection(backend=found, problems=tuple(problems))
        problems.append(found)
    return Detection(backend=None, problems=tuple(problems))


def try_bubblewrap(program: str | None = None) -> SandboxBackend | str:
    from makai.tools.sandbox.bubblewrap import Bubblewrap

    program = program or find_program("bwrap", _TRUSTED_FOLDERS, ())
    if program is None:
        found = find_program("bwrap", os.environ.get("PATH", ""), ())
        if found is None:
            return "bubblewrap is not installed"
        program = os.path.realpath(found)
        # It is started outside of every sandbox, and any folder of this user may be one that commands write, in which a
        # link could give the name to another program.
        if is_replaceable(program) or os.path.basename(program) != "bwrap":
            return f"{found} could be replaced by a command, so it is not used (install it as a system package)"
    try:
        backend = Bubblewrap(program)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run: {error}"
    return _tried(backend, f"bubblewrap {backend.version}")


def try_landlock(abi: int | None = None) -> SandboxBackend | str:
    from makai.tools.sandbox.landlock import OLDEST_ABI, Landlock, supported_abi

    found = supported_abi() if abi is None else abi
    if found == 0:
        return "Landlock is missing or switched off in this kernel"
    if found < OLDEST_ABI:
        return f"Landlock ABI {found} is too old (ABI {OLDEST_ABI}, Linux 6.2, is needed)"
    backend = Landlock(found)
    return _tried(backend, f"Landlock {backend.version}")


def _tried(backend: SandboxBackend, shown: str) -> SandboxBackend | str:
    """The backend when it runs `true` confined, else what went wrong."""
    for _ in range(5):  # bubblewrap fails when a socket that it hides, of any program, is removed while it starts
        try:
            done = launcher().run(backend.wrap(_PROBED, ["true"]), timeout_s=_PROBE_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{shown} does not work: {error}"
        if done.returncode == 0:
            return backend
    said = done.stdout.decode("utf-8", "replace").strip()
    return f"{shown} does not work: {said or f'it ended with {done.returncode}'}"
