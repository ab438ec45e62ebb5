"""The statement that appends to many sessions at once, and those that find out what became of it.

It moves a session's `last` only where `last` and `generation` are the expected ones, and inserts only the events of the
sessions that it moved. `writer` says when they are sent.
"""

from __future__ import annotations

from typing import Final

_WANTED: Final = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(
        %(numbers)s::bigint[], %(keys)s::bigint[], %(ids)s::text[], %(expected)s::bigint[], %(generations)s::bigint[],
        %(lasts)s::bigint[], %(actives)s::bool[], %(updated)s::bigint[], %(waiting)s::bigint[], %(cwds)s::text[],
        %(archived)s::bool[], %(projections)s::bytea[], %(checksums)s::bigint[]
    ) AS w (
        number, session_key, session_id, expected, generation,
        last, is_active, updated_ms, waiting, cwd, archived, projection, checksum
    )
),
"""
# The rows are found, and so locked, in the order of their keys, as in every statement that locks several sessions. The
# generation is compared in the row that is changed: under READ COMMITTED, only that row is read again after a wait for
# its lock.
_MOVED: Final = """
moved AS (
    UPDATE session AS s SET
        last = w.last, is_active = w.is_active, updated_ms = w.updated_ms, waiting = w.waiting, cwd = w.cwd,
        archived = w.archived, projection = w.projection, checksum = w.checksum
    FROM wanted AS w
    WHERE s.session_key = ANY(%(keys)s::bigint[]) AND w.session_key = s.session_key
        AND s.last = w.expected AND s.generation = w.generation
    RETURNING w.number, s.session_key
),
"""
# A node that is no more creates no session. The lock makes a transaction that removes the node wait for this one.
_CREATED: Final = """
me AS MATERIALIZED (
    SELECT node_id FROM node WHERE node_id = %(node_id)s AND expires_at > clock_timestamp() FOR KEY SHARE
),
created AS (
    INSERT INTO session (
        session_id, last, generation, owner, place, is_active, updated_ms, waiting, cwd, archived, projection, checksum
    )
    SELECT
        w.session_id, w.last, w.generation, me.node_id, CASE WHEN w.cwd IS NOT NULL THEN %(place)s END, w.is_active,
        w.updated_ms, w.waiting, w.cwd, w.archived, w.projection, w.checksum
    FROM wanted AS w CROSS JOIN me WHERE w.session_key = 0 ORDER BY w.session_id
    ON CONFLICT (session_id) DO NOTHING
    RETURNING session_id, session_key
),
"""
_GRANTED: Final = """
granted AS (
    INSERT INTO permission_grant (folder, rule, data, checksum)
    SELECT DISTINCT ON (g.folder, g.rule) g.folder, g.rule, g.data, g.checksum
    FROM done JOIN unnest(
        %(grant_numbers)s::bigint[], %(folders)s::text[], %(rules)s::text[], %(grants)s::bytea[],
        %(grant_checksums)s::bigint[]
    ) AS g (number, folder, rule, data, checksum) USING (number)
    ORDER BY g.folder, g.rule, g.number DESC
    ON CONFLICT (folder, rule) DO UPDATE SET data = excluded.data, checksum = excluded.checksum
),
"""
_STORED: Final = """
stored AS (
    INSERT INTO event (session_key, event_id, checksum, is_delta, line)
    SELECT done.session_key, e.event_id, e.checksum, e.is_delta, e.line
    FROM done JOIN unnest(
        %(event_numbers)s::bigint[], %(event_ids)s::bigint[], %(event_checksums)s::bigint[], %(deltas)s::bool[],
        %(lines)s::bytea[]
    ) AS e (number, event_id, checksum, is_delta, line) USING (number)
)
SELECT number, session_key FROM done
"""
_DONE: Final = "done AS MATERIALIZED (SELECT number, session_key FROM moved{created}),"
_AND_CREATED: Final = " UNION ALL SELECT w.number, c.session_key FROM created AS c JOIN wanted AS w USING (session_id)"
APPEND: Final = {
    (has_new, has_grants): "".join(
        (
            _WANTED,
            _MOVED,
            _CREATED if has_new else "",
            _DONE.format(created=_AND_CREATED if has_new else ""),
            _GRANTED if has_grants else "",
            _STORED,
        )
    ).encode()
    for has_new in (False, True)
    for has_grants in (False, True)
}
LOOK: Final = """
SELECT session_id, session_key, last, generation, owner FROM session WHERE session_id = ANY(%s)
ORDER BY session_key FOR UPDATE
"""
CHECKSUMS: Final = """
SELECT session_key, event_id, checksum FROM event
JOIN unnest(%s::bigint[], %s::bigint[]) AS wanted (session_key, event_id) USING (session_key, event_id)
"""
