"""Tools of clients in a cluster. A client's executor is registered with the owner of its session, and again when the
session moves. A tool server is registered with every node, because any node may run a session that names it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from makai.core.errors import ChannelClosed, MakaiError, TransportError
from makai.harness.base import Execute, ExecuteServed, ToolServerOffer
from makai.server.cluster_relay import RelayedSessions
from makai.server.failover import is_usable
from makai.sessions.log.nodes import process_of
from makai.sessions.service import Sessions, ToolRegistration

if TYPE_CHECKING:
    from makai.server.cluster_sessions import ClusterSessions

log = logging.getLogger(__name__)


class ClusterExecutor:
    """A `service.ToolRegistration` for one session."""

    def __init__(
        self,
        cluster: ClusterSessions,
        session_id: str,
        execute: Execute,
        on_close: Callable[[ClusterExecutor], None],
    ) -> None:
        self.session_id = session_id
        self._cluster = cluster
        self._execute = execute
        self._on_close = on_close
        self._place: Sessions | None = None
        self._registration: ToolRegistration | None = None
        self._registering = asyncio.Lock()
        self._unregistered = False

    async def register(self) -> None:
        async def ask(place: Any) -> tuple[Sessions, ToolRegistration]:
            if isinstance(place, RelayedSessions):
                raise ChannelClosed("The node that has the session cannot be reached, so it cannot use your tools.")
            return place, await place.register_executor(self.session_id, self._execute)

        place, registration = await self._cluster.through(self.session_id, ask, repeatable=True)
        former, self._registration, self._place = self._registration, registration, place
        if former is not None:
            former.unregister()
        if self._unregistered:
            registration.unregister()

    async def keep(self) -> None:
        """Register again when the session has another owner."""
        if self._registering.locked() or self._unregistered:
            return
        async with self._registering:
            try:
                place = await self._cluster.place_of(self.session_id)
                if place is not self._place or not is_usable(place):
                    await self.register()
            except TransportError as error:
                log.debug("the tools of session %s have no owner yet: %s", self.session_id, error)
            except MakaiError as error:
                log.warning("the tools of session %s are no longer served: %s", self.session_id, error)
                self.unregister()

    def unregister(self) -> None:
        self._unregistered = True
        self._on_close(self)
        if self._registration is not None:
            self._registration.unregister()


class ClusterToolServer:
    """A `service.ToolRegistration` for the sessions of all nodes."""

    def __init__(
        self,
        cluster: ClusterSessions,
        offer: ToolServerOffer,
        execute: ExecuteServed,
        on_close: Callable[[ClusterToolServer], None],
    ) -> None:
        self._cluster = cluster
        self._offer = offer
        self._execute = execute
        self._on_close = on_close
        self._registrations: dict[str, tuple[Sessions, ToolRegistration]] = {}
        """By `process_of` a node; that of this process has no name."""
        self._unregistered = False

    async def register(self) -> None:
        local = self._cluster.local
        self._registrations[""] = (local, await local.register_tool_server(self._offer, self._execute))

    async def keep(self, node_ids: list[str]) -> None:
        """Register with those of these nodes that do not know the tools, as far as they can be reached."""
        for gone in self._registrations.keys() - {"", *map(process_of, node_ids)}:
            del self._registrations[gone]
        for node_id in node_ids:
            known = self._registrations.get(process_of(node_id))
            if self._unregistered or (known is not None and is_usable(known[0])):
                continue
            try:
                link = await self._cluster.links.to(node_id)
                if link is not None:
                    registration = await link.register_tool_server(self._offer, self._execute)
                    self._registrations[process_of(node_id)] = (link, registration)
            except MakaiError as error:
                log.debug("node %s does not have the tools of %s: %s", node_id, self._offer.server_id, error)
        if self._unregistered:
            self.unregister()

    def unregister(self) -> None:
        self._unregistered = True
        self._on_close(self)
        for _, registration in self._registrations.values():
            registration.unregister()
