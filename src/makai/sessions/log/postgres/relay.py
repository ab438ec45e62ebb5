"""Requests to nodes that cannot be reached over the network, and their answers. A request that was taken has no node
any more, so that it is taken once; the database's clock decides which ones are too old."""

from __future__ import annotations

from typing import Final

from makai.core.errors import Overloaded
from makai.sessions.log.postgres.connecting import Connection
from makai.sessions.log.postgres.rows import fetch

MAX_WAITING: Final = 100
"""Requests that wait for one node."""
_TAKEN: Final = ""

_PUT: Final = f"""
INSERT INTO relayed_request (request_id, node_id, frame, expires_at)
SELECT %(request_id)s, %(node_id)s, %(frame)s, clock_timestamp() + make_interval(secs => %(valid_s)s)
WHERE (SELECT count(*) FROM relayed_request WHERE node_id = %(node_id)s AND answer IS NULL) < {MAX_WAITING}
RETURNING request_id
"""
_TAKE: Final = """
WITH chosen AS MATERIALIZED (
    SELECT request_id FROM relayed_request
    WHERE node_id = %(me)s AND answer IS NULL AND expires_at > clock_timestamp()
    ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE relayed_request AS r SET node_id = %(taken)s FROM chosen WHERE r.request_id = chosen.request_id
RETURNING r.request_id, r.frame
"""
# A node that died leaves requests and answers behind: they go a while after no one can wait for them any more.
_CLEAN: Final = "DELETE FROM relayed_request WHERE expires_at < clock_timestamp() - interval '1 minute'"


async def put(connection: Connection, request_id: str, node_id: str, frame: bytes, valid_s: float) -> None:
    values = {"request_id": request_id, "node_id": node_id, "frame": frame, "valid_s": valid_s}
    if not await fetch(connection, _PUT, values):
        raise Overloaded(f"{MAX_WAITING} requests wait for the node that has the session.", hint="Try again later.")


async def take(connection: Connection, node_id: str, limit: int) -> list[tuple[str, bytes]]:
    await fetch(connection, _CLEAN)
    found = await fetch(connection, _TAKE, {"me": node_id, "limit": limit, "taken": _TAKEN})
    return [(request_id, bytes(frame)) for request_id, frame in found]


async def put_answer(connection: Connection, request_id: str, answer: bytes) -> None:
    await fetch(connection, "UPDATE relayed_request SET answer = %s WHERE request_id = %s", (answer, request_id))


async def answer(connection: Connection, request_id: str) -> bytes | None:
    found = await fetch(connection, "SELECT answer FROM relayed_request WHERE request_id = %s", (request_id,))
    return bytes(found[0][0]) if found and found[0][0] is not None else None


async def withdraw(connection: Connection, request_id: str) -> bool:
    removed = await fetch(
        connection, "DELETE FROM relayed_request WHERE request_id = %s RETURNING node_id", (request_id,)
    )
    return bool(removed) and removed[0][0] != _TAKEN
