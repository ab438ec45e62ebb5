"""The tasks of an owner that lives longer than any one call: started when needed, gone when the owner is.

In: work. Out: a handle on it. A task that fails is logged and takes nobody with it; `close` leaves none behind. Work
that others were promised an answer from may finish first. Knows asyncio only.
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
        self._may_finish: set[asyncio.Task[None]] = set()
        self.closing = False

    def start(self, work: Coroutine[Any, Any, None], name: str, *, may_finish: bool = False) -> asyncio.Task[None]:
        """Run this until it is done or the owner closes, which waits for what `may_finish`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        if may_finish:
            self._may_finish.add(task)
        elif self.closing:
            task.cancel()
        return task

    async def close(self, seconds: float) -> None:
        """Cancel everything else and wait for all of it, but not for ever."""
        self.closing = True
        for task in self._running - self._may_finish:
            task.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._running and (left_s := deadline - loop.time()) > 0:
            await asyncio.wait(set(self._running), timeout=left_s)  # one that ends may have started another
        for task in self._running:
            log.error("%s did not end within %g s", task.get_name(), seconds)
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._may_finish.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)
