"""A page of many sessions in PostgreSQL is read along an index, which appends seldom change."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from support.log_events import NOW_MS, pending, steps
from support.postgres import shared_server
from support.postgres_trials import opened, until

from makai.core.session_events import Notice
from makai.sessions.log.base import SessionFilter
from makai.sessions.log.postgres.rows import listing

SESSIONS = 10_000
_MANY = """
INSERT INTO session (session_id, last, generation, is_active, updated_ms, waiting, cwd, archived, projection, checksum)
SELECT 'old-' || n, 1, 1, false, %s - n::bigint * 997, 0, '/work', n %% 7 = 0, 'x', 0 FROM generate_series(1, %s) AS n
"""

_UPDATES = b"""
SELECT pg_stat_get_tuples_updated(oid), pg_stat_get_tuples_hot_updated(oid)
FROM pg_class WHERE oid = 'session'::regclass
"""


@pytest.fixture
def url() -> str:
    return shared_server().new_schema()


def _steps(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(step for below in plan.get("Plans", ()) for step in _steps(below))]


@pytest.mark.parametrize(
    "wanted",
    [
        SessionFilter(limit=100),
        SessionFilter(limit=100, updated_before_ms=NOW_MS - 5_000_000, cwd="/work", archived="without"),
    ],
    ids=["newest", "next page"],
)
async def test_a_page_of_sessions_reads_a_few_of_many(url: str, wanted: SessionFilter) -> None:
    async with opened(url) as log:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_MANY.encode(), (NOW_MS, SESSIONS))
            connection.execute("ANALYZE session")
            statement, values = listing(wanted)
            explained = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}".encode(), values).fetchone()
        listed = await log.sessions(wanted)

    assert explained is not None
    steps_taken = _steps(explained[0][0]["Plan"])
    assert [step["Node Type"] for step in steps_taken] == ["Limit", "Incremental Sort", "Index Scan"]
    assert steps_taken[-1]["Index Name"] == "session_updated"
    assert steps_taken[-1]["Actual Rows"] < 500
    before = wanted.updated_before_ms or NOW_MS + 1
    numbers = [n for n in range(1, SESSIONS) if NOW_MS - n * 997 < before and (wanted.archived == "with" or n % 7)]
    assert [summary.session_id for summary in listed] == [f"old-{n}" for n in numbers[:100]]


async def test_sessions_are_listed_by_the_millisecond_and_appends_leave_the_indexes_alone(url: str) -> None:
    async with opened(url) as log:
        for number, ts in enumerate((NOW_MS, NOW_MS + 1, NOW_MS - 200_000, NOW_MS + 70_000)):
            await log.append(f"s{number}", pending(Notice(level="info", code="x", message="x"), ts=ts), 0)
        for last in range(1, 21):
            await log.append("s0", steps(1), last)
        assert [summary.session_id for summary in await log.sessions()] == ["s3", "s1", "s0", "s2"]

    async def is_counted() -> bool:  # when the connections of the log have ended
        with psycopg.connect(url, autocommit=True) as connection:
            found = connection.execute(_UPDATES).fetchone()
        return found == (24, 20)  # the end of the node takes four sessions away from it, and `owner` is in an index

    await until(is_counted)
