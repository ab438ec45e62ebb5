"""Commands that only look: what they read, whether that lies in the session's folders, and how they run unasked.

`looked_at` reads a command, as text, by the lists of harmless options. `leads_inside` then asks the file system whether
its paths lead where they seem to. Such a command runs read-only in the sandbox, with `looking_environment`: git's
helpers are switched off there, and `git_helpers` finds those that cannot be switched off.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import posixpath
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from makai.tools.permissions.git_helpers import SWITCHES, find_repository, has_helpers, leads_elsewhere
from makai.tools.permissions.path_patterns import DeniedPaths
from makai.tools.shell_policy.coverage import listed
from makai.tools.shell_policy.harmless_subcommands import SAY_THEIR_VERSION
from makai.tools.shell_policy.option_parsing import OptionList, ParsedArguments
from makai.tools.shell_policy.programs import is_option, program_name
from makai.tools.shell_policy.syntax import SimpleCommand, Word, simple_commands

MAX_ENTRIES: Final = 10_000
_NO_FILE: Final = frozenset({"-", "/dev/null"})
_AFTER_SUCCESS: Final = frozenset({"", "&&", "|"})
_WALKS: Final = frozenset({"ls", "dir", "vdir", "find", "fd", "fdfind", "rg", "ripgrep", "tree", "du", "diff", "sdiff"})
"""Programs that look through folders, through the current one when none is named."""


class LooksAt(msgspec.Struct, frozen=True, kw_only=True):
    """What a command reads. All paths are absolute, as text; `*` and `?` in `globs` are the shell's."""

    paths: tuple[str, ...] = ()
    """Files, and folders of which no more than the names are listed."""
    trees: tuple[str, ...] = ()
    """Folders of which it may show everything below."""
    globs: tuple[str, ...] = ()
    bare_globs: tuple[str, ...] = ()
    """Folders with a pattern that begins with a wildcard: a name there that begins with a dash would be an option."""
    repositories: tuple[str, ...] = ()
    """Where git runs."""
    whole_repository: bool = False
    """git shows files by whatever name they have or had."""


class LookingCalls:
    """The calls that were decided to run unasked because they only look; a call is taken when it runs."""

    def __init__(self, roots: Sequence[str] = ()) -> None:
        self.roots = tuple(roots)
        self._call_ids: set[str] = set()

    def add(self, call_id: str) -> None:
        self._call_ids.add(call_id)

    def take(self, call_id: str) -> bool:
        looks = call_id in self._call_ids
        self._call_ids.discard(call_id)
        return looks


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
        globs=_joined(each.globs for each in found),
        bare_globs=_joined(each.bare_globs for each in found),
        repositories=_joined(each.repositories for each in found),
        whole_repository=any(each.whole_repository for each in found),
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
    globs = _globs(command.words[found.start :], arguments, found.options)
    if globs is None or any(word.is_glob for word in command.words[: found.start]):
        return None
    reads = [path for path in (*arguments.reads, *(word.value for word in command.inputs)) if path not in _NO_FILE]
    if not reads and (command.operator != "|" or name in _WALKS or name == "git") and found.options.operands != "text":
        reads = ["."]
    expanded = set(globs)
    paths = tuple(posixpath.join(directory, path) for path in reads if path not in expanded)
    patterns = tuple(posixpath.join(directory, pattern) for pattern in globs)
    is_recursive = found.options.recursive == "*" or arguments.has(found.options.recursive)
    names_only = found.options.names_only and not is_recursive
    walks = not names_only and (is_recursive or name in _WALKS)
    return LooksAt(
        paths=(directory, *paths),
        trees=(*paths, *patterns) if walks else (),
        globs=patterns,
        bare_globs=(directory,) if any(pattern[0] in "*?" for pattern in globs) else (),
        repositories=(directory,) if name == "git" else (),
        whole_repository=name == "git" and not names_only,
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
    """The same as the file system tells: links may lead elsewhere, and names of files may look like options."""
    try:
        matches = [path for pattern in looks.globs for path in _matches(pattern)]
        if any(name.startswith("-") for folder in looks.bare_globs for name in _names_in(folder)):
            return False
        for path in (*looks.paths, *looks.repositories, *matches):
            real = os.path.realpath(path)
            if not _is_in(roots, real) or unreadable.cover(real):
                return False
            if unreadable.patterns and _has_other_names(real):
                return False
        return all(_is_safe(folder, looks, roots) for folder in looks.repositories)
    except OSError:
        return False


def looking_environment(environ: Mapping[str, str], roots: Sequence[str]) -> dict[str, str]:
    """The environment of a command that runs unasked: no program of the session's folders, no helper of git."""
    folders = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    outside = (folder for folder in folders if not _is_in(roots, os.path.realpath(folder)))
    return {**environ, **SWITCHES, "PATH": ":".join(outside)}


def _is_in(roots: Sequence[str], path: str) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _matches(pattern: str) -> list[str]:
    """What bash makes of a pattern with `*` and `?`; `OSError` when that takes long."""
    paths, left = [""], MAX_ENTRIES
    for part in pattern.split("/")[1:]:
        if "*" not in part and "?" not in part:
            paths = [f"{path}/{part}" for path in paths]
            continue
        found: list[str] = []
        for path in paths:
            names = _names_in(path or "/") if os.path.isdir(path or "/") else []
            left -= len(names)
            if left < 0:
                raise OSError("too many files to look at")
            shown = (name for name in names if part[0] == "." or name[0] != ".")
            found += [f"{path}/{name}" for name in shown if fnmatch.fnmatchcase(name, part)]
        paths = found
    return [path for path in paths if os.path.lexists(path)]


def _names_in(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, MAX_ENTRIES + 1)]
    if len(names) > MAX_ENTRIES:
        raise OSError("too many files to look at")
    return names


def _has_other_names(path: str) -> bool:
    """A hard link: one of its names may be one that may not be read."""
    found = os.stat(path) if os.path.lexists(path) else None
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def _is_safe(folder: str, looks: LooksAt, roots: Sequence[str]) -> bool:
    repository = find_repository(folder)
    if repository is None:
        return True
    if has_helpers(repository) or leads_elsewhere(repository, roots):
        return False
    return not looks.whole_repository or _is_in(roots, repository)
