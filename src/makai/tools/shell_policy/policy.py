"""Whether a shell command may run without asking, by rules such as `git log:*`.

A rule is a prefix of words; `:*` means any further arguments, and without it the command is exactly these words. `*`
alone is every command. Allowing fails closed: every command in the text must be plainly written and matched by an
allow rule, and what `:*` leaves open must be harmless for that program. Denying looks everywhere and guesses: a denied
command at any depth refuses the whole text, also under an allow of everything. A deny list is a seat belt and no
boundary, since a program can always be reached by a name that is made at run time; the sandbox is the boundary.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from makai.core.errors import InvalidRequest
from makai.tools.shell_policy.coverage import is_harmless
from makai.tools.shell_policy.programs import MOVES, is_option, program_name
from makai.tools.shell_policy.search import FoundCommands, search
from makai.tools.shell_policy.syntax import Word, plain_commands

Decision: TypeAlias = Literal["allow", "ask", "deny"]

_ANYTHING: Final = ":*"
_FLAGS_WITHOUT_VALUE: Final = frozenset(
    {"--no-pager", "--paginate", "-p", "--bare", "--no-replace-objects", "--literal-pathspecs", "--"}
    | {"--no-optional-locks"}
)
_GLOB: Final = re.compile(r"[*?\[]")


class ShellRule(msgspec.Struct, frozen=True):
    """A parsed rule. No words at all stand for every command."""

    words: tuple[str, ...]
    any_arguments: bool

    @property
    def covers_everything(self) -> bool:
        return not self.words


@functools.lru_cache(maxsize=1024)
def parse_shell_rule(text: str) -> ShellRule:
    """`git log:*` or `git status`; `InvalidRequest` for what is neither."""
    stripped = text.strip()
    if stripped in ("*", _ANYTHING):
        return ShellRule((), any_arguments=True)
    any_arguments = stripped.endswith(_ANYTHING)
    words = tuple(stripped.removesuffix(_ANYTHING).split())
    if not words or any("*" in word for word in words):
        hint = "`*` stands only at the end, after a colon, or alone for every command."
        raise InvalidRequest(f"shell rule {text!r} is not of the form `words` or `words:*`.", hint=hint)
    return ShellRule(words, any_arguments)


def decide(command: str, allow: list[str], deny: list[str]) -> Decision:
    """`deny` when a denied command is anywhere in it, `allow` when it is provably covered, `ask` otherwise."""
    allowed = [parse_shell_rule(rule) for rule in allow]
    denied = [parse_shell_rule(rule) for rule in deny]
    found = search(command) if denied else None
    if found is not None and any(_forbids(rule, found) for rule in denied):
        return "deny"
    if any(rule.covers_everything for rule in allowed):
        # With something denied, a command whose programs are not all known might be just that.
        return "allow" if found is None or found.complete else "ask"
    return "allow" if allowed and _is_covered(command, allowed) else "ask"


def _is_covered(command: str, rules: Sequence[ShellRule]) -> bool:
    commands = plain_commands(command)
    if commands is None:
        return False
    programs = {words[0].value for words in commands}
    if programs & MOVES and "git" in programs:
        return False  # git obeys the configuration of the repository it is in: hooks, pagers, fsmonitor
    return all(any(_covers(rule, words) for rule in rules) for words in commands)


def _covers(rule: ShellRule, words: Sequence[Word]) -> bool:
    """The words of the rule must be written as they are: quotes or backslashes in a program's name are no accident."""
    count = len(rule.words)
    if tuple(word.source for word in words[:count]) != rule.words:
        return False
    if not rule.any_arguments:
        return len(words) == count
    return is_harmless([word.value for word in words], count)


def _forbids(rule: ShellRule, found: FoundCommands) -> bool:
    if rule.covers_everything:
        return True
    if any(_matches(rule, words) for words in found.commands):
        return True
    pattern = _in_program_text(rule)
    return any(pattern.search(text) for text in found.program_texts)


def _matches(rule: ShellRule, words: Sequence[str]) -> bool:
    if not _is_program(rule.words[0], words[0]):
        return False
    wanted, given = rule.words[1:], words[1:]
    operands = [word for word in wanted if not is_option(word)]
    if not rule.any_arguments and len(operands) != sum(not is_option(word) for word in given):
        return False
    options = [word for word in wanted if is_option(word)]
    return all(_has_option(option, given) for option in options) and _begins_with(operands, given)


def _is_program(wanted: str, given: str) -> bool:
    """Without regard to case, as some file systems have none; the shell may find the name by a pattern."""
    name, given = program_name(wanted).casefold(), given.casefold()
    return name == given or (
        _GLOB.search(given) is not None and given.strip("*") != "" and fnmatch.fnmatchcase(name, given)
    )


def _has_option(option: str, given: Sequence[str]) -> bool:
    """`-rf` is also `-fr` and `-r -f`; `--force` is also `--force=x`."""
    if option.startswith("--"):
        return any(word == option or word.startswith(f"{option}=") for word in given)
    letters = {letter for word in given if is_option(word) and not word.startswith("--") for letter in word[1:]}
    return option in given or letters.issuperset(option[1:])


def _begins_with(operands: Sequence[str], given: Sequence[str]) -> bool:
    """Whether the operands come first, with options and what may be their values skipped: `git -C x push` is a push."""
    if not operands:
        return True
    may_be_value = False
    for index, word in enumerate(given):
        if is_option(word):
            may_be_value = "=" not in word and word not in _FLAGS_WITHOUT_VALUE
        elif word == operands[0] and _begins_with(operands[1:], given[index + 1 :]):
            return True
        elif not may_be_value:
            return False
        else:
            may_be_value = False
    return False


@functools.lru_cache(maxsize=1024)
def _in_program_text(rule: ShellRule) -> re.Pattern[str]:
    """In other languages a command is a string or a list of strings: system("rm x"), run(["git", "push"]), :!rm x,
    qx{rm x}, %w[rm x]."""
    words = r"['\"\s,]+".join(re.escape(word) for word in rule.words)
    quote = r"['\"`!;|&(/]|\bq[qwx]?\s*[^\w\s]|%[qQwWx]?[^\w\s]"
    return re.compile(rf"(?:{quote}|(?<![A-Za-z])e\s|\b(?:shell|system|spawn)\s)\s*{words}(?![\w-])")
