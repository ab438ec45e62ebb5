"""Confinement by bubblewrap: namespaces and mounts.

What a process sees is built from mounts, outer ones first: the whole system read-only, the writable folders, what is
protected in them read-only again, and nothing at all where something is hidden. It has its own process ids, so it can
neither signal, trace nor look into makai.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from makai.aio.supervisor import CHANNEL
from makai.core.errors import InvalidRequest
from makai.tools.launching import BUBBLEWRAP
from makai.tools.sandbox import limits
from makai.tools.sandbox.policy import SHARED_SCRATCH, SandboxPolicy, is_beneath, temporary_environment

_NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")


class _Mount(IntEnum):
    """What is mounted at a path. Where two are asked for, the higher one is."""

    SCRATCH = 0
    """A folder in memory, gone with the command."""
    DEVICES = 1
    PROCESSES = 2
    WRITABLE = 3
    PINNED = 4
    """As it is. What is mounted on cannot be renamed or removed, so nothing else can be put in its place."""
    READABLE = 5
    HIDDEN = 6


class Bubblewrap:
    """The backend. `program` is a bwrap that was found to work."""

    name = "bubblewrap"

    def __init__(self, program: str) -> None:
        self._program = program
        self.version = _output(program, "--version").removeprefix("bubblewrap").strip()
        offered = _output(program, "--help")
        self._can_disable_user_namespaces = "--disable-userns" in offered
        self._can_set_modes = "--perms" in offered

    @property
    def not_confined(self) -> tuple[str, ...]:
        return (
            *("memory, processor time and disk space", *limits.not_counted()),
            "new files that make later commands run code, while a command runs (they are moved away when it ends)",
            "what a command puts into a folder that it made itself, such as a cloned repository (you see a notice)",
            "services of this machine when the network is on",
        )

    def wrap(self, policy: SandboxPolicy, argv: Sequence[str]) -> list[str]:
        """The command line. Start it from a thread that outlives it: it dies with the thread that started it.
        `InvalidRequest` when a protected path is a symbolic link that nothing can be mounted on."""
        plan = _Plan(policy).mounts
        options = [*_NAMESPACES, "--cap-drop", "ALL", "--die-with-parent", "--new-session"]
        if not policy.network:
            options.append("--unshare-net")
        if self._can_disable_user_namespaces:
            options.append("--disable-userns")
        options += ["--ro-bind", "/", "/", *_mount_options(plan, policy, can_set_modes=self._can_set_modes)]
        for name, value in temporary_environment("/tmp").items():
            options += ["--setenv", name, value]
        most = limits.user_limit(policy.max_processes)
        channel = CHANNEL if policy.is_proxied else ""
        command = [BUBBLEWRAP, str(most), channel, self._program, *options, "--", *argv]
        return limits.in_group(policy.max_processes, command)


def _output(program: str, option: str) -> str:
    return subprocess.run(
        [program, option], capture_output=True, text=True, timeout=10, check=False, env={}, cwd="/"
    ).stdout


def _mount_options(plan: Mapping[str, _Mount], policy: SandboxPolicy, *, can_set_modes: bool) -> Iterator[str]:
    """What is closed is read-only by its mode where possible: bubblewrap reads the list of all mounts again for each
    mount that it closes. Without capabilities that holds for root, and what is there vanishes with the command."""
    closed = ("--perms", "0555") if can_set_modes else ()
    # Parents come before what is in them: a later mount covers an earlier one.
    for path in sorted(plan, key=lambda one: (one.count("/"), one)):
        match plan[path]:
            case _Mount.SCRATCH if path == "/tmp" and policy.private_tmp:
                yield from ("--bind", policy.private_tmp, path)
            case _Mount.SCRATCH:
                yield from ("--tmpfs", path)
            case _Mount.DEVICES:
                yield from ("--dev", path)
            case _Mount.PROCESSES:
                yield from ("--proc", path)
            case _Mount.WRITABLE | _Mount.PINNED:
                yield from ("--bind", path, path)
            case _Mount.READABLE:
                yield from ("--ro-bind", path, path)
            case _Mount.HIDDEN:
                yield from (*closed, "--tmpfs", path) if os.path.isdir(path) else ("--ro-bind", "/dev/null", path)
    # Closed only when everything in them is mounted. /proc too: root may write /proc/sys, where a core_pattern
    # would be a command that the kernel runs outside of every sandbox.
    for path, kind in plan.items():
        is_open = kind == _Mount.HIDDEN and not can_set_modes and os.path.isdir(path)
        if kind == _Mount.PROCESSES or is_open:
            yield from ("--remount-ro", path)


class _Plan:
    def __init__(self, policy: SandboxPolicy) -> None:
        self._policy = policy
        self.mounts = {"/dev": _Mount.DEVICES, "/proc": _Mount.PROCESSES}
        for path in ("/run", *SHARED_SCRATCH):
            if os.path.isdir(path) and not os.path.islink(path):
                self._add(path, _Mount.SCRATCH)
        for path in policy.kept_of_run:
            if os.path.exists(path):
                self._add(path, _Mount.READABLE)
        for path in policy.roots:
            if policy.level == "read-only":
                self._add(path, _Mount.READABLE)
        for path in policy.writable:
            self._add(path, _Mount.WRITABLE)
        for path in policy.protected:
            self._protect(path)
        for path in policy.hidden:
            self._hide(path)

    def _add(self, path: str, kind: _Mount) -> None:
        self.mounts[path] = max(kind, self.mounts.get(path, kind))

    def _writable_folder_of(self, path: str) -> str | None:
        return next((folder for folder in self._policy.writable if is_beneath(path, folder) and path != folder), None)

    def _protect(self, path: str) -> None:
        """Make `path` read-only, and fix every folder on the way to it, so that no other one can take its place. Where
        there is nothing, nothing is mounted: a mount point would have to be made in the project, where people and
        programs see it, and where it stays when makai is killed. `guard` looks after new files."""
        top = self._writable_folder_of(path)
        if top is None:
            return
        for step in _steps(top, path):
            if os.path.islink(step):
                self._protect_link(step, top)
                return
            if not os.path.exists(step):
                return
            if step == path or not os.path.isdir(step):  # a `.git` that is a file names a repository elsewhere
                self._add(step, _Mount.READABLE)
                return
            self._pin(step)

    def _protect_link(self, link: str, top: str) -> None:
        """Nothing can be mounted on a link: the folder that it is in becomes read-only, and so does its target."""
        folder = os.path.dirname(link)
        if folder == top:
            message = f"{link} is a symbolic link, which the sandbox cannot keep from being replaced."
            raise InvalidRequest(message, hint="Put a real file or folder there, or choose --sandbox full-access.")
        self._add(folder, _Mount.READABLE)
        target = os.path.realpath(link)
        if os.path.exists(target):
            self._protect(target)

    def _hide(self, path: str) -> None:
        """Show nothing at `path`. A folder on the way to it must stay too, or what is hidden could be moved away."""
        if not os.path.exists(path):
            return
        if top := self._writable_folder_of(path):
            for step in _steps(top, os.path.dirname(path)):
                self._pin(step)
        self._add(path, _Mount.HIDDEN)

    def _pin(self, step: str) -> None:
        """Keep a folder where it is. In something that is read-only it stays anyway, and must not become writable."""
        if self._kind_at(step) < _Mount.READABLE:
            self._add(step, _Mount.PINNED)

    def _kind_at(self, path: str) -> _Mount:
        """What `path` is a part of. All around the mounts there is the system, read-only."""
        around = [mounted for mounted in self.mounts if is_beneath(path, mounted)]
        return self.mounts[max(around, key=len)] if around else _Mount.READABLE


def _steps(top: str, path: str) -> Iterator[str]:
    """Every folder below `top` on the way to `path`, and `path` itself."""
    step = top
    for name in filter(None, path[len(top) :].split("/")):
        step = os.path.join(step, name)
        yield step
