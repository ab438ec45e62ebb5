"""Search over as many sessions as a person has after years."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from support.live_sessions import desk
from support.machine import RecordMeasure, slack
from support.many_sessions import search_queries, write_sessions
from support.profiles import FAULTS
from support.serving import Site, serving

from makai.sessions.index.indexer import INDEX_NAME
from makai.sessions.requests import SearchSessions

SESSIONS = 10_000 if FAULTS else 150
BUILD_S = 900.0
MAX_S = 0.1
HELLO = "say: Hello to you.\nusage: input=5 output=4"


async def until_complete(site: Site) -> float:
    start = time.perf_counter()
    async with asyncio.timeout(BUILD_S):
        while not (await site.sessions.dispatch(SearchSessions(query="the", wait_s=30))).complete:
            pass
    return time.perf_counter() - start


async def turn_s(site: Site) -> float:
    """How long a run takes whose model answers at once."""
    client = await desk(site.sessions)
    start = time.perf_counter()
    await client.run("hi")
    return time.perf_counter() - start


@pytest.mark.alone
@pytest.mark.sqlite_file("writes the file, and measures that of the index")
@pytest.mark.scaled
@pytest.mark.timeout(1_800)
async def test_a_search_over_years_of_sessions_is_answered_at_once(
    tmp_path: Path, record_measure: RecordMeasure
) -> None:
    home = tmp_path / "makai-home"
    author = await write_sessions(home, SESSIONS, time.time_ns() // 1_000_000)
    async with serving(tmp_path, HELLO) as site:
        await turn_s(site)
        before = [await turn_s(site) for _ in range(20)]
        building = asyncio.ensure_future(until_complete(site))
        during = [await turn_s(site) for _ in range(20)]
        build_s = await building
        times: list[float] = []
        for query in search_queries(author):
            start = time.perf_counter()
            status, found = await site.ask("GET", f"/api/search?q={quote(query)}")
            times.append(time.perf_counter() - start)
            assert (status, found["complete"]) == (200, True)
        start = time.perf_counter()
        _, used = await site.ask("GET", "/api/usage?days=365")
        usage_s = time.perf_counter() - start
        start = time.perf_counter()
        assert (await site.ask("DELETE", f"/api/sessions/s-{SESSIONS // 2}"))[0] == 204
        delete_s = time.perf_counter() - start

    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    megabytes = (home / INDEX_NAME).stat().st_size / 1_000_000
    name = f"search over {SESSIONS:,} sessions"
    record_measure(f"{name}: {len(times)} queries, p50 and p95", "< 100 ms", f"{p50 * 1e3:.1f}, {p95 * 1e3:.1f} ms")
    record_measure(f"{name}: building the index", "-", f"{build_s:.1f} s, {megabytes:.0f} MB")
    record_measure(f"{name}: usage of a year", "-", f"{usage_s * 1e3:.1f} ms, {len(used['rows'])} rows")
    record_measure(f"{name}: deleting a session", "-", f"{delete_s * 1e3:.0f} ms")
    record_measure(
        f"{name}: median turn before and while it is built",
        "-",
        f"{statistics.median(before) * 1e3:.1f}, {statistics.median(during) * 1e3:.1f} ms",
    )
    assert len(times) == 50
    assert p95 < MAX_S * slack()
