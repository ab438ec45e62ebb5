"""Finds the session a user means, by an id or its beginning or as the newest one of a folder; names its model."""

from __future__ import annotations

import sys
import time
from typing import Final
from urllib.parse import unquote

from makai.cli.console import CHOOSE
from makai.cli.early_prompt import EARLY_PROMPT
from makai.core.durations import duration
from makai.core.errors import InvalidRequest
from makai.core.visible_text import one_line
from makai.protocols.makai.envelope import is_session_id, log_id_of
from makai.sessions.log.base import SessionFilter, SessionSummary
from makai.sessions.requests import GetSession, ListSessions
from makai.sessions.service import Sessions
from makai.sessions.state import SessionState

_PAGE: Final = 500
MAX_NAMED: Final = 5
MAX_OFFERED: Final = 12
LIST_HINT: Final = "List every session: `makai sessions list --all`."


def short_model(model_ref: str, max_length: int | None = None) -> str:
    """`provider/model`, without the API between them."""
    provider, slash, rest = model_ref.partition("/")
    _, at, model = rest.partition("@")
    return one_line(f"{provider}/{unquote(model)}" if slash and at else model_ref, max_length)


def shown_agent(session: SessionSummary | SessionState, max_length: int | None = None) -> str:
    """What answers in a session: its model, or another agent than makai's own with the model it was told to use."""
    if session.harness == "native":
        return short_model(session.model_ref, max_length)
    names = (session.harness.removeprefix("acp:"), session.model_ref)
    return one_line(" ".join(filter(None, names)), max_length)


async def find_session(sessions: Sessions, given: str) -> SessionSummary:
    """The session with this id, or the only one whose id begins with it or that a program named so."""
    wanted = given.strip()
    if wanted and (exact := await sessions.dispatch(GetSession(wanted))) is not None:
        return exact
    known = await every_session(sessions)
    named = log_id_of(given) if is_session_id(given) else ""
    matching = [
        summary
        for summary in known
        if summary.session_id == named or (wanted and summary.session_id.startswith(wanted))
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        shown = ", ".join(summary.session_id for summary in matching[:MAX_NAMED])
        more = f" and {len(matching) - MAX_NAMED} more" if len(matching) > MAX_NAMED else ""
        so_named = " or have this name" if any(summary.session_id == named for summary in matching) else ""
        several = f"{len(matching)} sessions begin with {given!r}{so_named}: {shown}{more}."
        raise InvalidRequest(several, hint="Type more of the id.")
    raise InvalidRequest(f"there is no session {given!r}.", hint=_did_you_mean(wanted, known))


def _did_you_mean(wanted: str, known: list[SessionSummary]) -> str:
    from difflib import get_close_matches  # only an error pays for this import

    if not known:
        return 'You have none yet. Begin one with `makai run "…"` or `makai`.'
    names = {summary.session_id[: max(len(wanted), 4)]: summary for summary in reversed(known)}
    names |= {summary.title.lower(): summary for summary in reversed(known) if summary.title}
    close = get_close_matches(wanted, names, n=1) or get_close_matches(wanted.lower(), names, n=1)
    if not close:
        return LIST_HINT
    meant = names[close[0]]
    title = f" ({one_line(meant.title, 40)})" if meant.title else ""
    return f"Did you mean {meant.session_id}{title}? {LIST_HINT}"


async def every_session(sessions: Sessions) -> list[SessionSummary]:
    """All sessions, newest first; read page by page."""
    found: dict[str, SessionSummary] = {}
    before: int | None = None
    limit = _PAGE
    while True:
        page = await sessions.dispatch(ListSessions(SessionFilter(limit=limit, updated_before_ms=before)))
        fresh = {summary.session_id: summary for summary in page if summary.session_id not in found}
        found |= fresh
        if len(page) < limit:
            return list(found.values())
        # Several may have changed in one millisecond, so that one is read again; more when that holds nothing new.
        if fresh:
            before = page[-1].updated_ms + 1
        else:
            limit *= 2


async def chosen_session(sessions: Sessions, given: str | None, folder: str) -> SessionSummary:
    """The session of that id, or the one that the user chooses; without an id, the session of the folder that changed
    last and is not closed."""
    if given == CHOOSE:
        return await _asked_session(sessions, folder)
    if given is not None:
        return await find_session(sessions, given)
    for summary in await sessions.dispatch(ListSessions(SessionFilter(cwd=folder, archived="without"))):
        if summary.status != "closed" and not summary.damaged:
            return summary
    hint = f"Leave out -c to begin one. {LIST_HINT}"
    raise InvalidRequest(f"there is no session to continue in {folder}.", hint=hint)


async def _asked_session(sessions: Sessions, folder: str) -> SessionSummary:
    """Let the user choose among the newest sessions of the folder."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest("there is no terminal to choose a session on.", hint=f"Give its id: -r ID. {LIST_HINT}")
    found = await sessions.dispatch(ListSessions(SessionFilter(cwd=folder, limit=MAX_OFFERED, archived="without")))
    if not found:
        raise InvalidRequest(f"there is no session to continue in {folder}.", hint=LIST_HINT)
    from makai.cli.menu import choose  # only this question needs it

    now = time.time()
    options = [
        f"{one_line(each.title, 60) or '(no title)'}  ({duration(max(0.0, now - each.updated_ms / 1000))} ago, "
        f"{shown_agent(each)}, {each.session_id[:8]})"
        for each in found
    ]
    with EARLY_PROMPT.set_aside():
        chosen = await choose("Which session do you want to continue?", options)
    if chosen is None:
        raise InvalidRequest("no session was chosen.")
    return found[chosen]
