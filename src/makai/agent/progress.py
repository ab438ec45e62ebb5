"""A tool's output as it arrives -> few, small facts.

In: pieces of text at any rate. Out: `tool_progress` at most ten times a second, of bounded size and in bounded number.
It is for people who watch; the model gets the tool's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from makai.agent.storable import storable
from makai.core.session_events import ToolProgress

INTERVAL_S = 0.1
LARGEST_FACT = 16_384
MOST_SHOWN = 262_144
"""Characters per call; a build that prints for hours does not fill the log."""
NO_MORE = "\n[further output is not shown while the tool runs]\n"


class Progress:
    """What a tool gets as its `ToolContext`, for as long as it runs."""

    def __init__(self, call_id: str, emit: Callable[[ToolProgress], Awaitable[None]]) -> None:
        self.call_id = call_id
        self._emit = emit
        self._waiting: list[str] = []
        self._size = 0
        self._left_out = 0
        self._shown = 0
        self._pump: asyncio.Future[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show what is left; whatever the tool says afterwards is too late."""
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})
            if not self._pump.cancelled():
                self._pump.result()
        if self._waiting and error is None:
            await self._emit(self._taken())

    def progress(self, text: str) -> None:
        """Take a piece; of what comes too fast to be read, the beginning is left out."""
        if self._closed or not text or self._shown > MOST_SHOWN:
            return
        self._waiting.append(text)
        self._size += len(text)
        if self._size > 2 * LARGEST_FACT:
            self._shorten()
        if self._pump is None:
            self._pump = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        while self._waiting:
            await self._emit(self._taken())
            await asyncio.sleep(INTERVAL_S)
        self._pump = None

    def _taken(self) -> ToolProgress:
        self._shorten()
        text = storable("".join(self._waiting))
        if self._left_out:
            text = f"[{self._left_out:,} characters left out]\n{text}"
        self._waiting.clear()
        self._size = self._left_out = 0
        self._shown += len(text)
        return ToolProgress(call_id=self.call_id, text=text + NO_MORE if self._shown > MOST_SHOWN else text)

    def _shorten(self) -> None:
        """Keep the newest of what waits."""
        if self._size > LARGEST_FACT:
            kept = "".join(self._waiting)[-LARGEST_FACT:]
            self._left_out += self._size - len(kept)
            self._waiting = [kept]
            self._size = len(kept)
