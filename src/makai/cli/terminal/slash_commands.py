"""The slash commands of a chat: their names and help, how a line is parsed, and what each command does.

Changes of the session are shown when the session reports them; commands return only what else there is to show.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from makai.agent.project_trust import wanted_by_servers
from makai.cli.session_selection import find_session, short_model
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.folder_trust import project_files
from makai.cli.terminal.styled_text import Line, Lines, Piece, Span, line, lines_of, note
from makai.cli.terminal.usage_text import duration, session_totals
from makai.core.errors import InvalidRequest
from makai.core.server_prompts import MAX_DESCRIPTION
from makai.core.session_events import SANDBOX_MEANINGS, SandboxLevel
from makai.core.usage import Usage
from makai.core.visible_text import one_line
from makai.sessions.log.base import SessionFilter, SessionSummary
from makai.sessions.requests import GetPrompt, GetTrust, ListPrompts, ListSessions, SetTrust
from makai.sessions.state import SessionState

MAX_LISTED: Final = 12
MODE_HELP: Final = """\
  ask           asks before it changes files or runs commands
  accept_edits  changes files in the folder without asking
  plan          reads only, changes nothing
  never_ask     asks nothing; only the sandbox protects your files"""
KEYS: Final = (
    ("Enter", "send; while the agent works, queue the message"),
    ("Ctrl+J, Alt+Enter, \\Enter", "new line; also Shift+Enter where the terminal supports it"),
    ("Esc", "stop the agent"),
    ("Ctrl+C", "clear the line, or stop the agent; twice: leave"),
    ("Ctrl+D", "leave, on an empty line"),
    ("Ctrl+S", "steer: the agent reads the message after its current step"),
    ("Shift+Tab", "next permission mode: ask, accept_edits, plan"),
    ("Ctrl+O", "show the last shortened output whole"),
    ("Up, Down, Ctrl+R", "earlier messages, also of other chats"),
)


def _sandbox_help(level: SandboxLevel) -> str:
    return "\n".join([level, *(f"  {name:<15}  {meaning}" for name, meaning in SANDBOX_MEANINGS.items())])


Action: TypeAlias = Callable[[ChatSession, str], Awaitable[list[Piece] | None]]


def _setting(change: Callable[[ChatSession, str], Awaitable[None]], told: Callable[[SessionState], str]) -> Action:
    """Changes something of the session; without an argument, tells what it is."""

    async def action(chat: ChatSession, argument: str) -> list[Piece] | None:
        if not argument:
            return [note(told(chat.view.state), "")]
        await change(chat, argument)
        return None

    return action


async def _steer(chat: ChatSession, argument: str) -> None:
    if not argument:
        raise InvalidRequest("the message is missing.", hint="Write /steer and your message.")
    await chat.send(argument, "steer")


async def _new(chat: ChatSession, argument: str) -> list[Piece]:
    before = chat.session_id
    chat.start_over()
    back = f" To return to the last one: /resume {before[:8]}" if before else ""
    return [note(f"Your next message begins a new session.{back}")]


async def _fork(chat: ChatSession, argument: str) -> list[Piece]:
    before = chat.session_id
    return [note(f"Session {await chat.fork()}, a copy of {before}.")]


async def _resume(chat: ChatSession, argument: str) -> list[Piece] | None:
    if argument:
        await chat.open((await find_session(chat.sessions, argument)).session_id)
        return None
    return await _list(chat, SessionFilter(limit=MAX_LISTED, cwd=chat.cwd), "This folder has no session yet.")


async def _sessions(chat: ChatSession, argument: str) -> list[Piece]:
    return await _list(chat, SessionFilter(limit=MAX_LISTED), "There is no session yet.")


async def _list(chat: ChatSession, wanted: SessionFilter, when_none: str) -> list[Piece]:
    found = await chat.sessions.dispatch(ListSessions(wanted))
    if not found:
        return [note(when_none, "")]
    now = time.time()
    rows = Lines(lines=tuple(_row(summary, chat.session_id, now) for summary in found))
    return [rows, note("Continue one with /resume ID.")]


def _row(summary: SessionSummary, current: str | None, now: float) -> Line:
    mark = "*" if summary.session_id == current else " "
    ago = duration(max(0.0, now - summary.updated_ms / 1000))
    return line(
        Span(f"{mark} {summary.session_id[:8]}", "bold"),
        Span(f"  {one_line(summary.title, 50) or '(no title)'}  "),
        Span(f"{summary.status}, {ago} ago, {short_model(summary.model_ref)}", "dim"),
        Span("  waits for your approval" if summary.pending_approvals else "", "warn"),
    )


async def _cost(chat: ChatSession, argument: str) -> list[Piece]:
    settled, run = chat.view.state.usage, chat.view.state.active_run
    return [session_totals(settled + run.usage if run else settled or Usage(), chat.view.usage)]


async def _trust(chat: ChatSession, argument: str) -> list[Piece]:
    folder = chat.cwd
    if folder is None:
        raise InvalidRequest("this session has no folder.")
    if argument.lower() in ("yes", "no"):
        await chat.sessions.dispatch(SetTrust(folder, argument.lower() == "yes"))
    elif argument:
        raise InvalidRequest(f"/trust {argument} is unclear.", hint="Write /trust yes or /trust no.")
    known = await chat.sessions.dispatch(GetTrust(folder))
    trusted = known.trusted
    changed = ", ".join(one_line(diff.path) for diff in known.changed)
    files = ", ".join(map(one_line, project_files(folder))) or "none"
    return [
        note(f"{one_line(folder)} is {'trusted' if trusted else 'not trusted'}. Its project files: {files}.", ""),
        *(note(f"  {wanted}") for wanted in wanted_by_servers(folder)),
        *([note(f"New or changed since, and ignored until you say /trust yes again: {changed}.")] if changed else ()),
        note(f"Change it with /trust {'no' if trusted else 'yes'}."),
    ]


async def _prompts(chat: ChatSession, argument: str) -> list[Piece] | None:
    """Without an argument, list the prompts of the session's MCP servers; else send one as a message."""
    session_id = await chat.begun()
    prompts = await chat.sessions.dispatch(ListPrompts(session_id))
    if not argument:
        if not prompts:
            return [note("No MCP server of this session offers prompts.", "")]
        rows = [
            line(Span(prompt.usage(), "bold"), Span(f"  {one_line(prompt.description, MAX_DESCRIPTION)}", "dim"))
            for prompt in prompts
        ]
        return [Lines(lines=tuple(rows)), note("Send one with /prompts SERVER/NAME argument=value.")]
    try:
        ref, *words = shlex.split(argument)
    except ValueError:
        raise InvalidRequest("a quotation mark is missing.") from None
    prompt = next((prompt for prompt in prompts if prompt.ref == ref), None)
    if prompt is None:
        raise InvalidRequest(f"there is no prompt {one_line(ref)}.", hint="/prompts lists them.")
    given = {name: value for name, _, value in (word.partition("=") for word in words)}
    prompt.check(given)
    await chat.send(await chat.sessions.dispatch(GetPrompt(session_id, prompt.server, prompt.name, given)))
    return None


async def _help(chat: ChatSession, argument: str) -> list[Piece]:
    return [Lines(lines=tuple(lines_of(help_text())))]


async def _quit(chat: ChatSession, argument: str) -> list[Piece]:
    raise AssertionError("the user interface leaves")


class SlashCommand(msgspec.Struct, frozen=True):
    name: str
    argument: str
    help: str
    action: Action
    aliases: tuple[str, ...] = ()


CHANGE_MODEL: Final = "Change it with /model PROVIDER/MODEL; `makai models list` lists them."
NO_TITLE: Final = "The session has no title. Set one with /title TEXT."
_MODEL: Final = _setting(ChatSession.set_model, lambda state: f"{short_model(state.model_ref)}\n{CHANGE_MODEL}")
_MODE: Final = _setting(ChatSession.set_mode, lambda state: f"{state.mode}\n{MODE_HELP}")
_SANDBOX: Final = _setting(ChatSession.set_sandbox, lambda state: _sandbox_help(state.terms.sandbox))
_TITLE: Final = _setting(ChatSession.set_title, lambda state: one_line(state.title) or NO_TITLE)
COMMANDS: Final = (
    SlashCommand("model", "[MODEL]", "show or change the model, from the next message on", _MODEL),
    SlashCommand("mode", "[MODE]", "show or change the permission mode: ask, accept_edits, plan or never_ask", _MODE),
    SlashCommand("sandbox", "[LEVEL]", "show or change what commands can do, also approved ones", _SANDBOX),
    SlashCommand("steer", "TEXT", "send the agent a message while it works", _steer),
    SlashCommand("compact", "[HINTS]", "replace the conversation so far by a summary", ChatSession.compact),
    SlashCommand("new", "", "begin a new session", _new, ("clear",)),
    SlashCommand("fork", "", "continue in a copy of this session", _fork),
    SlashCommand("resume", "[ID]", "continue another session; without an id, list those of this folder", _resume),
    SlashCommand("sessions", "", "list the newest sessions of every folder", _sessions),
    SlashCommand("title", "[TEXT]", "show or change the title of the session", _TITLE),
    SlashCommand("cost", "", "show tokens, cost and how full the context is", _cost),
    SlashCommand("trust", "[yes|no]", "show or change whether files of this folder may configure the agent", _trust),
    SlashCommand("prompts", "[PROMPT]", "list the prompts of your MCP servers, or send one as a message", _prompts),
    SlashCommand("help", "", "show this list", _help),
    SlashCommand("quit", "", "leave; the session is kept", _quit, ("exit", "q")),
)
_BY_NAME: Final = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}


def parse(text: str) -> tuple[str, str] | None:
    """The name of a command and its argument; None for a message. The name of an unknown command is ""."""
    if not text.startswith("/"):
        return None
    word, _, rest = text[1:].partition(" ")
    if "/" in word or "\n" in word:
        return None  # a path, or a pasted text
    command = _BY_NAME.get(word.lower())
    return "" if command is None else command.name, rest.strip()


async def carry_out(chat: ChatSession, name: str, argument: str) -> list[Piece]:
    """Carry out any command but `quit`; returns what to show."""
    return await _BY_NAME[name].action(chat, argument) or []


def unknown(text: str) -> str:
    from difflib import get_close_matches  # only a typo pays for this import

    word = text[1:].split(" ")[0]
    close = get_close_matches(word.lower(), _BY_NAME, n=1)
    return f"Unknown command /{word}. " + (f"Did you mean /{close[0]}?" if close else "/help lists them.")


def completions(text: str) -> list[SlashCommand]:
    if not text.startswith("/") or " " in text or "\n" in text:
        return []
    begun = text[1:].lower()
    return [command for command in COMMANDS if any(name.startswith(begun) for name in (command.name, *command.aliases))]


def help_text() -> str:
    rows = [(f"/{command.name} {command.argument}".strip(), command.help) for command in COMMANDS]
    return "\n".join([*_table(rows), "", *_table(KEYS)])


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows)
    return [f"  {left:<{width}}  {right}" for left, right in rows]
