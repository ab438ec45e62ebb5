"""What a node does once a second beside serving clients: it takes the sessions of dead nodes over, gives sessions back
whose folders another node has, answers requests that came through the store, and keeps tools registered. Each part of
the store has tasks of its own, so that one that does not answer delays nothing in the others."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from makai.aio.tasks import BackgroundTasks
from makai.core.errors import MakaiError
from makai.server.cluster_relay import RequestRelay
from makai.sessions.log.nodes import ClusterLog, ClusterPart

if TYPE_CHECKING:
    from makai.server.cluster_sessions import ClusterSessions

log = logging.getLogger(__name__)

EVERY_S: Final = 1.0
PORTION: Final = 50
"""Sessions that are claimed and recovered at a time: other nodes get the next ones."""
_END_S: Final = 5.0


class Keeper:
    def __init__(self, cluster: ClusterSessions, store: ClusterLog, relay: RequestRelay) -> None:
        self._cluster = cluster
        self._store = store
        self._relay = relay
        self._tasks = BackgroundTasks()

    def start(self, *, durable: bool) -> None:
        """Only a `durable` node resumes the runs of others."""
        for part in self._store.parts:
            if durable:
                self._tasks.start(self._repeat(partial(self._take_over, part)), "makai-takeover")
            self._tasks.start(self._repeat(partial(self._give_back, part)), "makai-misplaced")
            self._tasks.start(self._repeat(partial(self._answer_relayed, part)), "makai-relay")
        self._tasks.start(self._repeat(self._cluster.keep_registrations), "makai-registrations")

    async def close(self) -> None:
        await self._tasks.close(_END_S)
        await self._relay.close()

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except MakaiError as error:  # the database is away, or this node lost its lease: the next round shows
                log.debug("a task of the cluster failed; it is tried again: %s", error)
            except Exception:
                log.exception("a task of the cluster failed; it is tried again")
            await asyncio.sleep(EVERY_S * random.uniform(0.8, 1.2))

    async def _take_over(self, part: ClusterPart) -> None:
        await part.free_abandoned()
        while claimed := await part.claim_abandoned(PORTION):
            log.info("this node takes over %d sessions", len(claimed))
            await asyncio.gather(*(self._cluster.local.recover(session_id) for session_id in claimed))

    async def _give_back(self, part: ClusterPart) -> None:
        if misplaced := await part.misplaced():
            await part.release(self._cluster.local.let_go(misplaced))

    async def _answer_relayed(self, part: ClusterPart) -> None:
        await self._relay.answer_waiting(part, self._cluster.local)
