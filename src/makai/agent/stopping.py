"""Ending work in bounded time, whatever cancels us meanwhile.

In: work that must be finished or must be stopped. Out: its end, or the news that it does not end. Knows asyncio only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")


async def finish(work: Coroutine[Any, Any, None], seconds: float, what: str) -> None:
    """Carry out clean-up although we are being cancelled; give it up after `seconds`. Failures are logged."""
    task = asyncio.ensure_future(work)
    if not await _ended(task, seconds):
        task.cancel()
        await _ended(task, 0.1)
    if not task.done() or task.cancelled():
        log.error("%s did not end within %g s", what, seconds)
    elif error := task.exception():
        log.error("%s failed", what, exc_info=error)


async def stoppable(work: Coroutine[Any, Any, ResultT], grace_s: float, what: str) -> ResultT:
    """The result of work. When we are cancelled, so is it; it has `grace_s` to clean up, then it is left behind.

    Work that ignores its cancellation would otherwise hold up everything that waits for the end of the run.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        if not await _ended(task, grace_s):
            log.error("%s ignores its cancellation and was left behind", what)
            task.add_done_callback(_look_at)
        else:
            _look_at(task)
        raise


async def _ended(task: asyncio.Task[Any], seconds: float) -> bool:
    """Wait for a task; further cancellations of ours change nothing, the caller is being cancelled already."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not task.done() and (left := deadline - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            continue
    return task.done()


def _look_at(task: asyncio.Task[Any]) -> None:
    """Take note of how the task ended, so that asyncio does not complain that nobody did."""
    if not task.cancelled():
        task.exception()
