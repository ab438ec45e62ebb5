"""The open sessions as MiniCodex clients see them: one view per session, however many clients it has. It follows the
log and wakes its connections, as long as one holds it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from makai.core.errors import MakaiError, SessionRefused
from makai.protocols.minicodex.pages import RunLookup, TranscriptReader, Window
from makai.protocols.minicodex.view import SessionView, transcript_reader
from makai.sessions.log import encoding
from makai.sessions.log.base import LoggedEvent
from makai.sessions.requests import GetState, ReadEvents
from makai.sessions.service import Follower, Sessions

log = logging.getLogger(__name__)

CATCH_UP_S: Final = 30.0
"""How long a view may take to reach an event that is durable."""
_EVENTS_IN_A_ROW: Final = 500
_READ_STEP: Final = 256


class SharedView:
    def __init__(self, sessions: Sessions, view: SessionView) -> None:
        self.view = view
        self.sessions = sessions
        self.connections: set[Callable[[], None]] = set()
        """Called after every batch of events, and when the session is gone."""
        self.gone: MakaiError | None = None
        """Why nothing more will come."""
        self._follower: Follower = sessions.follow(view.session_id, view.last_event_id)
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._follow(), name=f"makai-view-{view.session_id}")

    async def until(self, event_id: int) -> None:
        async with asyncio.timeout(CATCH_UP_S):
            while self.view.last_event_id < event_id:
                if self.gone is not None:
                    raise self.gone
                self._news.clear()
                await self._news.wait()

    async def close(self) -> None:
        self._follower.close()
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=5.0)

    async def _follow(self) -> None:
        try:
            while records := await self._follower.next():
                for first in range(0, len(records), _EVENTS_IN_A_ROW):
                    for logged in encoding.decoded(records[first : first + _EVENTS_IN_A_ROW]):
                        self.view.take(logged)
                    self._wake()
                    await asyncio.sleep(0)
            self.gone = MakaiError("The sessions are closed.")
        except MakaiError as error:
            self.gone = error
        except Exception:
            log.exception("a session is no longer followed")
            self.gone = MakaiError("The server failed.")
        finally:
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        for wake in tuple(self.connections):
            wake()


class SessionViews:
    def __init__(self, sessions: Callable[[], Awaitable[Sessions]]) -> None:
        self._sessions = sessions
        self._open: dict[str, SharedView] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def enter(self, session_id: str, wake: Callable[[], None]) -> SharedView:
        """Look at a session; its view has everything that is durable now."""
        sessions = await self._sessions()
        lock = self._opening.setdefault(session_id, asyncio.Lock())
        try:
            async with lock:
                shared = self._open.get(session_id)
                if shared is None or shared.gone is not None:
                    state = await sessions.dispatch(GetState(session_id))
                    reader = transcript_reader(state)
                    await read_transcript(sessions, session_id, reader)
                    shared = SharedView(sessions, SessionView(session_id, state, reader))
                    self._open[session_id] = shared
                shared.connections.add(wake)
        except BaseException:
            if session_id not in self._open:
                self._opening.pop(session_id, None)  # sessions that do not exist leave nothing behind
            raise
        try:
            await shared.until((await sessions.dispatch(GetState(session_id))).last_event_id)
        except BaseException:
            await self.leave(shared, wake)
            raise
        return shared

    async def leave(self, shared: SharedView, wake: Callable[[], None]) -> None:
        """Look away; the last one to leave ends the view."""
        shared.connections.discard(wake)
        session_id = shared.view.session_id
        if shared.connections:
            return
        if self._open.get(session_id) is shared:
            del self._open[session_id]
            self._opening.pop(session_id, None)
        await shared.close()


async def read_transcript(sessions: Sessions, session_id: str, reader: TranscriptReader) -> None:
    while (window := reader.window) is not None:
        reader.take(await events_of(sessions, session_id, window))
    for window in reader.broken_turns():
        reader.mend(window, await events_of(sessions, session_id, window))


async def look_up_run(sessions: Sessions, session_id: str, lookup: RunLookup) -> None:
    while (window := lookup.window) is not None:
        lookup.take(await events_of(sessions, session_id, window))


async def events_of(sessions: Sessions, session_id: str, window: Window) -> list[LoggedEvent]:
    events: list[LoggedEvent] = []
    after = window.after
    while after < window.through:
        # In small steps: a page without deltas may reach far beyond the window.
        step = min(window.through - after, _READ_STEP)
        records = await sessions.dispatch(ReadEvents(session_id, after, step, deltas=window.deltas))
        if not records:
            break
        events += encoding.decoded([record for record in records if record.event_id <= window.through])
        after = records[-1].event_id
    return events


def is_gone(error: MakaiError) -> bool:
    """Whether the session was deleted, as opposed to a failure of the server."""
    return isinstance(error, SessionRefused) and error.code == "UNKNOWN_SESSION"
