"""What PostgreSQL itself can do: appends in the shape of makai's, without makai.

In: `python -m cluster.raw <url> <sessions> <batch> <events>`; the protocol on standard input and output is that of
`cluster.node`. One connection, one statement per commit: it moves the last number of every session and inserts its
events. Nothing is read back, checked or projected.
"""

from __future__ import annotations

import json
import sys
import time

import psycopg

TABLES = """
    CREATE TABLE session (session_key BIGINT PRIMARY KEY, last BIGINT NOT NULL) WITH (fillfactor = 50);
    CREATE TABLE event (session_key BIGINT, event_id BIGINT, line BYTEA NOT NULL, PRIMARY KEY (session_key, event_id));
"""
APPEND = """
    WITH moved AS (
        UPDATE session SET last = session.last + %(count)s
        FROM unnest(%(keys)b::bigint[], %(lasts)b::bigint[]) AS told (key, last)
        WHERE session.session_key = told.key AND session.last = told.last RETURNING session.session_key
    ), stored AS (
        INSERT INTO event SELECT told.key, told.number, told.line
        FROM unnest(%(event_keys)b::bigint[], %(numbers)b::bigint[], %(lines)b::bytea[]) AS told (key, number, line)
        JOIN moved ON moved.session_key = told.key
    ) SELECT count(*) FROM moved
"""
LINE = b"x" * 300


def main(url: str, sessions: int, batch: int, events: int) -> None:
    keys = [*range(1, sessions + 1)]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        connection.execute("INSERT INTO session SELECT key, 0 FROM unnest(%b::bigint[]) AS told (key)", [keys])
        print("ready", flush=True)
        sys.stdin.readline()
        cpu, began = time.process_time(), time.monotonic()
        commits = max(1, events // (sessions * batch))
        for last in range(0, commits * batch, batch):
            connection.execute(
                APPEND,
                {
                    "count": batch,
                    "keys": keys,
                    "lasts": [last] * sessions,
                    "event_keys": [key for key in keys for _ in range(batch)],
                    "numbers": [last + number for _ in keys for number in range(1, batch + 1)],
                    "lines": [LINE] * (sessions * batch),
                },
            )
        ended = time.monotonic()
        measured = {"events": commits * sessions * batch, "began": began, "ended": ended}
        print(json.dumps({**measured, "cpu_s": time.process_time() - cpu}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
