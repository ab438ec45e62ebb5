"""Links between the nodes of a cluster: the attach protocol over mutual TLS. A node serves its own sessions to others,
and has one link to each process whose sessions its clients use. A node answers the requests of others from its own
sessions only, so no request travels further than one link."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from makai.aio.tasks import BackgroundTasks
from makai.auth.cluster_key import derived_key
from makai.core.errors import ChannelClosed, MakaiError, TransportError
from makai.core.secret import Secret
from makai.protocols.attach import frames
from makai.server.owner_socket import LinkServer
from makai.server.remote_sessions import RemoteSessions
from makai.sessions.log.nodes import Node, process_of
from makai.sessions.service import Sessions
from makai.transports.node_tls import NodeIdentity, NodeListener, connect_node

log = logging.getLogger(__name__)

PING_EVERY_S: Final = 0.5
SILENCE_S: Final = 5.0
"""After this a link counts as broken. Followers do not wait for that: they read the store after `cluster_followers`'
`QUIET_S`."""
RETRY_S: Final = 1.0
"""How long a node that could not be reached is not tried again."""
_END_S: Final = 5.0


class ClusterSecrets:
    """What the members of a cluster know each other by. Make one by `of`, outside of the event loop."""

    def __init__(self, identity: NodeIdentity, greeting: Secret) -> None:
        self.identity = identity
        self.greeting = greeting

    @classmethod
    def of(cls, key: Secret) -> ClusterSecrets:
        return cls(NodeIdentity.of(key), Secret(derived_key(key, "greeting of node links").hex()))


class NodeSocket(LinkServer):
    """Serves the sessions of this node to other nodes."""

    def __init__(self, sessions: Sessions, secrets: ClusterSecrets, host: str, port: int) -> None:
        super().__init__(sessions)
        self._key = secrets.greeting
        limit = frames.MAX_FRAME_BYTES
        listener = NodeListener.open(host, port, secrets.identity, self._serve_channel, max_frame_bytes=limit)
        self._listener = listener
        self.port = listener.port


class NodeLinks:
    """The links of this node to others, each made when it is first needed and shared by all clients."""

    def __init__(self, find: Callable[[str], Awaitable[Node | None]], secrets: ClusterSecrets | None) -> None:
        """`find` returns the live node of an id. Without `secrets` no node can be reached."""
        self._find = find
        self._secrets = secrets
        self._links: dict[str, RemoteSessions] = {}
        """By `process_of` a node, as everything that is remembered here."""
        self._connecting: dict[str, asyncio.Task[RemoteSessions]] = {}
        self._failed: dict[str, tuple[float, TransportError]] = {}
        self._tasks = BackgroundTasks()
        self._closed = False

    async def to(self, node_id: str) -> RemoteSessions | None:
        """The link to a node; None when there is no such node any more. Raises `TransportError` when it lives and
        cannot be reached."""
        process = process_of(node_id)
        link = self._links.get(process)
        if link is not None and not link.lost.is_set() and not link.moving:
            return link
        node = await self._find(node_id)
        if node is None:
            return None
        if self._closed:
            raise ChannelClosed("This node is closing.")
        failed_at, failure = self._failed.get(process, (float("-inf"), None))
        if failure is not None and asyncio.get_running_loop().time() - failed_at < RETRY_S:
            raise TransportError(failure.message, hint=failure.hint)
        connecting = self._connecting.get(process)
        if connecting is None:
            connecting = self._connecting[process] = asyncio.create_task(self._connect(node), name="makai-node-connect")
            connecting.add_done_callback(lambda done: self._connected(process, done))
        await asyncio.wait({connecting})
        return connecting.result()

    async def close(self) -> None:
        self._closed = True
        for connecting in list(self._connecting.values()):
            connecting.cancel()
        if self._connecting:
            await asyncio.wait(set(self._connecting.values()), timeout=_END_S)
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)
        await self._tasks.close(_END_S)

    async def _connect(self, node: Node) -> RemoteSessions:
        if self._secrets is None or not node.address:
            raise TransportError(f"The node {node.name} has no address for other nodes.")
        try:
            channel = await connect_node(node.address, self._secrets.identity, max_frame_bytes=frames.MAX_FRAME_BYTES)
            return await RemoteSessions.over(
                channel,
                self._secrets.greeting,
                f"The node {node.name}",
                ping_every_s=PING_EVERY_S,
                silence_s=SILENCE_S,
            )
        except TransportError:
            raise
        except MakaiError as error:  # it refuses this node: another version, most likely
            raise TransportError(error.message, hint=error.hint) from None

    def _connected(self, process: str, done: asyncio.Task[RemoteSessions]) -> None:
        self._connecting.pop(process, None)
        now = asyncio.get_running_loop().time()
        self._failed = {known: failed for known, failed in self._failed.items() if now - failed[0] < RETRY_S}
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, TransportError):
            log.warning("node %s: %s", process, error)
            self._failed[process] = (now, error)
        elif error is None:
            link = done.result()
            self._links[process] = link
            self._tasks.start(self._forget_when_lost(process, link), "makai-node-link")

    async def _forget_when_lost(self, process: str, link: RemoteSessions) -> None:
        await link.lost.wait()
        if self._links.get(process) is link:
            del self._links[process]
        await link.close()
