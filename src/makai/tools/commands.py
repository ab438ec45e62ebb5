"""Commands on this machine: confined by an injected `wrap`, supervised, with a scrubbed environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from fnmatch import fnmatchcase
from typing import Final, Protocol

from makai.aio.child_process import ChildProcess
from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.errors import InvalidRequest
from makai.tools.file_errors import FileRefused
from makai.tools.hidden import path_of
from makai.tools.launching import launcher
from makai.tools.permissions.confinement import named_hosts
from makai.tools.ports import CommandRequest
from makai.tools.sandbox.guard import FileGuard, GuardedWork
from makai.tools.sandbox.proxy import EgressProxy
from makai.tools.sandbox.proxy_clients import proxy_environment
from makai.tools.workspace import Place, Workspace


class Confine(Protocol):
    def __call__(
        self, argv: Sequence[str], opened: Confinement = SESSION_SANDBOX, *, read_only: bool = False
    ) -> AbstractContextManager[Sequence[str]]:
        """The argument vector that starts `argv` in the sandbox; hold it until the command has ended."""


def nothing_opened(wanted: Confinement, directory: str) -> Confinement:
    if wanted.opens:
        raise InvalidRequest("Nothing can be opened for a command here.")
    return wanted


# fmt: off
_NAMES = frozenset({
    "CARGO_HOME", "COLUMNS", "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "GEM_HOME", "GEM_PATH", "GOBIN", "GOFLAGS",
    "GOPATH", "GOROOT", "HOME", "JAVA_HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LINES", "LOGNAME",
    "NODE_EXTRA_CA_CERTS", "NODE_PATH", "NVM_DIR", "PATH", "PKG_CONFIG_PATH", "PYENV_ROOT", "PYTHONPATH",
    "RBENV_ROOT", "REQUESTS_CA_BUNDLE", "RUSTUP_HOME", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TERM",
    "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
})
# fmt: on
BLOCKLIST_VARIABLE: Final = "AGENT_ENV_BLOCKLIST"
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
TERMINAL_ENVIRONMENT: Final = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1"} | {
    "AI_AGENT": "makai"
}
"""Nothing may page, prompt or paint, also in a terminal. Programs can tell for whom they run."""
_SET: Final = {"TERM": "dumb", **TERMINAL_ENVIRONMENT}


def without_blocked(environ: Mapping[str, str]) -> Mapping[str, str]:
    """`environ` without the variables that AGENT_ENV_BLOCKLIST names: patterns with `*`, separated by commas or spaces.
    No command and no agent gets them from us; what a spec sets itself is merged later (DM-SPEC-011)."""
    patterns = environ.get(BLOCKLIST_VARIABLE, "").replace(",", " ").split()
    if not patterns:
        return environ
    return {
        name: value for name, value in environ.items() if not any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command may see of our environment: what programs need to run, and no secret. An allow list: a variable
    that is not known stays here."""
    kept = {name: value for name, value in without_blocked(environ).items() if _is_harmless(name, value)}
    libraries = kept.pop("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    if absolute := ":".join(filter(os.path.isabs, libraries)):
        kept["LD_LIBRARY_PATH"] = absolute  # an empty part, mostly an accident, would be the current folder
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **kept, **_SET}


def _is_harmless(name: str, value: str) -> bool:
    if name.upper() in _PROXIES:
        # A proxy's address may carry a password.
        return "@" not in value
    return name in _NAMES or name.startswith("LC_")


async def start_proxied(
    argv: Sequence[str], proxy: EgressProxy, *, environ: Mapping[str, str], directory: int
) -> ChildProcess:
    """Start a command whose only way out is `proxy`. `argv` comes from a sandbox whose policy names hosts."""
    ours, theirs = socket.socketpair()
    proxy.serve_through(ours)
    with theirs:
        return await ChildProcess.start(
            argv,
            env=proxy_environment(environ),
            cwd=directory,
            launcher=launcher(),
            takes_input=False,
            merge_stderr=True,
            channel=theirs.fileno(),
        )


async def _started(
    argv: Sequence[str], proxy: EgressProxy | None, request: CommandRequest, directory: int
) -> ChildProcess:
    if proxy is not None:
        return await start_proxied(argv, proxy, environ=request.environ, directory=directory)
    return await ChildProcess.start(
        argv, env=request.environ, cwd=directory, launcher=launcher(), takes_input=False, merge_stderr=True
    )


class LocalCommands:
    def __init__(
        self,
        workspace: Workspace,
        *,
        confined: Confine,
        is_confined: bool = True,
        guard: FileGuard | None = None,
        resolved: Callable[[Confinement, str], Confinement] = nothing_opened,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`guard` looks after the protected files while a command runs. `resolved` says what a confinement opens for a
        command in a folder (`sandbox.opening.resolved`). `environ` may name the user's own proxy, through which named
        hosts are then reached."""
        self._workspace = workspace
        self._confined = confined
        self._resolved = resolved
        self._environ = environ
        self.is_confined = is_confined
        self._guard = guard

    def opened(self, wanted: Confinement, directory: Place) -> Confinement:
        return self._resolved(wanted, directory.absolute)

    async def start(self, request: CommandRequest) -> _LocalCommand:
        directory = self._opened(request.directory)
        with ExitStack() as held:
            held.callback(os.close, directory)
            kept = held.enter_context(ExitStack())
            opened = request.confinement
            guard = None if opened.unsandboxed or request.read_only else self._guard
            work = GuardedWork(guard, opened.folders, keeps_new=opened.git)
            proxy = EgressProxy(hosts, environ=self._environ) if (hosts := named_hosts(opened)) else None
            await work.begin()
            try:
                argv = kept.enter_context(self._confined(request.argv, opened, read_only=request.read_only))
                child = await _started(argv, proxy, request, directory)
            except BaseException as error:
                await work.end()  # it may have run for a moment
                if proxy is not None:
                    await proxy.close()
                if isinstance(error, OSError):
                    raise InvalidRequest(f"The command could not be started: {error.strerror}.") from None
                raise
            return _LocalCommand(child, kept.pop_all(), work, proxy)

    def _opened(self, place: Place) -> int:
        """The folder that rules and people were shown: a link on the way may have been turned since."""
        directory = self._workspace.open_directory(place.absolute)
        if path_of(directory) != place.absolute:
            os.close(directory)
            raise FileRefused(f"{place.shown} was moved while the command was started. Nothing was done.")
        return directory


class _LocalCommand:
    notice = ""

    def __init__(self, child: ChildProcess, held: ExitStack, work: GuardedWork, proxy: EgressProxy | None) -> None:
        self._child = child
        self._held = held
        self._work = work
        self._proxy = proxy
        self.take_notices = work.take_notices
        self.read, self.wait, self.kill = child.read, child.wait, child.kill

    async def stop(self) -> int:
        try:
            return await self._child.stop()
        finally:
            self._held.close()
            if self._proxy is not None:
                self.notice = self._proxy.notice()
                await self._proxy.close()
            await self._work.end()
