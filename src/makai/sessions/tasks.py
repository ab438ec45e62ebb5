"""The tasks of an owner that lives longer than any one call: started when needed, gone when the owner is.

In: work. Out: a handle on it. A task that fails is logged and takes nobody with it; `close` leaves none behind. Knows
asyncio only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Tasks:
    """Running tasks of one owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.closing = False

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run this until it is done or the owner closes."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        if self.closing:
            task.cancel()
        return task

    async def close(self, seconds: float) -> None:
        """Cancel everything and wait for it, but not for ever."""
        self.closing = True
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            _, left = await asyncio.wait(running, timeout=seconds)
            for task in left:
                log.error("%s did not end within %g s", task.get_name(), seconds)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)
