"""Programs that git runs because a repository's configuration says so.

git status, diff and log run file system monitors, filters, text converters and others that `.git/config` names. Most
can be switched off by the environment; clean filters, text converters and external diffs cannot. So a repository counts
as safe only when every line of its configuration is known to be harmless, the same holds for its submodules, and all
files that git reads for it are its own.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from makai.tools.permissions.git_credentials import address_has_credentials
from makai.tools.permissions.git_repository import (
    GITLINK,
    Repository,
    UnusualRepository,
    has_links,
    read_text,
    repository_at,
    tracked_paths,
)
from makai.tools.sandbox.policy import is_beneath

_CONFIG: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "core.alternateRefsCommand": "false",
    "diff.submodule": "short",  # anything else looks into submodules that only the history names
    "gpg.program": "false",
    "index.threads": "1",  # several threads find entries by an extension of the index that need not agree with it
    "log.showSignature": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
}


def _as_variables(config: Mapping[str, str]) -> dict[str, str]:
    return {
        "GIT_CONFIG_COUNT": str(len(config)),
        **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(config)},
        **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(config.values())},
    }


SWITCHES: Final[Mapping[str, str]] = {
    **_as_variables(_CONFIG),
    "GIT_OPTIONAL_LOCKS": "0",  # git status would write the index, and run a hook then
    "GIT_NO_LAZY_FETCH": "1",
    "LESSSECURE": "1",
}
"""For git 2.31 and newer; what older ones do is left to the sandbox."""
WITHOUT_OWN_CONFIGURATION: Final[Mapping[str, str]] = {
    **SWITCHES,
    **_as_variables({**_CONFIG, "safe.directory": "*"}),  # the repository was checked, so its owner does not matter
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""For commands that show addresses: `url.*.insteadOf` of the user's own configuration may put a token into them. For
git 2.32 and newer."""

_SECTION: Final = re.compile(r'\[([A-Za-z0-9-]+)(?:[ \t]+"(?:[^"\\]|\\["\\])*")?\]')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*(.*))?")
_WORKTREE: Final = ("core", "worktree")
_QUOTING: Final = frozenset('"\\#;')


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
    | _keys("extensions", "noop worktreeconfig refstorage relativeworktrees")
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


def is_ordinary(repository: Repository, roots: Sequence[str]) -> bool:
    """Whether git runs no program for it and reads nothing but its files, which are in the roots or beside its working
    tree. False also when that cannot be told. Reads files."""
    try:
        for folder in {repository.folder, repository.common}:
            if has_links(folder) or os.path.lexists(folder / "objects/info/alternates"):
                return False
        settings = list(_settings(repository))
        if not all(_is_harmless(repository, *setting) for setting in settings):
            return False
        if not _has_own_files(repository, roots) and not _belongs_to_top(repository, settings):
            return False
        return _has_ordinary_tree(repository, roots)
    except (OSError, ValueError):
        return False


def has_credentials(repository: Repository) -> bool:
    """Whether an address in its configuration holds a password or token. Reads files."""
    return any(map(address_has_credentials, _configurations(repository)))


def _has_own_files(repository: Repository, roots: Sequence[str]) -> bool:
    inside = (*roots, str(repository.top))
    return all(
        any(is_beneath(str(folder), root) for root in inside) for folder in (repository.folder, repository.common)
    )


def _belongs_to_top(repository: Repository, settings: Sequence[tuple[str, str, str]]) -> bool:
    """A `.git` file and a `commondir` may name any repository; that of a submodule or worktree names it in turn."""
    if repository.folder == repository.common:
        return any(setting[:2] == _WORKTREE for setting in settings)
    named = read_text(repository.folder / "gitdir").rstrip("\r\n")
    is_named = os.path.realpath(repository.folder / named) == str(repository.top / ".git")
    return is_named and repository.folder.parent == repository.common / "worktrees"


def _has_ordinary_tree(repository: Repository, roots: Sequence[str]) -> bool:
    """git status and diff look into submodules, which have a configuration of their own, and git grep follows a link
    where the index has a folder."""
    folders: set[str] = set()
    for mode, path in tracked_paths(repository):
        if mode == GITLINK and not _is_ordinary_submodule(repository.top / path, roots):
            return False
        folder = path if mode == GITLINK else path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return not any(os.path.islink(f"{repository.top}/{folder}") for folder in folders)


def _is_ordinary_submodule(top: Path, roots: Sequence[str]) -> bool:
    return not os.path.lexists(top / ".git") or is_ordinary(repository_at(top), roots)


def _settings(repository: Repository) -> Iterator[tuple[str, str, str]]:
    """Section, key and value, as written, of everything in its configuration."""
    return itertools.chain.from_iterable(map(_parsed, _configurations(repository)))


def _configurations(repository: Repository) -> Iterator[str]:
    for folder in {repository.folder, repository.common}:
        for name in ("config", "config.worktree"):
            if os.path.lexists(folder / name):
                yield read_text(folder / name)


def _parsed(config: str) -> Iterator[tuple[str, str, str]]:
    section = ""
    for written in config.split("\n"):
        line = written.strip(" \t\r")
        if not line or line[0] in "#;":
            continue
        if matched := _SECTION.fullmatch(line):
            section = matched[1].lower()
            continue
        key = None if line.endswith("\\") else _KEY.fullmatch(line)
        if key is None:
            raise UnusualRepository("its configuration is not written as git writes it")
        yield section, key[1].lower(), key[2] or ""


def _is_harmless(repository: Repository, section: str, key: str, value: str) -> bool:
    if (section, key) == _WORKTREE:  # of a submodule
        is_plain = bool(value) and _QUOTING.isdisjoint(value)
        return is_plain and os.path.realpath(repository.folder / value) == str(repository.top)
    return (section, key) in _HARMLESS_KEYS
