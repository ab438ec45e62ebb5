"""Waiting for tasks while the waiting task may be cancelled.

`asyncio.shield` is not enough in these places: it returns at once when the caller is cancelled and leaves behind a task
that no one awaits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")
_Arguments = ParamSpec("_Arguments")


async def wait_uncancelled(task: asyncio.Task[ResultT]) -> ResultT:
    """Return the result of `task`; defer cancellation of the caller until the task has finished."""
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        consume_exception(task)
        raise asyncio.CancelledError
    return task.result()


class RunOnce(Generic[_Arguments]):
    """Work that the first call starts. Every call waits for its end, and no caller's cancellation reaches it."""

    def __init__(self, work: Callable[_Arguments, Coroutine[Any, Any, None]], name: str) -> None:
        self._work, self._name = work, name
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._work(*args, **kwargs), name=self._name)
        await wait_uncancelled(self._task)


async def finish_cleanup(work: Coroutine[Any, Any, None], seconds: float, what: str) -> None:
    """Run clean-up to its end although the caller is being cancelled; cancel it after `seconds`. Log failures."""
    task = asyncio.ensure_future(work)
    if not await _done_within(task, seconds):
        task.cancel()
        await _done_within(task, 0.1)
    if not task.done() or task.cancelled():
        log.error("%s did not end within %g s", what, seconds)
    elif error := task.exception():
        log.error("%s failed", what, exc_info=error)


async def run_with_grace(work: Coroutine[Any, Any, ResultT], grace_s: float, what: str) -> ResultT:
    """Return the result of `work`. When the caller is cancelled, cancel `work` and wait at most `grace_s` for it. Work
    that ignores its cancellation is abandoned: it must not hold up what waits for the end of the run."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        if not await _done_within(task, grace_s):
            log.error("%s ignores its cancellation and was abandoned", what)
        task.add_done_callback(consume_exception)
        raise


def consume_exception(task: asyncio.Future[Any]) -> None:
    """Mark the task's exception as retrieved, so that asyncio does not log it a second time."""
    if task.done() and not task.cancelled():
        task.exception()


async def _done_within(task: asyncio.Task[Any], seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not task.done() and (left := deadline - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            continue  # the caller is being cancelled already
    return task.done()
