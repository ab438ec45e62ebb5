"""Waiting for what must not be cut off."""

from __future__ import annotations

import asyncio

import pytest

from makai.aio.cancellation import wait_uncancelled


async def test_the_result_or_the_failure_of_the_task_is_given() -> None:
    async def fails() -> None:
        raise ValueError("no")

    assert await wait_uncancelled(asyncio.create_task(asyncio.sleep(0, "done"))) == "done"
    with pytest.raises(ValueError, match="no"):
        await wait_uncancelled(asyncio.create_task(fails()))


@pytest.mark.parametrize("fails", [False, True])
async def test_who_is_cancelled_again_and_again_learns_of_it_when_the_task_has_ended(fails: bool) -> None:
    may_end = asyncio.Event()

    async def work() -> str:
        await may_end.wait()
        if fails:
            raise ValueError("never asked for")
        return "done"

    task = asyncio.create_task(work())
    waiting = asyncio.create_task(wait_uncancelled(task))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert (waiting.done(), task.done()) == (False, False)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (task.done(), task.cancelled()) == (True, False)
