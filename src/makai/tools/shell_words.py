"""What the words of a shell text are worth when as much as can be known is known.

In: nodes of a tree-sitter-bash tree and values of variables. Out: strings, with a mark where a value is only known at
run time. This is the tolerant reading, for rules that forbid; nothing here proves that a word is harmless.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from makai.tools.shell_programs import PRINTS_ITS_ARGUMENTS
from makai.tools.shell_syntax import source

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH: Final = 40
MAX_ALTERNATIVES: Final = 64

_BRACES: Final = re.compile(r"(.*?)\{([^{}]*,[^{}]*)\}(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_ESCAPE: Final = re.compile(r'\\([$`"\\])')
_ANSI_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_ANSI_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_DEFAULTS: Final = frozenset({":-", "-", ":=", "=", ":+", "+"})


class Literals:
    """Reads nodes with what is known about variables."""

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
        if name in self._values:
            return self._values[name]
        if len(parts) > 1 and any(child.type in _DEFAULTS for child in node.children):
            return "".join(self.marked(part, depth + 1) for part in parts[1:])
        return self.UNKNOWN

    def _substitution(self, node: Node, depth: int) -> str:
        """`$(echo word)` and `$(which word)` are that word."""
        inner = node.named_children
        if len(inner) == 1 and inner[0].type == "command":
            words = [self.marked(child, depth + 1) for child in inner[0].children]
            if words[0] in PRINTS_ITS_ARGUMENTS:
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
