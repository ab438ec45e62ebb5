"""What a confined process may touch; every backend enforces it.

A policy never depends on the folder in which a model wants to run a command: the model could then choose what it may
write (CVE-2025-59532 was that).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from makai.core.errors import InvalidRequest
from makai.tools.own_code import OWN_CODE, own_code_around
from makai.tools.protected import ALWAYS_READ_ONLY, BARE_REPOSITORY_MARK, settling_folder
from makai.tools.sandbox.hosts import normalised_hosts
from makai.tools.sandbox.repository import closed_in

SandboxLevel: TypeAlias = Literal["read-only", "workspace-write", "full-access"]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GIT_FOLDER: Final = ".git"
"""Protected as a whole: a new `.git/commondir` is enough to have the next `git status` run a program."""

_NEVER_CHECKED_OUT: Final = frozenset(
    {GIT_FOLDER, BARE_REPOSITORY_MARK, "config", "config.worktree", "hooks", "commondir"}
)
"""Repositories below the session's folder, and what runs code in bare ones."""

PROTECTED_IN_USER_HOME: Final = _names(
    ".bashrc .bash_profile .bash_login .bash_logout .profile .zshenv .zprofile .zshrc .zlogin .gitconfig .config/git "
    ".config/fish .config/autostart .config/systemd .local/bin"
)
"""What runs when the user logs in or opens a terminal. It matters only in a session in the home folder."""

CREDENTIALS_IN_USER_HOME: Final = _names(
    ".ssh .gnupg .aws .azure .kube .netrc .git-credentials .npmrc .pypirc .password-store .docker/config.json "
    ".config/gcloud .config/gh .config/github-copilot .claude/.credentials.json .codex/auth.json "
    ".local/share/keyrings .local/share/opencode/auth.json"
)
"""Hidden, and not to be made where they are missing: most of them can name a program to run."""

SECRETS_IN_USER_HOME: Final = _names(
    ".boto .cache/huggingface/token .cargo/credentials.toml .config/chromium .config/containers/auth.json "
    ".config/doctl .config/google-chrome .config/hub .config/op .config/rclone .gem/credentials "
    ".gemini/oauth_creds.json .mozilla .my.cnf .pgpass .s3cfg .terraform.d/credentials.tfrc.json .vault-token"
)
"""Hidden where they are. Browsers are among them: their cookies are keys to the page of makai as well."""

KEPT_OF_RUN: Final = ("/run/current-system", "/run/opengl-driver")
"""The parts of /run that are programs and not sockets (NixOS). The rest of /run is never shown."""

SHARED_SCRATCH: Final = ("/tmp", "/var/tmp")
"""Folders that programs share; a confined process does not see what others left there."""

_CACHES: Final = {"npm_config_cache": "npm", "PIP_CACHE_DIR": "pip", "YARN_CACHE_FOLDER": "yarn", "GOCACHE": "go-build"}
"""Programs that fail, or build everything each time, when they cannot write their cache in the user's home folder."""

_MAX_STEPS: Final = 1_000


def temporary_environment(folder: str) -> dict[str, str]:
    """The variables that name a command's folder for temporary files. Caches in it last as long as the session's."""
    return {"TMPDIR": folder, **{variable: f"{folder}/.cache/{name}" for variable, name in _CACHES.items()}}


class SandboxPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Everything may be read but `hidden`, nothing may be written but `roots`, and no network, unless it says so. All
    paths are absolute and hold no symbolic link, except `protected`: there a link is what must stay as it is."""

    level: SandboxLevel
    roots: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    """Neither read nor written."""
    protected: tuple[str, ...] = ()
    """Beneath `roots`, and read-only. All of them exist; `guard` looks after what a command makes."""
    network: bool = False
    hosts: tuple[str, ...] = ()
    """The hosts that can be reached although `network` is off, in the form of `hosts.normalised_hosts`. None of them
    means no host at all."""
    private_tmp: str | None = None
    """A folder of the session's own that stands in for /tmp."""
    extra_writable: tuple[str, ...] = ()
    git_folders: tuple[str, ...] = ()
    """Repositories that may be written, but not their hooks and configuration (`repository.kept_settings`)."""
    max_processes: int = 1024

    @property
    def is_proxied(self) -> bool:
        """Whether its only way out is the proxy (`proxy.EgressProxy`)."""
        return bool(self.hosts) and not self.network and self.level != "full-access"

    @property
    def kept_of_run(self) -> tuple[str, ...]:
        """What is shown of /run; with network also the file that /etc/resolv.conf leads to, which is often there."""
        return (*KEPT_OF_RUN, *((os.path.realpath("/etc/resolv.conf"),) if self.network else ()))

    @property
    def writable(self) -> tuple[str, ...]:
        """The outermost folders that may be written; those beneath another one are left out."""
        roots = self.roots if self.level != "read-only" else ()
        return outermost((*roots, *self.extra_writable))


def session_policy(
    level: SandboxLevel,
    roots: Iterable[str | Path],
    *,
    makai_home: Path,
    user_home: Path,
    network: bool = False,
    hosts: Iterable[str] = (),
    private_tmp: str | Path | None = None,
    extra_writable: Iterable[str | Path] = (),
    git_folders: Iterable[str] = (),
    guarded: Iterable[str] | None = None,
    own_folders: Iterable[str | Path] = (),
    max_processes: int = 1024,
) -> SandboxPolicy:
    """The policy of a session. `roots` are the session's own, as its creator named them. `guarded` are existing files
    and folders below them that are read-only for commands (`guard.FileGuard.read_only`), `own_folders` those that makai
    itself writes to. `hosts`, `extra_writable` and `git_folders` (of `repository.git_folders_of`) are for a command to
    which a person allowed them."""
    real_roots = tuple(_real_folder(root) for root in roots)
    secrets = [os.path.abspath(path) for path in (makai_home, *credentials_of(user_home))]
    known: dict[str, bool] = {}
    linked = [path for path in secrets if _has_links(path, known)]
    hidden = tuple(os.path.realpath(path) if path in linked else path for path in secrets)
    _check_roots(real_roots, hidden, level)
    extra = tuple(_real_folder(path) for path in extra_writable)
    writable = (*real_roots, *extra)
    repositories = tuple(git_folders)
    names = (*ALWAYS_READ_ONLY, GIT_FOLDER)
    protected = [path for folder in writable for name in names if (path := f"{folder}/{name}") not in repositories]
    if guarded is not None:
        # Nothing can be mounted on a link; the guard puts it back. Never one that settles what makai does.
        protected = [path for path in protected if not _is_guarded_link(path)]
        protected += _guarded(guarded, protected, repositories)
    protected += closed_in(repositories)
    at_risk = [link for path in linked for link in _links_to(path)]
    at_risk += [*_run_at_login(user_home), *OWN_CODE, *map(os.path.realpath, own_folders)]
    protected += [path for path in at_risk if any(is_beneath(path, folder) for folder in writable)]
    return SandboxPolicy(
        level=level,
        roots=real_roots,
        hidden=outermost(hidden),
        protected=tuple(filter(os.path.lexists, protected)),
        network=network,
        hosts=normalised_hosts(hosts),
        private_tmp=_real_folder(private_tmp) if private_tmp is not None else None,
        extra_writable=(*extra, *repositories),
        git_folders=repositories,
        max_processes=max_processes,
    )


def _check_roots(real_roots: Sequence[str], hidden: Sequence[str], level: SandboxLevel) -> None:
    """`InvalidRequest` for a folder that no session may have."""
    for root in real_roots:
        if holder := next((path for path in hidden if is_beneath(root, path)), None):
            message = f"{root} cannot be a session's folder: {holder} holds secrets that no tool may see."
            raise InvalidRequest(message, hint="Start in another folder.")
    for root in real_roots if level == "workspace-write" else ():
        if holder := settling_folder(root):
            message = f"{root} cannot be written by commands: what is in {holder} makes other programs run code."
            raise InvalidRequest(message, hint="Start in another folder, or read-only.")
        if holder := own_code_around(root):
            message = f"{root} cannot be written by commands: makai itself runs code from {holder}."
            raise InvalidRequest(message, hint="Start in another folder, or read-only.")


def credentials_of(user_home: Path) -> tuple[Path, ...]:
    """Where the user's programs keep what others must not have."""
    others = (name for name in SECRETS_IN_USER_HOME if os.path.lexists(f"{user_home}/{name}"))
    return tuple(user_home / name for name in (*CREDENTIALS_IN_USER_HOME, *others))


def _run_at_login(user_home: Path) -> Iterator[str]:
    real_home = os.path.realpath(user_home)
    return (os.path.join(real_home, name) for name in PROTECTED_IN_USER_HOME)


def not_to_be_made(user_home: Path) -> frozenset[str]:
    """What a command in the user's home folder must not make where it is missing, whatever its name (`guard`)."""
    credentials = map(os.path.realpath, credentials_of(user_home))
    return frozenset(path for path in (*credentials, *_run_at_login(user_home)) if not os.path.lexists(path))


def _has_links(path: str, known: dict[str, bool]) -> bool:
    """Whether there is a symbolic link on the way to `path`; `known` are earlier answers, also for folders above."""
    if path not in known:
        above = os.path.dirname(path)
        known[path] = above != path and (_has_links(above, known) or os.path.islink(path))
    return known[path]


def _links_to(path: str) -> Iterator[str]:
    """The symbolic links on the way to `path`. Who replaced one would have another folder taken for what is hidden."""
    real, waiting = "/", path.split("/")[:0:-1]
    for _ in range(_MAX_STEPS):
        if not waiting:
            return
        step = os.path.normpath(os.path.join(real, waiting.pop()))
        try:
            target = os.readlink(step)
        except OSError:  # no link
            real = step
            continue
        yield step
        real = "/" if target.startswith("/") else real
        waiting += filter(None, target.split("/")[::-1])


def _is_guarded_link(path: str) -> bool:
    return os.path.islink(path) and os.path.basename(path) not in (".makai", GIT_FOLDER)


def _guarded(paths: Iterable[str], known: Collection[str], opened: Sequence[str]) -> Iterator[str]:
    """A command that may change a repository has to write what git checks out; repositories are not checked out."""
    for path in sorted(set(paths).difference(known, opened)):
        if not opened or os.path.basename(path) in _NEVER_CHECKED_OUT:
            yield path


def _real_folder(path: str | Path) -> str:
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise InvalidRequest(f"{path} is not a folder.")
    return real


def is_beneath(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or inside it. "/srv/app-secret" is not inside "/srv/app"."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for path in sorted(set(paths), key=lambda one: (one.count("/"), one)):
        if not any(is_beneath(path, other) for other in kept):
            kept.append(path)
    return tuple(kept)
