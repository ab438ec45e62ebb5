"""Commands that only look: what they read, whether that lies in the session's folders, and how they run unasked.

`looked_at` reads a command, as text, by the lists of harmless options. `leads_inside` then asks the file system whether
its paths lead where they seem to. Such a command runs read-only in the sandbox, with `looking_environment`: git's
helpers are switched off there, and `git_helpers` finds those that cannot be switched off.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from makai.core.programs import folders_outside
from makai.tools.permissions.bounded_walk import (
    Budget,
    may_match,
    may_show_denied,
    real_matches,
    real_path,
)
from makai.tools.permissions.git_credentials import holds_credentials, search_shows_credentials
from makai.tools.permissions.git_helpers import SWITCHES, WITHOUT_OWN_CONFIGURATION, has_credentials, is_ordinary
from makai.tools.permissions.git_repository import find_repository
from makai.tools.permissions.path_patterns import DeniedPaths
from makai.tools.shell_policy.coverage import listed
from makai.tools.shell_policy.harmless_subcommands import SAY_THEIR_VERSION
from makai.tools.shell_policy.option_parsing import OptionList, ParsedArguments
from makai.tools.shell_policy.programs import is_option, program_name
from makai.tools.shell_policy.syntax import SimpleCommand, Word, simple_commands

_NO_FILE: Final = "/dev/null"
_AFTER_SUCCESS: Final = frozenset({"", "&&", "|"})
_WALKS: Final = frozenset({"ls", "dir", "vdir", "find", "fd", "fdfind", "rg", "ripgrep", "tree", "du", "diff", "sdiff"})
"""Programs that look through folders, through the current one when none is named."""
_FOLLOWS_LINKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ls", "dir", "vdir"), "L dereference"),
    **dict.fromkeys(("diff", "sdiff"), "*"),
}
"""The options, `*` for none at all, with which a program shows where the links lead that are in a folder it gets."""
_MAY_BE_NO_FILE: Final = re.compile(r"[-+@]|.*=", re.DOTALL)
"""Names that a program may take for an option, a response file or an assignment."""

# fmt: off
_KEPT_VARIABLES: Final = frozenset({
    "AI_AGENT", "COLUMNS", "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "HOME", "LANG",
    "LANGUAGE", "LINES", "LOGNAME", "NO_COLOR", "PAGER", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV",
})
"""No program loads code because of them."""
_FOLDER_VARIABLES: Final = frozenset({
    "CARGO_HOME", "GOPATH", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "RBENV_ROOT", "RUSTUP_HOME",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
})
# fmt: on
"""Programs find their parts or their settings there, so they are kept only when they name nothing in the session's
folders."""


class LooksAt(msgspec.Struct, frozen=True, kw_only=True):
    """What a command reads. All paths are absolute, as text; `*` and `?` in `globs` are the shell's."""

    paths: tuple[str, ...] = ()
    """Files, and folders of which no more than the names are listed."""
    trees: tuple[str, ...] = ()
    """Folders of which it may show everything below."""
    searched: tuple[str, ...] = ()
    """Those of `trees` of which it shows more than names."""
    with_git: tuple[str, ...] = ()
    """Those of `searched` of which it does not pass `.git` by."""
    followed: tuple[str, ...] = ()
    """Folders of which it shows where the links in them lead."""
    globs: tuple[str, ...] = ()
    bare_globs: tuple[str, ...] = ()
    """Patterns that begin with a wildcard, up to the first slash: a name like `-o` there would be an option."""
    repositories: tuple[str, ...] = ()
    """Where git runs."""
    whole_repository: bool = False
    """git shows files by whatever name they have or had."""
    shows_addresses: bool = False
    """git shows addresses of remotes, which may hold credentials."""


class LookingCalls:
    """The calls that were decided to run unasked because they only look; a call is taken when it runs."""

    def __init__(self, roots: Sequence[str] = ()) -> None:
        self.roots = tuple(roots)
        self._calls: dict[str, LooksAt] = {}

    def add(self, call_id: str, looks_at: LooksAt) -> None:
        self._calls[call_id] = looks_at

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def take(self, call_id: str) -> LooksAt | None:
        return self._calls.pop(call_id, None)


def looked_at(text: str, directory: str) -> LooksAt | None:
    """What `text`, run in `directory`, reads; None when it is not known to do nothing else."""
    commands = simple_commands(text)
    if commands is None:
        return None
    moves = any(command.words[0].source == "cd" for command in commands)
    if moves and any(command.operator not in _AFTER_SUCCESS for command in commands):
        return None  # what follows a `cd` that failed runs elsewhere
    found: list[LooksAt] = []
    for command, after in itertools.zip_longest(commands, commands[1:]):
        if command.words[0].source == "cd":
            if command.operator == "|" or after is None or after.operator != "&&" or len(command.words) != 2:
                return None
            target = command.words[1]
            if target.is_glob or is_option(target.value) or target.value in ("", "-"):
                return None
            if ".." in target.value.split("/"):
                return None  # after a link, bash and other programs go to different folders
            directory = posixpath.join(directory, target.value)
            found.append(LooksAt(paths=(directory,)))
        elif (each := _looked_at(command, directory)) is not None:
            found.append(each)
        else:
            return None
    return LooksAt(
        paths=_joined(each.paths for each in found),
        trees=_joined(each.trees for each in found),
        searched=_joined(each.searched for each in found),
        with_git=_joined(each.with_git for each in found),
        followed=_joined(each.followed for each in found),
        globs=_joined(each.globs for each in found),
        bare_globs=_joined(each.bare_globs for each in found),
        repositories=_joined(each.repositories for each in found),
        whole_repository=any(each.whole_repository for each in found),
        shows_addresses=any(each.shows_addresses for each in found),
    )


def _joined(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))


def _looked_at(command: SimpleCommand, directory: str) -> LooksAt | None:
    values = [word.value for word in command.words]
    name = program_name(values[0])
    if command.words[0].source != values[0] or "/" in values[0]:
        return None
    if values[1:] == ["--version"] and name in SAY_THEIR_VERSION:
        return LooksAt()
    found = listed(values)
    arguments = found.options.read(values[found.start :]) if found is not None and found.options.looks else None
    if found is None or arguments is None or arguments.writes or arguments.has(found.options.asks_to_look):
        return None
    if found.options.must_have_to_look and not arguments.has(found.options.must_have_to_look):
        return None
    globs = _globs(command.words[found.start :], arguments, found.options)
    if globs is None or any(word.is_glob for word in command.words[: found.start]):
        return None
    expanded = set(globs)
    reads = (*arguments.reads, *(word.value for word in command.inputs))
    # `-` too: most programs take it for their input, some for a file of that name, and after `<` it is one.
    paths = [posixpath.join(directory, path) for path in reads if path != _NO_FILE and path not in expanded]
    patterns = [posixpath.join(directory, pattern) for pattern in globs]
    is_recursive = found.options.recursive == "*" or arguments.has(found.options.recursive)
    names_only = found.options.names_only and not is_recursive
    walks = not names_only and (is_recursive or name in _WALKS)
    following = _FOLLOWS_LINKS.get(name, "")
    follows = following == "*" or arguments.has(following)
    if follows and is_recursive:
        return None
    # Without an operand such a program walks the current folder, also behind a pipe (`grep -r`).
    named = (*paths, *patterns) if arguments.files else (directory, *paths, *patterns)
    searched = named if walks and not found.options.names_only else ()
    skips_git = found.options.skips_git is not None and found.options.skips_git(arguments)
    return LooksAt(
        paths=(directory, *paths),
        trees=named if walks else (),
        searched=searched,
        with_git=() if skips_git else searched,
        followed=named if follows else (),
        globs=tuple(patterns),
        bare_globs=tuple(posixpath.join(directory, glob.partition("/")[0]) for glob in globs if glob[0] in "*?"),
        repositories=(directory,) if name == "git" else (),
        whole_repository=name == "git" and not names_only,
        shows_addresses=found.options.shows_addresses == "*" or arguments.has(found.options.shows_addresses),
    )


def _globs(words: Sequence[Word], arguments: ParsedArguments, options: OptionList) -> list[str] | None:
    """The operands that the shell makes names of files out of; None when it might make anything else of a word."""
    found: list[str] = []
    places, texts = set(arguments.places), set(arguments.texts)
    for index, word in enumerate(words):
        if not word.is_glob:
            continue
        if is_option(word.value):
            # `--include=*.py` can only become words that begin so.
            name, _, value = word.source.partition("=")
            if "*" in name or "?" in name or not name.startswith("--") or value in arguments.reads:
                return None
        elif options.max_operands is not None or index not in places or word.value in texts:
            return None
        else:
            found.append(word.value)
    return None if any("[" in pattern for pattern in found) else found


def is_allowed(looks: LooksAt, roots: Sequence[str], unreadable: DeniedPaths) -> bool:
    """Whether all of it lies in the roots and nothing of it may not be read, as text tells."""
    paths = (*looks.paths, *looks.trees, *looks.repositories, *looks.globs)
    if not all(_is_in(roots, posixpath.normpath(path)) for path in paths):
        return False
    if unreadable.patterns and looks.whole_repository:
        return False
    return not any(map(unreadable.cover, paths)) and not any(map(unreadable.may_be_below, looks.trees))


def leads_inside(looks: LooksAt, roots: Sequence[str], unreadable: DeniedPaths) -> bool:
    """The same as the file system tells: links may lead elsewhere, and names of files may look like options.

    False too when that takes long to find out. Runs in the process that judges, for it waits for the file system.
    """
    budget = Budget()
    try:
        if any(_may_become_no_file(pattern, budget) for pattern in looks.bare_globs):
            return False
        matches = {pattern: real_matches(pattern, budget) for pattern in looks.globs}

        def resolved(paths: Iterable[str]) -> Iterator[str]:
            for path in paths:
                for real in matches.get(path) or [os.path.realpath(path)]:
                    budget.spend()
                    yield real

        files = [*resolved((*looks.paths, *looks.repositories, *looks.globs))]
        targets = (target for folder in resolved(looks.followed) for target in _link_targets(folder, budget))
        for real in itertools.chain(files, targets):
            if not _is_in(roots, real) or unreadable.cover(real):
                return False
        if any(map(unreadable.may_be_below, resolved(looks.trees))):
            return False
        searched = [*resolved(looks.searched)]
        if may_show_denied(files, searched, unreadable, budget):
            return False
        with_git = {*resolved(looks.with_git)}
        if any(map(holds_credentials, files)) or any(
            search_shows_credentials(folder, budget, skips_git=folder not in with_git) for folder in searched
        ):
            return False
        return all(_is_safe(folder, looks, roots) for folder in looks.repositories)
    except OSError:
        return False


def _may_become_no_file(pattern: str, budget: Budget) -> bool:
    folder, _, part = pattern.rpartition("/")
    names = (entry.name for entry in budget.entries(folder or "/"))
    return any(_MAY_BE_NO_FILE.match(name) and may_match(name, part) for name in names)


def _link_targets(folder: str, budget: Budget) -> Iterator[str]:
    return (real_path(entry.path, budget) for entry in budget.entries(folder) if entry.is_symlink())


def looking_environment(
    environ: Mapping[str, str], roots: Sequence[str], *, shows_addresses: bool = False
) -> dict[str, str]:
    """The environment of a command that runs unasked: no code of the session's folders, no helper of git. Only known
    variables are kept, since many make a program load code (LD_LIBRARY_PATH, PYTHONPATH, NODE_PATH)."""
    switches = WITHOUT_OWN_CONFIGURATION if shows_addresses else SWITCHES
    kept = {name: value for name, value in environ.items() if name in _KEPT_VARIABLES or name.startswith("LC_")}
    for name in _FOLDER_VARIABLES & environ.keys():
        if folders_outside(environ[name], roots) == environ[name]:
            kept[name] = environ[name]
    return {**kept, **switches, "PATH": folders_outside(environ.get("PATH", ""), roots)}


def _is_in(roots: Sequence[str], path: str) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _is_safe(folder: str, looks: LooksAt, roots: Sequence[str]) -> bool:
    try:
        repository = find_repository(folder)
    except ValueError:
        return False
    if repository is None:
        return True
    if not is_ordinary(repository, roots) or (looks.shows_addresses and has_credentials(repository)):
        return False
    return not looks.whole_repository or _is_in(roots, str(repository.top))
