"""Which node owns which session. Every decision is one statement, by the clock of the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from makai.core.errors import SessionElsewhere, StorageUnavailable
from makai.sessions.log.base import Claim
from makai.sessions.log.nodes import Node
from makai.sessions.log.postgres.connecting import Connection
from makai.sessions.log.postgres.membership import free, lease_lost
from makai.sessions.log.postgres.rows import fetch

_ATTEMPTS: Final = 5
_FIELDS: Final = "node_id, name, address, labels, started_ms, draining"
_LIVE: Final = "expires_at > clock_timestamp()"
_MINE: Final = f"SELECT node_id, draining FROM node WHERE node_id = %(me)s AND {_LIVE} FOR KEY SHARE"
# The labels of all nodes that take sessions.
_PLACES: Final = f"SELECT unnest(labels) FROM node WHERE {_LIVE} AND NOT draining"

_CLAIM: Final = f"""
WITH me AS MATERIALIZED ({_MINE}),
places AS MATERIALIZED ({_PLACES}),
taken AS (
    UPDATE session AS s
    SET owner = %(me)s, generation = CASE WHEN s.owner = %(me)s THEN s.generation ELSE s.generation + 1 END
    FROM me
    WHERE s.session_id = %(session_id)s AND (
        s.owner = %(me)s OR (
            NOT me.draining
            AND (s.owner IS NULL OR NOT EXISTS (SELECT FROM node WHERE node_id = s.owner AND {_LIVE}))
            AND (s.place IS NULL OR s.place = ANY(%(labels)s) OR s.place NOT IN (SELECT * FROM places))
        )
    )
    RETURNING s.generation, s.place IS NULL OR s.place = ANY(%(labels)s) AS is_here, COALESCE(s.place, '') AS place
)
SELECT
    EXISTS (SELECT FROM me), COALESCE((SELECT draining FROM me), false), taken.generation, taken.is_here, taken.place,
    s.session_id,
    COALESCE(
        (SELECT node_id FROM node WHERE node_id = s.owner AND node_id <> %(me)s AND {_LIVE}),
        (SELECT node_id FROM node WHERE s.place = ANY(labels) AND node_id <> %(me)s AND NOT draining AND {_LIVE}
         ORDER BY started_ms LIMIT 1),
        (SELECT node_id FROM node WHERE (SELECT draining FROM me) AND node_id <> %(me)s AND NOT draining AND {_LIVE}
         ORDER BY started_ms LIMIT 1)
    ),
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    COALESCE(s.is_active AND s.owner IS DISTINCT FROM %(me)s, false)
FROM (SELECT) AS always LEFT JOIN taken ON true LEFT JOIN session AS s ON s.session_id = %(session_id)s
"""
_RELEASE: Final = """
UPDATE session SET owner = NULL, generation = generation + 1 WHERE session_key IN (
    SELECT session_key FROM session WHERE session_id = ANY(%s) AND owner = %s ORDER BY session_key FOR UPDATE
)
"""
_CLAIM_ABANDONED: Final = f"""
WITH me AS MATERIALIZED ({_MINE}),
places AS MATERIALIZED ({_PLACES}),
chosen AS MATERIALIZED (
    SELECT session_key FROM session
    WHERE is_active AND owner IS NULL AND EXISTS (SELECT FROM me WHERE NOT draining)
        AND (place IS NULL OR place = ANY(%(labels)s) OR place NOT IN (SELECT * FROM places))
    ORDER BY session_key LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE session AS s SET owner = %(me)s, generation = s.generation + 1
FROM chosen WHERE s.session_key = chosen.session_key AND s.owner IS NULL
RETURNING s.session_id
"""
_MISPLACED: Final = f"""
SELECT session_id FROM session
WHERE owner = %(me)s AND place IS NOT NULL AND place <> ALL(%(labels)s) AND place IN ({_PLACES})
ORDER BY session_key
"""
_OWNER: Final = (
    f"SELECT {_FIELDS} FROM node WHERE node_id = (SELECT owner FROM session WHERE session_id = %s) AND {_LIVE}"
)


async def claim(connection: Connection, node: Node, session_id: str) -> tuple[Claim, bool]:
    """Own a session; also returns whether it has a run that another node left. Raises `OwnershipLost` when this node is
    not one any more."""
    values = {"me": node.node_id, "labels": list(node.labels), "session_id": session_id}
    for _ in range(_ATTEMPTS):
        found = await fetch(connection, _CLAIM, values)
        ((is_node, draining, generation, is_here, place, known, other, now_ms, has_run),) = found
        if not is_node:
            raise lease_lost()
        if generation is not None:
            return Claim(generation, is_here, place), has_run
        if other is not None:
            message = f"Another node has the session {session_id}."
            raise SessionElsewhere(message, node_id=other, hint="Ask that node, or try again.")
        if draining:
            raise StorageUnavailable("This node is about to end, and no other one takes sessions.", hint="Try again.")
        if known is None:
            # No session that is deleted and made again gets a generation that a former one had.
            return Claim(now_ms, place=node.labels[0]), False
    raise StorageUnavailable(f"The session {session_id} changes its owner again and again.", hint="Try again.")


async def release(connection: Connection, node: Node, session_ids: Sequence[str]) -> None:
    await fetch(connection, _RELEASE, (list(session_ids), node.node_id))


async def drain(connection: Connection, node: Node) -> None:
    await fetch(connection, "UPDATE node SET draining = true WHERE node_id = %s", (node.node_id,))


async def free_abandoned(connection: Connection) -> int:
    """In two statements: the second one also sees what a node claimed just before it was removed."""
    async with connection.transaction():
        removed = await fetch(connection, f"DELETE FROM node WHERE NOT ({_LIVE}) RETURNING node_id")
        return await free(connection, [node_id for (node_id,) in removed])


async def claim_abandoned(connection: Connection, node: Node, limit: int) -> list[str]:
    values = {"me": node.node_id, "labels": list(node.labels), "limit": limit}
    return [session_id for (session_id,) in await fetch(connection, _CLAIM_ABANDONED, values)]


async def misplaced(connection: Connection, node: Node) -> list[str]:
    values = {"me": node.node_id, "labels": list(node.labels)}
    return [session_id for (session_id,) in await fetch(connection, _MISPLACED, values)]


async def live_nodes(connection: Connection) -> list[Node]:
    found = await fetch(connection, f"SELECT {_FIELDS} FROM node WHERE {_LIVE} ORDER BY name, started_ms, node_id")
    return [_node(row) for row in found]


async def find_node(connection: Connection, node_id: str) -> Node | None:
    found = await fetch(connection, f"SELECT {_FIELDS} FROM node WHERE node_id = %s AND {_LIVE}", (node_id,))
    return _node(found[0]) if found else None


async def owner(connection: Connection, session_id: str) -> Node | None:
    found = await fetch(connection, _OWNER, (session_id,))
    return _node(found[0]) if found else None


def _node(row: Sequence[Any]) -> Node:
    node_id, name, address, labels, started_ms, draining = row
    return Node(
        node_id=node_id,
        name=name,
        address=address,
        labels=tuple(labels),
        started_ms=started_ms,
        draining=draining,
    )
