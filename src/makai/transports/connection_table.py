"""Which HTTP connections may stay: pure decisions about the open connections of one listener.

A connection is unauthenticated until one of its requests showed a token. Unauthenticated connections have a cap of
their own, and above it the oldest one of the peer with the most of them is closed, so that neither many silent
connections nor one busy peer keep others out. Connections that have just opened do not count against that cap: when
hundreds of clients connect at once, their requests are still on the way. Authenticated connections are closed only
while they are idle.
"""

from __future__ import annotations

import ipaddress
import resource
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

HEADER_DEADLINE_S: Final = 10.0
"""From the TCP connection to the head of the first request; a TLS handshake is included."""
UNAUTHENTICATED_S: Final = 60.0
"""How long a connection may last that asks for public paths only."""
FLUSH_DEADLINE_S: Final = 30.0
"""How long a closed connection may wait for its peer to read the last bytes."""

_RESERVE_SHARE: Final = 4
_MIN_CONNECTIONS: Final = 8


class ListenerLimits(msgspec.Struct, frozen=True, kw_only=True):
    unauthenticated: int = 256
    total: int = 1_280
    burst_s: float = 1.0
    """How long a new connection is given to send a request before it may be closed for another one; only `total`
    bounds such connections."""

    def within(self, descriptors: int) -> ListenerLimits:
        """These limits for a process that may have so many descriptors: a quarter stays free for files, children and
        upstream connections, at most another quarter is for unauthenticated connections."""
        share = descriptors // _RESERVE_SHARE
        return ListenerLimits(
            unauthenticated=max(_MIN_CONNECTIONS, min(self.unauthenticated, share)),
            total=max(2 * _MIN_CONNECTIONS, min(self.total, descriptors - share)),
            burst_s=self.burst_s,
        )


def share_of_descriptors(most: int, parts: int) -> int:
    """At most `most`, and at most one of `parts` parts of the descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(_MIN_CONNECTIONS, min(most, soft // parts))


class OpenConnection:
    """What the table knows of one connection; its listener sets the fields."""

    __slots__ = ("closing_since", "idle_since", "is_authenticated", "opened_at", "peer", "requests", "was_heard")

    def __init__(self, peer: str, now: float) -> None:
        self.peer = _network(peer)
        self.opened_at = now
        self.idle_since = now
        self.closing_since: float | None = None
        self.requests = 0
        self.was_heard = False
        self.is_authenticated = False


class ConnectionTable:
    def __init__(self, limits: ListenerLimits) -> None:
        self.limits = limits
        # Both in the order in which they were added.
        self._unauthenticated: dict[OpenConnection, None] = {}
        self._authenticated: dict[OpenConnection, None] = {}

    def __len__(self) -> int:
        return len(self._unauthenticated) + len(self._authenticated)

    def __iter__(self) -> Iterator[OpenConnection]:
        yield from self._unauthenticated
        yield from self._authenticated

    def add(self, connection: OpenConnection) -> OpenConnection | None:
        """Add a new connection. Returns the one to close for it, which is the new one when all others are busy."""
        self._unauthenticated[connection] = None
        if len(self) > self.limits.total:
            return self.victim()
        if len(self._unauthenticated) > self.limits.unauthenticated:
            oldest = self._oldest_of_largest_peer()
            if connection.opened_at - oldest.opened_at >= self.limits.burst_s:
                self.remove(oldest)
                return oldest
        return None

    def victim(self) -> OpenConnection | None:
        """The connection that should go when there is no room; it is removed."""
        if len(self._unauthenticated) > 1:
            found = self._oldest_of_largest_peer()
        else:
            idle = [connection for connection in self._authenticated if not connection.requests]
            newest = next(iter(self._unauthenticated), None)
            chosen = min(idle, key=lambda connection: connection.idle_since, default=newest)
            if chosen is None:
                return None
            found = chosen
        self.remove(found)
        return found

    def _oldest_of_largest_peer(self) -> OpenConnection:
        """Of the unauthenticated ones; there is at least one."""
        peers = Counter(connection.peer for connection in self._unauthenticated)
        most, _ = peers.most_common(1)[0]
        return next(connection for connection in self._unauthenticated if connection.peer == most)

    def authenticate(self, connection: OpenConnection) -> None:
        if self._unauthenticated.pop(connection, self) is None:
            connection.is_authenticated = True
            self._authenticated[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        self._unauthenticated.pop(connection, None)
        self._authenticated.pop(connection, None)

    def expired(self, now: float) -> list[OpenConnection]:
        """Connections whose time is over."""
        return [
            connection
            for connection in self
            if (connection.closing_since is not None and now - connection.closing_since > FLUSH_DEADLINE_S)
            or (not connection.is_authenticated and now - connection.opened_at > self._allowed_s(connection))
        ]

    def _allowed_s(self, connection: OpenConnection) -> float:
        return UNAUTHENTICATED_S if connection.was_heard else HEADER_DEADLINE_S


def _network(peer: str) -> str:
    """The peer that a limit counts for: an IPv4 address, or the /64 that one IPv6 host commonly has for itself."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    return peer if address.version == 4 else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
