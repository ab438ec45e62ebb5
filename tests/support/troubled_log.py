"""A log in memory that is slow or fails when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from makai.core.errors import MakaiError, StorageUnavailable
from makai.core.session_events import SessionEvent
from makai.sessions.log.base import Pending, SessionSummary
from makai.sessions.log.memory import MemoryLog


class TroubledLog(MemoryLog):
    """Appends go through a gate, which is open unless a test closes it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrivals: asyncio.Queue[tuple[SessionEvent, ...]] = asyncio.Queue(10_000)
        """The events of every append, when it comes to the gate."""
        self.refuses: Callable[[SessionEvent], bool] = lambda event: False
        """Which events make their append fail."""
        self.refuses_deletion = False
        self.lookups = asyncio.Event()
        self.lookups.set()
        """Whether `session` answers, or waits until this is set."""

    async def append(
        self, session_id: str, events: Sequence[Pending], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        self.arrivals.put_nowait(tuple(pending.event for pending in events))
        await asyncio.sleep(0)  # as every real log does
        await self.gate.wait()
        if any(self.refuses(pending.event) for pending in events):
            raise StorageUnavailable("The disk is full.")
        numbers = await super().append(session_id, events, expected_last, generation)
        await self.stored(session_id, events, numbers[1])
        return numbers

    async def stored(self, session_id: str, events: Sequence[Pending], last: int) -> None:
        """Called with what was stored, before its append is answered."""

    async def session(self, session_id: str) -> SessionSummary | None:
        await self.lookups.wait()
        return await super().session(session_id)

    async def delete(self, session_id: str) -> bool:
        if self.refuses_deletion:
            raise StorageUnavailable("The disk is full.")
        return await super().delete(session_id)

    async def until_appending(self, kind: type[SessionEvent]) -> None:
        """Returns when an append with such an event is at the gate."""
        async with asyncio.timeout(60):
            while not any(isinstance(event, kind) for event in await self.arrivals.get()):
                pass


def once(refuses: Callable[[SessionEvent], bool]) -> Callable[[SessionEvent], bool]:
    """The first such event only."""
    happened: list[MakaiError] = []

    def refused(event: SessionEvent) -> bool:
        if happened or not refuses(event):
            return False
        happened.append(StorageUnavailable(""))
        return True

    return refused
