"""Notices that nothing comes, without costing anything while something does.

In: word of every event. Out: one call of `tell` per silence that lasts. It knows neither who is silent nor who listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self


class SilenceWatch:
    """One timer that looks at a time stamp; a task only when there is something to tell."""

    def __init__(self, after_s: float, tell: Callable[[], Awaitable[None]]) -> None:
        self._after_s = after_s
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._last_news = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Future[None] | None = None
        self._told = False

    async def __aenter__(self) -> Self:
        self._timer = self._loop.call_later(self._after_s, self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._telling is not None:
            await self._telling

    def news(self) -> None:
        """Something came."""
        self._last_news = self._loop.time()
        self._told = False

    def _look(self) -> None:
        silent_s = self._loop.time() - self._last_news
        if silent_s >= self._after_s and not self._told and (self._telling is None or self._telling.done()):
            self._told = True
            self._telling = asyncio.ensure_future(self._tell())
        next_look_s = self._after_s if self._told else self._after_s - silent_s
        self._timer = self._loop.call_later(max(next_look_s, 0.001), self._look)
