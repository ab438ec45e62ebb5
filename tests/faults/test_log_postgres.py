"""The log in PostgreSQL: many appends that meet, and a server that is killed."""

from __future__ import annotations

import pytest
from support.log_events import steps
from support.machine import RecordMeasure
from support.postgres import PostgresServer, private_folder, shared_server
from support.postgres_trials import contended, opened

from makai.core.errors import StorageUnavailable
from makai.sessions.log.postgres import writer


async def test_ten_thousand_appends_of_two_nodes_to_one_session(record_measure: RecordMeasure) -> None:
    await contended(shared_server().new_schema(), 5000)
    record_measure("postgres: 10,000 appends of two nodes to one session", "0 numbers given twice", "0")


async def test_a_database_that_stays_away_is_said_and_the_log_continues_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "PATIENCE_S", 0.3)
    server = PostgresServer(private_folder(), "fsync=off").start()
    try:
        async with opened(server.url, lease_s=60) as log:
            await log.append("one", steps(1), 0)
            server.kill()
            for _ in range(2):
                with pytest.raises(StorageUnavailable, match="cannot be stored or read in PostgreSQL"):
                    await log.append("one", steps(1), 1)
            server.start()
            assert await log.append("one", steps(1), 1) == (2, 2)
    finally:
        server.remove()
