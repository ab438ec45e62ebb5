"""What an operator's tools ask about: what the live sessions of a process are doing, and which nodes there are."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from makai.core.observation import SessionLoad, StoreHealth
from makai.sessions.live import LiveSession
from makai.sessions.log.base import EventLog
from makai.sessions.log.nodes import Node


@runtime_checkable
class _HasNodes(Protocol):
    """`ClusterLog`, of which only this is needed."""

    async def nodes(self) -> list[Node]: ...


@runtime_checkable
class _HasHealth(Protocol):
    """A log on a database server."""

    @property
    def is_read_only(self) -> bool: ...
    @property
    def is_connected(self) -> bool: ...


def health_of(log: EventLog, takeovers: int) -> StoreHealth | None:
    """How a node reaches its store, as far as it knows without asking; None where that is unknown."""
    if not isinstance(log, _HasHealth):
        return None
    return StoreHealth(is_reachable=log.is_connected, holds_lease=not log.is_read_only, takeovers=takeovers)


async def nodes_of(log: EventLog) -> list[Node]:
    """The live nodes; of a store with one owner, this process."""
    if isinstance(log, _HasNodes):
        return await log.nodes()
    return [Node(node_id=log.lease.holder, name=socket.gethostname())]


def load_of(sessions: Iterable[LiveSession]) -> SessionLoad:
    live = active = approvals = queued = facts = followers = 0
    for session in sessions:
        state = session.state
        live += 1
        queued += len(state.waiting)
        facts += session.pending_facts
        followers += len(session.on_change)
        if (run := state.active_run) is not None:
            active += 1
            approvals += len(run.pending())
    return SessionLoad(
        live=live,
        active_runs=active,
        approvals_waiting=approvals,
        queued_inputs=queued,
        pending_facts=facts,
        followers=followers,
    )
