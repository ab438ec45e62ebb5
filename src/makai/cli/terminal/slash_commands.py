"""The slash commands of a chat: their names and help, how a line is parsed, and what each command does."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from makai.cli.session_selection import find_session
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.folder_trust import project_files
from makai.cli.terminal.status_area import short_model
from makai.cli.terminal.styled_text import Line, Lines, Piece, Span, line, lines_of, note
from makai.cli.terminal.usage_text import duration, session_totals
from makai.core.errors import InvalidRequest
from makai.core.usage import Usage
from makai.core.visible_text import one_line
from makai.sessions.log.base import SessionFilter, SessionSummary
from makai.sessions.requests import IsTrusted, ListSessions, SetTrust


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


# ---------------------------------------------------------------- what they do

MOST_LISTED: Final = 12


async def obey(chat: ChatSession, name: str, argument: str) -> list[Piece]:
    """Carry out a command of `slash.COMMANDS`, but for `quit`."""
    return await _ACTIONS[name](chat, argument)


async def _model(chat: ChatSession, argument: str) -> list[Piece]:
    if argument:
        await chat.set_model(argument)
        return []
    return [
        note(f"{short_model(chat.view.state.model_ref)}\n/model provider/model changes it; `makai models list`", "")
    ]


async def _mode(chat: ChatSession, argument: str) -> list[Piece]:
    if argument:
        await chat.set_mode(argument)
        return []
    return [note(f"{chat.view.state.mode}\n{_MODE_HELP}", "")]


async def _steer(chat: ChatSession, argument: str) -> list[Piece]:
    if not argument:
        raise InvalidRequest("what shall the agent be told?", hint="Write /steer and your words.")
    await chat.send(argument, "steer")
    return []


async def _compact(chat: ChatSession, argument: str) -> list[Piece]:
    await chat.compact(argument)
    return []


async def _new(chat: ChatSession, argument: str) -> list[Piece]:
    before = chat.session_id
    chat.start_over()
    stays = f" The one before stays: /resume {before[:8]}" if before else ""
    return [note(f"A new session begins with your next message.{stays}")]


async def _fork(chat: ChatSession, argument: str) -> list[Piece]:
    before = chat.session_id
    session_id = await chat.fork()
    return [note(f"Session {session_id}, a copy of {before}.")]


async def _resume(chat: ChatSession, argument: str) -> list[Piece]:
    if not argument:
        found = await chat.sessions.dispatch(ListSessions(SessionFilter(limit=MOST_LISTED, cwd=chat.cwd)))
        return [_listed(found, chat, "There is no session of this folder yet."), note("/resume ID goes to one.")]
    await chat.open((await find_session(chat.sessions, argument)).session_id)
    return []


async def _sessions(chat: ChatSession, argument: str) -> list[Piece]:
    found = await chat.sessions.dispatch(ListSessions(SessionFilter(limit=MOST_LISTED)))
    return [_listed(found, chat, "There is no session yet."), note("/resume ID goes to one.")]


async def _title(chat: ChatSession, argument: str) -> list[Piece]:
    if argument:
        await chat.set_title(argument)
        return []
    return [note(one_line(chat.view.state.title) or "The session has no title; /title TEXT gives it one.", "")]


async def _cost(chat: ChatSession, argument: str) -> list[Piece]:
    newest = chat.view.usage
    settled = chat.view.state.usage
    run = chat.view.state.active_run
    return [session_totals(settled + run.usage if run else settled or Usage(), newest)]


async def _trust(chat: ChatSession, argument: str) -> list[Piece]:
    folder = chat.cwd
    if folder is None:
        raise InvalidRequest("this session works in no folder.")
    if argument.lower() in ("yes", "no"):
        await chat.sessions.dispatch(SetTrust(folder, argument.lower() == "yes"))
    elif argument:
        raise InvalidRequest(f"/trust {argument} is unclear.", hint="Write /trust yes or /trust no.")
    trusted = await chat.sessions.dispatch(IsTrusted(folder))
    files = ", ".join(map(one_line, project_files(folder))) or "none"
    return [
        note(f"{one_line(folder)} is {'trusted' if trusted else 'not trusted'}. Its project files: {files}.", ""),
        note(f"/trust {'no' if trusted else 'yes'} changes that."),
    ]


async def _help(chat: ChatSession, argument: str) -> list[Piece]:
    return [Lines(lines=tuple(lines_of(help_text())))]


_MODE_HELP: Final = """\
  ask           asks before it changes files or runs commands
  accept_edits  changes files in the folder without asking
  plan          looks only, changes nothing
  full_access   asks nothing; the sandbox is all there is between it and your files"""


def _listed(found: Sequence[SessionSummary], chat: ChatSession, when_none: str) -> Lines:
    if not found:
        return note(when_none, "")
    now = time.time()
    return Lines(lines=tuple(_row(summary, chat.session_id, now) for summary in found))


def _row(summary: SessionSummary, current: str | None, now: float) -> Line:
    mark = "*" if summary.session_id == current else " "
    ago = duration(max(0.0, now - summary.updated_ms / 1000))
    asks = "  asks for you" if summary.pending_approvals else ""
    title = one_line(summary.title)[:50] or "(no title)"
    return line(
        Span(f"{mark} {summary.session_id[:8]}", "bold"),
        Span(f"  {title}  "),
        Span(f"{summary.status}, {ago} ago, {short_model(summary.model_ref)}", "dim"),
        Span(asks, "warn"),
    )


_ACTIONS: Final[dict[str, Callable[[ChatSession, str], Awaitable[list[Piece]]]]] = {
    "model": _model,
    "mode": _mode,
    "steer": _steer,
    "compact": _compact,
    "new": _new,
    "fork": _fork,
    "resume": _resume,
    "sessions": _sessions,
    "title": _title,
    "cost": _cost,
    "trust": _trust,
    "help": _help,
}
