"""Which session a person means.

In: what was typed, a whole id or the beginning of one, or a folder. Out: the session as lists show it, or an error that
says what to type instead. It reads the list of sessions and nothing else.
"""

from __future__ import annotations

from typing import Final

from makai.core.errors import InvalidRequest
from makai.sessions.log.base import SessionFilter, SessionSummary
from makai.sessions.markdown_text import one_line
from makai.sessions.requests import GetSession, ListSessions
from makai.sessions.service import Sessions

_PAGE: Final = 500
_MOST_NAMED: Final = 5
LIST_HINT: Final = "`makai sessions list --all` shows every session."


async def find_session(sessions: Sessions, given: str) -> SessionSummary:
    """The session of this id, or the only one whose id begins so."""
    wanted = given.strip()
    if wanted and (exact := await sessions.dispatch(GetSession(wanted))) is not None:
        return exact
    known = await every_session(sessions)
    matching = [summary for summary in known if wanted and summary.session_id.startswith(wanted)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        shown = ", ".join(summary.session_id for summary in matching[:_MOST_NAMED])
        more = f" and {len(matching) - _MOST_NAMED} more" if len(matching) > _MOST_NAMED else ""
        raise InvalidRequest(
            f"{len(matching)} sessions begin with {given!r}: {shown}{more}.", hint="Type more of the id."
        )
    raise InvalidRequest(f"there is no session {given!r}.", hint=_did_you_mean(wanted, known))


def _did_you_mean(wanted: str, known: list[SessionSummary]) -> str:
    from difflib import get_close_matches  # only an error pays for this import

    if not known:
        return 'There is none yet: `makai run "…"` or `makai` begins one.'
    names = {summary.session_id[: max(len(wanted), 4)]: summary for summary in reversed(known)}
    names |= {summary.title.lower(): summary for summary in reversed(known) if summary.title}
    close = get_close_matches(wanted, names, n=1) or get_close_matches(wanted.lower(), names, n=1)
    if not close:
        return LIST_HINT
    meant = names[close[0]]
    title = f" ({one_line(meant.title, 40)})" if meant.title else ""
    return f"Did you mean {meant.session_id}{title}? {LIST_HINT}"


async def every_session(sessions: Sessions, folder: str | None = None) -> list[SessionSummary]:
    """All sessions, or all of a folder, the newest first; read in pages, for a list may be long."""
    found: dict[str, SessionSummary] = {}
    before: int | None = None
    limit = _PAGE
    while True:
        page = await sessions.dispatch(ListSessions(SessionFilter(limit=limit, updated_before_ms=before, cwd=folder)))
        fresh = {summary.session_id: summary for summary in page if summary.session_id not in found}
        found |= fresh
        if len(page) < limit:
            return list(found.values())
        # Several may have changed in one millisecond, so that one is read again; more when that holds nothing new.
        if fresh:
            before = page[-1].updated_ms + 1
        else:
            limit *= 2


async def newest_session(sessions: Sessions, folder: str) -> SessionSummary:
    """The session of a folder that changed last. A closed one cannot go on."""
    for summary in await sessions.dispatch(ListSessions(SessionFilter(cwd=folder))):
        if summary.status != "closed" and not summary.damaged:
            return summary
    raise InvalidRequest(
        f"there is no session of the folder {folder} to continue.", hint=f"Leave -c out to begin one. {LIST_HINT}"
    )
