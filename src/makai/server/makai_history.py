"""The beginning of an open run, for a client that joins in the middle: its events without deltas."""

from __future__ import annotations

from typing import Final

from makai.core.session_events import Logged, RunFailed, RunFinished, RunStarted
from makai.sessions.log.base import LoggedEvent
from makai.sessions.log.encoding import decoded
from makai.sessions.requests import ReadEvents
from makai.sessions.service import Sessions

_FIRST_LOOK: Final = 500
"""How many events back a run most likely began."""


async def open_run(sessions: Sessions, session_id: str, upto: int) -> list[Logged]:
    """The events of the run that has started and not settled at event `upto`; none when there is none.

    Logs are read forward, so it looks further and further back: at most twice as far as the run is long.
    """
    look = _FIRST_LOOK
    while upto > 0:
        after = max(upto - look, 0)
        events = [event for event in await _between(sessions, session_id, after, upto) if isinstance(event, Logged)]
        for place in range(len(events) - 1, -1, -1):
            if isinstance(events[place].event, RunFinished | RunFailed):
                return []
            if isinstance(events[place].event, RunStarted):
                return events[place:]
        if after == 0:
            return []
        look *= 2
    return []


async def _between(sessions: Sessions, session_id: str, after: int, upto: int) -> list[LoggedEvent]:
    """Everything above `after` up to `upto`, deltas left out."""
    events: list[LoggedEvent] = []
    while after < upto:
        page = decoded(await sessions.dispatch(ReadEvents(session_id, after, upto - after, deltas=False)))
        if not page:
            break
        after = page[-1].event_id
        events += [event for event in page if event.event_id <= upto]
    return events
