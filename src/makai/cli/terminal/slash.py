"""The commands that begin with a slash: their names, their help, and what a person may have meant.

In: a line. Out: a command and its argument, or words about why there is none. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec


class SlashCommand(msgspec.Struct, frozen=True):
    """A command as `/help` shows it."""

    name: str
    argument: str
    help: str
    aliases: tuple[str, ...] = ()


COMMANDS: Final = (
    SlashCommand("model", "[MODEL]", "show or change the model, from the next message on"),
    SlashCommand("mode", "[MODE]", "ask, accept_edits, plan or full_access"),
    SlashCommand("steer", "TEXT", "tell the agent something while it works"),
    SlashCommand("compact", "[HINTS]", "replace the conversation so far by a summary"),
    SlashCommand("new", "", "begin another session", ("clear",)),
    SlashCommand("fork", "", "go on in a copy of this session"),
    SlashCommand("resume", "[ID]", "go to another session; without an id, those of this folder"),
    SlashCommand("sessions", "", "the newest sessions of every folder"),
    SlashCommand("title", "[TEXT]", "show or change the title of the session"),
    SlashCommand("cost", "", "tokens, money and how full the context is"),
    SlashCommand("trust", "[yes|no]", "whether the files of this folder may configure the agent"),
    SlashCommand("help", "", "this list"),
    SlashCommand("quit", "", "leave; the session stays", ("exit", "q")),
)
KEYS: Final = (
    ("Enter", "send; while the agent works, queue it for afterwards"),
    ("Ctrl+J, Alt+Enter, \\Enter", "a new line; Shift+Enter where it is told apart"),
    ("Esc", "stop the agent"),
    ("Ctrl+C", "clear the line, or stop the agent; twice: leave"),
    ("Ctrl+D", "leave, on an empty line"),
    ("Ctrl+S", "steer: the agent reads it after its current step"),
    ("Shift+Tab", "the next permission mode: ask, accept_edits, plan"),
    ("Ctrl+O", "show all of what was shortened last"),
    ("Up, Down, Ctrl+R", "what you typed before, in this and earlier chats"),
)
_NAMES: Final = {name: command.name for command in COMMANDS for name in (command.name, *command.aliases)}


def parse(line: str) -> tuple[str, str] | None:
    """A command's own name and its argument; None for words that are no command. The name of an unknown one is ""."""
    if not line.startswith("/"):
        return None
    word, _, rest = line[1:].partition(" ")
    if "/" in word or "\n" in word:
        return None  # a path, or a pasted text
    return _NAMES.get(word.lower(), ""), rest.strip()


def unknown(line: str) -> str:
    """What to say about a command that is none."""
    from difflib import get_close_matches  # only a typo pays for this import

    word = line[1:].split(" ")[0]
    close = get_close_matches(word.lower(), _NAMES, n=1)
    return f"Unknown command /{word}. " + (f"Did you mean /{close[0]}?" if close else "/help lists them.")


def completions(line: str) -> list[SlashCommand]:
    """Commands that begin so, for a line that may become one."""
    if not line.startswith("/") or " " in line or "\n" in line:
        return []
    begun = line[1:].lower()
    return [command for command in COMMANDS if any(name.startswith(begun) for name in (command.name, *command.aliases))]


def help_text(keys: bool = True) -> str:
    """What `/help` shows."""
    rows = [(f"/{command.name} {command.argument}".strip(), command.help) for command in COMMANDS]
    return "\n".join([*_table(rows), *(["", *_table(KEYS)] if keys else [])])


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows)
    return [f"  {left:<{width}}  {right}" for left, right in rows]
