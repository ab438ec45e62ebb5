"""What a store adds to `EventLog` when several processes, the nodes of a cluster, write to it.

A node has a lease, which it renews while it lives and whose end the store decides by its own clock. A session has an
owner, which is a node, and a generation, which rises whenever another node becomes the owner. The lease decides when a
session may be taken over; the generation, which every append compares in the row that it changes, decides who writes.

A session with a folder belongs to the nodes that have this folder: each node has labels, and the session that it makes
gets the first of them as its place. (Which machine has a folder is no fact of the session: it changes when files move.
So it is in the store beside the events, and not in the log.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from makai.sessions.log.base import EventLog


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one process. A process that lost its lease comes back as another node."""

    node_id: str
    """Unique per start."""
    name: str
    """The same after a restart: of the machine, or what the configuration says."""
    address: str = ""
    """`host:port` on which other nodes reach it; empty when they cannot."""
    labels: tuple[str, ...] = ()
    """Which folders it has; nodes with a label in common have the same ones."""
    started_ms: int = 0
    draining: bool = False
    """It is about to end, and takes no more sessions."""


class ClusterPart(Protocol):
    """One database of a cluster, with this process as a node in it. Each part has its own leases, and fails alone."""

    @property
    def node(self) -> Node:
        """This process, in this part."""

    @property
    def taken_over(self) -> int:
        """How many sessions with a run of an ended node this process claimed since it started, asked for or not."""

    async def find_node(self, node_id: str) -> Node | None:
        """The live node of this id; None when there is none."""

    async def release(self, session_ids: Sequence[str]) -> None:
        """Give up sessions of this node, so that the next node that is asked can claim them at once."""

    async def free_abandoned(self) -> int:
        """Take the sessions of nodes whose leases expired away from them; returns how many there were."""

    async def claim_abandoned(self, limit: int) -> list[str]:
        """Claim up to `limit` sessions that have an active run and no owner, and whose folders are here or on no live
        node; returns their ids. Two nodes never get the same."""

    async def misplaced(self) -> list[str]:
        """Sessions of this node whose folders another live node has, and this one has not."""

    async def put_relayed(self, request_id: str, node_id: str, frame: bytes, valid_s: float) -> None:
        """Leave a request for a node that cannot be reached. After `valid_s` seconds no node takes it any more. Raises
        `Overloaded` when too many wait for that node."""

    async def take_relayed(self, limit: int) -> list[tuple[str, bytes]]:
        """Take up to `limit` requests that wait for this node, as ids and frames. Each is taken once."""

    async def answer_relayed(self, request_id: str, answer: bytes) -> None:
        """Leave the answer to a request that was taken."""

    async def relayed_answer(self, request_id: str) -> bytes | None:
        """The answer to a request, once it is there."""

    async def withdraw_relayed(self, request_id: str) -> bool:
        """Remove a request. True when it was not taken, and never will be."""


class ClusterLog(EventLog, Protocol):
    """A log that several nodes write to, in one database or in several."""

    @property
    def node(self) -> Node:
        """This process, as `nodes` lists it."""

    @property
    def parts(self) -> Sequence[ClusterPart]:
        """Every database of the log."""

    @property
    def taken_over(self) -> int:
        """As of a part, in all of them."""

    def part_of(self, node_id: str) -> ClusterPart:
        """The part in which a node has, or had, this id."""

    def on_lease_lost(self, call: Callable[[Callable[[str], bool]], None]) -> Callable[[], None]:
        """Call `call` in the event loop when this node could not renew a lease in time, by its own clock: other nodes
        may own its sessions of that part by now. Its argument tells of a session id whether it is one of them. From
        then until this node has joined again, `append` and `claim` raise `OwnershipLost` for them. Returns the
        function that ends this."""

    async def nodes(self) -> list[Node]:
        """Those whose leases have not expired, by name and start; each process once."""

    async def owner(self, session_id: str) -> Node | None:
        """The live node that owns a session; None when none does."""

    async def drain(self) -> None:
        """Tell the other nodes that this one is about to end: `claim` refuses from now on."""


def process_of(node_id: str) -> str:
    """What the ids of one process have in common: it is a node of every part, and a new one after a lost lease. In a
    log of one database this is the id itself."""
    shard_and_process = node_id.split(".")
    return shard_and_process[1] if len(shard_and_process) > 1 else node_id
