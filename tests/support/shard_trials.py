"""Sessions in chosen shards of a cluster, and runs that take a while."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from makai.core import session_events as ev
from makai.server.cluster_sessions import ClusterSessions
from makai.sessions.log.shards import shard_of
from makai.sessions.requests import CreateSession
from makai.sessions.service import Sessions
from support.live_sessions import SCENARIO_MODEL, Desk

NAMES: Final = ("a", "b")
SLOW: Final = "pace: 20ms\nrepeat: 50 word"


async def session_in(sessions: Sessions, shard: str) -> Desk:
    """A client of a new session in this shard."""
    session_id = next(made for _ in range(1000) if shard_of(NAMES, made := str(uuid4())) == shard)
    return Desk(sessions, await sessions.dispatch(CreateSession(session_id=session_id, model_ref=SCENARIO_MODEL)))


async def begun(desk: Desk) -> Desk:
    """The client, once its session has a run that answers."""
    await desk.send("Say fifty words.")
    await desk.until(lambda logged: isinstance(logged.event, ev.AssistantTextDelta))
    return desk


async def owner_of(node: ClusterSessions, session_id: str) -> str | None:
    owner = await node.store.owner(session_id)
    return owner.name if owner else None
