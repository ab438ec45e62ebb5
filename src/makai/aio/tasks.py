"""Background tasks with one owner: it starts them when needed and leaves none behind when it closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class BackgroundTasks:
    """The running tasks of one owner. A task that fails is logged and does not affect the others."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._may_finish: set[asyncio.Task[None]] = set()
        self.closing = False

    def start(self, work: Coroutine[Any, Any, None], name: str, *, may_finish: bool = False) -> asyncio.Task[None]:
        """Start a task. `close` cancels it, or waits for it when `may_finish` is set."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        if may_finish:
            self._may_finish.add(task)
        elif self.closing:
            task.cancel()
        return task

    async def close(self, seconds: float) -> None:
        """Cancel all tasks that may not finish, then wait up to `seconds` for all of them."""
        self.closing = True
        for task in self._running - self._may_finish:
            task.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._running and (left_s := deadline - loop.time()) > 0:
            await asyncio.wait(set(self._running), timeout=left_s)  # a task that ends may have started another
        for task in self._running:
            log.error("%s did not end within %g s", task.get_name(), seconds)
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._may_finish.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)
