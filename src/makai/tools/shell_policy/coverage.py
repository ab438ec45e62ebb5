"""Whether what an allow rule leaves open is harmless, by the lists of known options.

A rule's own words were written by a person and count as they are; `:*` leaves further words open, and those must be in
the lists. A program without a list is one that a person allowed by name: it gets plain operands, for its options are
not known. A rule for a program that runs another one counts only if it names that one too. No rule covers a write to a
file that makes later commands run code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from makai.tools.protected import HOLDERS, is_protected
from makai.tools.shell_policy.harmless_options import HARMLESS
from makai.tools.shell_policy.harmless_subcommands import GIT_LEADING, SUBCOMMANDS, TOOLS
from makai.tools.shell_policy.launchers import inner_program, launches
from makai.tools.shell_policy.option_checks import is_package
from makai.tools.shell_policy.option_parsing import OptionList
from makai.tools.shell_policy.programs import (
    CHANGES_THE_SHELL,
    INTERPRETERS,
    LAUNCHERS,
    PACKAGE_MANAGERS,
    READS_ITS_PROGRAM,
    SHELLS,
    WRAPPERS,
    program_name,
)

_PLAIN_OPERAND: Final = re.compile(r"[\w./][\w./@%,^~+-]*")
_TAKE_ARGUMENTS_FROM_INPUT: Final = frozenset({"xargs", "parallel"})


class Listed(NamedTuple):
    options: OptionList
    start: int
    """Where the arguments begin that the options describe."""


def listed(words: Sequence[str]) -> Listed | None:
    """The list for a command; None when its program or subcommand has none."""
    name = program_name(words[0])
    options = HARMLESS.get(name) or TOOLS.get(name)
    if options is not None:
        return Listed(options, 1)
    subcommands = SUBCOMMANDS.get(name)
    if subcommands is None:
        return None
    start = 1
    while name == "git" and start < len(words) and words[start] in GIT_LEADING:
        start += 1
    for count in (2, 1):
        key = " ".join(words[start : start + count])
        if count <= len(words) - start and key in subcommands:
            return Listed(subcommands[key], start + count)
    return Listed(subcommands.get("", OptionList(max_operands=0)), start)


def is_harmless(words: Sequence[str], fixed: int) -> bool:
    """Whether the words after the first `fixed` ones, which a rule leaves open, are known to be harmless."""
    name = program_name(words[0])
    if name in CHANGES_THE_SHELL:
        return False
    if name == "python" and words[1:2] == ["-m"]:
        return fixed > 2 and is_harmless(words[2:], fixed - 2)
    if name in WRAPPERS or name in SHELLS:
        return _is_harmless_inside(name, words, fixed)
    if len(words) == fixed and name not in INTERPRETERS:  # an interpreter without arguments runs its input
        return True
    if (found := listed(words)) is not None:
        arguments = found.options.read(words[found.start :])
        if arguments is None or any(map(makes_code_run, arguments.writes)):
            return False
        return found.options.operands != "run" or _may_be_run(words[found.start :], arguments.operands)
    if name in INTERPRETERS or (name in LAUNCHERS and fixed == 1):
        return False
    if launches(words):
        return _is_harmless_inside(name, words, fixed)
    if name in PACKAGE_MANAGERS and not all(map(is_package, words[fixed:])):
        return False
    return all(map(_is_plain, words[fixed:]))


def _is_harmless_inside(name: str, words: Sequence[str], fixed: int) -> bool:
    """A rule for `timeout 5 pytest:*` says what is run, one for `timeout 5:*` does not."""
    start = inner_program(words, fixed)
    if start is None:
        return False
    if name in _TAKE_ARGUMENTS_FROM_INPUT:  # these add arguments that are not in the command
        found = listed(words[start:])
        return found is not None and found.options.inert and is_harmless(words[start:], fixed - start)
    return is_harmless(words[start:], fixed - start)


def _may_be_run(words: Sequence[str], operands: Sequence[str]) -> bool:
    """Files below the current folder. `@file`, as a value too, stands for all the options in that file; and formatters
    write what they are given."""
    if any(word.startswith("@") for word in words):
        return False
    return all(_is_below(path) and not makes_code_run(path) for path in operands)


def _is_plain(word: str) -> bool:
    """For a program whose arguments are not known: one that is a shell's name is run by it, as far as one can tell."""
    return (
        _PLAIN_OPERAND.fullmatch(word) is not None
        and not makes_code_run(word)
        and program_name(word) not in SHELLS | READS_ITS_PROGRAM
    )


def _is_below(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


def makes_code_run(path: str) -> bool:
    """Whether a write to this path, or to what may come to be below it, can make later commands run code."""
    last = path.rstrip("/").rpartition("/")[2].casefold()
    return is_protected(path) or last in HOLDERS or last == ".."
