"""What the words of a shell text hold, as far as the text itself says: quotes, escapes, variables and braces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from makai.tools.shell_policy import programs
from makai.tools.shell_policy.syntax import source

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_VALUES_OF_A_VARIABLE: Final = 8
MAX_VALUE: Final = 8_192
"""A value is cut there: variables that hold each other would double with every assignment."""
MAX_DEPTH: Final = 40
MAX_ALTERNATIVES: Final = 64

_BRACES: Final = re.compile(r"(.*?)\{([^{}]*,[^{}]*)\}(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_ESCAPE: Final = re.compile(r'\\([$`"\\])')
_ANSI_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_ANSI_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_ALTERNATIVES: Final = frozenset({":+", "+"})
_DEFAULTS: Final = _ALTERNATIVES | {":-", "-", ":=", "="}
_BOUNDS: Final = frozenset({"$", "${", "}"})


def environments(tree: Sequence[Node]) -> Iterator[Mapping[str, str]]:
    """What variables may hold: one mapping with the first value given to each, one with the second, and so on."""
    values: dict[str, list[str]] = {}
    current: dict[str, str] = {}
    for node in tree:
        if node.type == "variable_assignment" and len(node.children) > 2:
            name = source(node.children[0])
            current[name] = Literals(current).known(node.children[-1])[:MAX_VALUE]
            values.setdefault(name, []).append(current[name])
        elif node.type == "for_statement":
            variable, *items = [child for child in node.named_children if child.type != "do_group"]
            values.setdefault(source(variable), []).extend(Literals(current).known(item) for item in items)
    rounds = min(max(map(len, values.values()), default=1), MAX_VALUES_OF_A_VARIABLE)
    for index in range(max(rounds, 1)):
        yield {name: given[min(index, len(given) - 1)] for name, given in values.items() if given}


class Literals:
    UNKNOWN: Final = "\0"

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def known(self, node: Node) -> str:
        """The text of a word, as if everything unknown were empty."""
        return self.marked(node).replace(self.UNKNOWN, "")

    def marked(self, node: Node, depth: int = 0) -> str:
        """The text of a word, with `UNKNOWN` for each part that only a running shell knows."""
        if depth > MAX_DEPTH:
            return self.UNKNOWN
        match node.type:
            case "word" | "number" | "variable_name":
                return _ESCAPE.sub(r"\1", source(node))
            case "raw_string":
                return source(node)[1:-1]
            case "ansi_c_string":
                return _ANSI_ESCAPE.sub(_ansi, source(node)[2:-1])
            case "string_content" | "heredoc_content":
                return _QUOTED_ESCAPE.sub(r"\1", source(node))
            case "simple_expansion" | "expansion":
                return self._expansion(node, depth)
            case "command_substitution":
                return self._substitution(node, depth)
            case "array":
                return " ".join(self.marked(child, depth + 1) for child in node.named_children)
            case "concatenation" | "string" | "translated_string" | "command_name" | "heredoc_body":
                inner = node.children if node.type == "concatenation" else node.named_children
                return "".join(self.marked(child, depth + 1) for child in inner)
            case _:
                return self.UNKNOWN if node.named_children else source(node)

    def _expansion(self, node: Node, depth: int) -> str:
        """`$x`, `${x}`, `${x[@]}` and `${x:-word}`."""
        parts = node.named_children
        if not parts:
            return self.UNKNOWN
        name = source(parts[0]).partition("[")[0]
        if name == "IFS":
            return " "
        operators = {child.type for child in node.children if not child.is_named} - _BOUNDS
        if name in self._values and operators.isdisjoint(_ALTERNATIVES):
            # What an operator such as `#` or `:1` makes of the value is not known.
            return self._split(self._values[name]) + (self.UNKNOWN if operators - _DEFAULTS else "")
        if len(parts) > 1 and not operators.isdisjoint(_DEFAULTS):
            return "".join(self.marked(part, depth + 1) for part in parts[1:])
        return self.UNKNOWN

    def _split(self, value: str) -> str:
        """The value with blanks where the shell splits it, by an IFS that the text sets."""
        return value.translate(dict.fromkeys(map(ord, self._values.get("IFS", "")), " "))

    def _substitution(self, node: Node, depth: int) -> str:
        """`$(echo word)` and `$(which word)` are that word."""
        inner = node.named_children
        if len(inner) == 1 and inner[0].type == "command":
            words = [self.marked(child, depth + 1) for child in inner[0].children]
            if words[0] in programs.PRINTS_ITS_ARGUMENTS:
                return " ".join(word for word in words[1:] if not word.startswith("-"))
        return self.UNKNOWN


def _ansi(escape: re.Match[str]) -> str:
    hexadecimal = escape[1] or escape[2] or escape[3]
    if hexadecimal or escape[4]:
        number = int(hexadecimal, 16) if hexadecimal else int(escape[4], 8)
        return chr(number) if number < 0x110000 else ""
    return _ANSI_LETTERS.get(escape[5], escape[5])


def braces_expanded(word: str) -> list[str]:
    """`{a,b}c` is `ac bc`; nesting is followed as far as `MAX_ALTERNATIVES` goes."""
    done: list[str] = []
    waiting = [word]
    while waiting:
        current = waiting.pop(0)
        matched = _BRACES.fullmatch(current) if len(done) + len(waiting) < MAX_ALTERNATIVES else None
        if matched is None:
            done.append(current)
        else:
            before, inner, after = matched.groups()
            waiting[:0] = [before + choice + after for choice in inner.split(",")]
    return done
