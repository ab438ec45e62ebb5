"""Every command that a shell text may run, at any depth, for rules that forbid.

This search guesses in favour of finding: what it finds may never run, and what it does not find may still run (a name
put together at run time). It must never be used to prove that a command is safe; `syntax` does that.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from makai.tools.shell_policy import programs
from makai.tools.shell_policy.literals import Literals, braces_expanded, environments
from makai.tools.shell_policy.syntax import parse, plain_commands, source

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_PARSED_CHARACTERS: Final = 100_000
MAX_TEXTS: Final = 200
MAX_COMMANDS: Final = 5_000
MAX_WORDS_KEPT: Final = 64

_SEPARATORS: Final = re.compile(r"[;&|()<>`\n{}$!]+")
_SEPARATORS_BUT_BRACES: Final = re.compile(r"[;&|()<>`\n$!]+")
_QUOTES: Final = re.compile(r"['\"\\]")
_ANY_BREAK: Final = re.compile(r"[\s;&|()<>`{}$!'\"\\,]+")
_REDIRECTION: Final = re.compile(r"(?:\{\w{1,100}\}|\d{0,9})[<>]{1,3}[&|]?\s*[^\s;&|<>]+")
_QUOTED: Final = r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\""
_DESCRIPTOR: Final = r"\{[A-Za-z_]\w{0,100}(?:\[[^\]\n]{0,100}\])?\}"
_LEADING_REDIRECTION: Final = re.compile(
    rf"({_QUOTED})|{_DESCRIPTOR}(?=<<)|(?:{_DESCRIPTOR}|\d{{0,9}})(?:&>>?|[<>]&|<>|>>|>\||<(?![<(])|>(?!\())[ \t]*"
    rf"(?:{_QUOTED}|\$\([^()]*\)|[<>]\([^()]*\)|[^\s;&|<>()'\"\\])+(?=[ \t]+[^\s;&|()<>])",
    re.DOTALL,
)
"""A quoted text, or a redirection that more words of its command follow: the program may be among them."""
_BACKTICKS: Final = re.compile(r"`([^`]*)`")
_ESCAPED_LINE_START: Final = re.compile(r"\n\s*\\(?=[\w./])")
_EMPTY_BACKTICKS: Final = re.compile(r"`\s*`")
_PIPE_AT_END: Final = re.compile(r"\|[ \t]*\n\s*")
_CONTINUED: Final = re.compile(r"(?:[|&;({\\]|\b(?:do|then|else))$")
_SUBSCRIPT: Final = re.compile(r"(?<!\w)[A-Za-z_]\w*\[[^][]*\]")
"""`test -v`, `let`, `printf -v` and integer variables run the commands in it, although it stands in quotes."""
_SUBSTITUTION: Final = re.compile(r"\$\(|`")
_RUN_STDIN: Final = frozenset({"xargs", "parallel", "at", "batch", "ssh", "source", "."}) | {
    *("ed", "ex", "make", "sqlite3", "mysql", "mariadb", "psql", "gdb")
}
_PASS_ON_ARGUMENTS: Final = frozenset({"npm", "pnpm", "yarn", "bun"})
"""Launchers that give what follows `--` to a script of the project."""
_COMMAND_KEY: Final = re.compile(r"(?:exec|\w*Command)[= ]\s*")
"""What stands before the command in a value: `tar --checkpoint-action=exec=x`, `ssh -o ProxyCommand=x`."""
_COMMAND_FOR_GIT: Final = re.compile(r"!|ext::")
"""How an alias and an address begin that are a command."""
_COMMAND_FOR_SOCAT: Final = re.compile(r"(?:^|!!)(?:exec|system|shell):", re.IGNORECASE)
_END_FOR_SOCAT: Final = re.compile(r",|!!")
_GIT_READS_TEXT: Final = frozenset({"add", "commit", "diff", "log", "status", "tag"})
"""Subcommands that give none of their operands to a shell."""
_LOOKS_LIKE_TEXT: Final = re.compile(r"[\s;&|$`]")


class FoundCommands(msgspec.Struct, frozen=True):
    commands: tuple[tuple[str, ...], ...]
    """The name of the program without its folder, then its arguments."""
    program_texts: tuple[str, ...]
    """Programs in other languages, in which a command is a string."""
    complete: bool
    """False when some program name is known at run time only, or a part was not understood."""


def search(text: str) -> FoundCommands:
    return _Search().run(text)


class _Place(NamedTuple):
    """A node and where it stands; asking a node for its parent would search the tree from the root each time."""

    node: Node
    parent: Node | None
    in_arithmetic: bool

    @property
    def has_stdin(self) -> bool:
        """Whether something is given to the command by a pipe or a redirection."""
        if self.parent is not None and self.parent.type in ("pipeline", "redirected_statement"):
            return True
        return any(child.type == "herestring_redirect" for child in self.node.children)


def _with_ended_pipelines(text: str) -> str:
    """The text with a semicolon after each line that has a pipe. Before a list (`a || b`) the parser takes the newline
    after a longer pipeline for a blank, and the next command for more words."""
    lines = _PIPE_AT_END.sub("| ", text).split("\n")
    for index, line in enumerate(lines[:-1]):
        comment = line.find(" #", max(map(line.rfind, "\"'`")) + 1)
        ended = (line if comment < 0 else line[:comment]).rstrip() if "|" in line else ""
        if ended and not _CONTINUED.search(ended[-8:]):
            lines[index] = f"{ended};"
    return "\n".join(lines)


class _Search:
    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self._seen_texts: set[str] = set()
        self._waiting: deque[tuple[str, ...]] = deque()
        self._commands: dict[tuple[str, ...], None] = {}
        self._program_texts: dict[str, None] = {}
        self._functions: set[str] = set()
        self._complete = True
        self._text_for_git: str | None = None

    def run(self, text: str) -> FoundCommands:
        self._text_for_git = text if _SUBSTITUTION.search(text) and _is_for_git_alone(text) else None
        self.add_text(text)
        while self._texts or self._waiting:
            if self._waiting:
                self._look_into(self._waiting.popleft())
            else:
                self._read(self._texts.popleft())
        return FoundCommands(tuple(self._commands), tuple(self._program_texts), self._complete)

    def add_text(self, text: str) -> None:
        if text in self._seen_texts:
            return
        if len(self._seen_texts) >= MAX_TEXTS or len(text) > MAX_PARSED_CHARACTERS:
            self._give_up_on(text)
            return
        self._seen_texts.add(text)
        self._texts.append(text)

    def _add_command(self, words: Sequence[str]) -> None:
        """The first word is a program."""
        kept = tuple(words[:MAX_WORDS_KEPT])
        if not kept or kept in self._commands:
            return
        if len(self._commands) >= MAX_COMMANDS:
            self._give_up_on(" ".join(words))
            return
        self._commands[kept] = None
        self._waiting.append(tuple(words))

    def _give_up_on(self, text: str) -> None:
        """Too much to look at closely: then every word in it counts as a program."""
        self._complete = False
        words = _ANY_BREAK.split(text)
        for index, word in enumerate(words):
            self._commands[(programs.program_name(word), *words[index + 1 : index + 4])] = None

    def _read(self, text: str) -> None:
        if "\\\n" in text:  # bash joins the lines, also within a word
            self.add_text(text.replace("\\\n", ""))
        if _ESCAPED_LINE_START.search(text):  # the parser takes that newline for a part of the word
            self.add_text(_ESCAPED_LINE_START.sub("\n", text))
        if _EMPTY_BACKTICKS.search(text):  # the parser takes them for a part of the program's name
            self.add_text(_EMPTY_BACKTICKS.sub("", text))
        if "|" in text and "\n" in text:
            self.add_text(_with_ended_pipelines(text))
        if "<" in text or ">" in text:  # the parser misses the program after `time {fd}>f`, `! time >f` and others
            self.add_text(_LEADING_REDIRECTION.sub(_quoted_only, text))
        root = parse(text)
        if root.has_error:
            self._complete = False
            unquoted = _QUOTES.sub("", text)
            for reading in (unquoted, _REDIRECTION.sub(" ", unquoted)):
                for part in (*_SEPARATORS.split(reading), *_SEPARATORS_BUT_BRACES.split(reading)):
                    self._add_words(part.split())
        places = list(_places(root))
        if text == self._text_for_git:  # its commands get their quoted words unread
            places = [place for place in places if place.node.type not in ("raw_string", "string")]
        self._functions.update(
            source(place.node.named_children[0])
            for place in places
            if place.node.type == "function_definition" and place.node.named_children
        )
        for values in environments([place.node for place in places]):
            self._visit(places, Literals(values))

    def _visit(self, places: Sequence[_Place], literals: Literals) -> None:
        printed: list[str] = []
        runs_stdin = False
        for place in places:
            node = place.node
            if node.type == "command":
                words = _words(place, literals)
                self._add_words(words)
                runs_stdin = runs_stdin or (place.has_stdin and _takes_commands_from_stdin(words))
                if place.has_stdin and words and programs.program_name(words[0]) in programs.PRINTS_ITS_ARGUMENTS:
                    printed += [" ".join(words[1:]).replace("\\n", "\n"), *words[1:]]
            elif node.type == "variable_assignment" and len(node.children) > 2:
                if programs.ENVIRONMENT_COMMANDS.fullmatch(source(node.children[0])):
                    self.add_text(literals.known(node.children[-1]))
            elif node.type in ("raw_string", "string"):
                self._read_string(place, literals)
            elif node.type in ("word", "regex") and place.parent is not None and place.parent.type == "expansion":
                if _SUBSTITUTION.search(source(node)):  # `${x:=`y`}` and `${x^^$(y)}`, which the parser does not read
                    self.add_text(f": {source(node)}")
            elif node.type == "herestring_redirect":
                printed.append(literals.known(node.children[-1]))
            elif node.type == "heredoc_body":
                printed.append(source(node))
                if place.parent is not None and not _is_quoted_heredoc(place.parent):
                    for text in _BACKTICKS.findall(source(node)):  # which the parser leaves in the text
                        self.add_text(text)
                    if not node.children and _SUBSTITUTION.search(source(node)):  # so it does after `<<-` and a tab
                        self.add_text(f': "{_QUOTES.sub("", source(node))}"')
        if runs_stdin:  # `echo text | sh`, `sh <<EOF` and `sh <<< text` run text
            for text in printed:
                self.add_text(text)
                self._program_texts[text] = None

    def _read_string(self, place: _Place, literals: Literals) -> None:
        text = literals.known(place.node)
        if place.node.type == "raw_string" and place.in_arithmetic:
            # Subscripts in arithmetic are expanded, whatever quotes they stand in: $[ 'a[$(x)]' ] runs x.
            self.add_text(text)
        if "[" in text and _SUBSTITUTION.search(text):
            for subscript in filter(_SUBSTITUTION.search, _SUBSCRIPT.findall(text)):
                self.add_text(f": {subscript}")

    def _add_words(self, words: Sequence[str]) -> None:
        """Words as the shell would see them, with marks where their value is not known."""
        self._complete = self._complete and _names_are_known(words)
        cleaned = [word.replace(Literals.UNKNOWN, "") for word in words]
        first = next((index for index, word in enumerate(cleaned) if word.strip()), None)
        if first is None:
            return
        # An expansion may hold several words, and a brace expansion may be the whole command.
        expanded = [part for word in cleaned[first:] for part in braces_expanded(word)]
        self._add_program([*expanded[0].split(), *expanded[1:]])

    def _add_program(self, words: Sequence[str]) -> None:
        self._add_command(_named(words))
        # The parser takes `{` after `time`, `!` and `coproc` for a word, and what follows for more of them.
        may_group = bool(words) and words[0] in ("{", "coproc")
        for index, word in enumerate(words[:MAX_WORDS_KEPT] if may_group else (), 1):
            if word == "{" and index < len(words):
                self._add_command(_named(words[index : index + MAX_WORDS_KEPT]))

    def _look_into(self, words: tuple[str, ...]) -> None:
        name = words[0]
        if name in programs.RUNS_ITS_TEXT:
            self.add_text(" ".join(words[1:]))
            for word in words[1:]:
                self.add_text(word.partition("=")[2] if name == "alias" else word)
        if name in programs.SHELLS:
            self._look_into_shell(words)
        if name in programs.INTERPRETERS:
            self._program_texts[" ".join(words[1:])] = None
        if name in programs.LAUNCHERS or name in self._functions:
            self._look_into_wrapper(words)
        if name == "git":
            self._look_into_git(words)
        for word in filter(_COMMAND_FOR_SOCAT.search, words[1:] if name == "socat" else ()):
            self.add_text(_END_FOR_SOCAT.sub("\n", _COMMAND_FOR_SOCAT.sub("\n", word)))
        if options := programs.EXEC_OPTIONS.get(name):
            self._look_after_options(programs.with_dashes(words) if name == "tar" else words, options)

    def _look_into_git(self, words: tuple[str, ...]) -> None:
        for word in words[1:]:
            if matched := _COMMAND_FOR_GIT.match(word):
                self.add_text(word[matched.end() :])
        for key, setting in itertools.pairwise(words if "config" in words else ()):
            if programs.GIT_SETTING_COMMANDS.fullmatch(key):
                self._add_git_setting(key, setting)

    def _add_git_setting(self, key: str, setting: str) -> None:
        is_alias = key.casefold().startswith("alias.") and not setting.startswith("!")
        self.add_text(f"git {setting}" if is_alias else setting.removeprefix("!"))

    def _look_into_shell(self, words: tuple[str, ...]) -> None:
        runs_text = any(programs.is_option(word) and "c" in word and not word.startswith("--") for word in words[1:])
        for word in words[1:]:
            if (runs_text and not programs.is_option(word)) or _LOOKS_LIKE_TEXT.search(word):
                self.add_text(word)

    def _look_into_wrapper(self, words: tuple[str, ...]) -> None:
        if words[:2] in (("command", "-v"), ("command", "-V")):
            return
        if len(words) > MAX_WORDS_KEPT:
            self._give_up_on(" ".join(words))
            return
        for inner in programs.inner_commands(words, programs.LAUNCHERS.get(words[0], 0)):
            self._add_program(inner)
        if "--" in words[:-1] and words[0] not in _PASS_ON_ARGUMENTS:
            self._add_program(words[words.index("--") + 1 :])
        for word in words[1:]:
            if _LOOKS_LIKE_TEXT.search(word):  # ssh, watch, su -c and others give it to a shell
                self.add_text(word.partition("=")[2] if word.startswith("--") else word.removeprefix("-S"))

    def _look_after_options(self, words: Sequence[str], options: tuple[str, ...]) -> None:
        values = [(index, programs.value_of(word, options)) for index, word in enumerate(words)]
        given = [(index, value) for index, value in values if value is not None]
        if len(given) > MAX_WORDS_KEPT:
            self._give_up_on(" ".join(words))
            return
        for index, value in given:
            word = words[index]
            following = " ".join(words[index + 1 : index + 2])
            text = value or following
            if words[0] == "git" and word.startswith(("-c", "--con")):
                key, _, setting = text.partition("=")
                self._add_git_setting(key, setting)
                continue
            self.add_text(text[found.end() :] if (found := _COMMAND_KEY.match(text)) else text)
            for inner in () if value else programs.inner_commands(words[index:], 0):
                self._add_program(inner)


def _quoted_only(found: re.Match[str]) -> str:
    return found[1] or " "


def _is_for_git_alone(text: str) -> bool:
    """Whether no quoted text in it can reach the arithmetic of a shell, neither as an argument nor by `$_`."""
    commands = [[word.source for word in words] for words in plain_commands(text) or ()]
    return bool(commands) and all(
        words[0] == "cd" or (words[0] == "git" and not _GIT_READS_TEXT.isdisjoint(words[1:2])) for words in commands
    )


def _places(root: Node) -> Iterator[_Place]:
    """Every node in the order of the text, without recursion: the text chooses the depth."""
    waiting = [_Place(root, None, False)]
    while waiting:
        place = waiting.pop()
        yield place
        in_arithmetic = place.in_arithmetic or place.node.type in ("arithmetic_expansion", "test_command")
        waiting.extend(_Place(child, place.node, in_arithmetic) for child in reversed(place.node.children))


def _words(place: _Place, literals: Literals) -> list[str]:
    found: list[str] = []
    end = -1
    for child in place.node.children:
        if child.type == "file_redirect":
            found += _words_after_redirection(child, literals)
        elif child.type not in ("variable_assignment", "herestring_redirect", "heredoc_redirect"):
            word = literals.marked(child)
            if child.start_byte == end and found:  # nothing between them: to bash one word
                found[-1] += word
            else:
                found.append(word)
            end = child.end_byte
    if place.parent is not None and place.parent.type == "redirected_statement":
        for sibling in place.parent.children:
            if sibling.type == "file_redirect":
                found += _words_after_redirection(sibling, literals)
    return found


def _is_quoted_heredoc(redirect: Node) -> bool:
    return any(child.type == "heredoc_start" and _QUOTES.search(source(child)) for child in redirect.children)


def _words_after_redirection(redirect: Node, literals: Literals) -> list[str]:
    """tree-sitter hangs the arguments after `>file` on the redirection; the first one is the file."""
    operands = [child for child in redirect.named_children if child.type != "file_descriptor"]
    return [literals.marked(operand) for operand in operands[1:]]


def _named(words: Sequence[str]) -> Sequence[str]:
    """The program by its name alone. What git runs for a subcommand can be called directly."""
    name = programs.program_name(words[0]) if words else ""
    return [*(["git", name[4:]] if name.startswith("git-") else [name]), *words[1:]]


def _names_are_known(words: Sequence[str]) -> bool:
    """Whether the program, and the program or text that it is given to run, are literal."""
    name = programs.program_name(words[0]) if words else ""
    if name in programs.RUNS_ITS_TEXT or name in programs.SHELLS:
        return not any(Literals.UNKNOWN in word for word in words)
    if name in programs.LAUNCHERS:
        inner = programs.inner_commands(words, programs.LAUNCHERS[name])
        return not any(Literals.UNKNOWN in command[0] for command in inner)
    return Literals.UNKNOWN not in name


def _takes_commands_from_stdin(words: Sequence[str]) -> bool:
    names = [programs.program_name(word) for word in words[:MAX_WORDS_KEPT]]
    candidates = names if names and names[0] in programs.LAUNCHERS else names[:1]
    return not (programs.SHELLS | programs.READS_ITS_PROGRAM | _RUN_STDIN).isdisjoint(candidates)
