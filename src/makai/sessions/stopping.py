"""Ends the runs of a session that is about to be deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from makai.core.errors import SessionRefused, StorageUnavailable
from makai.sessions.commands import Abort
from makai.sessions.live import ABORT_S, LiveSession
from makai.sessions.log.base import EventLog

logger = logging.getLogger(__name__)


async def stop_runs(session: LiveSession, log: EventLog, clock: Callable[[], int]) -> None:
    """Abort the active run and the queued ones; gives up after a timeout."""
    news = asyncio.Event()
    unwatch = log.watch(session.session_id, news.set)
    try:
        async with asyncio.timeout(2 * ABORT_S):
            while (run := session.state.active_run) is not None:
                with suppress(SessionRefused):  # it ended by itself
                    await session.submit(Abort(now=clock(), run_id=run.run_id, by="delete"))
                while session.state.active_run is not None and session.state.active_run.run_id == run.run_id:
                    if session.is_closing:
                        raise StorageUnavailable("The sessions are being closed.", hint="Try again.")
                    news.clear()
                    await news.wait()
    except TimeoutError:
        logger.error("a run of session %s does not end; the session is deleted all the same", session.session_id)
    finally:
        unwatch()
