"""Waiting for what must not be cut off in the middle: the start of a process, and its end.

In: a task that ends soon by itself. Out: its result. It must not know what the task does.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def finished(task: asyncio.Task[ResultT]) -> ResultT:
    """The result of `task`. Who is cancelled meanwhile, however often, learns of it when the task has ended.

    Not `asyncio.shield`: that returns at once when cancelled, and leaves behind a task that nobody waits for.
    """
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        if not task.cancelled():
            task.exception()  # it was looked at: asyncio complains about those that nobody asked for
        raise asyncio.CancelledError
    return task.result()
