"""Programs that git runs because a repository's configuration says so.

git status, diff and log run file system monitors, filters, text converters and others that `.git/config` names. Most
can be switched off by the environment; clean filters and text converters cannot. So a repository counts as safe only
when every line of its configuration is known to be harmless.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from makai.tools.sandbox.policy import is_beneath

_CONFIG: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "core.alternateRefsCommand": "false",
    "diff.external": "",
    "gpg.program": "false",
    "log.showSignature": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
}
SWITCHES: Final[Mapping[str, str]] = {
    "GIT_CONFIG_COUNT": str(len(_CONFIG)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_CONFIG)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_CONFIG.values())},
    "GIT_OPTIONAL_LOCKS": "0",  # git status would write the index, and run a hook then
    "GIT_NO_LAZY_FETCH": "1",
    "LESSSECURE": "1",
}
"""For git 2.31 and newer; what older ones do is left to the sandbox."""

MAX_CONFIG_BYTES: Final = 256 * 1024
_SECTION: Final = re.compile(r'\[([A-Za-z0-9-]+)(?:[ \t]+"(?:[^"\\]|\\["\\])*")?\]')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=.*)?")


def _keys(section: str, names: str) -> set[tuple[str, str]]:
    return {(section, name) for name in names.split()}


_HARMLESS_KEYS: Final = frozenset(  # git-config(1) of git 2.39
    _keys(
        "core",
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol "
        "safecrlf quotepath protecthfs protectntfs abbrev compression bigfilethreshold longpaths untrackedcache "
        "preloadindex commentchar whitespace trustctime checkstat sharedrepository",
    )
    | _keys("remote", "url fetch pushurl push prune prunetags tagopt gh-resolved")
    | _keys("branch", "remote merge rebase pushremote description vscode-merge-base gh-merge-base autosetupmerge")
    | _keys("user", "name email useconfigonly signingkey")
    | _keys("extensions", "objectformat noop worktreeconfig refstorage")
    | _keys("submodule", "url active")
    | _keys("diff", "renames renamelimit algorithm mnemonicprefix noprefix colormoved context indentheuristic")
    | _keys("pull", "rebase ff")
    | _keys("push", "default autosetupremote followtags")
    | _keys("fetch", "prune prunetags parallel")
    | _keys("merge", "conflictstyle ff renamelimit")
    | _keys("rebase", "autostash autosquash updaterefs")
    | _keys("commit", "gpgsign verbose status")
    | _keys("tag", "gpgsign sort")
    | _keys("status", "short branch showuntrackedfiles showstash")
    | _keys("log", "date decorate follow abbrevcommit")
    | _keys("gc", "auto autodetach pruneexpire")
    | _keys("init", "defaultbranch")
    | _keys("color", "ui status diff branch interactive")
    | _keys("advice", "detachedhead statushints skippedcherrypicks")
    | _keys("lfs", "repositoryformatversion")
    | _keys("index", "version threads")
    | _keys("maintenance", "auto strategy")
    | _keys("rerere", "enabled autoupdate")
)


def find_repository(folder: str) -> str | None:
    """The folder with `.git` that git would use from here; None when there is none."""
    start = Path(os.path.realpath(folder))
    return next((str(path) for path in (start, *start.parents) if os.path.lexists(path / ".git")), None)


def has_helpers(repository: str) -> bool:
    """Whether something in its configuration may run a program; also when that cannot be told. Reads files."""
    try:
        git_folders = list(_git_folders(Path(repository) / ".git"))
        if any(os.path.lexists(folder / "modules") for folder in git_folders):
            return True  # git looks into submodules, which have a configuration of their own
        files = [folder / name for folder in git_folders for name in ("config", "config.worktree")]
        return not all(_is_harmless(_text(file)) for file in files if os.path.lexists(file))
    except (OSError, ValueError):
        return True


def leads_elsewhere(repository: str, roots: Sequence[str]) -> bool:
    """Whether its files are those of another repository: a `.git` file or link, or a `commondir`, may name any folder.
    A worktree is an exception when its repository knows of it. Reads files."""
    git = Path(repository) / ".git"
    try:
        folders = list(_git_folders(git))
        if any(os.path.lexists(folder / "objects/info/alternates") for folder in folders):
            return True
        inside = (*roots, repository)
        if all(any(is_beneath(os.path.realpath(folder), root) for root in inside) for folder in folders):
            return False
        known = folders[0] / "gitdir"
        return git.is_symlink() or not git.is_file() or os.path.realpath(_text(known).strip()) != os.path.realpath(git)
    except (OSError, ValueError):
        return True


def _git_folders(git: Path) -> Iterator[Path]:
    """The folder of a repository, and the one that its worktree shares with others."""
    folder = git
    if not git.is_dir():
        first, _, path = _text(git).partition(" ")
        if first != "gitdir:":
            raise ValueError("not the .git file of a worktree")
        folder = git.parent / path.strip()
    yield folder
    if os.path.lexists(common := folder / "commondir"):
        yield folder / _text(common).strip()


def _text(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        data = file.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise ValueError("too large to be read")
    return data.decode("utf-8")


def _is_harmless(config: str) -> bool:
    section = ""
    for written in config.split("\n"):
        line = written.strip(" \t\r")
        if not line or line[0] in "#;":
            continue
        if matched := _SECTION.fullmatch(line):
            section = matched[1].lower()
            continue
        key = None if line.endswith("\\") else _KEY.fullmatch(line)
        if key is None or (section, key[1].lower()) not in _HARMLESS_KEYS:
            return False
    return True
