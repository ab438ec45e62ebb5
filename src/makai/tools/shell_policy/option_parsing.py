"""Reads the arguments of a program by a list of its harmless options; what is not in the list makes them unreadable.

An option is known by its exact name: GNU programs and git accept unique prefixes (`sort --out=x`), and here a prefix is
an unknown option. Where a value stands follows the program's own rule, since a value that is taken for an option, or
the other way round, hides what comes after it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

OperandKind: TypeAlias = Literal["read", "text", "pattern", "write", "run"]
_TOKEN: Final = re.compile(r"--([\w][\w-]*)(==|[=?<>]?)")
_LETTER: Final = re.compile(r"([^-\s])([:?<>!]?)")
_DIGITS: Final = re.compile(r"-\d+")


class ParsedArguments(msgspec.Struct):
    """ParsedArguments that were understood, word by word."""

    options: dict[str, str] = {}
    """Names without dashes; of an option that stands there twice, the last value."""
    operands: list[str] = []
    places: list[int] = []
    """Where each operand stands among the words."""
    files: list[str] = []
    """The operands that are read as files; options add others to `reads`."""
    texts: list[str] = []
    """Values that are neither read nor written as files."""
    reads: list[str] = []
    writes: list[str] = []

    def has(self, names: str) -> bool:
        return not self.options.keys().isdisjoint(names.split())


Reader: TypeAlias = Callable[[Sequence[str]], ParsedArguments | None]
Check: TypeAlias = Callable[[ParsedArguments], bool]


class OptionList(msgspec.Struct, frozen=True, kw_only=True):
    """The harmless part of what a program, or one of its subcommands, takes."""

    options: str = ""
    """Blank-separated: `-ab` are letters without value, `-c:` takes one (attached or the next word), `-d?` only an
    attached one, `-L!` only the next word and no other letter beside it, `-f<` reads the file it names, `-t>` writes
    it, `-#` is a number after one dash; `--name`, `--name=`, `--name?`, `--name<`, `--name>` alike, and `--name==`
    takes two words."""
    operands: OperandKind = "read"
    """`read` and `write` are paths; of `pattern` the first one is text unless an option of `pattern_options` is there;
    `run` is a file below the current folder that is run or gives orders."""
    pattern_options: str = ""
    max_operands: int | None = None
    options_first: bool = False
    """The program stops at the first operand, or a later option would count as one: then none may follow."""
    clusters: bool = True
    """Whether `-ab` is `-a -b`."""
    trusts_double_dash: bool = True
    """False where not every option that takes the next word is listed as such: `--` may be a value then, and what looks
    like an option after it is one."""
    reader: Reader | None = None
    """Reads the words instead of the rules above."""
    check: Check | None = None
    """What must hold besides."""
    looks: bool = False
    """The program leaves everything as it is, so it may run unasked."""
    asks_to_look: str = ""
    """Options with which it does not only look, or not only where it is sent."""
    must_have_to_look: str = ""
    """Options without any of which it looks elsewhere; empty when it needs none."""
    names_only: bool = False
    """It shows no content of files; `recursive` are the options by which it shows more than one folder."""
    recursive: str = ""
    skips_git: Check | None = None
    """Whether it passes a `.git` in the folders by that it searches; a program without it does not."""
    shows_addresses: str = ""
    """Options, `*` for none at all, with which it shows addresses of remotes, which may hold credentials."""
    inert: bool = False
    """No option at all makes this program run, write or delete anything, so even unknown ones from a pipe may come."""

    def read(self, words: Sequence[str]) -> ParsedArguments | None:
        """None when a word is not known to be harmless."""
        found = self.reader(words) if self.reader is not None else self._parsed(words)
        if found is None or (self.max_operands is not None and len(found.operands) > self.max_operands):
            return None
        if self.check is not None and not self.check(found):
            return None
        self._sort(found)
        return found

    def _sort(self, found: ParsedArguments) -> None:
        """Say what the operands are."""
        match self.operands:
            case "text":
                found.texts += found.operands
            case "write":
                found.writes += found.operands
            case "pattern" if not found.has(self.pattern_options):
                found.texts += found.operands[:1]
                found.files = found.operands[1:]
            case _:
                found.files = found.operands
        found.reads += found.files

    def _parsed(self, words: Sequence[str]) -> ParsedArguments | None:
        found, index, only_operands = ParsedArguments(), 0, False
        while index < len(words):
            word = words[index]
            index += 1
            if only_operands or word == "-" or not word.startswith("-"):
                if word.startswith("-") and word != "-" and not self.trusts_double_dash:
                    return None
                found.operands.append(word)
                found.places.append(index - 1)
                continue
            if self.options_first and found.operands:
                return None
            if word == "--":
                only_operands = True
                continue
            taken = self._taken(word, words[index:], found)
            if taken is None:
                return None
            index += taken
        return found

    def leading(self, words: Sequence[str]) -> int | None:
        """How many words stand before the first operand or `--`; None when one of them is not known."""
        index = 0
        while index < len(words) and words[index].startswith("-") and words[index] not in ("-", "--"):
            taken = self._taken(words[index], words[index + 1 :], ParsedArguments())
            if taken is None:
                return None
            index += 1 + taken
        return index

    def _taken(self, word: str, following: Sequence[str], found: ParsedArguments) -> int | None:
        """How many of the following words belong to this option."""
        if word[1] == "-":
            return _long(word, following, compiled(self.options)[1], found)
        return self._short(word, following, found)

    def _short(self, word: str, following: Sequence[str], found: ParsedArguments) -> int | None:
        """How many of the following words belong to this cluster of letters."""
        known = compiled(self.options)[0]
        if "#" in known and _DIGITS.fullmatch(word):
            return 0
        for position, letter in enumerate(word[1:], 1):
            kind = known.get(letter)
            if kind is None or letter == "#":
                return None
            rest = word[position + 1 :]
            match kind:
                case "":
                    found.options[letter] = ""
                    if rest and not self.clusters:
                        return None
                case "?":
                    _note(found, letter, "", rest)
                    return 0
                case "!" if len(word) > 2:
                    return None
                case _ if rest:
                    _note(found, letter, kind, rest)
                    return 0
                case _ if following:
                    _note(found, letter, kind, following[0])
                    return 1
                case _:
                    return None
        return 0


def _long(word: str, following: Sequence[str], known: Mapping[str, str], found: ParsedArguments) -> int | None:
    name, equals, value = word[2:].partition("=")
    kind = known.get(name)
    if kind is None or (equals and kind in ("", "==")):
        return None
    if kind == "==":
        if len(following) < 2:
            return None
        _note(found, name, "", following[1])
        return 2
    if equals or kind in ("", "?"):
        _note(found, name, kind, value)
        return 0
    if not following:
        return None
    _note(found, name, kind, following[0])
    return 1


def _note(found: ParsedArguments, name: str, kind: str, value: str) -> None:
    found.options[name] = value
    match kind:
        case "<":
            found.reads.append(value)
        case ">":
            found.writes.append(value)
        case _ if value:
            found.texts.append(value)


@functools.cache
def compiled(options: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The kinds of the short and of the long options in a row of the data."""
    short: dict[str, str] = {}
    long: dict[str, str] = {}
    for token in options.split():
        if matched := _TOKEN.fullmatch(token):
            long[matched[1]] = matched[2]
        else:
            assert token[0] == "-", token
            short |= dict(_LETTER.findall(token[1:]))
    return short, long
