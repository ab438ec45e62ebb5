"""The slash commands of a chat: their names and help, how a line is parsed, and what each command does.

Changes of the session are shown when the session reports them; commands return only what else there is to show.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from makai.agent.builtin_prompts import INIT, REVIEW, with_hints
from makai.agent.custom_commands import CustomCommand
from makai.cli.session_selection import find_session, shown_agent
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.context_usage import context_lines
from makai.cli.terminal.export_commands import copy, export
from makai.cli.terminal.folder_trust import project_files
from makai.cli.terminal.menu import Choice
from makai.cli.terminal.status_commands import MODE_MEANINGS, permissions, servers, status
from makai.cli.terminal.styled_text import Line, Lines, Piece, Span, line, lines_of, note
from makai.cli.terminal.undo_commands import diff, redo, undo
from makai.cli.terminal.usage_text import duration, session_totals
from makai.core.errors import InvalidRequest
from makai.core.server_prompts import MAX_DESCRIPTION
from makai.core.session_events import SANDBOX_MEANINGS, SandboxLevel
from makai.core.usage import Usage
from makai.core.visible_text import exact_line, one_line
from makai.sessions.log.base import SessionFilter, SessionSummary
from makai.sessions.requests import GetPrompt, GetTrust, ListPrompts, ListSessions, SetTrust
from makai.sessions.state import SessionState
from makai.tools.fuzzy import best_matches

MAX_LISTED: Final = 12
MODE_HELP: Final = "\n".join(f"  {mode:<12}  {meaning}" for mode, meaning in MODE_MEANINGS.items())
KEYS: Final = (
    ("Enter", "send; while the agent works, queue the message"),
    ("Ctrl+J, Alt+Enter, \\Enter", "new line; also Shift+Enter where the terminal supports it"),
    ("Esc", "stop the agent"),
    ("Ctrl+C", "clear the line, or stop your !command or the agent; twice: leave"),
    ("Ctrl+D", "leave, on an empty line"),
    ("Ctrl+S", "steer: the agent reads the message after its current step"),
    ("Shift+Tab", "next permission mode: ask, accept_edits, plan"),
    ("Ctrl+O", "show the last shortened output whole"),
    ("Up, Down, Ctrl+R", "earlier messages of this folder"),
    (
        "Up",
        "on an empty line, while you have queued messages: edit the newest; Enter queues it again, Esc drops it",
    ),
    ("Esc Esc", "on an empty line: go back to an earlier message and continue in a copy of the session"),
    ("@", 'attach a file, a folder or a picture; Tab completes, @"with spaces"'),
    ("!COMMAND", "run a shell command as you, outside of the sandbox; the agent reads its output"),
    ("Ctrl+V", "paste a picture from the clipboard"),
    ("Ctrl+G", "write the message in $VISUAL or $EDITOR"),
    ("Ctrl+L, Ctrl+P", "draw the screen again; choose a model"),
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
    return await _list(
        chat, SessionFilter(limit=MAX_LISTED, cwd=chat.cwd, archived="without"), "This folder has no session yet."
    )


async def _sessions(chat: ChatSession, argument: str) -> list[Piece]:
    return await _list(chat, SessionFilter(limit=MAX_LISTED, archived="without"), "There is no session yet.")


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
        Span(f"{summary.status}, {ago} ago, {shown_agent(summary)}", "dim"),
        Span("  waits for your approval" if summary.pending_approvals else "", "warn"),
    )


async def _cost(chat: ChatSession, argument: str) -> list[Piece]:
    settled, run = chat.view.state.usage, chat.view.state.active_run
    return [session_totals(settled + run.usage if run else settled or Usage(), chat.view.usage)]


async def _trust(chat: ChatSession, argument: str) -> list[Piece]:
    folder = chat.cwd
    if folder is None:
        raise InvalidRequest("this session has no folder.")
    answer = argument.lower()
    if answer not in ("", "yes", "no"):
        raise InvalidRequest(f"/trust {argument} is unclear.", hint="Write /trust yes or /trust no.")
    is_decided = True
    if answer:
        is_decided = await chat.sessions.dispatch(SetTrust(folder, answer == "yes", chat.seen_project_files))
    known = await chat.sessions.dispatch(GetTrust(folder))
    chat.seen_project_files = known.digests
    changed = ", ".join(exact_line(diff.path) for diff in known.changed)
    files = ", ".join(map(exact_line, project_files(folder))) or "none"
    state, other = ("trusted", "no") if known.trusted else ("not trusted", "yes")
    return [
        note(f"{exact_line(folder)} is {state}. Its project files: {files}.", ""),
        *(note(f"  {wanted}") for wanted in known.wanted),
        *([note(f"New or changed since, and ignored until you say /trust yes again: {changed}.")] if changed else ()),
        note(f"Change it with /trust {other}." if is_decided else _NOT_SEEN),
    ]


_NOT_SEEN: Final = "Nothing was decided, because you had not seen the project files as they are now. Decide again."


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


async def _login(chat: ChatSession, argument: str) -> list[Piece]:
    from makai.cli.terminal.chat_login import log_in_from_chat  # most chats need none

    return await log_in_from_chat(chat, argument)


async def _context(chat: ChatSession, argument: str) -> list[Piece]:
    history = await chat.conversation()
    is_compacted = chat.view.state.compacted_through > 0
    window = chat.context_window()
    return [context_lines(history.messages(), chat.view.usage, is_compacted=is_compacted, window=window)]


def _asking(prompt: str) -> Action:
    """Sends a fixed request to the agent, with what else the user says."""

    async def action(chat: ChatSession, argument: str) -> None:
        await chat.send(with_hints(prompt, argument))

    return action


async def _help(chat: ChatSession, argument: str) -> list[Piece]:
    return [Lines(lines=tuple(lines_of(help_text(chat.commands))))]


async def _rewind(chat: ChatSession, argument: str) -> list[Piece]:
    """The user interface offers the messages where it can redraw the terminal."""
    raise InvalidRequest(
        "choosing a message needs a terminal that can be redrawn.",
        hint=f"Copy the session up to an event: `makai sessions fork {chat.the_session()} --at EVENT`.",
    )


async def _quit(chat: ChatSession, argument: str) -> list[Piece]:
    raise AssertionError("the user interface leaves")


def _change_model(state: SessionState) -> str:
    if state.capabilities.needs_model:
        return CHANGE_MODEL
    models = ", ".join(one_line(model.id) for model in (state.agent.models if state.agent else ()))
    return f"Change it with /model MODEL; the agent offers: {models}." if models else "The agent offers no choice."


def _budget(state: SessionState) -> str:
    spent, limit = state.usage.cost_usd or 0.0, state.terms.max_usd
    allowed = "without a limit" if limit is None else f"of {limit:g} USD"
    return f"{spent:.4f} USD spent, {allowed}. Change it with /budget USD."


class SlashCommand(msgspec.Struct, frozen=True):
    name: str
    argument: str
    help: str
    action: Action
    aliases: tuple[str, ...] = ()


CHANGE_AGENT: Final = "Change it with /agent NAME; `makai doctor` lists the agents of this machine."
CHANGE_MODEL: Final = "Change it with /model PROVIDER/MODEL; `makai models list` lists them."
NO_TITLE: Final = "The session has no title. Set one with /title TEXT."
_MODEL: Final = _setting(ChatSession.set_model, lambda state: f"{shown_agent(state)}\n{_change_model(state)}")
_AGENT: Final = _setting(ChatSession.set_agent, lambda state: f"{shown_agent(state)}\n{CHANGE_AGENT}")
_BUDGET: Final = _setting(ChatSession.set_budget, lambda state: _budget(state))
_MODE: Final = _setting(ChatSession.set_mode, lambda state: f"{state.mode}\n{MODE_HELP}")
_SANDBOX: Final = _setting(ChatSession.set_sandbox, lambda state: _sandbox_help(state.terms.sandbox))
_TITLE: Final = _setting(ChatSession.set_title, lambda state: one_line(state.title) or NO_TITLE)
COMMANDS: Final = (
    SlashCommand("model", "[MODEL]", "show or change the model, from the next message on", _MODEL),
    SlashCommand("agent", "[NAME [MODEL]]", "show or change the agent, from the next message on", _AGENT, ("agents",)),
    SlashCommand("budget", "[USD|none]", "show or change what the session may cost, over all its agents", _BUDGET),
    SlashCommand("mode", "[MODE]", "show or change the permission mode: ask, accept_edits, plan or never_ask", _MODE),
    SlashCommand("sandbox", "[LEVEL]", "show or change what commands can do, also approved ones", _SANDBOX),
    SlashCommand("permissions", "", "show the mode, the sandbox and what you have allowed", permissions),
    SlashCommand("steer", "TEXT", "send the agent a message while it works", _steer),
    SlashCommand("compact", "[HINTS]", "replace the conversation so far by a summary", ChatSession.compact),
    SlashCommand("new", "", "begin a new session", _new, ("clear",)),
    SlashCommand("fork", "", "continue in a copy of this session", _fork),
    SlashCommand("resume", "[ID]", "continue another session; without an id, list those of this folder", _resume),
    SlashCommand("sessions", "", "list the newest sessions of every folder", _sessions),
    SlashCommand("rewind", "", "go back to before an earlier message, in a copy of the session", _rewind),
    SlashCommand("undo", "[N] [FILE] [yes]", "restore files to before your last message, or N messages back", undo),
    SlashCommand("redo", "[N] [FILE] [yes]", "bring back what was undone", redo),
    SlashCommand("diff", "", "show the files that this session changed", diff),
    SlashCommand("title", "[TEXT]", "show or change the title of the session", _TITLE, ("name", "rename")),
    SlashCommand("status", "", "show the session, its folder, agent, mode and usage", status),
    SlashCommand("cost", "", "show tokens, cost and how full the context is", _cost, ("usage",)),
    SlashCommand("context", "", "show what fills the context window, by kind", _context),
    SlashCommand("export", "[FILE]", "write the session to a file: .md to read, .jsonl for all events", export),
    SlashCommand("copy", "", "copy the last answer to the clipboard", copy),
    SlashCommand("init", "[HINTS]", "let the agent write AGENTS.md about this project", _asking(INIT)),
    SlashCommand("review", "[HINTS]", "let the agent review your uncommitted changes", _asking(REVIEW)),
    SlashCommand("trust", "[yes|no]", "show or change whether files of this folder may configure the agent", _trust),
    SlashCommand("login", "[PROVIDER]", "log in to a provider, or paste an API key", _login),
    SlashCommand("mcp", "", "list your MCP servers and those of this folder", servers),
    SlashCommand("prompts", "[PROMPT]", "list the prompts of your MCP servers, or send one as a message", _prompts),
    SlashCommand("help", "", "show this list", _help, ("hotkeys", "keys")),
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


def custom_message(text: str, custom: Mapping[str, CustomCommand]) -> str | None:
    """What one of the user's own commands sends; None when the text names none. The built-in ones come first."""
    word, _, rest = text[1:].partition(" ")
    command = custom.get(word.lower())
    return None if command is None else command.message(rest.strip())


def hidden_commands(custom: Mapping[str, CustomCommand]) -> list[str]:
    """A sentence about each of the user's own commands that a built-in one hides."""
    hidden = [each for name, each in custom.items() if name in _BY_NAME]
    return [f"{one_line(each.path)} is not used: /{each.name} is a command of makai." for each in hidden]


def unknown(text: str, custom: Iterable[str] = ()) -> str:
    from difflib import get_close_matches  # only a typo pays for this import

    word, names = text[1:].split(" ")[0], [*_BY_NAME, *custom]
    found = get_close_matches(word.lower(), names, n=2, cutoff=0.8) or get_close_matches(word.lower(), names, n=1)
    close = " or ".join(f"/{name}" for name in found)
    return f"Unknown command /{word}. " + (f"Did you mean {close}?" if close else "/help lists them.")


def completions(text: str, custom: Mapping[str, CustomCommand] = MappingProxyType({})) -> list[Choice]:
    """The commands that a text may mean: whose name it begins, then those that have its letters in order."""
    if not text.startswith("/") or " " in text or "\n" in text:
        return []
    begun = text[1:].lower()
    choices = _choices(custom)
    names = {each.name: (each.name, *each.aliases) for each in COMMANDS} | {name: (name,) for name in custom}
    exact = [name for name, known in names.items() if begun in known]
    first = [name for name, known in names.items() if any(each.startswith(begun) for each in known)]
    scattered = best_matches(begun, list(names), len(names)) if begun else []
    return [choices[name] for name in dict.fromkeys([*exact, *first, *scattered])]


def _choices(custom: Mapping[str, CustomCommand]) -> dict[str, Choice]:
    own = {
        name: Choice(value=name, label=f"/{name} {each.argument_hint}".strip(), detail=f"{each.description}")
        for name, each in custom.items()
    }
    built_in = {
        each.name: Choice(value=each.name, label=f"/{each.name} {each.argument}".strip(), detail=each.help)
        for each in COMMANDS
    }
    return own | built_in


def help_text(custom: Mapping[str, CustomCommand] = MappingProxyType({})) -> str:
    rows = [(f"/{command.name} {command.argument}".strip(), command.help) for command in COMMANDS]
    own = [(f"/{each.name} {each.argument_hint}".strip(), one_line(each.description, 70)) for each in custom.values()]
    return "\n".join([*_table(rows), *(["", *_table(own)] if own else []), "", *_table(KEYS)])


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows)
    return [f"  {left:<{width}}  {right}" for left, right in rows]
