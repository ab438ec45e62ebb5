"""Commands that mean to bash exactly what they look like.

Two readers that share no code must agree: tree-sitter-bash, of whose tree only a few kinds of nodes are accepted, and
a reader of this module for the small part of the language in which nothing is expanded or assigned, and redirected
only where that opens no file but one to read. What one of them misreads, the other has to misread in the same way
before a command is taken for plain.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MAX_CHARACTERS: Final = 8_192
MAX_COMMANDS: Final = 50
PADDING: Final = re.compile(r" {64}|\n{16}|(?: *\n){32}")
"""Blanks that push the rest of a command out of sight (Tracebit on Gemini CLI)."""

_UNUSUAL_ASCII: Final = re.compile(r"[^\n -~]")
_OPERATOR: Final = re.compile(r"&&|\|\||;(?![;&])|\|(?!&)|\n")
_PART: Final = re.compile(
    r"""(?P<bare>[\w./:=@%+,^~!#\]{}-]+)|\\(?P<escaped>[ -~])"""
    r"""|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\$`]|\\[^\n])*)\""""
)
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\([$`"\\])')
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_TILDE: Final = re.compile(r"(?:^|[=:])~")  # bash expands it after = and : too, in words that look like assignments
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_LETTERS: Final = re.compile(r"[\u00e0-\u00ef]+")
_LETTER_OF_DIGIT: Final = {ord(digit): 0xE0 + value for value, digit in enumerate("0123456789abcdef")}
_DIGIT_OF_LETTER: Final = {letter: digit for digit, letter in _LETTER_OF_DIGIT.items()}
_RESERVED: Final = frozenset(
    {"!", "{", "}", "[[", "]]", "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until"}
    | {"do", "done", "in", "function", "time", "coproc"}
)
_PLAIN_NODES: Final = frozenset(
    {"program", "list", "pipeline", "command", "command_name", "word", "number", "string", "string_content"}
    | {"raw_string", "concatenation", '"', ";", "&&", "||", "|", "\n"}
)


_PART_OR_GLOB: Final = re.compile(_PART.pattern.replace(r"(?P<bare>[\w", r"(?P<bare>[*?\w", 1))
_TO_NOWHERE: Final = re.compile(r"(?:[12]?>{1,2} ?/dev/null|2>&1|1?>&2)(?=[ \n;|]|$)")
_FROM_FILE: Final = re.compile(r"<(?![<>&(]) ?")
_WORD_MAY_BEGIN: Final = frozenset(" \n;|&")


class Word(msgspec.Struct, frozen=True):
    """One word: how it is written, and what the program gets."""

    source: str
    value: str
    is_glob: bool = False
    """The shell replaces it by the names of files that it matches."""


class SimpleCommand(msgspec.Struct, frozen=True):
    words: list[Word]
    inputs: list[Word]
    """Files that are redirected to its standard input."""
    operator: str
    """What stands before it."""


def plain_commands(text: str) -> list[list[Word]] | None:
    """Every command in `text`, when it consists of plain words, `&&`, `||`, `;`, `|`, newlines, and redirections after
    a command that open no file: `2>&1`, `>&2` and those to /dev/null."""
    commands = simple_commands(text)
    if commands is None or any(each.inputs or any(word.is_glob for word in each.words) for each in commands):
        return None
    return [each.words for each in commands]


def simple_commands(text: str) -> list[SimpleCommand] | None:
    """Like `plain_commands`, for commands that may also have `*` and `?` and read a file by `<`."""
    if len(text) > MAX_CHARACTERS or PADDING.search(text) or has_unusual_characters(text):
        return None
    read = _read(text)
    if read is None or not 0 < len(read[0]) <= MAX_COMMANDS:
        return None
    commands, rest = read
    return commands if _sources_by_tree(rest) == [[word.source for word in each.words] for each in commands] else None


def _read(text: str) -> tuple[list[SimpleCommand], str] | None:
    """The commands, and the text with blanks instead of redirections."""
    commands: list[SimpleCommand] = []
    words, inputs, before = list[Word](), list[Word](), ""
    rest, position, operator = text, 0, "\n"
    while position < len(text):
        start, may_begin = position, position == 0 or text[position - 1] in _WORD_MAY_BEGIN
        if text[position] == " ":
            position += 1
        elif matched := _OPERATOR.match(text, position):
            position = matched.end()
            if words:
                commands.append(SimpleCommand(words, inputs, before))
                words, inputs, before, operator = [], [], matched[0], matched[0]
            elif matched[0] != "\n" or inputs:
                return None
        elif words and may_begin and (matched := _TO_NOWHERE.match(text, position)):
            position = matched.end()
            rest = rest[:start] + " " * (position - start) + rest[position:]
        elif words and may_begin and (matched := _FROM_FILE.match(text, position)):
            read = _word(text, matched.end(), is_first=False)
            if read is None:
                return None
            inputs.append(read)
            position = matched.end() + len(read.source)
            rest = rest[:start] + " " * (position - start) + rest[position:]
        elif (read := _word(text, position, is_first=not words, part=_PART_OR_GLOB)) is not None:
            words.append(read)
            position += len(read.source)
        else:
            return None
    if words:
        commands.append(SimpleCommand(words, inputs, before))
    elif operator not in (";", "\n"):
        return None
    return commands, rest


def has_unusual_characters(text: str) -> bool:
    """Controls (CR and tab among them), invisible or unassigned characters, and blanks that are not the space."""
    if text.isascii():
        return _UNUSUAL_ASCII.search(text) is not None
    return any(character not in "\n " and unicodedata.category(character)[0] in "CZ" for character in text)


def _word(text: str, start: int, *, is_first: bool, part: re.Pattern[str] = _PART) -> Word | None:
    position, value, shape = start, "", ""
    while matched := part.match(text, position):
        position = matched.end()
        value += _part_value(matched)
        # What is quoted has no meaning for the shell, but it is there: a letter stands for it.
        shape += matched["bare"] or "q"
    source = text[start:position]
    if not source or shape[0] == "#" or _TILDE.search(shape) or _has_brace_expansion(shape):
        return None
    is_glob = "*" in shape or "?" in shape
    if is_first and (source in _RESERVED or _ASSIGNMENT.match(shape) or is_glob):
        return None
    return Word(source, value, is_glob)


def _part_value(part: re.Match[str]) -> str:
    if part["double"] is not None:
        return _ESCAPED_IN_QUOTES.sub(r"\1", part["double"])
    return part["bare"] or part["escaped"] or part["single"] or ""


def _has_brace_expansion(shape: str) -> bool:
    return "{" in shape and (shape[0] == "{" or "," in shape or ".." in shape)


@functools.cache
def load_parser() -> Language:
    # Imported here: a process that reads no shell command does not pay for the parser.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def parse(text: str) -> Node:
    """The root of the syntax tree; the parser marks what it does not understand. Read its nodes with `source`.

    The scanner of tree-sitter-bash looks characters up in C tables of 256 entries and reads outside of them for others:
    14 of 25 processes crashed on random text with characters above U+FFFF. So it gets no character above U+00FF.
    """
    from tree_sitter import Parser

    return Parser(load_parser()).parse(_NOT_ASCII.sub(_as_letters, text).encode()).root_node


def _as_letters(characters: re.Match[str]) -> str:
    """Each half byte as one of 16 letters: what is a word stays one, and can be read back."""
    return characters[0].encode("utf-8", "replace").hex().translate(_LETTER_OF_DIGIT)


def _from_letters(letters: re.Match[str]) -> str:
    digits = letters[0].translate(_DIGIT_OF_LETTER)
    return bytes.fromhex(digits[: len(digits) // 2 * 2]).decode("utf-8", "replace")


def source(node: Node) -> str:
    return _LETTERS.sub(_from_letters, (node.text or b"").decode("utf-8", "replace"))


def _sources_by_tree(text: str) -> list[list[str]] | None:
    root = parse(text)
    if root.has_error:
        return None
    commands: list[list[str]] = []
    waiting = [root]  # no recursion: the text chooses the depth
    while waiting:
        node = waiting.pop()
        waiting += reversed(node.children)
        if node.type not in _PLAIN_NODES or node.is_missing:
            return None
        if node.type == "command":
            commands.append([source(child) for child in node.children])
    return commands
