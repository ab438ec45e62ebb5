"""Sessions of a cluster for the clients of one node: `service.Sessions` over this node's own sessions and the links to
the other nodes.

A request that names a session is carried out by the session's owner. The store decides who that is: this node tries to
claim the session, and is told which node has it. What needs no owner is answered from the store.

When the owner died, drained or lost its lease, a request is sent again once the session has an owner, if it certainly
was not carried out or says that asking twice does no harm (`Request.is_repeatable`). When the owner lives and cannot be
reached, requests take the way through the store (`cluster_relay`), and followers read the store (`cluster_followers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from makai.aio.tasks import BackgroundTasks
from makai.core.errors import (
    ChannelClosed,
    MakaiError,
    OwnershipLost,
    SessionElsewhere,
    SessionRefused,
    TransportError,
)
from makai.harness.base import Execute, ExecuteServed, ToolServerOffer
from makai.server.cluster_executors import ClusterExecutor, ClusterToolServer
from makai.server.cluster_followers import ClusterFollower
from makai.server.cluster_keeper import Keeper
from makai.server.cluster_links import NodeLinks, NodeSocket
from makai.server.cluster_relay import RelayedSessions, RequestRelay
from makai.server.failover import closed_error
from makai.server.remote_sessions import RemoteSessions
from makai.sessions import requests as req
from makai.sessions.log.nodes import ClusterLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import AnswerT, Request

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S: Final = 10.0
"""How long a request waits for its session to have an owner again, beyond the time that a lease lasts."""
MAX_OWNERS: Final = 10_000
"""Sessions whose owners are remembered."""
READY_S: Final = 3.0
STALLED_S: Final = 2.0
"""Requests do not use a link over which nothing came for so long, although pings are sent."""
_PAUSES_S: Final = (0.0, 0.05, 0.1, 0.2, 0.4)
_END_S: Final = 5.0
_FROM_STORE: Final = (req.ReadEvents, req.GetSession, req.SearchSessions, req.GetUsage, req.CreateSession)
"""Requests that any node can answer although they name a session."""
_PERHAPS: Final = "The owner of the session was lost during the request: the first attempt may have been carried out."


def session_of(request: Request[Any]) -> str | None:
    """The session whose owner has to carry the request out; None when every node can."""
    if isinstance(request, _FROM_STORE):
        return None
    if isinstance(request, req.ForkSession):
        return request.origin
    return getattr(request, "session_id", None)


class ClusterSessions:
    """`service.Sessions`. Make one inside the event loop that uses it, and call `start`."""

    def __init__(
        self, local: OwnedSessions, store: ClusterLog, links: NodeLinks, relay: RequestRelay, lease_s: float
    ) -> None:
        self.local = local
        self.store = store
        self.links = links
        self._relay = relay
        self._patience_s = lease_s + PATIENCE_S
        self._socket: NodeSocket | None = None
        self._keeper = Keeper(self, store, relay)
        self._owners: dict[str, str] = {}
        self._followers: set[ClusterFollower] = set()
        self._executors: set[ClusterExecutor] = set()
        self._tool_servers: set[ClusterToolServer] = set()
        self._tasks = BackgroundTasks()
        self._draining = False
        self._closing = False
        self._ignore_lost_lease = store.on_lease_lost(self._lease_lost)

    def start(self, socket: NodeSocket | None, *, durable: bool) -> None:
        """Serve other nodes through `socket`. A `durable` node takes the runs of dead ones over at once; another one
        only when their sessions are used."""
        self._socket = socket
        self._keeper.start(durable=durable)

    @property
    def is_closing(self) -> bool:
        return self._closing

    async def is_ready(self) -> bool:
        """Whether this node can serve clients: it has its lease, the database answers, and it is not about to end."""
        if self._draining or self._closing:
            return False
        try:
            async with asyncio.timeout(READY_S):
                nodes = await self.store.nodes()
        except (MakaiError, TimeoutError):
            return False
        me = self.store.node.node_id
        return any(node.node_id == me and not node.draining for node in nodes)

    async def dispatch(self, request: Request[AnswerT]) -> AnswerT:
        session_id = session_of(request)
        if session_id is None:
            return await self.local.dispatch(request)
        named = request.with_id()

        async def ask(place: OwnedSessions | RemoteSessions | RelayedSessions) -> AnswerT:
            answer: AnswerT = await place.dispatch(named)
            return answer

        return await self.through(session_id, ask, request.is_repeatable, named.answer_of_first_attempt)

    def follow(self, session_id: str, after: int = 0, *, deltas: bool = True) -> ClusterFollower:
        follower = ClusterFollower(self, session_id, after, deltas, self._followers.discard)
        self._followers.add(follower)
        return follower

    async def register_executor(self, session_id: str, execute: Execute) -> ClusterExecutor:
        executor = ClusterExecutor(self, session_id, execute, self._executors.discard)
        await executor.register()
        self._executors.add(executor)
        return executor

    async def register_tool_server(self, offer: ToolServerOffer, execute: ExecuteServed) -> ClusterToolServer:
        server = ClusterToolServer(self, offer, execute, self._tool_servers.discard)
        await server.register()
        self._tool_servers.add(server)
        return server

    async def drain(self) -> None:
        """Take no more sessions: other nodes claim those that have no owner. What this node owns stays usable until
        `close`. May be repeated."""
        self._draining = True
        try:
            await self.store.drain()
        except MakaiError as error:
            log.warning("the other nodes do not learn that this one ends: %s", error)

    async def close(self) -> None:
        """Hand the sessions over: runs stay in the log as they are, and another node resumes them at once. The links
        of other nodes break after the sessions were released, so that they find the next owner."""
        if not self._draining:
            await self.drain()
        self._closing = True
        await self._keeper.close()
        if self._socket is not None:
            await self._socket.drain()
        self._ignore_lost_lease()
        for follower in list(self._followers):
            follower.close()
        await self._tasks.close(_END_S)
        await self.links.close()
        try:
            await self.local.close()
        finally:
            if self._socket is not None:
                await self._socket.close()

    async def place_of(self, session_id: str) -> OwnedSessions | RemoteSessions | RelayedSessions:
        """Where a session's requests go, as far as this node knows. This node is right when no owner is known: its
        claim finds out."""
        if self._closing:
            raise closed_error()
        node_id = self._owners.get(session_id)
        if node_id is None or self.local.is_live(session_id) or node_id == self.store.part_of(node_id).node.node_id:
            return self.local
        try:
            link = await self.links.to(node_id)
        except TransportError:
            return self._relay.to(node_id)
        if link is None:
            self.forget_owner(session_id)
            return self.local
        return link if link.silent_s < STALLED_S else self._relay.to(node_id)

    def note_owner(self, session_id: str, node_id: str) -> None:
        if self._owners.get(session_id) != node_id:
            self._owners.pop(session_id, None)
            if len(self._owners) >= MAX_OWNERS:
                del self._owners[next(iter(self._owners))]
            self._owners[session_id] = node_id
            self._moved(session_id)

    def forget_owner(self, session_id: str) -> None:
        if self._owners.pop(session_id, None) is not None:
            self._moved(session_id)

    async def through(
        self,
        session_id: str,
        ask: Callable[[OwnedSessions | RemoteSessions | RelayedSessions], Awaitable[T]],
        repeatable: bool,
        answer_of_first_attempt: Callable[[SessionRefused], T | None] = lambda refusal: None,
    ) -> T:
        """Ask the owner of a session, and the next one when it was lost and this is safe, within a bound of time."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._patience_s
        is_repeated, attempt = False, 0
        while True:
            failure: MakaiError
            try:
                return await ask(await self.place_of(session_id))
            except SessionElsewhere as error:  # nothing was changed
                self.note_owner(session_id, error.node_id)
                failure = error
            except (ChannelClosed, OwnershipLost) as error:  # it was not carried out
                self.forget_owner(session_id)
                failure = error
            except TransportError as error:
                self.forget_owner(session_id)
                if not repeatable:
                    raise TransportError(
                        f"{error.message} The request may or may not have been carried out.",
                        hint="Look at the session before you ask again.",
                    ) from None
                is_repeated, failure = True, error
            except SessionRefused as refusal:
                if is_repeated:
                    if (answer := answer_of_first_attempt(refusal)) is not None:
                        return answer
                    refusal.hint = f"{refusal.hint} {_PERHAPS}" if refusal.hint else _PERHAPS
                raise
            if self._closing or loop.time() >= ends_at:
                raise failure
            await asyncio.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
            attempt += 1

    async def keep_registrations(self) -> None:
        """Register tools again whose owner changed, and those of tool servers with new nodes."""
        for executor in list(self._executors):
            await executor.keep()
        if self._tool_servers:
            others = [node.node_id for node in await self.store.nodes() if node.node_id != self.store.node.node_id]
            for server in list(self._tool_servers):
                await server.keep(others)

    def _moved(self, session_id: str) -> None:
        for executor in list(self._executors):
            if executor.session_id == session_id and not self._closing:
                self._tasks.start(executor.keep(), "makai-executor-moved")

    def _lease_lost(self, concerns: Callable[[str], bool]) -> None:
        log.error("this node could not renew a lease: its sessions may belong to other nodes now")
        self.local.lose(
            OwnershipLost("This node lost its lease; nothing was stored.", hint="Look at the session, then try again."),
            concerns,
        )
