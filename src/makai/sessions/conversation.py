"""Reads the conversation of a session from its log. Deltas are read only where there is nothing else: of turns that
broke off before their text was whole, and of agents without turns."""

from __future__ import annotations

from collections.abc import AsyncIterator

from makai.core.session_events import Compacted, Logged, RunStarted, SessionCreated, TurnEnded, TurnStarted
from makai.sessions.history import History
from makai.sessions.log.base import EventLog, LoggedEvent, replay


async def conversation(
    log: EventLog, session_id: str, through: int | None = None, *, summary: int | None = None
) -> History:
    """The history of a session up to an event. `summary` is `SessionState.compacted_through` when the caller knows it;
    else it is looked for."""
    start = await _last_summary(log, session_id, through) if summary is None else summary
    history = History()
    async for logged in with_broken_turns(log, session_id, start, through):
        history.apply(logged)
    return history


async def _last_summary(log: EventLog, session_id: str, through: int | None) -> int:
    """The event before which nothing is needed: a summary stands for it."""
    start = 0
    async for logged in _until(replay(log, session_id, deltas=False), through):
        if isinstance(logged, Logged) and isinstance(logged.event, Compacted):
            start = logged.event.through
    return start


async def with_broken_turns(
    log: EventLog, session_id: str, after: int, through: int | None
) -> AsyncIterator[LoggedEvent]:
    """Events without deltas, but for those of turns that broke off."""
    turn: list[LoggedEvent] = []
    async for logged in _until(replay(log, session_id, after, deltas=False), through):
        event = logged.event if isinstance(logged, Logged) else None
        if (isinstance(event, SessionCreated) and not event.capabilities.has_turns) or (
            isinstance(event, RunStarted) and event.without_turns
        ):
            for earlier in turn:
                yield earlier
            async for every in _until(replay(log, session_id, logged.event_id - 1), through):
                yield every
            return
        if isinstance(event, TurnStarted):
            for earlier in turn:
                yield earlier
            turn = [logged]
        elif turn:
            turn.append(logged)
            if isinstance(event, TurnEnded):
                if event.stop_reason in ("aborted", "error"):
                    first, last = turn[0].event_id, logged.event_id
                    turn = [every async for every in _until(replay(log, session_id, first - 1), last)]
                for earlier in turn:
                    yield earlier
                turn = []
        else:
            yield logged
    if turn:  # a fork in the middle of an answer, or one that its process did not live to end
        turn = [every async for every in _until(replay(log, session_id, turn[0].event_id - 1), through)]
    for earlier in turn:
        yield earlier


async def _until(events: AsyncIterator[LoggedEvent], through: int | None) -> AsyncIterator[LoggedEvent]:
    async for logged in events:
        if through is not None and logged.event_id > through:
            return
        yield logged
