"""The rules that a question offers for more than this one call, from narrow to wide.

A rule is offered only when it covers the call by itself, with all that the call opens. One person's "always" is easily
given in passing, so a command is offered with any arguments only where every argument is as good as the next; others
can be written by hand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from makai.core.confinement import OfferedGrant
from makai.core.errors import InvalidRequest
from makai.tools.base import CallDescription
from makai.tools.permissions.confinement import suffix_of
from makai.tools.permissions.path_patterns import MAX_PATH_BYTES
from makai.tools.permissions.rules import PermissionRules, decide_call, host_of, parse_rule
from makai.tools.shell_policy.programs import (
    CHANGES_THE_SHELL,
    INTERPRETERS,
    LAUNCHERS,
    SHELLS,
    is_option,
    program_name,
)
from makai.tools.shell_policy.syntax import Word, plain_commands

_GIT_WITH_ANY_ARGUMENTS: Final = frozenset(
    {"add", "blame", "commit", "describe", "diff", "grep", "log", "ls-files", "rev-parse", "shortlog", "show", "status"}
)
"""Subcommands of git of which the next call will hardly have the same arguments, and none of whose arguments does what
a person would want to see first. `push`, `reset`, `checkout` or `config` are not like that."""
_PROGRAMS_WITH_ANY_ARGUMENTS: Final = frozenset(
    {"pytest", "ruff", "mypy", "pyright", "black", "isort", "flake8", "pylint", "tox", "nox"}
    | {"eslint", "prettier", "tsc", "jest", "vitest", "mocha", "ctest", "ninja", "rustfmt", "gofmt", "golangci-lint"}
    | {"shellcheck", "rubocop", "rspec", "phpunit"}
)
"""Test runners, linters and formatters: the next call has another file as its argument."""
_SUBCOMMANDS_WITH_ANY_ARGUMENTS: Final = {
    "git": _GIT_WITH_ANY_ARGUMENTS,
    "cargo": frozenset({"bench", "build", "check", "clippy", "doc", "fmt", "test"}),
    "go": frozenset({"build", "fmt", "test", "vet"}),
    "dotnet": frozenset({"build", "test"}),
    "mix": frozenset({"compile", "format", "test"}),
    **dict.fromkeys(("npm", "pnpm", "yarn"), frozenset({"test"})),
}
_ONLY_ONCE: Final = (
    SHELLS | INTERPRETERS - {"make"} | frozenset(LAUNCHERS) - {"npm", "pnpm", "yarn"} | CHANGES_THE_SHELL
)
"""Programs whose arguments are a program, or name one: sh, python -c, sudo, env, xargs, docker. A rule for one of them
covers either everything or hardly more than this one call, so none is offered; it can be written by hand."""
_SCRIPTS: Final = frozenset({"run", "test"})
_MAX_RULE: Final = 200
_NOT_IN_RULES: Final = frozenset(" \n*")


def offered_grants(rules: PermissionRules, tool_name: str, description: CallDescription) -> tuple[OfferedGrant, ...]:
    """The narrowest rule first; empty when there is none that a person should set in passing."""
    if (opened := suffix_of(description.confinement)) is None:
        return ()
    offered = []
    for candidate in _candidates(tool_name, description):
        rule = f"{candidate.rule}{opened}"
        if _is_enough(rule, rules.workspace, tool_name, description):
            session_only = candidate.session_only or description.confinement.unsandboxed
            offered.append(msgspec.structs.replace(candidate, rule=rule, session_only=session_only))
        elif description.kind == "edit":
            break  # a rule cannot name this file, and one for all of them is not offered in its place
    return tuple(offered)


def _is_enough(rule: str, workspace: str, tool_name: str, description: CallDescription) -> bool:
    try:
        alone = PermissionRules(workspace=workspace, allow=(parse_rule(rule),))
    except InvalidRequest:
        return False
    return decide_call(alone, tool_name, description) == "allow"


def default_grant(offered: Sequence[OfferedGrant]) -> str:
    """The rule that is set when a person says "for this session" and nothing more: the narrowest, but for git, whose
    next call hardly ever has the same arguments, the subcommand."""
    for grant in offered:
        words = grant.rule.removeprefix("Bash(git ").partition(":*)")
        if grant.rule.startswith("Bash(git ") and words[1] and words[0] in _GIT_WITH_ANY_ARGUMENTS:
            return grant.rule
    return offered[0].rule if offered else ""


def _candidates(tool_name: str, description: CallDescription) -> Iterator[OfferedGrant]:
    if tool_name.startswith("mcp__"):
        yield OfferedGrant(rule=f"{tool_name}({description.subject})", label="this tool, as it is now")
        return
    match description.kind:
        case "execute":
            yield from _command_rules(description.subject)
        case "edit":
            yield from _edit_rules(description.subject)
        case "fetch":
            host = host_of(description.subject)
            yield OfferedGrant(rule=f"WebFetch(domain:{host})", label=f"every page of {host}")
        case _:
            return


def _edit_rules(path: str) -> Iterator[OfferedGrant]:
    # An escape in the path stands for more than one file, and a wildcard for any.
    if len(path) > MAX_PATH_BYTES or set(path) & set("\\*?"):
        return
    # `./`, for a person takes `Edit(/calc.py)` for a file of the whole machine; that one has two slashes.
    written = f"{'/' if path.startswith('/') else './'}{path}"
    yield OfferedGrant(rule=f"Edit({written})", label="edits of this file")
    if (folder := os.path.dirname(path)) not in ("", "/"):
        yield OfferedGrant(rule=f"Edit({os.path.dirname(written)}/**)", label=f"edits in {folder}")
    yield OfferedGrant(rule="Edit", label="all edits of this session", session_only=True)


def _command_rules(command: str) -> Iterator[OfferedGrant]:
    """Of one plain command only: what `a && b` does is more than what a rule for `a` and one for `b` say."""
    commands = plain_commands(command)
    if commands is None or len(commands) != 1 or _is_only_once(commands[0]):
        return
    words = [word.source for word in commands[0]]
    exactly = " ".join(words)
    if len(exactly) <= _MAX_RULE and not any(_NOT_IN_RULES.intersection(word) for word in words):
        yield OfferedGrant(rule=f"Bash({exactly})", label="exactly this command")
    if prefix := _prefix(words):
        yield OfferedGrant(rule=f"Bash({prefix}:*)", label=f"{prefix} with any arguments")


def _prefix(words: Sequence[str]) -> str:
    """The program, or the program with its subcommand, that may have any arguments; "" when there is none."""
    program, *arguments = words
    if program in _PROGRAMS_WITH_ANY_ARGUMENTS:
        return program
    if arguments and arguments[0] in _SUBCOMMANDS_WITH_ANY_ARGUMENTS.get(program, ()):
        return f"{program} {arguments[0]}"
    if program in ("npm", "pnpm", "yarn") and arguments[:1] == ["run"] and len(arguments) > 1:
        return "" if is_option(arguments[1]) else f"{program} run {arguments[1]}"
    return ""


def _is_only_once(command: Sequence[Word]) -> bool:
    """Whether even the same words may do something else the next time, or do anything at all."""
    program, *arguments = (word.value for word in command)
    name = program_name(program)
    if name in _ONLY_ONCE or "/" in program:  # the file may be another one by then
        return True
    match name:
        case "git":
            return not arguments or is_option(arguments[0])  # -c and -C: another configuration
        case "npm" | "pnpm" | "yarn":
            return not arguments or arguments[0] not in _SCRIPTS
        case "make":
            return any(is_option(word) or "=" in word for word in arguments)
        case _:
            return False
