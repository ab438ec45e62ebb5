"""Nodes on one PostgreSQL, and appends that meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from makai.core.errors import LogConflict
from makai.core.session_events import Logged, ToolProgress
from makai.sessions.log.base import EventLog, replay
from makai.sessions.log.postgres.log import PostgresLog
from makai.sessions.log.postgres.membership import NodeSettings
from support.log_events import steps

WAIT_S = 90.0


@asynccontextmanager
async def opened(url: str, name: str = "one", lease_s: float = 60) -> AsyncIterator[PostgresLog]:
    log = await PostgresLog.open(url, NodeSettings(name=name, lease_s=lease_s))
    try:
        yield log
    finally:
        await log.close()


async def until(is_true: Callable[[], Awaitable[bool]]) -> None:
    """Ask the database until it says so."""
    async with asyncio.timeout(WAIT_S):
        while not await is_true():  # noqa: ASYNC110 - nothing tells this process when it changes
            await asyncio.sleep(0.02)


async def contended(url: str, appends: int) -> None:
    """Two nodes that both believe that they have a claim append to one session. Every event that one of them was told
    is stored is there, under the number that it was told, and no other one."""
    async with opened(url, "one") as one, opened(url, "two") as two:
        await one.append("one", steps(1), 0)
        generation = (await one.claim("one")).generation
        of_one, of_two = await asyncio.gather(
            _contend(one, generation, appends, "by one"), _contend(two, generation, appends, "by two")
        )

    assert sorted(of_one + of_two) == list(range(2, 2 * appends + 2))
    stored = dict.fromkeys(of_one, "by one") | dict.fromkeys(of_two, "by two")
    async with opened(url, "reader") as reader:
        logged = [each async for each in replay(reader, "one", 1) if isinstance(each, Logged)]
        assert (await reader.check()).problems == ()
    assert {each.event_id: each.event.text for each in logged if isinstance(each.event, ToolProgress)} == stored


async def _contend(log: EventLog, generation: int, appends: int, mark: str) -> list[int]:
    """Returns the numbers of the events that were stored."""
    given: list[int] = []
    last = await log.last("one")
    while len(given) < appends:
        try:
            first, last = await log.append("one", steps(1, mark), last, generation)
        except LogConflict as conflict:
            last = conflict.last
            await asyncio.sleep(0)
        else:
            given.append(first)
            await asyncio.sleep(0.001 * (len(given) % 5 == 0))  # the other one gets its turn
    return given
