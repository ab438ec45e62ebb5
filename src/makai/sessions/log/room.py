"""A bound on the bytes that wait for a store."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """A number of bytes that may be under way. Waiting callers are served in order."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_enter(self, weight: int) -> bool:
        """Take a part, however large when everything is free; False when the caller has to wait."""
        if self._waiting or not self._fits(weight):
            return False
        self._used += weight
        return True

    async def enter(self, weight: int) -> None:
        if self.try_enter(weight):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((weight, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(weight)  # the turn came in the same moment
            raise

    def leave(self, weight: int) -> None:
        self._used -= weight
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            next_weight, turn = self._waiting.popleft()
            if not turn.done():
                self._used += next_weight
                turn.set_result(None)

    def _fits(self, weight: int) -> bool:
        return self._used == 0 or self._used + weight <= self._size
