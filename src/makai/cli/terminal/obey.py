"""What the slash commands do.

In: a command and its argument. Out: pieces to show; what a command changes in the session shows itself when the session
says so. The names and the help are in `slash`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from makai.cli.sessions_find import find_session
from makai.cli.terminal.live import short_model
from makai.cli.terminal.slash import help_text
from makai.cli.terminal.talk import Talk
from makai.cli.terminal.text import Line, Lines, Piece, Span, line, lines_of, note
from makai.cli.terminal.totals import duration, session_totals
from makai.cli.terminal.trust import project_files
from makai.cli.terminal.visible import one_line
from makai.core.errors import InvalidRequest
from makai.core.usage import Usage
from makai.sessions.log.base import SessionFilter, SessionSummary

MOST_LISTED: Final = 12


async def obey(talk: Talk, name: str, argument: str) -> list[Piece]:
    """Carry out a command of `slash.COMMANDS`, but for `quit`."""
    return await _ACTIONS[name](talk, argument)


async def _model(talk: Talk, argument: str) -> list[Piece]:
    if argument:
        await talk.set_model(argument)
        return []
    return [
        note(f"{short_model(talk.view.state.model_ref)}\n/model provider/model changes it; `makai models list`", "")
    ]


async def _mode(talk: Talk, argument: str) -> list[Piece]:
    if argument:
        await talk.set_mode(argument)
        return []
    return [note(f"{talk.view.state.mode}\n{_MODE_HELP}", "")]


async def _steer(talk: Talk, argument: str) -> list[Piece]:
    if not argument:
        raise InvalidRequest("what shall the agent be told?", hint="Write /steer and your words.")
    await talk.send(argument, "steer")
    return []


async def _compact(talk: Talk, argument: str) -> list[Piece]:
    await talk.compact(argument)
    return []


async def _new(talk: Talk, argument: str) -> list[Piece]:
    before = talk.session_id
    talk.start_over()
    stays = f" The one before stays: /resume {before[:8]}" if before else ""
    return [note(f"A new session begins with your next message.{stays}")]


async def _fork(talk: Talk, argument: str) -> list[Piece]:
    before = talk.session_id
    session_id = await talk.fork()
    return [note(f"Session {session_id}, a copy of {before}.")]


async def _resume(talk: Talk, argument: str) -> list[Piece]:
    if not argument:
        found = await talk.sessions.summaries(SessionFilter(limit=MOST_LISTED, cwd=talk.cwd))
        return [_listed(found, talk, "There is no session of this folder yet."), note("/resume ID goes to one.")]
    await talk.open((await find_session(talk.sessions, argument)).session_id)
    return []


async def _sessions(talk: Talk, argument: str) -> list[Piece]:
    found = await talk.sessions.summaries(SessionFilter(limit=MOST_LISTED))
    return [_listed(found, talk, "There is no session yet."), note("/resume ID goes to one.")]


async def _title(talk: Talk, argument: str) -> list[Piece]:
    if argument:
        await talk.set_title(argument)
        return []
    return [note(one_line(talk.view.state.title) or "The session has no title; /title TEXT gives it one.", "")]


async def _cost(talk: Talk, argument: str) -> list[Piece]:
    newest = talk.view.usage
    settled = talk.view.state.usage
    run = talk.view.state.active_run
    return [session_totals(settled + run.usage if run else settled or Usage(), newest)]


async def _trust(talk: Talk, argument: str) -> list[Piece]:
    folder = talk.cwd
    if folder is None:
        raise InvalidRequest("this session works in no folder.")
    if argument.lower() in ("yes", "no"):
        await talk.sessions.trust(folder, argument.lower() == "yes")
    elif argument:
        raise InvalidRequest(f"/trust {argument} is unclear.", hint="Write /trust yes or /trust no.")
    trusted = await talk.sessions.is_trusted(folder)
    files = ", ".join(map(one_line, project_files(folder))) or "none"
    return [
        note(f"{one_line(folder)} is {'trusted' if trusted else 'not trusted'}. Its project files: {files}.", ""),
        note(f"/trust {'no' if trusted else 'yes'} changes that."),
    ]


async def _help(talk: Talk, argument: str) -> list[Piece]:
    return [Lines(lines=tuple(lines_of(help_text())))]


_MODE_HELP: Final = """\
  ask           asks before it changes files or runs commands
  accept_edits  changes files in the folder without asking
  plan          looks only, changes nothing
  full_access   asks nothing; the sandbox is all there is between it and your files"""


def _listed(found: Sequence[SessionSummary], talk: Talk, when_none: str) -> Lines:
    if not found:
        return note(when_none, "")
    now = time.time()
    return Lines(lines=tuple(_row(summary, talk.session_id, now) for summary in found))


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


_ACTIONS: Final[dict[str, Callable[[Talk, str], Awaitable[list[Piece]]]]] = {
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
