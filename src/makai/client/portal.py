"""The way from plain threads into the event loop that a synchronous client runs on.

In: coroutines from any thread. Out: their results there. It must not know what they do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from makai.core.errors import MakaiStreamError

_T = TypeVar("_T")
_Event = TypeVar("_Event")
_END_DEADLINE_S = 10.0


class Portal:
    """An event loop in a background thread, and the way into it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="makai-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run this there and wait for it. Ctrl-C while waiting cancels it."""
        if self._loop.is_closed():
            coroutine.close()
            raise MakaiStreamError("the client was closed", kind="aborted", code="aborted")
        future: Future[_T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread; may be repeated."""
        if self._loop.is_closed():
            return
        self.run(_wind_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_DEADLINE_S)
        self._loop.close()


class Batches(Protocol[_Event]):
    """Events, as many at a time as need no waiting."""

    async def batch(self) -> list[_Event]:
        """The next ones; none at the end."""


def events_of(portal: Portal, batches: Batches[_T]) -> Iterator[_T]:
    """The events one by one."""
    while events := portal.run(batches.batch()):
        yield from events


async def _wind_up() -> None:
    """Let calls of other threads hear that the client was closed: nobody would ever wake them afterwards."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, stuck = await asyncio.wait(others, timeout=_END_DEADLINE_S)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
