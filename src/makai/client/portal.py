"""The way from plain threads into the event loop that a synchronous client runs on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from makai.core.errors import MakaiStreamError

_T = TypeVar("_T")
_Event = TypeVar("_Event")
_END_DEADLINE_S: Final = 10.0
_MAX_AHEAD: Final = 256
"""How many events may wait for a thread that does not take them."""


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

    def call_soon(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
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
    while events := portal.run(batches.batch()):
        yield from events


def read_ahead(portal: Portal, events: AsyncIterator[_T]) -> Iterator[_T]:
    """The events one by one, read in the portal's loop while the caller works. Leaving the loop ends the reading."""
    reader = _ReadAhead(events)
    try:
        yield from events_of(portal, reader)
    finally:
        portal.call_soon(reader.cancel)


class _ReadAhead(Generic[_T]):
    """A task that reads, a little ahead of the thread that takes: a hop between threads costs more than an event."""

    def __init__(self, events: AsyncIterator[_T]) -> None:
        self._source = events
        self._events: list[_T] = []
        self._failure: Exception | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def batch(self) -> list[_T]:
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="makai-read-ahead")
        while not self._events and not self._reading.done():
            self._news.clear()
            await self._news.wait()
        events, self._events = self._events, []
        self._room.set()
        if not events and self._failure is not None:
            raise self._failure
        return events

    def cancel(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        try:
            async for event in self._source:
                self._events.append(event)
                self._news.set()
                while len(self._events) >= _MAX_AHEAD:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:
            self._failure = error
        finally:
            asyncio.get_running_loop().call_soon(self._news.set)  # once this task is done


async def _wind_up() -> None:
    """Let calls of other threads end with an error: they would never wake up after the loop has stopped."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, stuck = await asyncio.wait(others, timeout=_END_DEADLINE_S)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
